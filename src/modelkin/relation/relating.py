"""From two models that were found to be related to what was done, who came first, and how much is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.records import Shared, Slot
from modelkin.records.relation import Merge, PartShare, Relation, TensorFact, Triplet
from modelkin.relation import direction
from modelkin.relation.depth import Depth, depth_change
from modelkin.relation.drawing import drawn
from modelkin.relation.experts import PARTS, Upcycling, upcycling
from modelkin.relation.inheritance import Share, by_part, share_of_fact, total
from modelkin.relation.kinds import Findings, kinds
from modelkin.relation.learned import direction_features, fitted
from modelkin.relation.merges import Named, unmixed
from modelkin.relation.narrowing import Narrowed, Narrowing, narrowing
from modelkin.relation.reading import (
    LINEAR,
    FacingSlots,
    LayerMap,
    Tokens,
    Weights,
    default_map,
    facing_slots,
    parameters,
    spread,
)
from modelkin.relation.tensors import tensor_facts
from modelkin.relation.tokens import token_facts
from modelkin.relation.triplets import triplet

Progress = Callable[[str, int, int], None]
LAYERS_OF_THIRDS = 4
LIMITS = (
    "kind and direction are read from the weights alone, never from dates or model cards",
    "a model that was trained for long after several steps shows the last one best",
    "an order of two says that one comes from the other or from a model very near to it; third relatives tell siblings",
)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """What is asked. `layers`: (layer of b, layer of a or None), empty where no map was found.

    b may be rewritten in the coordinates of a; `disguises` then says what had to be undone. `candidates` are further
    models, parents or siblings, by name.
    """

    layers: LayerMap = ()
    tokens: Tokens | None = None
    names: tuple[str, str] = ("a", "b")
    candidates: Sequence[Named] = ()
    disguises: Sequence[str] = ()
    seed: int = 0


def _silent(what: str, done: int, of: int) -> None:
    del what, done, of


def relate(a: Weights, b: Weights, inquiry: Inquiry = Inquiry(), progress: Progress = _silent) -> Relation:
    """Everything that can be told of a pair once it is known to be one. Both are read once, two tensors at a time."""
    rng = np.random.default_rng([inquiry.seed, 6])
    layers = inquiry.layers or default_map(a.layers, b.layers)
    narrow, narrow_side = _narrowed(a, b, layers, inquiry.tokens)
    left: Weights = Narrowed(a, narrow) if narrow is not None and narrow_side == "b" else a
    right: Weights = Narrowed(b, narrow) if narrow is not None and narrow_side == "a" else b
    pairs = facing_slots(left, right, layers, inquiry.tokens)
    facts = tensor_facts(left, right, pairs, rng, progress)
    depth = depth_change(a, b, layers, rng)
    experts = upcycling(a, b, layers)
    merge = _merge(a, b, inquiry)
    thirds, odds = _thirds(a, b, layers, inquiry, rng)
    tokens = None if inquiry.tokens is None else token_facts(a, b, inquiry.tokens, facts)
    child = narrow_side if narrow is not None else ""
    clues = direction.Clues(facts, tokens, depth, child or None, _with_experts(experts), merge, inquiry.names)
    judged = direction.judged(clues, thirds, odds)
    body = _body((left, right), facts, experts)
    found = Findings(
        facts,
        body,
        _complete(a, b, pairs),
        tokens,
        inquiry.tokens is not None and inquiry.tokens.known,
        depth,
        narrow,
        experts,
        merge,
        thirds,
        inquiry.disguises,
    )
    return Relation(
        kinds=kinds(found),
        direction=judged.direction,
        direction_probability=judged.probability,
        direction_reasons=judged.reasons,
        shared=_shared(a, b, facts, experts, judged.direction, depth),
        by_role=by_part(facts, lambda fact: fact.role.value, _wholes(right, lambda slot: slot.role.value)),
        by_layer=by_part(facts, lambda fact: fact.layer, _wholes(right, lambda slot: slot.layer_name)),
        layer_map=layers,
        drawing=drawn(layers, a.layers),
        tensors=facts,
        tokens=tokens,
        merge=merge,
        triplets=thirds,
        limits=LIMITS,
    )


def _narrowed(a: Weights, b: Weights, layers: LayerMap, tokens: Tokens | None) -> tuple[Narrowing | None, str]:
    """The narrower of the two as a part of the wider, if their widths differ: what it kept, and which it is."""
    width_a, width_b = a.facts.hidden, b.facts.hidden
    neurons_a, neurons_b = a.facts.intermediate, b.facts.intermediate
    if tokens is None or not width_a or not width_b or a.facts.experts or b.facts.experts:
        return None, ""
    if (width_a, neurons_a or 0) == (width_b, neurons_b or 0):
        return None, ""
    if width_a >= width_b and (neurons_a or 0) >= (neurons_b or 0):
        return narrowing(a, b, layers, tokens), "b"
    if width_a <= width_b and (neurons_a or 0) <= (neurons_b or 0):
        turned = Tokens(tokens.b, tokens.a, tokens.only_b, tokens.only_a, tokens.known)
        back = tuple((name_a, name_b) for name_b, name_a in layers if name_a is not None)
        return narrowing(b, a, back, turned), "a"
    return None, ""


def _with_experts(experts: Upcycling | None) -> str | None:
    if experts is None or not experts.holds:
        return None
    return "b" if experts.experts_in_b else "a"


def _complete(a: Weights, b: Weights, pairs: Sequence[FacingSlots]) -> bool:
    faced_a, faced_b = {pair.a for pair in pairs}, {pair.b for pair in pairs}
    whole = all(a.shape(pair.a) == b.shape(pair.b) == pair.shape(a) for pair in pairs)
    return whole and len(faced_a) == len(pairs) and faced_a == set(a.slots) and faced_b == set(b.slots)


# Further models.


def _merge(a: Weights, b: Weights, inquiry: Inquiry) -> Merge | None:
    """Either of the pair as a mixture of all others; the one that is explained better."""
    if not inquiry.candidates:
        return None
    named: tuple[Named, Named] = (inquiry.names[0], a), (inquiry.names[1], b)
    tried = [unmixed(named[1], [named[0], *inquiry.candidates]), unmixed(named[0], [named[1], *inquiry.candidates])]
    return max((merge for merge in tried if merge is not None), key=lambda merge: merge.gain, default=None)


def _thirds(
    a: Weights, b: Weights, layers: LayerMap, inquiry: Inquiry, rng: np.random.Generator
) -> tuple[tuple[Triplet, ...], dict[str, tuple[float, float]]]:
    found, odds = [], {}
    for name, third in inquiry.candidates:
        seen = triplet(name, a, b, third, layers, rng)
        if seen is None:
            continue
        found.append(seen)
        back = tuple((name_a, name_a) for _, name_a in layers if name_a is not None)
        odds[name] = _before(third, a, back, rng), _before(third, b, layers, rng)
    return tuple(found), odds


def _before(third: Weights, other: Weights, layers: LayerMap, rng: np.random.Generator) -> float:
    """Log-odds that the third model came before the other, from some of their layers."""
    named = [pair for pair in layers if pair[1] is not None]
    some = tuple(named[i] for i in spread(len(named), LAYERS_OF_THIRDS))
    wanted = [p for p in facing_slots(third, other, some, None) if p.b.role in LINEAR or p.b.role.is_gain]
    features = direction_features(tensor_facts(third, other, wanted, rng, _silent))
    return 0.0 if features is None else fitted()["direction"].log_odds(features)


# How much.


def _wholes(weights: Weights, part: Callable[[Slot], str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for slot in weights.slots:
        sizes[part(slot)] = sizes.get(part(slot), 0) + int(np.prod(weights.shape(slot)))
    return sizes


def _expert_part(weights: Weights, experts: Upcycling) -> tuple[int, Share]:
    """Parameters of all experts and the share of their neurons that was found."""
    count = sum(int(np.prod(weights.shape(s))) for s in weights.slots if s.expert is not None and s.role in PARTS)
    return count, experts.rows_share()


def _body(sides: Sequence[Weights], facts: Sequence[TensorFact], experts: Upcycling | None) -> PartShare | None:
    """What lies inside the layers, of the model of which more goes on: a part of a whole is all inherited.

    Gains and biases are too small to count beside matrices.
    """
    shares = []
    for side, is_b in zip(sides, (False, True), strict=True):
        whole = sum(int(np.prod(side.shape(slot))) for slot in side.slots if slot.role in LINEAR)
        parts = [(fact.values, share_of_fact(fact)) for fact in facts if fact.role in LINEAR]
        if experts is not None and experts.experts_in_b == is_b and experts.holds:
            parts.append(_expert_part(side, experts))
        if whole:
            share = total(parts, whole)
            shares.append(PartShare("inside the layers", whole, share.fraction, share.low, share.high))
    return max(shares, key=lambda share: share.fraction, default=None)


def _shared(
    a: Weights, b: Weights, facts: Sequence[TensorFact], experts: Upcycling | None, order: str, depth: Depth | None
) -> Shared:
    """Of the parameters of the child; of b where nobody knows which that is."""
    child = a if order == "b->a" else b
    parts = [(fact.values, share_of_fact(fact)) for fact in facts]
    if experts is not None and experts.holds and experts.experts_in_b == (child is b):
        parts.append(_expert_part(child, experts))
    share = total(parts, parameters(child))
    if depth is not None and depth.kind == "depth-upscale" and depth.child == "a":
        return _with_doubles(a, share, facts)
    return share


def _with_doubles(a: Weights, share: Shared, facts: Sequence[TensorFact]) -> Shared:
    """Layers of a that double others stand beside no layer of b; they are as inherited as what they double."""
    inside = sum(int(np.prod(a.shape(slot))) for slot in a.slots if slot.layer is not None)
    faced = sum(fact.values for fact in facts if fact.layer)
    factor = 1 + (inside - faced) / max(1, faced)
    return Shared(*(min(1.0, value * factor) for value in (share.fraction, share.low, share.high)))
