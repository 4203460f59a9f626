"""Three relatives: which of them lies between the other two?

Drift adds up in independent directions, so squared distances are those of a tree. At the model where the ways to the
other two part, the angle is right; where an unseen ancestor of all three is that place, no angle is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from modelkin.records.relation import Triplet
from modelkin.relation.reading import LINEAR, FacingSlots, LayerMap, Weights, blocks, in_layer

Doubles = NDArray[np.float64]
Shape = Literal["a between", "b between", "third between", "star", "unclear"]
DRAWS = 500
RIGHT, APART = 0.2, 0.3  # a cosine below the one is a right angle, above the other it is none
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
    draws = np.array([_cosines(squares[rng.integers(len(squares), size=len(squares))]) for _ in range(DRAWS)])
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    values = _cosines(squares)
    at = [(float(v), float(lo), float(hi)) for v, lo, hi in zip(values, low, high, strict=True)]
    return Triplet(third=third, at_a=at[0], at_b=at[1], at_third=at[2], shape=_shape(at))


def _shape(at: Sequence[tuple[float, float, float]]) -> Shape:
    shapes: tuple[Shape, Shape, Shape] = ("a between", "b between", "third between")
    right = [i for i in range(3) if at[i][0] <= RIGHT and at[i][2] <= APART]
    if len(right) == 1:
        return shapes[right[0]]
    return "star" if all(low >= APART for _, low, _ in at) else "unclear"


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
