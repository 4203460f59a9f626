"""Do neurons know each other anywhere, if all of them are called? Finds one layer or a few neurons that were taken.

Every row of gate and up of two layers is read (of every expert, and of shared experts), in groups of at most
GROUP_NUMBERS numbers, so that of each model two groups of rows lie in memory, 64 MB each, whatever the size of the
model; only matrices stored by columns are held whole. Of down, whose columns are the neurons, as many hidden axes are
read as are one such group. Rows are called in blocks of at most BLOCK consecutive neurons. If the neurons of a layer
may stand in any order, then, given which of them stand in which block, the orders of the blocks are independent and
uniform: so the fixed points of all blocks of a layer, and of all layers, follow the exact law of a sum. Gate, up and
down are renumbered together, so they never add up: the best counts, times their number.

Two counts are made and paid for: of all neurons, and of the one in SUREST whose choice is most like them. Neurons that
were taken as they are lie among these, while those that find themselves by chance may be any.

Experts of a layer add up where those of one model at least stand in orders of their own. Where in both models experts
are alike at equal index, copied from one MLP, they have one common order, and only the best of them counts; so it does
where one dense MLP stands beside experts that are. Which of the two is better, all together or the best, is paid for.

Which layers are called together must not depend on the rows that are counted. Layers that face each other do so before
a row is read: all of their neurons count, and counts of all facing pairs may be summed, or the best pair taken. Where
the layer map found another partner, it chose it by looking at some rows: these are left out, and the rest is still in
uniform order, for what was looked at says nothing of the order of what was not. As one layer may then stand beside
several, such pairs are never summed; the best counts, times the layers of b. Three ways of looking: p times three.
Where both models hold layers twice, a find may come twice too, and no layers are summed at all.

Neurons moved to another index, or to a layer that the layer map does not know of, are not looked for here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.exchangeability import (
    DOUBTED,
    follow_no_index,
    in_no_order,
    index_means_nothing,
    most_found,
    zeros_apart,
)
from modelkin.questions.experts import ALIKE, repeated
from modelkin.questions.neuron_stream import (
    BLOCK,
    GROUP_NUMBERS,
    SHARED_ROLES,
    WRITERS,
    Calls,
    LayerCalls,
    Matrices,
    Names,
    Side,
    Span,
    Task,
    called_neurons,
)
from modelkin.questions.question import CannotAsk, Pair, weighed
from modelkin.records import Assumption, Evidence, LayerFinding, Role, Significance, Slot
from modelkin.sampling.facing import facing
from modelkin.stats import Traits, better_of, likeness_of, surest_fixed_points, total_fixed_points
from modelkin.stats.arrays import unit_rows
from modelkin.stats.assignment import answerable

ID = "every-neuron"
FEWEST_NEURONS = 8
WAYS = 3  # of looking: all facing layers together, the best of them, the best that the layer map chose
LOCATED = -6.0  # log10 p of a layer alone, paid for all layers, from which it is named
MOST_NAMED = 4
MOST_CHECKED = 12  # layers


def tasks(pair: Pair, layer_map: Mapping[str, str], looked_at: Span | None) -> list[Task]:
    """Facing layers, and those that the layer map (layer of b: layer of a) chose by the rows `looked_at`."""
    if pair.a.facts.hidden is None or pair.a.facts.hidden != pair.b.facts.hidden:
        raise CannotAsk("rows of neurons cannot be compared between models of different width")
    beside = facing(pair.a.layers, pair.b.layers)
    moved = [(a, b) for b, a in layer_map.items() if (a, b) not in beside]
    sides = _neurons_of(pair.a), _neurons_of(pair.b)
    found = [Task(names, False, _matrices(pair, names, *sides)) for names in beside]
    found += [Task(names, True, _matrices(pair, names, *sides, looked_at), looked_at) for names in moved]
    found = [task for task in found if task.matrices]
    if not any(not task.chosen for task in found):
        raise CannotAsk("the models share no gate or up projection in facing layers")
    return found


def bytes_of(pair: Pair, task: Task) -> tuple[int, int]:
    """What calling two layers reads of the weights of a and of b; a matrix that is called twice is held."""
    mine = dict.fromkeys((matrices.a, matrices.axes or matrices.rows) for matrices in task.matrices)
    theirs = dict.fromkeys((matrices.b, matrices.axes or matrices.rows) for matrices in task.matrices)
    return (
        pair.a.bytes_of([(slot, slice(0, rows)) for slot, rows in mine]),
        pair.b.bytes_of([(slot, slice(0, rows)) for slot, rows in theirs]),
    )


# Which sets of neurons stand beside each other.

Sets = dict[str, dict[int | None, dict[Role, Slot]]]  # by layer, then by expert (None: dense; -1: shared)
SHARED = -1
PARTS = {Role.GATE: "gate", Role.UP: "up", Role.SHARED_GATE: "gate", Role.SHARED_UP: "up"}
NAMES = PARTS | WRITERS
TOGETHER = "all experts"


def _neurons_of(anatomy: Anatomy) -> Sets:
    found: Sets = {}
    for slot in anatomy.slots:
        shape = anatomy.shape(slot) if slot.role in NAMES else ()
        if len(shape) == 2 and shape[slot.role in PARTS] == anatomy.facts.hidden and slot.layer is not None:
            expert = SHARED if slot.role in SHARED_ROLES else slot.expert
            found.setdefault(slot.layer_name, {}).setdefault(expert, {})[slot.role] = slot
    return found


def _matrices(pair: Pair, names: Names, a: Sets, b: Sets, looked_at: Span | None = None) -> tuple[Matrices, ...]:
    mine, theirs = a.get(names[0], {}), b.get(names[1], {})
    found = []
    for i, j in _beside(sorted(mine, key=_number), sorted(theirs, key=_number)):
        both = [role for role in NAMES if role in mine[i] and role in theirs[j]]
        if not any(role in PARTS for role in both):
            continue
        for role in both:
            x, y = mine[i][role], theirs[j][role]
            rows = min(side.shape(slot)[role in WRITERS] for side, slot in ((pair.a, x), (pair.b, y)))
            if len(called_neurons(rows, looked_at)) >= FEWEST_NEURONS:
                found.append(Matrices(_label(i, j, role), x, y, rows, _axes(pair, x, y)))
    return tuple(found)


def _axes(pair: Pair, a: Slot, b: Slot) -> int | None:
    """How many hidden axes describe the columns of both: one group of numbers; None where rows are the neurons."""
    if a.role not in WRITERS:
        return None
    widest = max(pair.a.shape(a)[1], pair.b.shape(b)[1])
    return max(1, min(pair.a.shape(a)[0], GROUP_NUMBERS // widest))


def _beside(mine: Sequence[int | None], theirs: Sequence[int | None]) -> list[tuple[int | None, int | None]]:
    """Equal numbers; where one has experts and the other a dense MLP, that beside each, for each may be a copy."""
    alike = [(i, i) for i in mine if i in theirs]
    if any(i != SHARED for i, _ in alike):
        return alike
    mixed = [(i, j) for i in mine for j in theirs if SHARED not in (i, j) and (i is None) != (j is None)]
    return alike + mixed


def _number(expert: int | None) -> float:
    return -0.5 if expert is None else expert


def _label(a: int | None, b: int | None, role: Role) -> str:
    if a == SHARED:
        return f"shared {NAMES[role]}"
    if a is None and b is None:
        return NAMES[role]
    return f"expert {b if a is None else a} {NAMES[role]}"


# What the counts say.


@dataclass(frozen=True)
class Track:
    """One projection of one set of neurons through all layers: what all of it is worth."""

    label: str
    significance: Significance
    fixed: int
    n: int
    blocks: int
    surest: Calls


def answer(layers: Sequence[LayerCalls], layers_of_b: int, rng: np.random.Generator) -> Evidence:
    """The evidence of all layers that were called; `layers_of_b` is how many the layer map could have chosen for."""
    facing_ones = [layer for layer in layers if not layer.chosen]
    if max((sum(calls.sizes) for layer in facing_ones for calls in layer.calls), default=0) < FEWEST_NEURONS:
        raise CannotAsk(f"fewer than {FEWEST_NEURONS} neurons of a layer can be told apart")
    joined = layers if _experts_repeat(layers) else [_with_experts_together(layer) for layer in layers]
    tracks = _tracks(joined, layers_of_b, together=True)
    apart = min(t.significance.log10_pvalue for t in tracks) <= DOUBTED and _both_repeat(facing_ones)
    if apart:
        tracks = _tracks(joined, layers_of_b, together=False)
    best = min(tracks, key=lambda track: track.significance.log10_pvalue)
    judged = _judged(tracks, any(_has_experts(layer) for layer in layers))
    findings = _findings(joined)
    effects = [finding.effect for finding in findings if finding.effect is not None]
    told = _of_the_surest(best.surest) if judged.log10_pvalue <= LOCATED else ("", "")
    return weighed(
        ID,
        "neurons",
        judged,
        (_unsorted(facing_ones, rng), *_renumbered(facing_ones, layers, judged, rng), *_remarks(layers, apart)),
        statistic=float(best.fixed),
        n=best.n,
        effect=float(np.median(effects)) if effects else None,
        observed=f"{best.fixed:,} of {best.n:,} neurons found themselves{told[0]}{_located(judged, findings)}",
        strangers=f"{best.blocks:,} of {best.n:,} on average: one in each block of at most {BLOCK}{told[1]}",
        per_layer=findings,
    )


def _has_experts(layer: LayerCalls) -> bool:
    parts = [calls.part for calls in layer.calls]
    return len(set(parts)) < len(parts)


def _experts_repeat(layers: Sequence[LayerCalls]) -> bool:
    """Are experts of some layer alike in both models? Then a find may come as often as there are experts."""
    return all(
        max(side.experts_alike for side in sides) > ALIKE for sides in zip(*((x.a, x.b) for x in layers), strict=True)
    )


def _with_experts_together(layer: LayerCalls) -> LayerCalls:
    """One more set of calls a projection: those of all experts, and of the shared one, as blocks of one layer."""
    if not _has_experts(layer):
        return layer
    by_part: dict[str, list[Calls]] = {}
    for calls in layer.calls:
        by_part.setdefault(calls.part, []).append(calls)
    return msgspec.structs.replace(layer, calls=(*layer.calls, *(_sum(part, found) for part, found in by_part.items())))


def _sum(part: str, found: Sequence[Calls]) -> Calls:
    likeness = [calls.likeness for calls in found if calls.likeness is not None]
    return Calls(
        f"{TOGETHER} {part}",
        tuple(k for calls in found for k in calls.fixed),
        tuple(n for calls in found for n in calls.sizes),
        dropped=0,
        likeness=float(np.median(likeness)) if likeness else None,
        sure=sum(calls.sure for calls in found),
        chosen=sum(calls.chosen for calls in found),
        share=math.fsum(calls.share for calls in found),
    )


def _judged(tracks: Sequence[Track], experts: bool) -> Significance:
    """The best track, paid for; where there are experts, all of them together or one of them, and paid for that too."""
    joined = [track.significance for track in tracks if track.label.startswith(TOGETHER)]
    single = [track.significance for track in tracks if not track.label.startswith(TOGETHER)]
    best = [_best(tests, "projections and sets of neurons") for tests in (single, joined) if tests]
    judged = _best(best, "experts together, the best of them alone")
    return _paid(judged, 2) if experts and not joined else judged


def _tracks(layers: Sequence[LayerCalls], layers_of_b: int, *, together: bool) -> list[Track]:
    labels = dict.fromkeys(calls.label for layer in layers for calls in layer.calls)
    tracks = (_track(label, layers, layers_of_b, together) for label in labels)
    return [track for track in tracks if track is not None]


def _track(label: str, layers: Sequence[LayerCalls], layers_of_b: int, together: bool) -> Track | None:
    """The sum over facing layers, the best facing pair, the best pair of the layer map: the smallest p, times three."""
    of_layers = [(layer, calls) for layer in layers for calls in layer.calls if calls.label == label]
    beside = [calls for layer, calls in of_layers if not layer.chosen and any(calls.sizes)]
    moved = [calls for layer, calls in of_layers if layer.chosen and any(calls.sizes)]
    if not beside:
        return None
    tests = [better_of([_total([calls]) for calls in beside], "layers")]
    if together:
        tests.append(_total(beside))
    if moved:
        tests.append(_paid(min((_total([calls]) for calls in moved), key=lambda test: test.log10_pvalue), layers_of_b))
    shown = _shown(of_layers)
    return Track(
        label,
        _paid(min(tests, key=lambda test: test.log10_pvalue), WAYS),
        fixed=sum(sum(calls.fixed) for calls in shown),
        n=sum(sum(calls.sizes) for calls in shown),
        blocks=sum(sum(size > 0 for size in calls.sizes) for calls in shown),
        surest=_sum(label, shown),
    )


def _total(found: Sequence[Calls]) -> Significance:
    """All that found themselves, or those among the surest: the first sees faint likeness, the second a few copies."""
    fixed, sizes = [k for calls in found for k in calls.fixed], [n for calls in found for n in calls.sizes]
    surest = _sum("", found)
    tests = [total_fixed_points(fixed, sizes), surest_fixed_points(surest.sure, surest.chosen, surest.share)]
    return better_of(tests, "all neurons, the surest of them")


def _paid(test: Significance, times: int) -> Significance:
    return msgspec.structs.replace(
        test, log10_pvalue=min(0.0, test.log10_pvalue + math.log10(times)), log10_evalue=None
    )


def _best(tests: Sequence[Significance], what: str) -> Significance:
    return better_of(tests, what) if len(tests) > 1 else tests[0]


def _shown(of_layers: Sequence[tuple[LayerCalls, Calls]]) -> list[Calls]:
    """One pair a layer of b: the one that the layer map chose, or else the one that faces it."""
    by_layer = {layer.names[1]: calls for layer, calls in sorted(of_layers, key=lambda item: item[0].chosen)}
    return list(by_layer.values())


def _findings(layers: Sequence[LayerCalls]) -> tuple[LayerFinding, ...]:
    """A layer of b each, beside its partner: the best projection and set of neurons, paid for."""
    partners = {layer.names[1]: layer for layer in sorted(layers, key=lambda layer: layer.chosen)}
    return tuple(finding for layer in partners.values() if (finding := _finding(layer)) is not None)


def _finding(layer: LayerCalls) -> LayerFinding | None:
    tests = [(_total([calls]), calls) for calls in layer.calls if any(calls.sizes)]
    if not tests:
        return None
    best, calls = min(tests, key=lambda item: item[0].log10_pvalue)
    paid = _paid(best, len(tests)).log10_pvalue
    return LayerFinding(*layer.names, float(sum(calls.fixed)), sum(calls.sizes), paid, calls.likeness)


def _of_the_surest(found: Calls) -> tuple[str, str]:
    """In words, for what was observed and for strangers."""
    return f", {found.sure} of the {found.chosen} surest", f"; of the surest {found.share:.2g}"


def _located(judged: Significance, findings: Sequence[LayerFinding]) -> str:
    """Where: layers that are beyond chance by themselves. Nothing where the whole is within chance."""
    if judged.log10_pvalue > LOCATED:
        return f", in {len(findings)} layers"
    least = LOCATED - math.log10(max(1, len(findings)))
    named = [finding for finding in findings if (finding.log10_pvalue or 0.0) <= least]
    if not named:
        return f", a few in each of {len(findings)} layers"
    if len(named) == len(findings):
        return f", in all of {len(findings)} layers"
    if len(named) > MOST_NAMED:
        return f"; beyond chance in {len(named)} of {len(findings)} layers"
    told = ", ".join(f"{finding.b} ({finding.statistic:.0f} of {finding.n})" for finding in named)
    return f"; beyond chance in layer {told} of B"


def _both_repeat(layers: Sequence[LayerCalls]) -> bool:
    a, b = ({layer.names[i]: _sketch(side) for layer in layers for side in ((layer.a, layer.b)[i],)} for i in (0, 1))
    return repeated(a) and repeated(b)


def _sketch(side: Side) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.frombuffer(side.sketch, np.float16).reshape(-1, side.width).astype(np.float32)


def _renumbered(
    layers: Sequence[LayerCalls], all_layers: Sequence[LayerCalls], judged: Significance, rng: np.random.Generator
) -> Iterator[Assumption]:
    a, b = ({layer.names[i]: _sketch((layer.a, layer.b)[i]) for layer in layers} for i in (0, 1))
    yield index_means_nothing(list(a.values()), list(b.values()), rng)
    if judged.log10_pvalue <= DOUBTED:
        found = most_found([max((sum(calls.fixed) for calls in layer.calls), default=0) for layer in all_layers])
        sides = [[it for i in found for it in _traits((all_layers[i].a, all_layers[i].b)[side])] for side in (0, 1)]
        yield follow_no_index(sides[0], sides[1], rng)
    yield from zeros_apart(calls.zeros for layer in layers for calls in layer.calls)


def _traits(side: Side) -> Iterator[Traits]:
    """Of every set of neurons whose places were kept; how alike its rows are where the sketch holds them."""
    units = unit_rows(_sketch(side).astype(np.float64))
    clear = answerable(units, units, "inner")
    for i, places in enumerate(side.places):
        if i:
            yield Traits(places.array, np.zeros((2, places.rows, places.rows)))
        else:
            kept = np.flatnonzero(clear[: places.rows])
            yield Traits(places.array[:, :, kept], likeness_of(units[kept]))


def _unsorted(layers: Sequence[LayerCalls], rng: np.random.Generator) -> Assumption:
    some = layers[:: -(-len(layers) // MOST_CHECKED)]
    sides = [layer.a for layer in some], [layer.b for layer in some]
    a, b = ([np.array(side.norms)[:, None] for side in of_one] for of_one in sides)
    return in_no_order(a, b, rng)


def _remarks(layers: Sequence[LayerCalls], apart: bool) -> list[Assumption]:
    found = []
    dropped = sum(calls.dropped for layer in layers for calls in layer.calls)
    if dropped:
        found.append(Assumption(f"{dropped} rows left out: constant, not finite, or the same as another row"))
    if any(layer.chosen for layer in layers):
        text = "where the layer map chose the partner of a layer, the rows that it chose by are left out"
        found.append(Assumption(text))
    if apart:
        found.append(Assumption("layers are copies of each other in both models: only the best pair counts"))
    return found
