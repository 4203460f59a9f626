"""From two models that were found to be related to what was done, who came first, and how much is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from modelkin.alignment import Rewritten, steps_back
from modelkin.records import Side
from modelkin.records.naming import seen_from_child
from modelkin.records.relation import Merge, Relation, TensorFact, Triplet
from modelkin.relation import direction
from modelkin.relation.depth import Depth, depth_change, doubled_slots
from modelkin.relation.drawing import drawn
from modelkin.relation.expert_pairs import expert_map, experts_in, moved_experts
from modelkin.relation.experts import Upcycling, upcycling
from modelkin.relation.kinds import Findings, kinds
from modelkin.relation.learned import direction_features, fitted, inherited
from modelkin.relation.merges import Named, unmixed
from modelkin.relation.narrowing import Narrowed, Narrowing, narrowing, of_own_width, on_common_axes, other_width
from modelkin.relation.reading import (
    LINEAR,
    ExpertMap,
    FacingSlots,
    LayerMap,
    Tokens,
    Weights,
    as_stored,
    default_map,
    facing_slots,
    spread,
)
from modelkin.relation.repeated import RepeatedHeads, repeated_heads
from modelkin.relation.returned import Placed, Returned, placed
from modelkin.relation.sharing import (
    NO_TOKENIZER,
    Compared,
    Unseen,
    body,
    by_part,
    child_side,
    rows_unknown,
    shared,
    told,
    why_unseen,
    without_place,
)
from modelkin.relation.tensors import linear, tensor_facts
from modelkin.relation.tokens import token_facts
from modelkin.relation.triplets import triplet
from modelkin.relation.turned import axes_facts
from modelkin.relation.unmatched import completed, has_more
from modelkin.relation.values import nothing_learnt

Progress = Callable[[str, int, int], None]
LAYERS_OF_THIRDS = 4
MOST_FACTS = 2_000  # tensors kept in the record
NOT_FINITE = "it holds values that are not finite numbers"
LIMITS = (
    "Kind and direction are read from the weights alone, never from dates or model cards.",
    "A model that was trained for long after several steps shows the last one best.",
)
STORED_AGAIN = (
    "A model that was rearranged is stored anew, and training that changed it less than rounding does would not be "
    "seen."
)
EXPERTS_RENUMBERED = "experts renumbered"
OTHER_HEADS = (
    "the two have other numbers of attention heads, or heads of another size: left out or joined in one of them, or "
    "put in or drawn anew in the other"
)
OTHER_EXPERTS = "one of the two has experts that the other lacks: left out in one, or put in in the other"
NOT_UNMIXED = (
    "Of a rearranged model means, great circles and stacked layers are un-mixed; that changes were dropped by lot or "
    "by size (DARE, TIES) is seen in single values, which rearranging changes, and is not told."
)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """What is asked. `layers`: (layer of b, layer of a or None), empty where no map was found.

    b may be rewritten in the coordinates of a; `disguises` then says what had to be undone. `candidates` are further
    models, parents or siblings, by name. `unplaced`: one of the two has tensors that nobody could place.
    """

    layers: LayerMap = ()
    tokens: Tokens | None = None
    names: tuple[str, str] = ("a", "b")
    candidates: Sequence[Named] = ()
    disguises: Sequence[str] = ()
    unplaced: bool = False
    seed: int = 0


def _silent(what: str, done: int, of: int) -> None:
    del what, done, of


def relate(a: Weights, b: Weights, inquiry: Inquiry = Inquiry(), progress: Progress = _silent) -> Relation:
    """Everything that can be told of a pair once it is known to be one. Both are read once, two tensors at a time."""
    with np.errstate(invalid="ignore", over="ignore"):  # sums over infinite values; such tensors are told apart
        return _related(a, b, inquiry, progress)


def _related(a: Weights, b: Weights, inquiry: Inquiry, progress: Progress) -> Relation:
    rng = np.random.default_rng([inquiry.seed, 6])
    layers = completed(a, b, inquiry.layers or default_map(a.layers, b.layers))
    on_a, on_b = on_common_axes(a, b)
    narrow, narrow_side = _narrowed(on_a, on_b, layers, inquiry.tokens)
    left: Weights = Narrowed(on_a, narrow) if narrow is not None and narrow_side == "b" else on_a
    right: Weights = Narrowed(on_b, narrow) if narrow is not None and narrow_side == "a" else on_b
    renumbered = expert_map(left, right, layers, np.random.default_rng([inquiry.seed, 7]))
    pairs = facing_slots(left, right, layers, inquiry.tokens, renumbered)
    every = tensor_facts(left, right, pairs, rng, progress)
    facts, unseen = _told_apart(left, right, pairs, every, inquiry.tokens)
    unseen += without_place(a, b, layers, pairs)
    depth = depth_change(a, b, layers, rng, renumbered=bool(inquiry.disguises))
    # Doubles of a rearranged model stand in an order of their own.
    doubled = [] if inquiry.disguises else doubled_slots(left, right, layers, depth)
    told_by = [*facts, *tensor_facts(left, right, doubled, rng, _silent)]
    experts = upcycling(a, b, layers)
    beside = placed((inquiry.names[0], a), (inquiry.names[1], b), inquiry.candidates)
    merge = _merge(beside, inquiry.names)
    thirds, odds = _thirds(beside, layers, inquiry.names, merge, rng)
    tokens = None if inquiry.tokens is None else token_facts(a, b, inquiry.tokens, facts)
    child = narrow_side if narrow is not None else ""
    heads = repeated_heads(left, right, layers)
    axes = axes_facts(b.alignment) if isinstance(b, Rewritten) else None
    clues = direction.Clues(
        facts=told_by,
        tokens=tokens,
        depth=depth,
        narrow=child or None,
        upcycled=_with_experts(experts),
        unparted=experts is not None and experts.unparted,
        merge=merge,
        names=inquiry.names,
        axes=axes,
        apart=inquiry.unplaced or has_more(a, b, layers) or _apart(layers, depth, unseen, b),
        reordered=steps_back(layers, a.layers),
        new_digits=isinstance(b, Rewritten) and not b.axes.keeps_gains,
        learnt=nothing_learnt(linear(told_by)) is None,
        alone=tuple(_only_one_has(a, b, layers, heads)),
    )
    judged = direction.judged(clues, thirds, odds)
    doubles = _doubles(depth)
    compared = Compared(a, of_own_width(b), facts, unseen, experts, heads, doubles, layers)
    facing = Compared(left, right, facts, unseen, experts, heads, doubles, layers)
    side = child_side(judged.direction)
    undone = (*inquiry.disguises, *_experts_moved(a, b, layers, renumbered))
    whole, known = _complete(a, b, pairs) and not unseen, inquiry.tokens is not None and inquiry.tokens.known
    found = Findings(
        facts=told_by,
        body=body(facing),
        complete=whole,
        tokens=tokens,
        tokens_known=known,
        depth=depth,
        narrow=narrow,
        experts=experts,
        merge=merge if merge is not None and merge.merged in inquiry.names else None,
        triplets=thirds,
        disguises=seen_from_child(undone, judged.direction),
        reordered=steps_back(layers, a.layers),
    )
    shown = layers if inquiry.layers else _going_on(layers, facts)
    return Relation(
        kinds=kinds(found),
        direction=judged.direction,
        direction_probability=judged.probability,
        direction_reasons=judged.reasons,
        shared=shared(compared, side),
        by_role=by_part(facing, side, lambda slot: slot.role.value),
        by_layer=by_part(facing, side, lambda slot: slot.layer_name),
        layer_map=shown,
        drawing=drawn(shown, a.layers),
        tensors=tuple(every[i] for i in spread(len(every), MOST_FACTS)),
        tensors_compared=len(every),
        not_compared=told(unseen),
        axes=axes,
        tokens=tokens,
        merge=merge,
        triplets=thirds,
        limits=(*LIMITS, *_limits(compared, side, len(every), bool(inquiry.disguises)), *_not_unmixed(inquiry)),
    )


def _apart(layers: LayerMap, depth: Depth | None, unseen: Sequence[Unseen], b: Weights) -> bool:
    """Whether something of one is not seen in the other. Of a rearranged model some never is."""
    alone = depth is None and any(name is None for _, name in layers)
    lost = any(not isinstance(b, Rewritten) or each.why == NO_TOKENIZER for each in unseen)
    return alone or lost


def _only_one_has(a: Weights, b: Weights, layers: LayerMap, heads: Sequence[RepeatedHeads]) -> Iterator[str]:
    """Experts and heads that one has more of; who has fewer may have lost them, or the other was given some."""
    if heads:
        yield OTHER_HEADS
    counts = [(len(experts_in(a, name_a)), len(experts_in(b, name_b))) for name_b, name_a in layers if name_a]
    if any(in_a != in_b and in_a and in_b for in_a, in_b in counts):
        yield OTHER_EXPERTS


def _experts_moved(a: Weights, b: Weights, layers: LayerMap, renumbered: ExpertMap) -> tuple[str, ...]:
    return (EXPERTS_RENUMBERED,) if moved_experts(a, b, layers, renumbered) else ()


def _going_on(layers: LayerMap, facts: Sequence[TensorFact]) -> LayerMap:
    """Of layers that were set beside each other by their numbers alone, those of which a matrix is the other's."""
    found = {fact.layer for fact in inherited(facts) if len(fact.shape) == 2}
    return tuple((b, a if b in found else None) for b, a in layers)


def _told_apart(
    a: Weights, b: Weights, pairs: Sequence[FacingSlots], every: Sequence[TensorFact], tokens: Tokens | None
) -> tuple[list[TensorFact], list[Unseen]]:
    """Facts that say something of what was inherited, and the slots of which nothing can be said."""
    known = {(fact.a, fact.b): fact for fact in every}
    facts, unseen = [], []
    for pair in pairs:
        fact = known.get((str(pair.a), str(pair.b)))
        if fact is None:
            unseen.append(Unseen(pair.a, pair.b, int(np.prod(pair.shape(a))), NOT_FINITE))
        elif (why := why_unseen(a, b, fact)) is not None:
            unseen.append(Unseen(pair.a, pair.b, fact.values, why))
        elif rows_unknown(fact, tokens):  # also those that only one has
            unseen.append(Unseen(pair.a, None, int(np.prod(a.shape(pair.a))), NO_TOKENIZER))
            unseen.append(Unseen(None, pair.b, int(np.prod(b.shape(pair.b))), NO_TOKENIZER))
        else:
            facts.append(fact)
    return facts, unseen


def _doubles(depth: Depth | None) -> dict[Side, dict[str, str]]:
    return {} if depth is None or depth.kind != "depth-upscale" else {depth.child: dict(depth.doubles)}


def _limits(found: Compared, side: Side, tensors: int, disguised: bool) -> Iterator[str]:
    """What holds of this pair alone."""
    unseen = found.unseen_slots(side)
    if unseen:
        roles = ", ".join(dict.fromkeys(slot.role.value for slot, _ in unseen))
        yield (
            f"{sum(values for _, values in unseen):,} parameters of {side.upper()} ({roles}) could not be compared: "
            "shares are of the others, and their intervals reach from none of these being shared to all."
        )
    if disguised:
        yield STORED_AGAIN
    if tensors > MOST_FACTS:
        yield f"The record keeps {MOST_FACTS:,} of {tensors:,} tensors, evenly chosen; all were compared and counted."


def _not_unmixed(inquiry: Inquiry) -> Iterator[str]:
    if inquiry.candidates and inquiry.disguises:
        yield NOT_UNMIXED


def _narrowed(a: Weights, b: Weights, layers: LayerMap, tokens: Tokens | None) -> tuple[Narrowing | None, str]:
    """The narrower of the two as a part of the wider, if their widths differ: what it kept, and which it is."""
    width_a, width_b = a.facts.hidden, as_stored(b).facts.hidden
    neurons_a, neurons_b = a.facts.intermediate, b.facts.intermediate
    aligned = other_width(b) is not None  # then axes are known without tokens
    if not (aligned or tokens) or not width_a or not width_b or a.facts.experts or b.facts.experts:
        return None, ""
    if (width_a, neurons_a or 0) == (width_b, neurons_b or 0):
        return None, ""
    if width_a >= width_b and (neurons_a or 0) >= (neurons_b or 0):
        return narrowing(a, b, layers, None if aligned else tokens), "b"
    if width_a <= width_b and (neurons_a or 0) <= (neurons_b or 0):
        turned = None if aligned or tokens is None else tokens.exchanged()
        back = tuple((name_a, name_b) for name_b, name_a in layers if name_a is not None)
        return narrowing(b, a, back, turned), "a"
    return None, ""


def _with_experts(experts: Upcycling | None) -> str | None:
    if experts is None or not experts.holds:
        return None
    return "b" if experts.experts_in_b else "a"


def _complete(a: Weights, b: Weights, pairs: Sequence[FacingSlots]) -> bool:
    """Every slot of either faces one of the other; a head that stands beside an embedding is a copy of that."""
    if len({pair.b for pair in pairs}) < len(b.slots):
        return False
    pairs = [pair for pair in pairs if pair.a.role is pair.b.role]
    faced_a = {pair.a for pair in pairs}
    whole = all(a.shape(pair.a) == b.shape(pair.b) == pair.shape(a) for pair in pairs)
    return whole and len(faced_a) == len(pairs) and faced_a == set(a.slots)


# Further models.


def _merge(beside: Placed, names: tuple[str, str]) -> Merge | None:
    """Either of the pair as a mixture of all others; the one that is explained better, and in full before in part.

    Where one of them was disguised, that one alone: it was turned until it lay nearest to a mixture of the others.
    """
    if not beside.candidates:
        return None
    named: tuple[Named, Named] = (names[0], beside.a), (names[1], beside.b)
    turned = [one for one in named if isinstance(one[1], Returned)]
    tried = [
        unmixed(product, [other, *beside.candidates])
        for product, other in (named[::-1], named)
        if not turned or product in turned
    ]
    return max((merge for merge in tried if merge is not None), key=_told_best, default=None)


def _told_best(merge: Merge) -> tuple[bool, bool, float]:
    return merge.last is not None, not merge.missing_parent, merge.gain


def _thirds(
    beside: Placed, layers: LayerMap, names: tuple[str, str], merge: Merge | None, rng: np.random.Generator
) -> tuple[tuple[Triplet, ...], dict[str, tuple[float, float]]]:
    """A line of descent is read of three only where none of them is or may be a mixture: that has several parents."""
    a, b, candidates = beside
    pair: tuple[Named, Named] = (names[0], a), (names[1], b)
    found, odds = [], {}
    for name, third in candidates:
        seen = triplet(name, a, b, third, layers, rng)
        if seen is None:
            continue
        mixed = merge
        if mixed is None and seen.shape == "third between":
            mixed = unmixed((name, third), [*pair, *(other for other in candidates if other[0] != name)])
        found.append(seen if mixed is None else _beside_a_mixture(seen, mixed, names))
        back = tuple((name_a, name_a) for _, name_a in layers if name_a is not None)
        odds[name] = _before(third, a, back, rng), _before(third, b, layers, rng)
    return tuple(found), odds


def _beside_a_mixture(seen: Triplet, merge: Merge, names: tuple[str, str]) -> Triplet:
    """That one of the three is a mixture is said only where it is told: a model that may be one may lie on a line."""
    if merge.last in (*names, seen.third):
        return msgspec.structs.replace(seen, shape="mixture")
    return seen if seen.shape == "opposed" else msgspec.structs.replace(seen, shape="unclear")


def _before(third: Weights, other: Weights, layers: LayerMap, rng: np.random.Generator) -> float:
    """Log-odds that the third model came before the other, from some of their layers."""
    named = [pair for pair in layers if pair[1] is not None]
    some = tuple(named[i] for i in spread(len(named), LAYERS_OF_THIRDS))
    wanted = [p for p in facing_slots(third, other, some, None) if p.b.role in LINEAR or p.b.role.is_gain]
    features = direction_features(tensor_facts(third, other, wanted, rng, _silent))
    return 0.0 if features is None else fitted()["direction"].log_odds(features)
