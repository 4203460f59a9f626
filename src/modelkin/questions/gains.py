"""Do the hidden axes know each other by the gains and biases on the residual stream?"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from modelkin.architectures import Anatomy
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Portrait, Role, Slot
from modelkin.sampling.facing import Facing, facing
from modelkin.sampling.readings import Readings, bytes_of, kept_bytes
from modelkin.stats import hidden_autocorrelation, hidden_axes, pair_swap_axes
from modelkin.stats.arrays import unit_rows

ID = "hidden-axes-by-gains"
QUICK_VECTORS, QUICK_BYTES = 24, 450_000  # neurons must fit into 1 MB with them
FEWEST_AXES = 8
CHECK_VECTORS, CHECK_DRAWS = 12, 1999  # enough to see p < 1e-3; every draw costs, where p is small
ALARM = 1e-3
IN_LAYERS = (
    Role.INPUT_NORM,
    Role.POST_NORM,
    Role.CROSS_NORM,
    Role.ATTN_OUT_NORM,
    Role.MLP_OUT_NORM,
    Role.CROSS_OUT_NORM,
    Role.INPUT_NORM_BIAS,
    Role.POST_NORM_BIAS,
    Role.CROSS_NORM_BIAS,
    Role.ATTN_OUT_NORM_BIAS,
    Role.MLP_OUT_NORM_BIAS,
    Role.CROSS_OUT_NORM_BIAS,
    Role.O_BIAS,
    Role.CROSS_O_BIAS,
    Role.DOWN_BIAS,
)
OUTSIDE = (Role.EMBEDDING_NORM, Role.FINAL_NORM, Role.EMBEDDING_NORM_BIAS, Role.FINAL_NORM_BIAS)

Floats = NDArray[np.float32]
Slots = tuple[Slot, Slot]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Row l of `a` and of `b`, each (vectors, d), plays one part; `layers[l]` says where, None outside the layers.

    `strange` were left out because they hold values that are not finite, `flat` because they are constant.
    """

    layers: tuple[tuple[str, str] | None, ...]
    a: Floats
    b: Floats
    strange: int
    flat: int


def cuts(pair: Pair) -> Cuts:
    """What both have in facing layers: at most 24 vectors at fixed relative depths, at every budget.

    The record keeps them all for `verify`, and hundreds of long vectors would be most of it.
    """
    same_width(pair.a.facts.hidden, pair.b.facts.hidden)
    mine, theirs = _on_the_stream(pair.a), _on_the_stream(pair.b)
    beside = facing(pair.a.layers, pair.b.layers)
    outside = _outside(beside, mine, theirs)
    layers = [shared for names in beside if (shared := _in_layer(names, mine, theirs))]
    if layers:
        most = _quick_vectors(pair, [slots for shared in layers for slots in shared])
        layers = evenly(layers, max(1, (most - len(outside)) // max(map(len, layers))))
    chosen = [slots for shared in layers for slots in shared] + outside
    if not chosen:
        raise CannotAsk("the models share no gain or bias on the residual stream")
    return [Cut(a) for a, _ in chosen], [Cut(b) for _, b in chosen]


def _quick_vectors(pair: Pair, shared: list[Slots]) -> int:
    vectors = [(side, [Cut(slot)]) for slots in shared for side, slot in zip((pair.a, pair.b), slots, strict=True)]
    dearest = max(max(bytes_of(*vector), kept_bytes(*vector)) for vector in vectors)
    return min(QUICK_VECTORS, QUICK_BYTES // max(1, dearest))


def answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    same_width(a.portrait.hidden, b.portrait.hidden)
    vectors = _vectors(a, b)
    if not vectors.layers:
        raise CannotAsk(_why_none(vectors))
    call = hidden_axes(vectors.a, vectors.b, rng)
    if call.n < FEWEST_AXES:
        raise CannotAsk(f"too few hidden axes can be told apart by their gains: {call.n}")
    swap = pair_swap_axes(vectors.a, vectors.b, rng)
    assumptions = (
        *hidden_assumptions(a.portrait, b.portrait, vectors.a, vectors.b, rng),
        *_offsets(a.portrait, b.portrait),
        Assumption(f"for comparison only: the pair-swap e-value is 10^{swap.statistic:.1f}"),
        *_left_out(vectors, call.dropped),
    )
    return weighed(
        ID,
        "hidden axes",
        call.significance,
        assumptions,
        effect=call.fixed / call.n,
        observed=f"{call.fixed:,} of {call.n:,} hidden axes found themselves",
        strangers=f"1 of {call.n:,} on average",
        per_layer=_per_layer(vectors),
    )


def same_width(a: int | None, b: int | None) -> None:
    """Hidden axes, and whatever reads them, stand beside each other only where there are equally many."""
    if a is None or b is None:
        raise CannotAsk("the width of a model is not known")
    if a != b:
        raise CannotAsk(f"the models have different widths, {a} and {b}")


def hidden_assumptions(
    a: Portrait, b: Portrait, vectors_a: ArrayLike, vectors_b: ArrayLike, rng: np.random.Generator
) -> tuple[Assumption, ...]:
    """That the hidden axes may be renumbered: what the families say, and what the vectors (vectors, d) show."""
    said = [Assumption(f"{who}, {it.family}: {it.why}", it.exchangeable_hidden) for who, it in (("A", a), ("B", b))]
    return (*said, _unordered("A", vectors_a, rng), _unordered("B", vectors_b, rng))


def _unordered(who: str, vectors: ArrayLike, rng: np.random.Generator) -> Assumption:
    found = hidden_autocorrelation(evenly(list(np.asarray(vectors)), CHECK_VECTORS), rng, CHECK_DRAWS)
    text = f"{who}: hidden axes stand in any order (largest rank autocorrelation at several lags {found.statistic:.3f}"
    return Assumption(f"{text}, p = {found.pvalue:.2g})", found.pvalue >= ALARM)


def evenly(items: list[T], most: int) -> list[T]:
    """Of more than `most`, as many at even distances, first and last among them."""
    names = [str(i) for i in range(len(items))]
    return [items[int(i)] for i, _ in facing(names, names, most)]


def _on_the_stream(anatomy: Anatomy) -> set[Slot]:
    roles = {*IN_LAYERS, *OUTSIDE}
    width = (anatomy.facts.hidden,)
    return {slot for slot in anatomy.slots if slot.role in roles and anatomy.shape(slot) == width}


def _in_layer(names: tuple[str, str], mine: Container[Slot], theirs: Container[Slot]) -> list[Slots]:
    pairs = ((_slot(role, names[0]), _slot(role, names[1])) for role in IN_LAYERS)
    return [(a, b) for a, b in pairs if a in mine and b in theirs]


def _outside(beside: Facing, mine: Container[Slot], theirs: Container[Slot]) -> list[Slots]:
    """Before and after the layers: stacks that face each other, and what belongs to no stack."""
    stacks = dict.fromkeys([*((a.rpartition(".")[0], b.rpartition(".")[0]) for a, b in beside), ("", "")])
    pairs = ((Slot(role, stack=a), Slot(role, stack=b)) for a, b in stacks for role in OUTSIDE)
    return [(a, b) for a, b in pairs if a in mine and b in theirs]


def _slot(role: Role, name: str) -> Slot:
    stack, _, layer = name.rpartition(".")
    return Slot(role, layer=int(layer), stack=stack)


def _vectors(a: Readings, b: Readings) -> Vectors:
    mine, theirs = _read_whole(a), _read_whole(b)
    beside = facing(a.portrait.layers, b.portrait.layers)
    found: list[tuple[tuple[str, str] | None, Slots]] = [(None, slots) for slots in _outside(beside, mine, theirs)]
    found += [(names, slots) for names in beside for slots in _in_layer(names, mine, theirs)]
    finite = [(names, mine[x], theirs[y]) for names, (x, y) in found if _finite(mine[x]) and _finite(theirs[y])]
    clear = [(names, x, y) for names, x, y in finite if np.ptp(x) > 0 and np.ptp(y) > 0]
    return Vectors(
        layers=tuple(names for names, _, _ in clear),
        a=np.array([x for _, x, _ in clear], dtype=np.float32),
        b=np.array([y for _, _, y in clear], dtype=np.float32),
        strange=len(found) - len(finite),
        flat=len(finite) - len(clear),
    )


def _read_whole(readings: Readings) -> dict[Slot, Floats]:
    width = (readings.portrait.hidden,)
    return {cut.slot: array for cut, array in readings.arrays.items() if array.shape == width}


def _finite(array: Floats) -> bool:
    return bool(np.all(np.isfinite(array)))


def _why_none(vectors: Vectors) -> str:
    if vectors.flat:
        return "the gains and biases that both have are constant in one of them: folded away, or never trained"
    if vectors.strange:
        return "every gain and bias that both have holds values that are not finite"
    return "the models share no gain or bias on the residual stream"


def _offsets(a: Portrait, b: Portrait) -> list[Assumption]:
    """Only ranks are used, so an offset that nobody knows is stated and does no harm."""
    text = "is not known what the model adds to its stored gains; only their ranks count here"
    return [Assumption(f"{who}: it {text}") for who, it in (("A", a), ("B", b)) if it.gain_offset is None]


def _left_out(vectors: Vectors, dropped: int) -> list[Assumption]:
    counts = (
        (vectors.strange, "vectors left out: they hold values that are not finite"),
        (vectors.flat, "vectors left out: they are constant"),
        (dropped, "hidden axes left out: another axis has the same values"),
    )
    return [Assumption(f"{count} {text}") for count, text in counts if count]


def _per_layer(vectors: Vectors) -> tuple[LayerFinding, ...]:
    """The mean correlation of the vectors of each pair of layers: to look at, not to judge by."""
    found: dict[tuple[str, str], list[float]] = {}
    for names, a, b in zip(vectors.layers, vectors.a, vectors.b, strict=True):
        if names is not None:
            found.setdefault(names, []).append(float(unit_rows(_double(a))[0] @ unit_rows(_double(b))[0]))
    width = vectors.a.shape[1]
    means = {names: float(np.mean(values)) for names, values in found.items()}
    return tuple(LayerFinding(*names, statistic=mean, n=width, effect=mean) for names, mean in means.items())


def _double(vector: Floats) -> NDArray[np.float64]:
    return vector[None, :].astype(np.float64)


GAINS = Question(
    id=ID,
    asks="Do the hidden axes know each other by the gains and biases on the residual stream?",
    index_set="hidden axes",
    stage=1,
    weight=0.20,
    null="the hidden axes of one model may be numbered in any order: one of them finds itself on average",
    cuts=cuts,
    answer=answer,
)
