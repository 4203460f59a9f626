"""Shares of the parameters: of the child, of what is inside the layers, of every role and layer; and what was not seen.

What could not be compared is neither inherited nor new. Shares are of the rest, and intervals reach over both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.alignment import Rewritten
from modelkin.records import Direction, Role, Shared, Slot
from modelkin.records.relation import NotCompared, PartShare, TensorFact
from modelkin.relation.depth import Depth
from modelkin.relation.experts import PARTS, Upcycling
from modelkin.relation.inheritance import Share, share_of_fact, total
from modelkin.relation.reading import LINEAR, LayerMap, Weights, as_stored, counterpart

IN_HEADS = frozenset({Role.Q, Role.K, Role.Q_BIAS, Role.K_BIAS})
TURNED_HEADS = "queries and keys can be turned inside their heads without a trace, and these are not found in place"
ONE_TABLE = "the other model has one table for embedding and head"
HEAD = Slot(Role.HEAD)
ALL_ROLES = frozenset(Role)


@dataclass(frozen=True)
class Unseen:
    """A slot of b, and of a, that nothing could be said of."""

    a: Slot | None
    b: Slot | None
    values: int
    why: str


@dataclass(frozen=True, eq=False)
class Compared:
    """Both models, what was found tensor by tensor, and what could not be."""

    a: Weights
    b: Weights
    facts: Sequence[TensorFact]
    unseen: Sequence[Unseen]
    experts: Upcycling | None = None

    def parts(self, side: str) -> list[tuple[int, Share]]:
        """Parameters and share of every tensor of a or b that was compared, each once."""
        once: dict[str, TensorFact] = {}
        for fact in self.facts:
            once.setdefault(getattr(fact, side), fact)
        return [(fact.values, share_of_fact(fact)) for fact in once.values()]

    def unseen_of(self, side: str, wanted: Collection[Role] = ALL_ROLES) -> int:
        return sum(values for slot, values in self.unseen_slots(side) if slot.role in wanted)

    def unseen_slots(self, side: str) -> list[tuple[Slot, int]]:
        slots = [(getattr(each, side), each.values) for each in self.unseen]
        return [(slot, values) for slot, values in slots if slot is not None]


def without_place(a: Weights, b: Weights, layers: LayerMap) -> list[Unseen]:
    """Slots of a rewritten b that have no place in the coordinates of a; and a head whose table b has but once."""
    continued, found = dict(layers), []
    if isinstance(b, Rewritten):
        stored = as_stored(b)
        for slot, why in b.left_out.items():
            other = counterpart(slot, continued)
            beside = other if other is not None and other in a.slots else None
            found.append(Unseen(beside, slot, _size(stored, slot), why))
    if b.facts.tied and HEAD in a.slots and HEAD not in b.slots:
        found.append(Unseen(HEAD, None, _size(a, HEAD), ONE_TABLE))
    return found


def may_be_turned(b: Weights, fact: TensorFact) -> bool:
    """Queries and keys of a disguised model that are not found: whoever rearranged it may have turned them as well."""
    return isinstance(b, Rewritten) and fact.role in IN_HEADS and share_of_fact(fact)[0] <= 0.5


def told(unseen: Iterable[Unseen]) -> tuple[NotCompared, ...]:
    """Of b, for the record: a line a role and reason."""
    sums: dict[tuple[str, str], int] = {}
    for each in unseen:
        if each.b is not None:
            key = each.b.role.value, each.why
            sums[key] = sums.get(key, 0) + each.values
    return tuple(NotCompared(role, values, why) for (role, why), values in sums.items())


def child_side(order: Direction) -> str:
    """`a` or `b`; b where nobody knows."""
    return "a" if order == "b->a" else "b"


def shared(found: Compared, order: Direction, depth: Depth | None) -> Shared | None:
    """Of the parameters of the child; of b where nobody knows which that is. None where nothing could be compared."""
    side = child_side(order)
    child = found.a if side == "a" else found.b
    parts = found.parts(side)
    experts = found.experts
    if experts is not None and experts.holds and experts.experts_in_b == (side == "b"):
        parts.append(_expert_part(child, experts))
    share = total(parts, sum(_wholes(child, lambda slot: slot.role.value).values()), found.unseen_of(side))
    if share is not None and depth is not None and depth.kind == "depth-upscale" and depth.child == "a":
        return _with_doubles(found.a, share, found.facts)
    return share


def by_part(
    found: Compared, part: Callable[[Slot], str], of_fact: Callable[[TensorFact], str]
) -> tuple[PartShare, ...]:
    """One line a part of b, unless nothing of it could be compared."""
    parts: dict[str, list[tuple[int, Share]]] = {}
    for fact in found.facts:
        parts.setdefault(of_fact(fact), []).append((fact.values, share_of_fact(fact)))
    unseen: Counter[str] = Counter()
    for slot, values in found.unseen_slots("b"):
        unseen[part(slot)] += values
    lines = []
    for name, whole in _wholes(found.b, part).items():
        share = total(parts.get(name, ()), whole, unseen[name])
        if share is not None:
            lines.append(PartShare(name, whole, share.fraction, share.low, share.high))
    return tuple(lines)


def body(found: Compared) -> PartShare | None:
    """What lies inside the layers, of the model of which more goes on: a part of a whole is all inherited.

    Gains and biases are too small to count beside matrices.
    """
    shares = []
    for side, weights in (("a", found.a), ("b", found.b)):
        whole = sum(_size(weights, slot) for slot in weights.slots if slot.role in LINEAR)
        parts = [(fact.values, share_of_fact(fact)) for fact in found.facts if fact.role in LINEAR]
        if found.experts is not None and found.experts.experts_in_b == (side == "b") and found.experts.holds:
            parts.append(_expert_part(weights, found.experts))
        share = total(parts, whole, found.unseen_of(side, LINEAR)) if whole else None
        if share is not None:
            shares.append(PartShare("inside the layers", whole, share.fraction, share.low, share.high))
    return max(shares, key=lambda share: share.fraction, default=None)


def _size(weights: Weights, slot: Slot) -> int:
    return int(np.prod(weights.shape(slot)))


def _wholes(weights: Weights, part: Callable[[Slot], str]) -> dict[str, int]:
    """Parameters by part, with those that have no place in the coordinates of the other."""
    sizes: dict[str, int] = {}
    for slot in weights.slots:
        sizes[part(slot)] = sizes.get(part(slot), 0) + _size(weights, slot)
    if isinstance(weights, Rewritten):
        for slot in weights.left_out:
            sizes[part(slot)] = sizes.get(part(slot), 0) + _size(as_stored(weights), slot)
    return sizes


def _expert_part(weights: Weights, experts: Upcycling) -> tuple[int, Share]:
    """Parameters of all experts and the share of their neurons that was found."""
    count = sum(_size(weights, s) for s in weights.slots if s.expert is not None and s.role in PARTS)
    return count, experts.rows_share()


def _with_doubles(a: Weights, share: Shared, facts: Sequence[TensorFact]) -> Shared:
    """Layers of a that double others stand beside no layer of b; they are as inherited as what they double."""
    inside = sum(_size(a, slot) for slot in a.slots if slot.layer is not None)
    faced = sum(fact.values for fact in facts if fact.layer)
    factor = 1 + (inside - faced) / max(1, faced)
    return Shared(*(min(1.0, value * factor) for value in (share.fraction, share.low, share.high)))
