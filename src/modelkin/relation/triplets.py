"""Three relatives: which of them lies between the other two?

Drift adds up in independent directions, so squared distances are those of a tree. At the model where the ways to the
other two part, the angle is right; where an unseen ancestor of all three is that place, no angle is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from modelkin.records.relation import Triplet
from modelkin.relation.reading import LINEAR, FacingSlots, LayerMap, Weights, blocks, in_layer

Doubles = NDArray[np.float64]
Interval = tuple[float, float, float]
Measure = Callable[[Doubles], Doubles]
Shape = Literal["a between", "b between", "third between", "star", "unclear"]
DRAWS = 500
NEAR, APART = 0.2, 0.3  # of the next leg: a leg below the one is none at all, above the other it may be one
# Least cosine at all three corners where an unseen model is the place. Children who learn alike leave their parent in
# directions that are alike, and it seems as if they had left from another place: cosines up to 0.25 at the parent in
# the zoo. At three equal legs all cosines are 0.5.
STAR = 0.4
FEWEST_TENSORS = 6
SAME = 1e-12  # mean squared distance, in units of the matrices' own size
RELATIVE = 0.3  # least correlation of a third model that is called a relative


def triplet(
    names: str, a: Weights, b: Weights, third: Weights, layers: LayerMap, rng: np.random.Generator
) -> Triplet | None:
    """None where the third model has other shapes, or is no relative of a; or where two of the three are the same."""
    squares = _squares(a, b, third, layers)
    if squares is None or squares.sum(axis=0).min() <= SAME * len(squares):
        return None
    return judged(names, squares, rng)


def judged(third: str, squares: Doubles, rng: np.random.Generator) -> Triplet:
    """squares: (tensors, 3), squared distances a-b, a-third, b-third. Intervals by resampling tensors."""
    drawn = [squares[rng.integers(len(squares), size=len(squares))] for _ in range(DRAWS)]
    at, legs = (_with_intervals(measure, squares, drawn) for measure in (_cosines, _legs))
    return Triplet(third=third, at_a=at[0], at_b=at[1], at_third=at[2], shape=_shape(legs, at))


def _with_intervals(measure: Measure, squares: Doubles, drawn: Sequence[Doubles]) -> list[Interval]:
    low, high = np.quantile([measure(draw) for draw in drawn], [0.025, 0.975], axis=0)
    return [(float(v), float(lo), float(hi)) for v, lo, hi in zip(measure(squares), low, high, strict=True)]


def _shape(legs: Sequence[Interval], at: Sequence[Interval]) -> Shape:
    shapes: tuple[Shape, Shape, Shape] = ("a between", "b between", "third between")
    none = [i for i in range(3) if legs[i][0] <= NEAR and legs[i][2] <= APART]
    if len(none) == 1:
        return shapes[none[0]]
    return "star" if all(low >= STAR for _, low, _ in at) else "unclear"


def _legs(squares: Doubles) -> Doubles:
    """How far a, b and the third lie from where their ways part, each over the shorter of the other two legs.

    A leg of none is the model that lies there. Unlike the angle this does not depend on how far away the third is.
    """
    ab, ac, bc = np.maximum(squares.sum(axis=0), 1e-300)
    legs = np.maximum(np.array([ab + ac - bc, ab + bc - ac, ac + bc - ab]) / 2, 1e-300)
    return np.asarray(legs / np.array([np.delete(legs, i).min() for i in range(3)]), dtype=np.float64)


def _cosines(squares: Doubles) -> Doubles:
    """At a, at b, at the third, by the law of cosines."""
    ab, ac, bc = np.maximum(squares.sum(axis=0), 1e-300)
    corners = ((ab, ac, bc), (ab, bc, ac), (ac, bc, ab))
    return np.array([(x + y - z) / (2 * np.sqrt(x * y)) for x, y, z in corners])


def _squares(a: Weights, b: Weights, third: Weights, layers: LayerMap) -> Doubles | None:
    """Every matrix in units of its own size, so that no large one decides alone."""
    continued = dict(layers)
    rows, likeness = [], []
    for slot in b.slots:
        name = continued.get(slot.layer_name)
        if slot.role not in LINEAR or name is None:
            continue
        pair = FacingSlots(in_layer(slot, name), slot)
        if any(pair.a not in side.slots or side.shape(pair.a) != b.shape(slot) for side in (a, third)):
            continue
        parts = np.zeros(6)
        others = blocks(a, third, FacingSlots(pair.a, pair.a))
        for (x, y), (_, z) in zip(blocks(a, b, pair), others, strict=True):
            parts += [_dot(x - y), _dot(x - z), _dot(y - z), _dot(x), _dot(z), float(np.vdot(x, z))]
        if np.isfinite(parts).all() and parts[3] > 0 and parts[4] > 0:
            rows.append(parts[:3] / parts[3])
            likeness.append(parts[5] / np.sqrt(parts[3] * parts[4]))
    if len(rows) < FEWEST_TENSORS or float(np.median(likeness)) < RELATIVE:
        return None
    return np.array(rows)


def _dot(x: NDArray[np.float32]) -> float:
    return float(np.sum(x.astype(np.float64) ** 2))
