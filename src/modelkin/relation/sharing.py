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
from modelkin.relation.experts import PARTS, ExpertMatch, Upcycling
from modelkin.relation.inheritance import MOST, Share, share_of_fact, share_of_rows, total
from modelkin.relation.reading import (
    HEAD,
    LINEAR,
    VOCABULARY,
    FacingSlots,
    LayerMap,
    Tokens,
    Weights,
    as_stored,
    counterpart,
    in_layer,
)
from modelkin.relation.repeated import RepeatedHeads

IN_HEADS = frozenset({Role.Q, Role.K, Role.Q_BIAS, Role.K_BIAS})
TURNED_HEADS = "queries and keys can be turned inside their heads without a trace, and these are not found in place"
OTHER_HEADS = "the two have other numbers of heads of keys and values, and these are not found in place"
NO_TOKENIZER = "no tokenizer tells which rows stand for the same tokens, and those of the same number do not agree"
ONE_TABLE = "the other model has one table for embedding and head"
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
    layers: LayerMap = ()

    def weights(self, side: Side) -> Weights:
        return self.a if side == "a" else self.b

    def parts(self, side: Side) -> list[tuple[Slot, int, Share]]:
        """Parameters and share of every slot of a or b that was compared, each once."""
        named = {str(slot): slot for slot in self.weights(side).slots}
        once: dict[Slot, tuple[int, Share]] = {}
        for fact in self.facts:
            once.setdefault(named[getattr(fact, side)], (fact.values, share_of_fact(fact)))
        for each in self.heads:
            once.setdefault(each.a if side == "a" else each.b, _of_heads(each, side))
        for double, of in self.doubles.get(side, {}).items():  # as inherited as what they double
            copied = [(slot, part) for slot, part in once.items() if slot.layer is not None and slot.layer_name == of]
            once.update((in_layer(slot, double), part) for slot, part in copied)
        return [(slot, *part) for slot, part in once.items()]

    def expert_parts(self, side: Side) -> list[tuple[list[Slot], Share]]:
        """Matrices of experts of one side, or of the MLPs that these are made of, layer by layer, with one share."""
        experts = self.experts
        if experts is None or not experts.holds:
            return []
        with_experts = experts.experts_in_b == (side == "b")
        found = []
        for name_b, name_a in self.layers:
            name_moe, name_dense = (name_b, name_a) if experts.experts_in_b else (name_a, name_b)
            matches = [match for match in experts.matches if match.layer == name_moe]
            name = name_moe if with_experts else name_dense
            slots = [s for s in self.weights(side).slots if s.role in PARTS and s.layer is not None]
            slots = [s for s in slots if s.layer_name == name and (s.expert is not None) == with_experts]
            if matches and slots:
                found.append((slots, self._expert_share(matches, with_experts)))
        return found

    def _expert_share(self, matches: Sequence[ExpertMatch], with_experts: bool) -> Share:
        """Of one layer: of the experts' neurons those found in the MLP, or of the MLP's those found in experts."""
        assert self.experts is not None  # as asked before
        if with_experts:
            return share_of_rows(sum(len(match.found) for match in matches), sum(match.asked for match in matches))
        moe = self.b if self.experts.experts_in_b else self.a
        return share_in_experts(matches, _neurons(moe, matches[0].layer), self.experts)

    def unseen_of(self, side: Side, wanted: Collection[Role] = ALL_ROLES) -> int:
        return sum(values for slot, values in self.unseen_slots(side) if slot.role in wanted)

    def unseen_slots(self, side: Side) -> list[tuple[Slot, int]]:
        """Each once, and none that was compared with another: one table may stand beside embedding and head."""
        seen = {getattr(fact, side) for fact in self.facts}
        slots = {getattr(each, side): each.values for each in self.unseen}
        return [(slot, values) for slot, values in slots.items() if slot is not None and str(slot) not in seen]


def without_place(a: Weights, b: Weights, layers: LayerMap, pairs: Sequence[FacingSlots]) -> list[Unseen]:
    """Slots of a rewritten b that have no place in the coordinates of a; and a head whose table b has but once."""
    continued, found = dict(layers), []
    if isinstance(b, Rewritten):
        stored = as_stored(b)
        for slot, why in b.left_out.items():
            other = counterpart(slot, continued)
            beside = other if other is not None and other in a.slots else None
            found.append(Unseen(beside, slot, _size(stored, slot), why))
    if b.facts.tied and HEAD in a.slots and HEAD not in b.slots and all(pair.a != HEAD for pair in pairs):
        found.append(Unseen(HEAD, None, _size(a, HEAD), ONE_TABLE))
    return found


def why_unseen(a: Weights, b: Weights, fact: TensorFact) -> str | None:
    """Why of heads of a disguised model that are not found nothing can be said; None of all else.

    Whoever rearranged it may have turned queries and keys as well, and where the two have other numbers of heads of
    keys and values, nobody knows which of the others belong together.
    """
    if not isinstance(b, Rewritten) or share_of_fact(fact)[0] > MOST:
        return None
    if fact.role in IN_HEADS:
        return TURNED_HEADS
    return OTHER_HEADS if fact.role is Role.O and a.facts.kv_heads != b.facts.kv_heads else None


def rows_unknown(fact: TensorFact, tokens: Tokens | None) -> bool:
    """Whether rows of a vocabulary that were taken by number do not agree: tokens may have other numbers here."""
    by_number = tokens is not None and not tokens.known and fact.role in VOCABULARY
    return by_number and share_of_fact(fact)[0] <= MOST


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
    weights = found.weights(side)
    parts = [(values, share) for _, values, share in found.parts(side)]
    parts += [(_sizes(weights, slots), share) for slots, share in found.expert_parts(side)]
    share = total(parts, sum(_wholes(weights, lambda slot: slot.role.value).values()), found.unseen_of(side))
    return None if share is None else msgspec.structs.replace(share, of=side)


def by_part(found: Compared, side: Side, part: Callable[[Slot], str]) -> tuple[PartShare, ...]:
    """One line a part of one of the two, unless nothing of it could be compared."""
    parts: dict[str, list[tuple[int, Share]]] = {}
    for slot, values, share in found.parts(side):
        parts.setdefault(part(slot), []).append((values, share))
    for slots, share in found.expert_parts(side):
        for name in dict.fromkeys(map(part, slots)):
            here = [slot for slot in slots if part(slot) == name]
            parts.setdefault(name, []).append((_sizes(found.weights(side), here), share))
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
        parts += [_of_heads(each, side) for each in found.heads if each.b.role in LINEAR]
        parts += [(_sizes(weights, slots), share) for slots, share in found.expert_parts(side)]
        share = total(parts, whole, found.unseen_of(side, LINEAR)) if whole else None
        if share is not None:
            shares.append(PartShare("inside the layers", whole, share.fraction, share.low, share.high))
    return max(shares, key=lambda share: share.fraction, default=None)


def _of_heads(each: RepeatedHeads, side: Side) -> tuple[int, Share]:
    return (each.values_a, each.share_a) if side == "a" else (each.values_b, each.share_b)


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


def share_in_experts(matches: Sequence[ExpertMatch], sizes: Mapping[int, int], experts: Upcycling) -> Share:
    """Of the neurons of an MLP those that some expert of its layer has. `sizes`: neurons of every expert of it.

    Counted where all were asked, and neurons of experts that were not found may be those that are missing. Otherwise
    experts hold together no less than one of them does, and no more than if they had nothing in common: parts of an
    MLP have not, copies that were drawn anew in part are taken to be so at random.
    """
    dense = experts.dense_neurons
    asked = sum(match.asked for match in matches)
    if asked == sum(sizes.values()):
        met = len(np.unique(np.concatenate([match.found for match in matches])))
        lost = asked - sum(len(match.found) for match in matches)
        return met / dense, met / dense, min(1.0, (met + lost) / dense)
    held = [(share_of_rows(len(m.found), m.asked), min(1.0, sizes[m.expert] / dense)) for m in matches]
    shares, lows, highs = (np.array([share[i] * part for share, part in held]) for i in range(3))
    more = len(sizes) / len(matches)
    if experts.how == "split":
        share, low, high = (_at_most_all(each.sum() * more) for each in (shares, lows, highs))
        return share, low, high
    return _at_most_all(1 - np.prod(1 - shares)), float(lows.max()), _at_most_all(highs.sum() * more)


def _at_most_all(share: float) -> float:
    return float(min(1.0, share))


def _neurons(moe: Weights, layer: str) -> dict[int, int]:
    """By expert of one layer."""
    ups = [slot for slot in moe.slots if slot.role is Role.UP and slot.layer is not None and slot.layer_name == layer]
    return {slot.expert: moe.shape(slot)[0] for slot in ups if slot.expert is not None}


def _sizes(weights: Weights, slots: Iterable[Slot]) -> int:
    return sum(_size(weights, slot) for slot in slots)
