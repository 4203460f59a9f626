"""Are the rows of neurons at equal index alike on the whole, where none is like enough to be recognised?

A neuron is one row here, its rows of gate and of up one after the other: they are renumbered together. Of every layer
one block counts (see `neurons`), for blocks of a layer may have a common order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from modelkin.questions.exchangeability import (
    DOUBTED,
    described,
    follow_no_index,
    in_no_order,
    index_means_nothing,
    zeros,
    zeros_apart,
)
from modelkin.questions.gains import same_width
from modelkin.questions.neuron_blocks import (
    Block,
    Floats,
    blocks_at_two_depths,
    bytes_a_model,
    columns_that_fit,
    readers,
    rows_read,
)
from modelkin.questions.neurons import copied
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Null, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Readings
from modelkin.stats import PooledRows, pooled_rows, smallest_detectable_exactly, traits
from modelkin.stats.arrays import unit_rows

ID = "pooled-rows"
ROWS = 64
FEWEST_ROWS = 56  # 28 fair coins: fewer cannot reach a twentieth of 1e-6 whatever they show
WEIGHT = 0.05
STANDARD_BYTES = 8_400_000  # of the 64 MB a model that all questions together may read
ALPHA = 1e-6 * WEIGHT
POWER = 0.99


@dataclass(frozen=True, eq=False)
class Layer:
    """Neurons of a facing pair of layers: gate and up joined, (n, p) each, and the rows of each as they are."""

    names: tuple[str, str]
    a: Floats
    b: Floats
    parts: tuple[tuple[Floats, Floats], ...]

    @property
    def plain(self) -> tuple[Floats, Floats]:
        return self.parts[0]


def cuts(pair: Pair) -> Cuts:
    """64 rows, the same everywhere, of gate and up at two depths.

    Where that is too dear, of one of them; and where even that is, by some hidden axes only.
    """
    same_width(pair.a.facts.hidden, pair.b.facts.hidden)
    blocks = blocks_at_two_depths(facing(pair.a.layers, pair.b.layers), readers(pair.a), readers(pair.b))
    wanted = [slots for layer in blocks.values() for slots in layer[0]]
    one = [layer[0][-1] for layer in blocks.values()]
    if not wanted:
        raise CannotAsk("the models share no gate or up projection in facing layers")
    size = min(min(pair.a.shape(a)[0], pair.b.shape(b)[0]) for a, b in wanted)
    rows = min(ROWS, size)
    if rows * len(blocks) < FEWEST_ROWS:
        raise CannotAsk(f"there are {rows * len(blocks)} neurons to compare; {FEWEST_ROWS} are needed")
    start = offset(pair.seed, "neurons", size, rows)
    for slots in (wanted, one):
        plan = _cuts(slots, start, start + rows, None)
        if bytes_a_model(pair, plan) <= STANDARD_BYTES:
            return plan
    columns = columns_that_fit(pair, tuple(wanted), STANDARD_BYTES, pair.a.facts.hidden or 0)
    if columns is None:
        raise CannotAsk(f"{rows} neurons cost more than {STANDARD_BYTES // 1_000_000} MB as the matrices are stored")
    return _cuts(wanted, start, start + rows, columns)


def _cuts(wanted: Sequence[tuple[Slot, Slot]], start: int, stop: int, columns: tuple[int, int] | None) -> Cuts:
    return [Cut(a, start, stop, columns=columns) for a, _ in wanted], [
        Cut(b, start, stop, columns=columns) for _, b in wanted
    ]


def answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    same_width(a.portrait.hidden, b.portrait.hidden)
    read = _layers(a, b)
    layers, assumptions = _apart(read, rng)
    found = pooled_rows([(layer.a, layer.b) for layer in layers], rng)
    # The e-value convicts; what a reader sees beside the observed mean is the same mean of rows in any other order.
    test = msgspec.structs.replace(found.significance, null=_pictured(found))
    if test.n < FEWEST_ROWS:
        raise CannotAsk(f"only {test.n} neurons can be told apart; {FEWEST_ROWS} are needed")
    assumptions += (
        in_no_order([layer.plain[0] for layer in layers], [layer.plain[1] for layer in layers], rng),
        index_means_nothing([layer.a for layer in read], [layer.b for layer in read], rng),
        *zeros_apart(zeros(*part) for layer in layers for part in layer.parts),
        Assumption(f"for comparison only: z = {found.z:.1f} against the same rows in any other order"),
    )
    if test.log10_pvalue <= DOUBTED:
        a_rows, b_rows = ([traits([part[i] for part in layer.parts]) for layer in layers] for i in (0, 1))
        assumptions += (follow_no_index(a_rows, b_rows, rng),)
    return weighed(
        ID,
        "neurons",
        test,
        assumptions,
        statistic=found.correlation,
        effect=found.correlation,
        detectable=_detectable(found),
        observed=f"mean correlation {found.correlation:.3f} of {test.n:,} rows",
        strangers=f"{found.expected:.3f} ± {_spread(found):.3f}",
        per_layer=tuple(_finding(layer) for layer in layers),
    )


def _pictured(found: PooledRows) -> Null:
    return Null(found.significance.null.text, found.drawn.null.sample)


def _layers(a: Readings, b: Readings) -> list[Layer]:
    span = _span(a, b)
    mine, theirs = (rows_read(_only(side, span)) for side in (a, b))
    beside = facing(a.portrait.layers, b.portrait.layers)
    found = blocks_at_two_depths(beside, mine, theirs)
    return [_layer(names, blocks[0], mine, theirs) for names, blocks in found.items()]


def _layer(names: tuple[str, str], block: Block, mine: dict[Slot, Floats], theirs: dict[Slot, Floats]) -> Layer:
    parts = tuple((mine[a], theirs[b]) for a, b in block)
    return Layer(names, _joined(block, mine, 0), _joined(block, theirs, 1), parts)


def _span(a: Readings, b: Readings) -> tuple[int, int]:
    """Which rows: of what other questions may have read too, the widest block that is no wider than ours."""
    mine, theirs = ({(cut.start or 0, cut.stop or 0) for cut in side.arrays} for side in (a, b))
    spans = [(start, stop) for start, stop in mine & theirs if 0 < stop - start <= ROWS]
    if not spans:
        raise CannotAsk("no rows of the same neurons were read of both models")
    return min(spans, key=lambda span: (span[0] - span[1], span))


def _only(readings: Readings, span: tuple[int, int]) -> Readings:
    kept = {cut: rows for cut, rows in readings.arrays.items() if (cut.start, cut.stop) == span}
    return Readings(readings.portrait, kept)


def _joined(block: Block, rows: dict[Slot, Floats], side: int) -> Floats:
    """Gate and up one after the other, each row of each of length one.  -> (neurons, hidden or twice that)."""
    return described([rows[slots[side]] for slots in block])


def _apart(layers: list[Layer], rng: np.random.Generator) -> tuple[list[Layer], tuple[Assumption, ...]]:
    """The layers that may be renumbered independently: of two that are copies in both models, one."""
    if not layers:
        raise CannotAsk("the models share no gate or up projection in facing layers")
    if len(layers) == 2 and copied(layers[0].plain, layers[1].plain, rng):
        text = "the two layers are copies of each other in both models: only one counts"
        return layers[:1], (Assumption(text),)
    return layers, ()


def _spread(found: PooledRows) -> float:
    return abs((found.correlation - found.expected) / found.z) if found.z else 0.0


def _detectable(found: PooledRows) -> float | None:
    if found.effective_width <= 0:
        return None
    value = smallest_detectable_exactly(found.significance.n, found.effective_width, ALPHA, POWER)
    return value if math.isfinite(value) else None


def _finding(layer: Layer) -> LayerFinding:
    likeness = np.einsum("ij,ij->i", unit_rows(layer.a), unit_rows(layer.b))
    mean = float(likeness.mean())
    return LayerFinding(*layer.names, statistic=mean, n=len(likeness), effect=mean)


POOLED = Question(
    id=ID,
    asks="Are the rows of neurons at equal index alike on the whole?",
    index_set="neurons",
    stage=4,
    weight=WEIGHT,
    null="the neurons of a layer may be numbered in any order: exchanging two of them turns a sign like a fair coin",
    cuts=cuts,
    answer=answer,
)
