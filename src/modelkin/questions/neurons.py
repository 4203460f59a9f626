"""Do the neurons of the MLP know each other by the rows that read the residual stream?

A block is the MLP of a layer, one of its experts, or its shared expert. Blocks of two facing layers are compared one
by one: dense beside dense, expert 0 beside 0 and 1 beside 1, a dense MLP beside experts 0 and 1 (a copy of it may
stand in each), shared beside shared. The counts of one comparison a layer add up over the layers, which are renumbered
apart. Those of several blocks inside a layer do not: the neurons of a dense MLP are one and the same set beside every
expert, and experts that were copied from one MLP have one common order. So the best of them counts, times their number;
that holds under any dependence.

What is read, with the gains, stays within QUICK_BYTES a model: 16 neurons by all hidden axes; and where the matrices
of both models are stored transposed, so that a neuron would cost the whole matrix, all neurons by a few hidden axes.
The law is the same, for it does not matter by what a neuron is recognised. So many are called in sets of neighbours:
neurons that may stand in any order in the layer may do so in each set, whichever neurons it holds, apart from the
other sets, so that the counts of the sets of one layer add up like those of layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelkin.questions.exchangeability import (
    DOUBTED,
    described,
    follow_no_index,
    in_no_order,
    index_means_nothing,
    most_found,
    zeros,
    zeros_apart,
)
from modelkin.questions.gains import ALARM, same_width
from modelkin.questions.gains import cuts as gain_cuts
from modelkin.questions.neuron_blocks import (
    Block,
    Floats,
    Names,
    blocks_at_two_depths,
    bytes_a_model,
    columns_that_fit,
    readers,
    rows_read,
)
from modelkin.questions.power import detectable_by_roll_call
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Significance
from modelkin.sampling.facing import facing
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Readings, kept_bytes
from modelkin.stats import RollCall, better_of, over_layers, pooled_rows, roll_call, traits
from modelkin.stats.arrays import unit_rows

ID = "neurons"
ROWS = 16
FEWEST_ROWS = 8
WEIGHT = 0.30  # with every-neuron, the MLP neurons have .40
ALPHA = 1e-6 * WEIGHT
WIDE = 8192  # beyond it one projection has to do
QUICK_BYTES = 1_000_000  # of a model's tensors, gains and neurons together
SET = 256  # neurons that are called together at most: smaller sets find fainter likeness
ROWS_BY_COLUMNS = 16384  # neurons, where few hidden axes describe each
MOST_COLUMNS, FEWEST_COLUMNS = 64, 8


@dataclass(frozen=True, eq=False)
class Call:
    """One projection of one block, or a set of its neurons, of a and of b (rows, hidden): who found whom.

    `place` is the same in every layer.
    """

    names: Names
    place: tuple[int, int]
    a: Floats
    b: Floats
    rows: RollCall


@dataclass(frozen=True, eq=False)
class Track:
    """One projection of one block in each layer, all layers taken together."""

    calls: tuple[Call, ...]
    significance: Significance

    @property
    def fixed(self) -> int:
        return sum(call.rows.fixed for call in self.calls)

    @property
    def n(self) -> int:
        return sum(call.rows.n for call in self.calls)


def cuts(pair: Pair) -> Cuts:
    """16 rows, the same everywhere, of gate and up at two depths; or what comes nearest to that and fits."""
    same_width(pair.a.facts.hidden, pair.b.facts.hidden)
    blocks = blocks_at_two_depths(facing(pair.a.layers, pair.b.layers), readers(pair.a), readers(pair.b))
    if not blocks:
        raise CannotAsk("the models share no gate or up projection in facing layers")
    layers = [[_affordable(block, pair) for block in layer] for layer in blocks.values()]
    size = min(min(pair.a.shape(a)[0], pair.b.shape(b)[0]) for layer in layers for block in layer for a, b in block)
    if size < FEWEST_ROWS:
        raise CannotAsk(f"there are only {size} neurons in a layer")
    room = QUICK_BYTES - _gain_bytes(pair)
    found = next((plan for plan in _plans(pair, layers, size, room) if _cost(pair, plan) <= room), None)
    if found is None:
        cost = bytes_a_model(pair, _cuts(pair, layers[0][0][:1], size, FEWEST_ROWS, None))
        raise CannotAsk(f"{FEWEST_ROWS} neurons of a layer cost {cost:,} bytes as the matrices are stored")
    return found


def _plans(pair: Pair, layers: Sequence[Sequence[Block]], size: int, room: int) -> Iterator[Cuts]:
    """What could be read, the best first. Neurons in hand count for more than a second projection of the same ones."""
    thinner = [
        tuple(slots for layer in layers for block in layer for slots in block),
        tuple(block[0] for layer in layers for block in layer),
        tuple(layer[0][0] for layer in layers),
    ]
    for wanted in thinner:
        yield _cuts(pair, wanted, size, ROWS, None)
        yield from _by_columns(pair, wanted, size, room, ROWS)
    for wanted in (thinner[-1], thinner[-1][:1]):
        yield from (_cuts(pair, wanted, size, rows, None) for rows in range(ROWS - 1, FEWEST_ROWS - 1, -1))
        yield from _by_columns(pair, wanted, size, room, FEWEST_COLUMNS)


def _by_columns(pair: Pair, wanted: Block, size: int, room: int, fewest: int) -> Iterator[Cuts]:
    """Many neurons by a block of hidden axes, where that is how the matrices are stored."""
    columns = columns_that_fit(pair, wanted, room, MOST_COLUMNS)
    if columns and columns[1] - columns[0] >= fewest:
        yield _cuts(pair, wanted, size, ROWS_BY_COLUMNS, columns)


def _cuts(pair: Pair, wanted: Block, size: int, rows: int, columns: tuple[int, int] | None) -> Cuts:
    rows = min(rows, size)
    start = offset(pair.seed, "neurons", size, rows)
    mine, theirs = dict.fromkeys(a for a, _ in wanted), dict.fromkeys(b for _, b in wanted)
    sides = [[Cut(slot, start, start + rows, columns=columns) for slot in slots] for slots in (mine, theirs)]
    return sides[0], sides[1]


def _cost(pair: Pair, plan: Cuts) -> int:
    """Of the model that costs more: what is read, or what the record keeps of it if that is more."""
    return max(bytes_a_model(pair, plan), kept_bytes(pair.a, plan[0]), kept_bytes(pair.b, plan[1]))


def _gain_bytes(pair: Pair) -> int:
    try:
        return _cost(pair, gain_cuts(replace(pair, budget="quick")))
    except CannotAsk:
        return 0


def answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    same_width(a.portrait.hidden, b.portrait.hidden)
    layers = [calls for calls in _calls(a, b, rng) if calls]
    if max((call.rows.n for layer in layers for call in layer), default=0) < FEWEST_ROWS:
        raise CannotAsk(f"fewer than {FEWEST_ROWS} rows of a layer can be told apart")
    heads = [(calls[0].a, calls[0].b) for calls in layers]
    together = len(heads) < 2 or not copied(heads[0], heads[1], rng)
    tracks = [_track(calls, together) for calls in _tracks(layers)]
    best = min(tracks, key=lambda track: track.significance.log10_pvalue)
    judged = _best([track.significance for track in tracks], "projections and blocks")
    assumptions = _assumptions(layers, together, a.portrait.hidden, rng)
    if judged.log10_pvalue <= DOUBTED:
        assumptions += (_followed(layers, rng),)
    return weighed(
        ID,
        "neurons",
        judged,
        assumptions,
        statistic=float(best.fixed),
        n=best.n,
        effect=_likeness(best.calls),
        detectable=_detectable(best, len(tracks), together, rng),
        observed=f"{best.fixed:,} of {best.n:,} neurons found themselves, in {_layers(best)}",
        strangers=f"{len(best.calls)} of {best.n:,} on average: one {_each(best)}",
        per_layer=tuple(_finding(layer) for layer in layers),
    )


def _affordable(block: Block, pair: Pair) -> Block:
    return block[:1] if (pair.a.facts.hidden or 0) > WIDE else block


def _calls(a: Readings, b: Readings, rng: np.random.Generator) -> list[list[Call]]:
    """All roll calls, layer by layer."""
    mine, theirs = rows_read(a), rows_read(b)
    blocks = blocks_at_two_depths(facing(a.portrait.layers, b.portrait.layers), mine, theirs)
    return [
        [
            Call(names, (i, j), left, right, roll_call(left, right, rng))
            for i, block in enumerate(layer)
            for j, (x, y) in enumerate(block)
            if mine[x].shape == theirs[y].shape
            for left, right in zip(_sets(mine[x]), _sets(theirs[y]), strict=True)
        ]
        for names, layer in blocks.items()
    ]


def _sets(rows: Floats) -> list[Floats]:
    return np.array_split(rows, max(1, -(-len(rows) // SET)))


def _tracks(layers: Sequence[Sequence[Call]]) -> list[list[Call]]:
    tracks: dict[tuple[int, int], list[Call]] = {}
    for call in (call for layer in layers for call in layer):
        tracks.setdefault(call.place, []).append(call)
    return list(tracks.values())


def _track(calls: Sequence[Call], together: bool) -> Track:
    tests = [call.rows.significance for call in calls]
    if together and len(calls) > 1:
        return Track(tuple(calls), over_layers([call.rows for call in calls]).significance)
    return Track(tuple(calls), _best(tests, "layers"))


def _best(tests: Sequence[Significance], what: str) -> Significance:
    return better_of(tests, what) if len(tests) > 1 else tests[0]


def copied(first: tuple[Floats, Floats], second: tuple[Floats, Floats], rng: np.random.Generator) -> bool:
    """Are two layers, each (rows of a, rows of b), copies of each other in both models? Their counts would be one."""
    pairs = zip(first, second, strict=True)
    return all(x.shape == y.shape and roll_call(x, y, rng).significance.pvalue < ALARM for x, y in pairs)


def _assumptions(
    layers: Sequence[Sequence[Call]], together: bool, hidden: int | None, rng: np.random.Generator
) -> tuple[Assumption, ...]:
    calls = [layer[0] for layer in layers]
    found = [in_no_order([call.a for call in calls], [call.b for call in calls], rng)]
    sets = [_first_set(layer) for layer in layers]
    found.append(index_means_nothing([a for a, _ in sets], [b for _, b in sets], rng))
    found += zeros_apart(zeros(call.a, call.b) for layer in layers for call in layer)
    dropped = sum(call.rows.dropped for layer in layers for call in layer)
    if dropped:
        found.append(Assumption(f"{dropped} rows left out: constant, not finite, or the same as another row"))
    width, all_axes = calls[0].a.shape[1], hidden or 0
    if width < all_axes:
        found.append(Assumption(f"neurons were recognised by {width} of {all_axes} hidden axes: stored by columns"))
    if not together:
        found.append(Assumption("the two layers are copies of each other in both models: only the better one counts"))
    return tuple(found)


def _followed(layers: Sequence[Sequence[Call]], rng: np.random.Generator) -> Assumption:
    """Neurons of every block, each by all of its projections: none is a formula of its index."""
    blocks = [list(block.values()) for layer in layers for block in _blocks(layer).values()]
    found = most_found([max(call.rows.fixed for call in block) for block in blocks])
    asked = [blocks[i] for i in found]
    sides = [[traits([side(call) for call in block]) for block in asked] for side in (_of_a, _of_b)]
    return follow_no_index(sides[0], sides[1], rng)


def _blocks(calls: Sequence[Call]) -> dict[int, dict[int, Call]]:
    """The first neurons of every block of a layer, by projection."""
    blocks: dict[int, dict[int, Call]] = {}
    for call in calls:
        blocks.setdefault(call.place[0], {}).setdefault(call.place[1], call)
    return blocks


def _of_a(call: Call) -> Floats:
    return call.a


def _of_b(call: Call) -> Floats:
    return call.b


def _first_set(calls: Sequence[Call]) -> tuple[Floats, Floats]:
    """The first neurons of a layer, of a and of b, each by all of its projections."""
    projections = {call.place: call for call in reversed(calls) if call.place[0] == calls[0].place[0]}
    return described([call.a for call in projections.values()]), described([call.b for call in projections.values()])


def _detectable(track: Track, tracks: int, together: bool, rng: np.random.Generator) -> float | None:
    """What the total of a track would have noticed; with nothing in it but the noise of these very rows."""
    calls = track.calls if together else track.calls[:1]
    width = pooled_rows([(call.a, call.b) for call in calls], rng, draws=1).effective_width
    paid = 2 * tracks if len(calls) > 1 else tracks * len(track.calls)
    return detectable_by_roll_call([call.rows.n for call in calls], width, math.log10(ALPHA / paid))


def _layers(track: Track) -> str:
    count = len({call.names for call in track.calls})
    return "one layer" if count == 1 else f"{count} layers"


def _each(track: Track) -> str:
    sets = len(track.calls)
    return "a layer" if sets == len({call.names for call in track.calls}) else f"of every {track.n / sets:.0f}"


def _finding(calls: Sequence[Call]) -> LayerFinding:
    """The best block and projection of a layer, paid for."""
    tracks = [_track(found, together=True) for found in _tracks([calls])]
    best = min(tracks, key=lambda track: track.significance.log10_pvalue)
    judged = _best([track.significance for track in tracks], "projections and blocks")
    return LayerFinding(*calls[0].names, float(best.fixed), best.n, judged.log10_pvalue, _likeness(best.calls))


def _likeness(calls: Sequence[Call]) -> float:
    """The median correlation of rows at equal index, of those that were asked."""
    found = [np.einsum("ij,ij->i", unit_rows(call.a), unit_rows(call.b)) for call in calls]
    asked = [np.array(call.rows.matches) >= 0 for call in calls]
    return float(np.median(np.concatenate([values[mask] for values, mask in zip(found, asked, strict=True)])))


NEURONS = Question(
    id=ID,
    asks="Do the neurons of the MLP know each other by the rows that read the residual stream?",
    index_set="neurons",
    stage=2,
    weight=WEIGHT,
    null="the neurons of a layer may be numbered in any order: one of them finds itself on average",
    cuts=cuts,
    answer=answer,
)
