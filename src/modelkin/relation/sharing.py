"""Shares of the parameters: of one of the two, of its layers, of every role and layer; and what was not seen.

What could not be compared is neither inherited nor new. Shares are of the rest, and intervals reach over both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import msgspec
import numpy as np

from modelkin.alignment import Rewritten
from modelkin.records import Direction, Role, Shared, Side, Slot
from modelkin.records.relation import NotCompared, PartShare, TensorFact
from modelkin.relation.experts import PARTS, Upcycling
from modelkin.relation.inheritance import Share, share_of_fact, total
from modelkin.relation.reading import LINEAR, LayerMap, Weights, as_stored, counterpart, in_layer
from modelkin.relation.repeated import RepeatedHeads

IN_HEADS = frozenset({Role.Q, Role.K, Role.Q_BIAS, Role.K_BIAS})
TURNED_HEADS = "queries and keys can be turned inside their heads without a trace, and these are not found in place"
OTHER_HEADS = "the two have other numbers of heads of keys and values, and these are not found in place"
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
    """Both models, what was found tensor by tensor, and what could not be.

    `doubles`: layers of a, and of b, that stand beside none and double another of the same model.
    """

    a: Weights
    b: Weights
    facts: Sequence[TensorFact]
    unseen: Sequence[Unseen]
    experts: Upcycling | None = None
    heads: Sequence[RepeatedHeads] = ()
    doubles: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)

    def weights(self, side: Side) -> Weights:
        return self.a if side == "a" else self.b

    def parts(self, side: Side) -> list[tuple[Slot, int, Share]]:
        """Parameters and share of every slot of a or b that was compared, each once."""
        named = {str(slot): slot for slot in self.weights(side).slots}
        once: dict[Slot, tuple[int, Share]] = {}
        for fact in self.facts:
            once.setdefault(named[getattr(fact, side)], (fact.values, share_of_fact(fact)))
        for each in self.heads:
            values = each.values_a if side == "a" else each.values_b
            once.setdefault(each.a if side == "a" else each.b, (values, each.share))
        for double, of in self.doubles.get(side, {}).items():  # as inherited as what they double
            copied = [(slot, part) for slot, part in once.items() if slot.layer is not None and slot.layer_name == of]
            once.update((in_layer(slot, double), part) for slot, part in copied)
        return [(slot, *part) for slot, part in once.items()]

    def unseen_of(self, side: Side, wanted: Collection[Role] = ALL_ROLES) -> int:
        return sum(values for slot, values in self.unseen_slots(side) if slot.role in wanted)

    def unseen_slots(self, side: Side) -> list[tuple[Slot, int]]:
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


def why_unseen(a: Weights, b: Weights, fact: TensorFact) -> str | None:
    """Why of heads of a disguised model that are not found nothing can be said; None of all else.

    Whoever rearranged it may have turned queries and keys as well, and where the two have other numbers of heads of
    keys and values, nobody knows which of the others belong together.
    """
    if not isinstance(b, Rewritten) or share_of_fact(fact)[0] > 0.5:
        return None
    if fact.role in IN_HEADS:
        return TURNED_HEADS
    return OTHER_HEADS if fact.role is Role.O and a.facts.kv_heads != b.facts.kv_heads else None


def told(unseen: Iterable[Unseen]) -> tuple[NotCompared, ...]:
    """Of b, for the record: a line a role and reason."""
    sums: dict[tuple[str, str], int] = {}
    for each in unseen:
        if each.b is not None:
            key = each.b.role.value, each.why
            sums[key] = sums.get(key, 0) + each.values
    return tuple(NotCompared(role, values, why) for (role, why), values in sums.items())


def child_side(order: Direction) -> Side:
    """`a` or `b`; b where nobody knows."""
    return "a" if order == "b->a" else "b"


def shared(found: Compared, side: Side) -> Shared | None:
    """Of the parameters of one of the two. None where nothing could be compared."""
    weights, experts = found.weights(side), found.experts
    parts = [(values, share) for _, values, share in found.parts(side)]
    if experts is not None and experts.holds and experts.experts_in_b == (side == "b"):
        parts.append(_expert_part(weights, experts))
    share = total(parts, sum(_wholes(weights, lambda slot: slot.role.value).values()), found.unseen_of(side))
    return None if share is None else msgspec.structs.replace(share, of=side)


def by_part(found: Compared, side: Side, part: Callable[[Slot], str]) -> tuple[PartShare, ...]:
    """One line a part of one of the two, unless nothing of it could be compared."""
    parts: dict[str, list[tuple[int, Share]]] = {}
    for slot, values, share in found.parts(side):
        parts.setdefault(part(slot), []).append((values, share))
    unseen: Counter[str] = Counter()
    for slot, values in found.unseen_slots(side):
        unseen[part(slot)] += values
    lines = []
    for name, whole in _wholes(found.weights(side), part).items():
        one = total(parts.get(name, ()), whole, unseen[name])
        if one is not None:
            lines.append(PartShare(name, whole, one.fraction, one.low, one.high))
    return tuple(lines)


def body(found: Compared) -> PartShare | None:
    """What lies inside the layers, of the model of which more goes on: a part of a whole is all inherited.

    Gains and biases are too small to count beside matrices.
    """
    shares, sides = [], get_args(Side)
    for side in sides:
        weights = found.weights(side)
        whole = sum(_size(weights, slot) for slot in weights.slots if slot.role in LINEAR)
        parts = [(fact.values, share_of_fact(fact)) for fact in found.facts if fact.role in LINEAR]
        parts += [(each.values_a if side == "a" else each.values_b, each.share) for each in found.heads]
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
