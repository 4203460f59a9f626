"""Experts: do the rows of the routers know each other? Experts may be numbered in any order, with their router rows.

The mean cosine of matched rows says nothing, for matching makes strangers alike; how many match their own number does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.exchangeability import (
    follow_no_index,
    index_means_nothing,
    most_found,
    zeros,
    zeros_apart,
)
from modelkin.questions.layers import bytes_of
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Role, Slot
from modelkin.sampling.facing import Facing, facing
from modelkin.sampling.readings import Floats, Readings
from modelkin.stats import RollCall, over_layers, roll_call, traits
from modelkin.stats.arrays import unit_rows

Set = tuple[str, str, Floats, Floats]  # layer of a, layer of b, rows of each
DOUBTED = -3.0  # log10 of the p from which it is worth looking for copies
ALIKE = 0.3  # mean correlation of rows at equal index; different layers of one model have little
STANDARD_BYTES = 8_000_000  # of the 64 MB a model that all questions together may read


def of_layers(anatomy: Anatomy, role: Role) -> dict[str, Slot]:
    """The matrices of a role by layer."""
    return {slot.layer_name: slot for slot in anatomy.of(role) if len(anatomy.shape(slot)) == 2 and slot.layer_name}


def _affordable(pair: Pair, a: dict[str, Slot], b: dict[str, Slot], rows: int) -> tuple[Facing, int]:
    """Facing layers, evenly spaced, and how many rows of each: all rows of as many layers as fit, or some of one."""
    pairs = facing(list(a), list(b))
    if not pairs or pair.budget == "full":
        return pairs, rows
    costs = [bytes_of(side, slot) for side, slots in ((pair.a, a), (pair.b, b)) for slot in slots.values()]
    fit = min(int((STANDARD_BYTES - whole) / row) if row else rows * (whole <= STANDARD_BYTES) for whole, row in costs)
    if fit < 1:
        raise CannotAsk(f"the rows of one router do not fit into {STANDARD_BYTES // 1_000_000} MB as they are stored")
    rows = min(rows, fit)
    dearest = max(whole + rows * row for whole, row in costs)
    return facing(list(a), list(b), max(1, int(STANDARD_BYTES / max(1.0, dearest)))), rows


def same_width(pair: Pair, a: dict[str, Slot], b: dict[str, Slot], what: str) -> None:
    widths = {side.shape(slot)[1] for side, slots in ((pair.a, a), (pair.b, b)) for slot in slots.values()}
    if len(widths) > 1:
        raise CannotAsk(f"{what} have different widths: {', '.join(map(str, sorted(widths)))}")


def _cuts(pair: Pair) -> Cuts:
    a, b = of_layers(pair.a, Role.ROUTER), of_layers(pair.b, Role.ROUTER)
    if not a or not b:
        raise CannotAsk("there are no routers in " + ("either model" if not a and not b else "one of the models"))
    same_width(pair, a, b, "router rows")
    experts = min(side.shape(slot)[0] for side, slots in ((pair.a, a), (pair.b, b)) for slot in slots.values())
    pairs, experts = _affordable(pair, a, b, experts)
    return [Cut(a[left], 0, experts) for left, _ in pairs], [Cut(b[right], 0, experts) for _, right in pairs]


def read_pairs(a: Readings, b: Readings, role: Role) -> list[Set]:
    """(layer of a, layer of b, what was read of each), by depth; those with values that are not finite are left out."""
    mine, theirs = _read(a, role), _read(b, role)
    pairs = [(left, right, mine[left], theirs[right]) for left, right in facing(list(mine), list(theirs))]
    alike = [pair for pair in pairs if pair[2].shape == pair[3].shape]
    sound = [pair for pair in alike if np.all(np.isfinite(pair[2])) and np.all(np.isfinite(pair[3]))]
    if not sound:
        raise CannotAsk(f"no {role.value} of facing layers was read with one shape and finite values")
    return sound


def _read(readings: Readings, role: Role) -> dict[str, Floats]:
    found = {cut.slot.layer_name: array for cut, array in readings.arrays.items() if cut.slot.role is role}
    return {name: found[name] for name in readings.portrait.layers if name in found and found[name].ndim == 2}


def counted(question: Question, sets: Sequence[Set], what: str, rng: np.random.Generator) -> Evidence:
    """The evidence of sets of rows, each with its own order."""
    calls = [roll_call(left, right, rng) for _, _, left, right in sets]
    findings = [finding(*rows, call) for rows, call in zip(sets, calls, strict=True)]
    if not any(call.n for call in calls):
        raise CannotAsk(f"no {what} can be told from the others: their rows are constant or equal")
    layers = over_layers(calls)
    significance = layers.significance
    first_a, first_b = {a: left for a, _, left, _ in sets[::-1]}, {b: right for _, b, _, right in sets[::-1]}
    if significance.log10_pvalue <= DOUBTED and repeated(first_a) and repeated(first_b):
        significance = layers.best
    checks = _checks(sets, calls, rng) if significance.log10_pvalue <= DOUBTED else ()
    asked = [finding.effect for finding in findings if finding.n and finding.effect is not None]
    count = sum(call.n > 0 for call in calls)
    return weighed(
        question.id,
        question.index_set,
        significance,
        (Assumption(question.null), *checks),
        effect=float(np.median(asked)),
        observed=f"{layers.fixed:,} of {layers.n:,} {what}s chose their own",
        strangers=f"{count:,} of {layers.n:,}, one of every set of {layers.n / count:.0f}",
        per_layer=tuple(findings),
    )


def _checks(sets: Sequence[Set], calls: Sequence[RollCall], rng: np.random.Generator) -> tuple[Assumption, ...]:
    """That the rows may be renumbered, asked where so many found themselves."""
    a, b = [left for _, _, left, _ in sets], [right for _, _, _, right in sets]
    found = most_found([call.fixed for call in calls])
    return (
        index_means_nothing(a, b, rng),
        follow_no_index([traits([a[i]]) for i in found], [traits([b[i]]) for i in found], rng),
        *zeros_apart(zeros(left, right) for _, _, left, right in sets),
    )


def repeated(sets: Mapping[str, Floats]) -> bool:
    """Does a model hold the rows of some layer twice, as one with repeated layers does?

    Where both do, a find may come twice as well, and counts do not add up: then only the best set counts.
    """
    return greatest_likeness(list(sets.values())) > ALIKE


def greatest_likeness(sets: Sequence[Floats]) -> float:
    """The mean correlation of rows at equal index, of the two sets that are most alike."""
    rows = [unit_rows(array.astype(np.float64)).ravel() / math.sqrt(max(1, len(array))) for array in sets]
    return max((abs(float(x @ y)) for i, x in enumerate(rows) for y in rows[:i] if x.shape == y.shape), default=0.0)


def finding(a: str, b: str, left: Floats, right: Floats, call: RollCall) -> LayerFinding:
    """One roll call; its effect is the median correlation of rows of one number."""
    kept = np.array(call.matches) >= 0
    own = np.sum(unit_rows(left.astype(np.float64)) * unit_rows(right.astype(np.float64)), axis=1)[kept]
    return LayerFinding(
        a=a,
        b=b,
        statistic=float(call.fixed),
        n=call.n,
        log10_pvalue=call.significance.log10_pvalue,
        effect=float(np.median(own)) if own.size else None,
    )


def _answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    return counted(EXPERTS, read_pairs(a, b, Role.ROUTER), "expert", rng)


EXPERTS = Question(
    id="experts",
    asks="Do the experts know each other by their router rows?",
    index_set="experts",
    stage=4,
    weight=0.05,
    null="The experts of a layer could be numbered in any order, so one of a layer finds itself; n of them cannot give "
    "less than 1/n! a layer.",
    cuts=_cuts,
    answer=_answer,
)
