"""Small GPT-2 models trained apart: what their gains have in common is where they started."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import modelkin
from modelkin import __version__
from modelkin.metrics import Undefined, cosine_similarity, pair_moments
from modelkin.records.survey import Study, Table, Value
from modelkin.reference.published import chosen
from modelkin.studies import Settings
from modelkin.studies.columns import numbers
from modelkin.studies.toy_gpt2 import LENGTH, VOCABULARY, Batch, Floats, Size, Trained, torch_module, train

FULL = Size(layers=12, heads=8, width=512, steps=300)
SMALL = Size(layers=4, heads=4, width=128, steps=120)
ONES, RANDOM = "ones", "random"
SEEDS = {ONES: (10, 20), RANDOM: (30, 40)}
STRIDES = {10: 3, 20: 5, 30: 7, 40: 11}  # of the arithmetic sequence that a model learns; all differ
WEIGHT_DECAY = 0.1
TEXTS_AT_ONCE = 2
PUBLISHED_INIT = {ONES: "ones", RANDOM: "rand"}


@dataclass(frozen=True, slots=True)
class Setting:
    """Two models are trained in each: from two seeds, on two different streams of one kind."""

    stream: str
    init: str
    weight_decay: float


@dataclass(frozen=True, slots=True)
class Couple:
    setting: Setting
    seeds: tuple[int, int]
    a: Trained
    b: Trained


SETTINGS = (
    *(Setting("arithmetic", init, decay) for decay in (0.0, WEIGHT_DECAY) for init in SEEDS),
    *(Setting("text", init, 0.0) for init in SEEDS),
)


def study(settings: Settings) -> Study:
    began = time.perf_counter()
    size = SMALL if settings.small else FULL
    threads, torch = 0, torch_module()
    if settings.small:  # so small that threads would only wait for each other
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        couples = [_couple(setting, size, settings.seed) for setting in SETTINGS]
    finally:
        if threads:
            torch.set_num_threads(threads)
    layers = _layer_table(couples, size)
    ranges = _range_table(layers)
    return Study(
        modelkin=__version__,
        name="init-toy",
        title="What gains keep of their start: four small models trained apart",
        text=_text(size, layers, ranges),
        seed=settings.seed,
        tables=(layers, ranges, _loss_table(couples)),
        seconds=time.perf_counter() - began,
    )


def arithmetic(seed: int) -> Batch:
    """One arithmetic sequence modulo the vocabulary, the same at every step.

    Published was a batch of equal sequences; without dropout its gradient is that of one.
    """
    tokens = (seed + STRIDES[seed] * np.arange(LENGTH + 1)) % VOCABULARY
    return lambda _step: tokens[None].astype(np.int64)


def text(seed: int, base: int) -> Batch:
    """Pieces of this package's own source: its first half for the first seed of a couple, its second for the other."""
    root = Path(modelkin.__file__).parent
    whole = np.frombuffer(b"".join(path.read_bytes() for path in sorted(root.rglob("*.py"))), np.uint8)
    half = whole.size // 2
    second = any(seed == later for _, later in SEEDS.values())
    mine: NDArray[np.uint8] = whole[half:] if second else whole[:half]

    def batch(step: int) -> NDArray[np.int64]:
        starts = np.random.default_rng([base, seed, step]).integers(mine.size - LENGTH, size=TEXTS_AT_ONCE)
        return np.asarray(mine[starts[:, None] + np.arange(LENGTH + 1)], dtype=np.int64)

    return batch


def _couple(setting: Setting, size: Size, base: int) -> Couple:
    def trained(seed: int) -> Trained:
        batch = arithmetic(seed) if setting.stream == "arithmetic" else text(seed, base)
        return train(
            size,
            batch,
            seed=1000 * base + seed,
            random_gains=setting.init == RANDOM,
            weight_decay=setting.weight_decay,
        )

    first, second = SEEDS[setting.init]
    return Couple(setting, (first, second), trained(first), trained(second))


def _layer_table(couples: list[Couple], size: Size) -> Table:
    rows = tuple(row for couple in couples for row in _layer_rows(couple))
    return Table(
        name="layers",
        title="Gains of models trained apart, layer by layer",
        caption=f"{len(couples)} couples of GPT-2 models with {size.layers} layers, {size.width} wide, trained for "
        f"{size.steps} steps from different seeds on different data, with gains that start at one or at random, and "
        f"with weight decay 0 or {WEIGHT_DECAY:g}. `start_kept` is the cosine of a's gains with what they were before.",
        strangers="the cosine that means and spreads alone give, Pearson 0 ± 1/sqrt(n − 1); all couples here are such",
        columns=(
            "stream",
            "init",
            "weight_decay",
            "norm",
            "layer",
            "n",
            "cosine",
            "expected_cosine",
            "pearson",
            "pearson_std",
            "cosine_at_start",
            "start_kept",
            "mean_a",
            "std_a",
            "mean_b",
            "std_b",
        ),
        rows=rows,
    )


def _layer_rows(couple: Couple) -> Iterator[tuple[Value, ...]]:
    setting = couple.setting
    for (norm, layer), a in sorted(couple.a.gains.items()):
        b = couple.b.gains[norm, layer]
        before, after = couple.a.start[norm, layer], couple.b.start[norm, layer]
        moments = pair_moments(a, b)
        yield (
            setting.stream,
            setting.init,
            setting.weight_decay,
            norm,
            layer,
            a.size,
            moments.parts().cosine,
            moments.parts().from_means,
            _pearson(a, b),
            1 / math.sqrt(a.size - 1),
            cosine_similarity(before, after),
            cosine_similarity(before, a),
            moments.mean_a,
            math.sqrt(moments.var_a),
            moments.mean_b,
            math.sqrt(moments.var_b),
        )


def _pearson(a: Floats, b: Floats) -> float | None:
    try:
        return pair_moments(a, b).pearson
    except Undefined:  # gains that nothing has moved
        return None


def _range_table(layers: Table) -> Table:
    rows: list[tuple[Value, ...]] = []
    for setting in SETTINGS:
        where: dict[str, Value] = {"stream": setting.stream, "init": setting.init, "weight_decay": setting.weight_decay}
        for quantity in ("cosine", "pearson"):
            rows.append(("here", *where.values(), quantity, *_range(numbers(layers, quantity, **where))))
    for init, name in PUBLISHED_INIT.items():
        values = [float(row["value"]) for row in chosen("toy_gpt2_init_cosine", init=name, quantity="cosine")]
        rows.append(("published", "arithmetic", init, 0.0, "cosine", *_range(values)))
    return Table(
        name="ranges",
        title="From the least to the most alike layer",
        caption="Over both norms of all layers, here and as published for 12 layers 512 wide (cosines only).",
        strangers="a correlation over n channels is 0 ± 1/sqrt(n − 1); all couples here are such",
        columns=("source", "stream", "init", "weight_decay", "quantity", "least", "mean", "most"),
        rows=tuple(rows),
    )


def _range(values: list[float]) -> tuple[Value, Value, Value]:
    return (min(values), float(np.mean(values)), max(values)) if values else (None, None, None)


def _loss_table(couples: list[Couple]) -> Table:
    rows = tuple(
        (setting.stream, setting.init, setting.weight_decay, seed, model.first_loss, model.last_loss)
        for couple in couples
        for setting in (couple.setting,)
        for seed, model in zip(couple.seeds, (couple.a, couple.b), strict=True)
    )
    return Table(
        name="losses",
        title="That the models did learn",
        caption=f"Cross entropy in nats at the first and last step; guessing among {VOCABULARY} tokens costs "
        f"{math.log(VOCABULARY):.2f}.",
        strangers="about one model each; says nothing of likeness",
        columns=("stream", "init", "weight_decay", "seed", "first_loss", "last_loss"),
        rows=rows,
    )


def _text(size: Size, layers: Table, ranges: Table) -> str:
    def span(quantity: str, init: str, source: str = "here") -> str:
        least, most = (numbers(ranges, name, source=source, init=init, quantity=quantity) for name in ("least", "most"))
        return f"{min(least):.5f} to {max(most):.5f}" if min(least) > 0.9 else f"{min(least):.2f} to {max(most):.2f}"

    kept = numbers(layers, "start_kept", init=RANDOM)
    chance = numbers(layers, "pearson_std")[0]
    without, decayed = (numbers(layers, "cosine", stream="arithmetic", weight_decay=it) for it in (0.0, WEIGHT_DECAY))
    moved = max(abs(a - b) for a, b in zip(without, decayed, strict=True))
    return (
        f"Small GPT-2 models ({size.layers} layers, {size.width} wide, {size.steps} steps) are trained apart, from "
        "different random seeds, on different data. They are strangers. Where all gains start at one, as they do in "
        f"practice, the cosine of two strangers' gains is {span('cosine', ONES)} in every layer (published "
        f"{span('cosine', ONES, 'published')}). Where gains start at random it is {span('cosine', RANDOM)} (published "
        f"{span('cosine', RANDOM, 'published')}). So a high cosine tells where the gains started, which is the same "
        f"place for nearly all models. Pearson's r, which does not see the common start, is {span('pearson', ONES)} "
        f"and {span('pearson', RANDOM)}; between strangers it is 0 ± {chance:.2f} at this width.\n\n"
        f"Weight decay, which pulls all gains towards zero, changes no cosine by more than {_up(moved, 5)}; the ranges "
        "above are over couples with and without it, and over number sequences and text (the source of this program). "
        f"Random gains stay where they began: their cosine with their own start is at least {-_up(-min(kept), 4)}. "
        "So short a training moves gains little; in large models they leave one altogether, and the cosine is then "
        "ruled by the ratio of their mean to their spread (see the study cosine-bias)."
    )


def _up(value: float, digits: int) -> Decimal:
    """Rounded so that `no more than` stays true."""
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING)
