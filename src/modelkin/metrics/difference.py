"""How far apart the values of two arrays of one shape are, place by place.

All but the share of changed values follow the scale of the arrays, and a scale can be moved into the neighbouring
matrices without changing the network: a large distance here says nothing against descent.
"""

from __future__ import annotations

import math

import numpy as np

from modelkin.metrics.inputs import Array, Undefined, paired_blocks, ratio


def mean_abs_distance(a: Array, b: Array) -> float:
    """The mean of |a − b|."""
    total, n = 0.0, 0
    for x, y in paired_blocks(a, b):
        total += float(np.abs(x - y).sum())
        n += x.size
    return total / n


def l2_distance(a: Array, b: Array) -> float:
    """|a − b|, the Euclidean (Frobenius) norm of the difference."""
    return math.sqrt(_squares(a, b)[0])


def rel_l2_to_a_distance(a: Array, b: Array) -> float:
    """|a − b| / |a|, which is also RMSE / RMS of a: one number, published as rel_l2 and as rel_rmse.

    Seen from the smaller array it is larger: never rank pairs by it without its twin. Undefined where a is all zero.
    """
    difference, square_a, _ = _squares(a, b)
    return _relative(difference, square_a, "a")


def rel_l2_to_b_distance(a: Array, b: Array) -> float:
    """|a − b| / |b|, the other direction. Undefined where b is all zero."""
    difference, _, square_b = _squares(a, b)
    return _relative(difference, square_b, "b")


def changed_distance(a: Array, b: Array) -> float:
    """The share of places whose values differ at all; 0 and −0 are one value.

    Dtypes may differ: a cast that keeps every value changes none. How far they moved: `ulp_change`.
    """
    changed, n = 0, 0
    for x, y in paired_blocks(a, b):
        changed += int(np.count_nonzero(x != y))
        n += x.size
    return changed / n


def _squares(a: Array, b: Array) -> tuple[float, float, float]:
    """|a − b|², |a|², |b|²."""
    difference = square_a = square_b = 0.0
    changed = False
    for x, y in paired_blocks(a, b):
        step = x - y
        difference += float(np.dot(step, step))
        square_a += float(np.dot(x, x))
        square_b += float(np.dot(y, y))
        changed = changed or bool(step.any())
    if changed and difference == 0:
        raise Undefined("a and b differ by too little for float64 to square")
    return difference, square_a, square_b


def _relative(difference: float, square: float, name: str) -> float:
    if square == 0:
        raise Undefined(f"{name} is 0 throughout, to what float64 can square: nothing is large or small beside it")
    return math.sqrt(ratio(difference, square, f"the values of {name} are too small for float64 to square"))
