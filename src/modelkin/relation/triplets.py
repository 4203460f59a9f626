"""Three relatives: which of them lies between the other two?

Drift adds up in independent directions, so squared distances are those of a tree. At the model where the ways to the
other two part, the angle is right; where an unseen ancestor of all three is that place, no angle is. A mixture has a
place in no tree: seen from it others lie in opposed directions, or, where changes were dropped, as from a fourth. Nor
has one of three that were trained on in one direction: steps that follow each other add up in a line, not in a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modelkin.records.relation import Triplet
from modelkin.relation.leftovers import unevenness
from modelkin.relation.reading import LINEAR, FacingSlots, LayerMap, Weights, blocks, in_layer

Doubles = NDArray[np.float64]
Interval = tuple[float, float, float]
Measure = Callable[[Doubles], Doubles]
Shape = Literal["a between", "b between", "third between", "star", "opposed", "unclear"]
DRAWS = 500
NEAR, APART = 0.2, 0.3  # of the next leg: a leg below the one is none at all, above the other it may be one
# Clearly below none: by more than this, the whole interval below zero. A parent's leg, seen with two of its children,
# came down to -0.08 in the zoo with an interval that reached zero, and to -0.014 otherwise (132 of them, two bases).
LESS = 0.05
# Least cosine at all three corners where an unseen model is the place. Children who learn alike leave their parent in
# directions that are alike, and it seems as if they had left from another place: cosines up to 0.25 at the parent in
# the zoo. At three equal legs all cosines are 0.5.
STAR = 0.4
# A base, a child and a mixture of that child with others can have three equal legs as well. But the mixture gives the
# child one weight in every matrix, which varied by up to 0.05 of itself in the zoo, by 0.05 to 5 between siblings; and
# changes that were dropped by lot or by size have longer tails: the longest of three was 1.7 to 2.5 times the shortest
# where TIES or DARE had part, and up to 1.6 between siblings, so that some of these are not told.
OWN_WAY, TAILS = 0.06, 1.5
FEWEST_TENSORS = 6
SAME = 1e-12  # mean squared distance, in units of the matrices' own size
RELATIVE = 0.3  # least correlation of a third model that is called a relative


class Distances(NamedTuple):
    """Of every tensor: squared distances a-b, a-third, b-third in units of its size, and the kurtosis of each."""

    squares: Doubles  # (tensors, 3)
    tails: Doubles  # (tensors, 3)


def triplet(
    names: str, a: Weights, b: Weights, third: Weights, layers: LayerMap, rng: np.random.Generator
) -> Triplet | None:
    """None where the third model has other shapes, or is no relative of a; or where two of the three are the same."""
    apart = _distances(a, b, third, layers)
    if apart is None or apart.squares.sum(axis=0).min() <= SAME * len(apart.squares):
        return None
    return judged(names, apart, rng)


def judged(third: str, apart: Distances, rng: np.random.Generator) -> Triplet:
    """Intervals by resampling tensors."""
    squares = apart.squares
    drawn = [squares[rng.integers(len(squares), size=len(squares))] for _ in range(DRAWS)]
    at, legs = (_with_intervals(measure, squares, drawn) for measure in (_cosines, _legs))
    shape = _shape(legs, at)
    if shape == "star" and may_be_mixed(apart):
        shape = "unclear"
    return Triplet(third=third, at_a=at[0], at_b=at[1], at_third=at[2], shape=shape)


def may_be_mixed(apart: Distances) -> bool:
    """Whether one of three with legs alike bears the marks of a mixture: one weight everywhere, or longer tails."""
    tails = np.median(apart.tails, axis=0)
    if tails.max() > TAILS * tails.min():
        return True
    return min(unevenness(slope) for slope in _slopes(apart.squares).T) <= OWN_WAY


def _slopes(squares: Doubles) -> Doubles:
    """(tensors, 6): seen from each corner, how much of the way to one of the others the third has gone as well."""
    ab, ac, bc = np.maximum(squares, 1e-300).T
    a, b, c = (ab + ac - bc) / 2, (ab + bc - ac) / 2, (ac + bc - ab) / 2
    return np.array([a / ab, a / ac, b / ab, b / bc, c / ac, c / bc]).T


def _with_intervals(measure: Measure, squares: Doubles, drawn: Sequence[Doubles]) -> list[Interval]:
    low, high = np.quantile([measure(draw) for draw in drawn], [0.025, 0.975], axis=0)
    return [(float(v), float(lo), float(hi)) for v, lo, hi in zip(measure(squares), low, high, strict=True)]


def _shape(legs: Sequence[Interval], at: Sequence[Interval]) -> Shape:
    shapes: tuple[Shape, Shape, Shape] = ("a between", "b between", "third between")
    none = [i for i in range(3) if legs[i][0] <= NEAR and legs[i][2] <= APART]
    if len(none) == 1:
        # Less than none is no place in a tree. A mixture lies so, a checkpoint between two others of a training that
        # went straight on, and who learnt what another learnt later.
        leg, low, high = legs[none[0]]
        return "opposed" if (leg < -LESS and high < 0) or low < -APART else shapes[none[0]]
    return "star" if all(low >= STAR for _, low, _ in at) else "unclear"


def _legs(squares: Doubles) -> Doubles:
    """How far a, b and the third lie from where their ways part, each over the shorter of the other two legs.

    A leg of none is the model that lies there. Unlike the angle this does not depend on how far away the third is.
    """
    ab, ac, bc = np.maximum(squares.sum(axis=0), 1e-300)
    legs = np.array([ab + ac - bc, ab + bc - ac, ac + bc - ab]) / 2
    others = np.array([np.delete(legs, i).min() for i in range(3)])
    return np.asarray(legs / np.maximum(others, 1e-12 * np.abs(legs).max()), dtype=np.float64)


def _cosines(squares: Doubles) -> Doubles:
    """At a, at b, at the third, by the law of cosines."""
    ab, ac, bc = np.maximum(squares.sum(axis=0), 1e-300)
    corners = ((ab, ac, bc), (ab, bc, ac), (ac, bc, ab))
    return np.array([(x + y - z) / (2 * np.sqrt(x * y)) for x, y, z in corners])


def _distances(a: Weights, b: Weights, third: Weights, layers: LayerMap) -> Distances | None:
    """Every matrix in units of its own size, so that no large one decides alone."""
    continued = dict(layers)
    rows, tails, likeness = [], [], []
    for slot in b.slots:
        name = continued.get(slot.layer_name)
        if slot.role not in LINEAR or name is None:
            continue
        pair = FacingSlots(in_layer(slot, name), slot)
        if any(pair.a not in side.slots or side.shape(pair.a) != b.shape(slot) for side in (a, third)):
            continue
        parts = _summed(a, b, third, pair)
        if np.isfinite(parts).all() and parts[6] > 0 and parts[7] > 0:
            rows.append(parts[:3] / parts[6])
            tails.append(np.prod(a.shape(pair.a)) * parts[3:6] / np.maximum(parts[:3], 1e-300) ** 2)
            likeness.append(parts[8] / np.sqrt(parts[6] * parts[7]))
    if len(rows) < FEWEST_TENSORS or float(np.median(likeness)) < RELATIVE:
        return None
    return Distances(np.array(rows), np.array(tails))


def _summed(a: Weights, b: Weights, third: Weights, pair: FacingSlots) -> Doubles:
    """Squares and fourth powers of the three differences, squares of a and the third, and their product."""
    parts = np.zeros(9)
    others = blocks(a, third, FacingSlots(pair.a, pair.a))
    for (x, y), (_, z) in zip(blocks(a, b, pair), others, strict=True):
        squares = [np.square(difference.astype(np.float64)) for difference in (x - y, x - z, y - z)]
        parts[:3] += [float(each.sum()) for each in squares]
        parts[3:6] += [float(np.vdot(each, each)) for each in squares]
        parts[6:] += [_dot(x), _dot(z), float(np.vdot(x, z))]
    return parts


def _dot(x: NDArray[np.float32]) -> float:
    return float(np.sum(x.astype(np.float64) ** 2))
