"""Who came first. Counted losses of information speak first, then third relatives, then the fitted model; never dates.

A move that loses something points at the one that lost: what is on a grid was put there, what is empty was emptied.
Layers, axes, neurons or tokens that only one has tell nothing: they may have been left out here or put in there, but
for copies and means that are still exactly what they were made from. Third relatives can show that two are siblings.
The rest is a fitted order, told as a probability; below 0.9 the answer is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelkin.records import Direction, Role
from modelkin.records.naming import mixture_of, short_names
from modelkin.records.relation import AxesFacts, Merge, TensorFact, TokenFacts, Triplet
from modelkin.relation.depth import Depth
from modelkin.relation.elementwise import FRACTION
from modelkin.relation.learned import direction_features, fitted
from modelkin.relation.rounding import is_cast, is_filled
from modelkin.relation.tensors import linear
from modelkin.relation.tokens import grown, perhaps_grown

SURE = 0.9
ORDERS: dict[Direction, str] = {
    "a->b": "A came first",
    "b->a": "B came first",
    "neither": "both come from a third",
}
SPECIAL, ORDINARY = 1e-4, 0.01  # axes are no random directions up to the one p, and may be from the other on
NUMBERED, RENUMBERED = 0.9, 0.75  # share of merges whose numbers rise; by chance a half do
# A loss shows who came later. That it came from this very model is said where nothing else was changed: nearly all
# values the same, or no more apart than rounding to 8 bits of precision leaves.
EXACT, ROUNDED = 0.95, 0.004
TABLES = (Role.EMBEDDING, Role.HEAD)
ROUNDED_ROWS = 0.01  # of embeddings, in which no grid is looked for: eight bits with a scale a row move them by 0.006
# On grids of up to so many values the source finds more than 0.995 of its nearest values stored (the rest lie half-way
# and storing the scale tips them over), siblings that were changed a little, by reinforcement or noise, up to 0.99.
COARSE, SOURCE = 16, 0.992
# The fitted order takes for granted that one descends from the other. For siblings that is false, and the fit is as
# sure of them (see its provenance); and a child that moved little lies where its parent lies. So neither the fit nor a
# third relative alone names a parent: they can only say that nobody is.
ALONE = False
DUST = 1e-5  # difference that numbers make which stand for zeros
NEW_DIGITS = (
    "but one of the two was written anew, with gains moved or axes turned, and may itself come from what was there "
    "before: that tells no order"
)
MOST = 0.5  # share of matrices that must show a loss
STAYED = 0.5  # of the values: where more are the same in both, none was put on a grid, and others were taken off it
# Share of zeros, from which on values were emptied. Where both have more, one may have been emptied further, or both
# were made from a third that was not: no order.
EMPTIED, MANY = 0.005, 0.1


@dataclass(frozen=True)
class Judgement:
    """`probability` is None where the direction was counted, and with `neither` or `unknown`."""

    direction: Direction
    probability: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Clues:
    """What the direction is judged by."""

    facts: Sequence[TensorFact]
    tokens: TokenFacts | None = None
    depth: Depth | None = None
    narrow: str | None = None  # "a" or "b", where one is a part of the other
    upcycled: str | None = None  # which of them has experts that hold neurons of the other's layers
    unparted: bool = False  # all these experts are still the other's MLP, to the bit
    merge: Merge | None = None
    names: tuple[str, str] = ("a", "b")
    axes: AxesFacts | None = None
    apart: bool = False  # layers or tensors of one are none of the other's, as far as could be seen
    reordered: bool = False  # layers stand in another order, and nobody can tell in which of the two they were moved
    new_digits: bool = False  # one was turned, or its gains moved: its values are no longer those of its source
    alone: tuple[str, ...] = ()  # what one has and the other has not, in words, whoever came first
    learnt: bool = True  # False where what differs is rounding, noise, or numbers that are free: no order in these


def judged(clues: Clues, triplets: Sequence[Triplet], odds: Mapping[str, tuple[float, float]]) -> Judgement:
    """`odds`: for a third model by name, log-odds that it came before a, and before b."""
    made = [*_structure(clues), *_mixture(clues), *rearranged_side(clues)]
    lost = [*_grid_losses(clues.facts), *made]
    children = {child for child, _ in lost}
    star = next((t for t in triplets if t.shape == "star"), None) if clues.merge is None else None
    if star is not None:
        third = short_names([star.third])[star.third]
        return Judgement("neither", None, (f"A, B and {third} come from a model that is none of the three",))
    if clues.new_digits and lost and not made:
        return Judgement("unknown", None, (*(why for _, why in lost), NEW_DIGITS))
    if len(children) == 1:
        return _by_loss(clues, children.pop(), tuple(why for _, why in lost))
    if children:
        return Judgement("unknown", None, ("both have lost something: " + "; ".join(why for _, why in lost),))
    features = direction_features(clues.facts) if clues.learnt else None
    ahead = None if features is None else fitted()["direction"].log_odds(features)
    # A mixture lies between its parents, whoever came first.
    by_third = _by_relatives(triplets, odds, ahead or 0.0) if clues.merge is None else None
    if by_third is not None:
        return by_third
    if either := _either_way(clues):
        return Judgement("unknown", None, either)
    if ahead is None:
        return Judgement("unknown", None, ("nothing was lost, and nothing was changed that would tell an order",))
    return _by_odds(ahead)


def _by_loss(clues: Clues, child: str, reasons: tuple[str, ...]) -> Judgement:
    """Who lost something came later; from this very model only if nothing else was changed.

    Where something was, the other may as well be a sibling: changed itself, after the loss went its own way. So it may
    where one has layers, axes or tokens that the other lacks, and nobody can tell who changed those.
    """
    shapes = (*_either_way(clues), *_other_tokens(clues.tokens))
    if _is_told_mixture(clues, child) or (_is_unchanged(clues.facts) and not shapes):
        return Judgement("a->b" if child == "b" else "b->a", None, reasons)
    but = (
        f"that points to {child.upper()} as the later one; but more than that was changed, and both may come from a "
        "third"
    )
    return Judgement("unknown", None, (*reasons, *shapes, but))


def _is_told_mixture(clues: Clues, child: str) -> bool:
    """Whether all of what differs is what was mixed in."""
    return any(side == child for side, _ in _mixture(clues))


def _is_unchanged(facts: Sequence[TensorFact]) -> bool:
    """Whether every tensor is the other's, but for rounding, zeros and the grid of a quantiser.

    One that is not shows that something else was done, and then the other may be a sibling: adapters on few matrices,
    frozen layers and parts of another model put in leave most as it was. Numbers that are free may be any.
    """
    kept = [
        fact.same >= EXACT
        or fact.difference <= (ROUNDED_ROWS if fact.role in TABLES else ROUNDED)
        or (fact.refitted is not None and fact.refitted <= ROUNDED)
        or _is_only_rounded(fact)
        or fact.emptied_a
        or fact.emptied_b
        or bool(fact.cast_a or fact.cast_b)
        for fact in facts
    ]
    return bool(kept) and all(kept)


def _is_only_rounded(fact: TensorFact) -> bool:
    """Whether one holds the grid values that are nearest to the other's. A sibling that was changed less than a coarse
    grid shows has nearly all of them, too; only the source itself has more."""
    grid = fact.lattice_a or fact.lattice_b
    return grid is not None and (fact.nearest or 0.0) >= (SOURCE if grid.levels <= COARSE else EXACT)


def _by_odds(ahead: float) -> Judgement:
    """The fitted order. Two children of one parent, one of them changed little, look like parent and child."""
    probability = 1 / (1 + math.exp(-min(700.0, abs(ahead))))
    order: Direction = "a->b" if ahead > 0 else "b->a"
    text = (
        "nothing that was lost tells; if one descends from the other, ranks, norms, tails and gains say that "
        f"{ORDERS[order]} with probability {_shown(probability)} (a pair without an order: 0.50)"
    )
    if probability < SURE:
        return Judgement("unknown", probability, (f"{text}, which is less than the {SURE} that are asked for",))
    if not ALONE:
        return Judgement("unknown", probability, (f"{text}; but siblings look the same, and only a third model tells",))
    return Judgement(order, probability, (text,))


def _shown(probability: float) -> str:
    """A fit is never certain, and rounding must not make it so."""
    return f"{probability:.2f}" if probability < 0.99 else "over 0.99"


def _mixture(clues: Clues) -> list[tuple[str, str]]:
    """The one that was computed from others, the other among them; not where others may have been computed from it."""
    found, merge = [], clues.merge
    for child, name, other in (("a", *clues.names), ("b", *clues.names[::-1])):
        is_told = merge is not None and merge.merged == merge.last == name
        if merge is not None and is_told and other in (*merge.sources, merge.base):
            found.append((child, mixture_of(child, merge.sources)))
    return found


def rearranged_side(clues: Clues) -> list[tuple[str, str]]:
    """(side, why) for every mark of an order that was there and was destroyed: which of the two was rearranged."""
    found, axes, tokens = [], clues.axes, clues.tokens
    if axes is not None:
        odd = {"a": axes.pvalue_a, "b": axes.pvalue_b}
        gains = {"a": axes.gains_a, "b": axes.gains_b}
        for side, other in (("a", "b"), ("b", "a")):
            if odd[side] >= ORDINARY and odd[other] <= SPECIAL and gains[other]:
                found.append((side, f"{side.upper()} was turned: {_turned(odd[side], odd[other], other)}"))
    if tokens is not None and not tokens.only_a + tokens.only_b:
        rise = {"a": tokens.ascending_a, "b": tokens.ascending_b}
        for side, other in (("a", "b"), ("b", "a")):
            here, there = rise[side], rise[other]
            if here is not None and there is not None and here <= RENUMBERED and there >= NUMBERED:
                found.append((side, f"{side.upper()} was renumbered: {_renumbered(here, there, other)}"))
    return found


def _turned(here: float, there: float, other: str) -> str:
    return (
        f"its hidden axes are like directions drawn at random (p {here:.2g}) and those of {other.upper()} are not "
        f"(p {there:.0e}); of strangers that nobody turned none are"
    )


def _renumbered(here: float, there: float, other: str) -> str:
    return (
        f"tokens are numbered as they are made, so that numbers rise: here in {here:.0%} of the steps, in "
        f"{other.upper()} in {there:.0%}; numbers drawn by lot rise in 50%, where nobody renumbered in nearly all"
    )


def _grid_losses(facts: Sequence[TensorFact]) -> list[tuple[str, str]]:
    body = linear(facts)
    if not body:
        return []
    coarse = _written_finer(facts)
    tests = {
        "the matrices of {} lie on the grid of a quantiser and the other's do not": (
            [f.lattice_a is not None and f.lattice_b is None and f.same < STAYED and _is_off(f) for f in body],
            [f.lattice_b is not None and f.lattice_a is None and f.same < STAYED and _is_off(f) for f in body],
        ),
        "the values of {} are the other's, rounded to a coarser format": (
            [f.cast_a is not None and is_cast(f) and not coarse["b"] for f in body],
            [f.cast_b is not None and is_cast(f) and not coarse["a"] for f in body],
        ),
        "the values of {} are the other's, or zero": (
            [f.emptied_a and f.zeros_a > EMPTIED >= f.zeros_b and f.difference > DUST for f in body],
            [f.emptied_b and f.zeros_b > EMPTIED >= f.zeros_a and f.difference > DUST for f in body],
        ),
        "many values of {} are zero and the other's are not": (
            [f.zeros_a > MANY and f.zeros_b <= EMPTIED and f.difference > ROUNDED for f in body],
            [f.zeros_b > MANY and f.zeros_a <= EMPTIED and f.difference > ROUNDED for f in body],
        ),
    }
    return [
        (child, why.format(child.upper()))
        for why, sides in tests.items()
        for child, marks in zip("ab", sides, strict=True)
        if sum(marks) > MOST * len(body)
    ]


def _is_off(fact: TensorFact) -> bool:
    """Whether the other lies off the grid as what was rounded does; where only the file shows a grid, anywhere else."""
    return is_filled(fact) or (fact.filled is None and fact.difference > ROUNDED)


def _written_finer(facts: Sequence[TensorFact]) -> dict[str, bool]:
    """For either side whether it has matrices of the other to the bit that fit a coarser format: it is made of them."""
    same = [fact for fact in facts if fact.same == 1 and len(fact.shape) == 2 and fact.correlation is not None]
    return {
        "a": any(_bits(fact.held_a) < _bits(fact.dtype_a) for fact in same),
        "b": any(_bits(fact.held_b) < _bits(fact.dtype_b) for fact in same),
    }


def _bits(form: str) -> int:
    return FRACTION.get(form, 0)


def _structure(clues: Clues) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if clues.depth is not None and clues.depth.tells_order:
        found.append((clues.depth.child, clues.depth.why))
    if clues.upcycled is not None and clues.unparted:
        found.append((clues.upcycled, f"all experts of {clues.upcycled.upper()} are the other's MLP, to the bit"))
    found += [
        (side, f"{side.upper()} has tokens more, whose rows are the mean of the other's, to rounding")
        for side, is_so in grown(clues.tokens).items()
        if is_so
    ]
    return found


def _either_way(clues: Clues) -> tuple[str, ...]:
    """What one has and the other has not, whoever came first."""
    found = [clues.depth.why] if clues.depth is not None and not clues.depth.tells_order else []
    if clues.narrow is not None:
        part = clues.narrow.upper()
        found.append(f"{part} is a part of the other's hidden axes or neurons; or the other was made wider")
    if clues.apart:
        found.append("some layers or tensors of one are none of the other's, or could not be compared: they may be new")
    if clues.reordered:
        found.append("layers stand in another order in one of the two, and nothing tells in which they were moved")
    if clues.upcycled is not None and not clues.unparted:
        found.append(
            f"the experts of {clues.upcycled.upper()} hold neurons of the other's layers: made of them, or the other "
            "was taken out of experts or put together from them"
        )
    found += [
        f"{side.upper()} has tokens more, whose rows lie near the mean: added in it or before it, or left out in the "
        "other"
        for side, is_so in perhaps_grown(clues.tokens).items()
        if is_so
    ]
    return (*found, *clues.alone, *_both_emptied(clues.facts))


def _other_tokens(tokens: TokenFacts | None) -> list[str]:
    """Tokens that one has alone, unless their rows tell that they were added, or may have been."""
    told = any((*grown(tokens).values(), *perhaps_grown(tokens).values()))
    if tokens is None or told or not tokens.only_a + tokens.only_b:
        return []
    return [f"tokens differ: {tokens.only_a:,} only in A, {tokens.only_b:,} only in B"]


def _both_emptied(facts: Sequence[TensorFact]) -> list[str]:
    """Siblings of one parent, one emptied more than the other, have zeros inside zeros as parent and child have."""
    body = linear(facts)
    sides = {
        "a": [f.emptied_a and f.zeros_a > f.zeros_b + EMPTIED and f.zeros_b > EMPTIED for f in body],
        "b": [f.emptied_b and f.zeros_b > f.zeros_a + EMPTIED and f.zeros_a > EMPTIED for f in body],
    }
    return [
        f"both have zeros, and {side.upper()} has them where the other has and elsewhere: it was emptied further, or "
        "both were emptied from a third"
        for side, marks in sides.items()
        if sum(marks) > MOST * len(body)
    ]


def _by_relatives(
    triplets: Sequence[Triplet], odds: Mapping[str, tuple[float, float]], ahead: float
) -> Judgement | None:
    """What a third relative says that lies between the two, or beside one of them."""
    for triplet in triplets:
        if triplet.shape in ("a between", "b between", "third between"):
            before_a, before_b = odds[triplet.third]
            return _rooted(triplet, ahead, before_a, before_b)
    return None


def _rooted(triplet: Triplet, ahead: float, before_a: float, before_b: float) -> Judgement | None:
    """A path has three roots: either end, or the middle. Each is as likely as the orders of its two steps together.

    `ahead`: log-odds that a came before b; `before_*`: that the third came before each.
    """
    likely: dict[Direction, float] = dict.fromkeys(("a->b", "b->a", "neither"), 0.0)
    ways = _roots(triplet.shape, ahead, before_a, before_b)
    most = max(odds for _, odds in ways)
    for order, odds in ways:
        likely[order] += math.exp(odds - most)
    likely = {order: share / sum(likely.values()) for order, share in likely.items()}
    best = max(likely, key=lambda name: likely[name])
    text = _between(triplet)
    chance = sum(order == best for order, _ in ways) / len(ways)
    told = f"{text}; that {ORDERS[best]} has probability {_shown(likely[best])} (a path without an order: {chance:.2f})"
    if likely[best] < SURE:
        return Judgement("unknown", likely[best], (f"{told}, which is less than the {SURE} that are asked for",))
    if best != "neither" and not ALONE:
        return Judgement("unknown", likely[best], (f"{told}, but a sibling near to the parent would look the same",))
    return Judgement(best, None if best == "neither" else likely[best], (text,))


def _between(triplet: Triplet) -> str:
    """What a right angle says, without one."""
    third = short_names([triplet.third])[triplet.third]
    middle, *ends = {"a between": ("A", "B", third), "b between": ("B", "A", third)}.get(
        triplet.shape, (third, "A", "B")
    )
    return (
        f"{middle} lies between {ends[0]} and {ends[1]}: what sets these two apart from it has nothing in common, so "
        f"that both come from it or a model very near to it, or one of them by way of it from the other, unless it was "
        f"mixed with models that are not given"
    )


def _roots(shape: str, ahead: float, before_a: float, before_b: float) -> list[tuple[Direction, float]]:
    """For each root of a path what it says of a and b, and the log-likelihood of both its steps."""
    if shape == "a between":  # b first, a first, the third first
        return [("b->a", _says(-ahead, -before_a)), ("a->b", _says(ahead, -before_a)), ("a->b", _says(ahead, before_a))]
    if shape == "b between":
        return [
            ("a->b", _says(ahead, -before_b)),
            ("b->a", _says(-ahead, -before_b)),
            ("b->a", _says(-ahead, before_b)),
        ]
    return [
        ("a->b", _says(-before_a, before_b)),
        ("neither", _says(before_a, before_b)),
        ("b->a", _says(before_a, -before_b)),
    ]


def _says(*odds: float) -> float:
    """Log of the product of the probabilities of these log-odds."""
    return -sum(math.log1p(math.exp(-max(-700.0, value))) for value in odds)
