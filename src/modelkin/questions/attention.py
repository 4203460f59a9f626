"""Attention: do the value rows inside the heads know each other, and the heads?

Several views are counted (see `heads`): value rows in heads that face each other by number, or that their keys chose,
or averaged where the numbers of heads differ; columns of o; whole groups by their keys; rows of q and k where nothing
fixes their order. Each is exact alone; the best counts, times their number, which holds under any dependence. Where
both models repeat heads or layers, a find may come several times: then only the best set of a view counts.

All heads with their keys are read where enough layers of them fit the budget, and o where that fits too; else the
values of some heads. `full` reads more, but not all: more layers than fit into FULL_BYTES add nothing to what is
certain by then, and all of it would not fit into memory. Matrices that both models store transposed are read by a block
of hidden axes where a whole one is too dear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.exchangeability import (
    follow_no_index,
    index_means_nothing,
    most_found,
    traits_by_width,
    zeros,
    zeros_apart,
)
from modelkin.questions.experts import DOUBTED, finding, same_width
from modelkin.questions.heads import BY_KEYS, View, read_layers, views
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Role, Significance, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Floats, Readings, bytes_of
from modelkin.stats import RollCall, better_of, over_layers, roll_call
from modelkin.stats.arrays import unit_rows

STANDARD_BYTES = 16_000_000  # of the 64 MB a model that all questions together may read
FULL_BYTES = 256_000_000
FEW_LAYERS = 8  # more heads of a layer are read when so many layers fit
ENOUGH_LAYERS = 4  # for which all heads with their keys are worth more than some heads of more layers
FEWEST_COLUMNS = 32
UNROTATED = ("learned", "fixed", "alibi", "none")
BY_HEAD = ("alibi", "unknown")  # positions that treat every head in its own way, or may
ALIKE, ROWS_ALIKE = 0.3, 8  # mean correlation of rows of two heads of one model, and of how many rows

ByRole = dict[Role, Slot]


@dataclass(frozen=True)
class Plan:
    """What to read of every layer: `heads` of a and of b from the head `start` on, of some columns or of all."""

    roles: tuple[Role, ...]
    heads: tuple[int, int]
    start: int = 0
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """The attention of a pair: matrices by layer, the size of a head, KV heads of a and of b."""

    pair: Pair
    a: Mapping[str, ByRole]
    b: Mapping[str, ByRole]
    size: int
    heads: tuple[int, int]

    @property
    def room(self) -> int:
        return FULL_BYTES if self.pair.budget == "full" else STANDARD_BYTES

    def sides(self) -> tuple[tuple[Anatomy, Mapping[str, ByRole]], tuple[Anatomy, Mapping[str, ByRole]]]:
        return (self.pair.a, self.a), (self.pair.b, self.b)


# What to read.


def _cuts(pair: Pair) -> Cuts:
    subject = _subject(pair)
    pairs = facing(list(subject.a), list(subject.b))
    plan = _plan(subject)
    count = _layers_that_fit(subject, plan)
    if not count:
        raise CannotAsk(f"the values of one layer do not fit into {subject.room // 1_000_000} MB as they are stored")
    chosen = pairs if count >= len(pairs) else facing(list(subject.a), list(subject.b), count)
    mine = [cut for left, _ in chosen for cut in _of_layer(subject, plan, 0, left)]
    theirs = [cut for _, right in chosen for cut in _of_layer(subject, plan, 1, right)]
    return mine, theirs


def _subject(pair: Pair) -> Subject:
    a, b = _by_layer(pair.a), _by_layer(pair.b)
    if not a or not b:
        raise CannotAsk("a model has no value rows of its own (latent attention has none)")
    values = [{name: slots[Role.V] for name, slots in side.items()} for side in (a, b)]
    same_width(pair, values[0], values[1], "value rows")
    if not facing(list(a), list(b)):
        raise CannotAsk("no layers with value rows face each other")
    size = _head_dim(pair.a.facts.head_dim, pair.b.facts.head_dim)
    return Subject(pair, a, b, size, (_heads(pair.a, values[0], size), _heads(pair.b, values[1], size)))


def _by_layer(anatomy: Anatomy) -> dict[str, ByRole]:
    """q, k, v and o of every layer that has values of its own: of keys that serve as values the order is fixed."""
    found: dict[str, ByRole] = {}
    for role in (Role.V, Role.K, Role.Q, Role.O):
        for slot in anatomy.of(role):
            if len(anatomy.shape(slot)) == 2 and slot.layer_name:
                found.setdefault(slot.layer_name, {})[role] = slot
    return {name: slots for name, slots in found.items() if Role.V in slots and not _are_keys(anatomy, slots)}


def _are_keys(anatomy: Anatomy, slots: ByRole) -> bool:
    return Role.K in slots and anatomy.view(slots[Role.K]) == anatomy.view(slots[Role.V])


def _head_dim(a: int | None, b: int | None) -> int:
    if not a or not b:
        raise CannotAsk("the size of a head is not known")
    if a != b:
        raise CannotAsk(f"heads have different sizes: {a} and {b}")
    return a


def _heads(anatomy: Anatomy, slots: Mapping[str, Slot], size: int) -> int:
    rows = {anatomy.shape(slot)[0] for slot in slots.values()}
    if min(rows) < size or any(count % size for count in rows):
        raise CannotAsk(f"value rows ({', '.join(map(str, sorted(rows)))}) are not whole heads of {size}")
    return min(rows) // size


def _plan(subject: Subject) -> Plan:
    """All heads of all that can be asked, of as many layers as are worth it; else the values of some heads."""
    some = _some_heads(subject)
    layers = min(len(subject.a), len(subject.b))
    enough = min(ENOUGH_LAYERS, layers, max(1, _layers_that_fit(subject, some)))
    for roles in _wider(subject):
        plan = Plan(roles, subject.heads)
        if min(layers, _layers_that_fit(subject, plan)) >= enough:
            return plan
    if _layers_that_fit(subject, some):
        return some
    return _by_columns(subject) or some


def _wider(subject: Subject) -> list[tuple[Role, ...]]:
    """The roles that may be read of all heads, most first."""
    if not _everywhere(subject, Role.K):
        return []
    alike = subject.heads[0] == subject.heads[1] and _everywhere(subject, Role.Q)
    keys = (Role.V, Role.K, Role.Q) if alike and _unfixed(subject.pair) else (Role.V, Role.K)
    return [(*keys, Role.O), keys] if alike and _everywhere(subject, Role.O) else [keys]


def _everywhere(subject: Subject, role: Role) -> bool:
    """Has every layer of both the role, with as many heads as it must have: those of the values, or whole groups?"""
    if any(role not in slots for _, by in subject.sides() for slots in by.values()):
        return False
    found, values = (
        [{side.shape(slots[it]) for slots in by.values()} for side, by in subject.sides()] for it in (role, Role.V)
    )
    if any(len(shapes) > 1 for shapes in found):
        return False
    if role is Role.K:
        return found == values
    ((rows, columns),) = found[0]
    return found[0] == found[1] and (columns if role is Role.O else rows) % (subject.heads[0] * subject.size) == 0


def _unfixed(pair: Pair) -> bool:
    """May q and k rows be renumbered inside a head? Not where positions rotate them, or one norm serves all heads."""
    norms = (Role.Q_NORM, Role.K_NORM)
    return all(side.facts.positions in UNROTATED and not any(map(side.of, norms)) for side in (pair.a, pair.b))


def _some_heads(subject: Subject) -> Plan:
    """Values alone, of as many heads as fit for a few layers; where one model has more, from the first on."""
    fewer, more = sorted(subject.heads)
    ratio = -(-more // fewer)
    layers = min(len(subject.a), len(subject.b), FEW_LAYERS)
    one = Plan((Role.V,), (ratio, ratio))
    count = min(fewer, max(1, int(subject.room / max(1.0, layers * _dearest(subject, one)))))
    if fewer == more:
        return Plan((Role.V,), (count, count), offset(subject.pair.seed, "kv groups", fewer, count))
    of_a, of_b = (count if heads == fewer else min(heads, ratio * count) for heads in subject.heads)
    return Plan((Role.V,), (of_a, of_b))


def _by_columns(subject: Subject) -> Plan | None:
    """All heads by a block of hidden axes, where both models store them so."""
    roles = next(iter(_wider(subject)[-1:]), (Role.V,))
    views = [side.view(slots[role]) for side, by in subject.sides() for slots in by.values() for role in roles]
    width = min(view.shape[1] for view in views)
    layers = min(len(subject.a), len(subject.b), FEW_LAYERS)
    one = _dearest(subject, Plan(roles, subject.heads, columns=(0, 1)))
    columns = min(width, int(subject.room / max(1.0, layers * one)))
    if any(view.axis != "columns" for view in views) or columns < FEWEST_COLUMNS:
        return None
    first = offset(subject.pair.seed, "hidden axes", width, columns)
    return Plan(roles, subject.heads, columns=(first, first + columns))


def _layers_that_fit(subject: Subject, plan: Plan) -> int:
    return int(subject.room / max(1.0, _dearest(subject, plan)))


def _dearest(subject: Subject, plan: Plan) -> float:
    """What the dearest layer of either model costs."""
    return max(
        bytes_of(anatomy, _of_layer(subject, plan, side, name))
        for side, (anatomy, by) in enumerate(subject.sides())
        for name in by
    )


def _of_layer(subject: Subject, plan: Plan, side: int, name: str) -> list[Cut]:
    anatomy, by = subject.sides()[side]
    return [_cut(anatomy, by[name][role], plan, subject, side) for role in plan.roles]


def _cut(anatomy: Anatomy, slot: Slot, plan: Plan, subject: Subject, side: int) -> Cut:
    if slot.role is Role.O:
        return Cut(slot)
    per_head = anatomy.shape(slot)[0] // subject.heads[side] if slot.role is Role.Q else subject.size
    return Cut(slot, plan.start * per_head, (plan.start + plan.heads[side]) * per_head, columns=plan.columns)


# The answer.


@dataclass(frozen=True, eq=False)
class Count:
    """A view, counted."""

    view: View
    calls: tuple[RollCall, ...]
    findings: tuple[LayerFinding, ...]
    significance: Significance
    checks: tuple[Assumption, ...] = ()  # of its rows; made where the count is surprising

    @property
    def effect(self) -> float:
        """The median likeness of a set, of those that could be asked."""
        return float(np.median([it.effect for it in self.findings if it.n and it.effect is not None]))

    @property
    def fixed(self) -> int:
        return sum(call.fixed for call in self.calls)

    @property
    def n(self) -> int:
        return sum(call.n for call in self.calls)


def _answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    size = _head_dim(a.portrait.head_dim, b.portrait.head_dim)
    groups = not {a.portrait.positions, b.portrait.positions} & set(BY_HEAD)
    counts = [_counted(view, rng) for view in views(read_layers(a, b, size), groups)]
    if not any(count.n for count in counts):
        raise CannotAsk("no value row can be told from the others: their rows are constant or equal")
    # Of views that are equally sure, the one whose rows are most alike tells best what was kept.
    best = min((count for count in counts if count.n), key=lambda it: (it.significance.log10_pvalue, -it.effect))
    names = "; ".join(count.view.what + count.view.how for count in counts)
    tests = [count.significance for count in counts]
    sets = sum(call.n > 0 for call in best.calls)
    return weighed(
        ATTENTION.id,
        ATTENTION.index_set,
        better_of(tests, names) if len(tests) > 1 else tests[0],
        (Assumption(ATTENTION.null), *best.checks, *_failed(counts, best)),
        statistic=float(best.fixed),
        n=best.n,
        effect=best.effect,
        observed=f"{best.fixed:,} of {best.n:,} {best.view.what} chose their own{best.view.how}",
        strangers=f"{sets:,} of {best.n:,}, one of every set of {best.n / sets:.0f}",
        per_layer=best.findings,
    )


def heads_stand_elsewhere(found: Evidence) -> bool:
    """Whether heads show more beside those that their keys chose than beside those of their number."""
    return found.question == ATTENTION.id and found.observed.endswith(BY_KEYS)


def _counted(view: View, rng: np.random.Generator) -> Count:
    calls = tuple(roll_call(left, right, rng) for _, _, left, right in view.sets)
    layers = over_layers(calls)
    sides = [left for _, _, left, _ in view.sets], [right for _, _, _, right in view.sets]
    surprising = layers.significance.log10_pvalue <= DOUBTED
    findings = tuple(finding(*rows, call) for rows, call in zip(view.sets, calls, strict=True))
    if not surprising:
        return Count(view, calls, findings, layers.significance)
    checks = _checks(view, calls, sides, rng)
    return Count(view, calls, findings, layers.best if all(map(_repeats, sides)) else layers.significance, checks)


def _checks(
    view: View, calls: Sequence[RollCall], sides: tuple[list[Floats], list[Floats]], rng: np.random.Generator
) -> tuple[Assumption, ...]:
    found = most_found([call.fixed for call in calls])
    followed = [[traits_by_width(side[i], view.width) for i in found] for side in sides]
    return (
        index_means_nothing(*sides, rng, view.places),
        follow_no_index(followed[0], followed[1], rng),
        *zeros_apart(zeros(left, right) for _, _, left, right in view.sets),
    )


def _failed(counts: Sequence[Count], best: Count) -> tuple[Assumption, ...]:
    """What does not hold for any of the views counts against all: one of them would have been the best."""
    others = (check for count in counts if count is not best for check in count.checks if check.held is False)
    return tuple(dict.fromkeys(others))


def _repeats(sets: Sequence[Floats]) -> bool:
    """Does a model hold the rows of some head twice, in one layer or in two?"""
    shared = min(ROWS_ALIKE, *(len(rows) for rows in sets))
    rows = np.array([unit_rows(rows[:shared].astype(np.float64)).ravel() for rows in sets], dtype=np.float32)
    alike = np.abs(rows @ rows.T) / shared
    np.fill_diagonal(alike, 0.0)
    return bool(np.max(alike, initial=0.0) > ALIKE)


ATTENTION = Question(
    id="attention",
    asks="Do the value rows inside the heads know each other, and the heads?",
    index_set="kv groups",
    stage=4,
    weight=0.10,
    null="The value rows inside a head could stand in any order, so one of a head finds itself; and so could whole "
    "heads of a layer.",
    cuts=_cuts,
    answer=_answer,
)
