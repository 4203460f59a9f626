"""Likeness of direction: cosines and correlations over all values of two arrays of one shape."""

from __future__ import annotations

import math

import numpy as np

from modelkin.metrics.inputs import Array, Undefined, Vector, clipped, paired_blocks, paired_copies, ratio
from modelkin.metrics.moments import pair_moments


def cosine_similarity(a: Array, b: Array) -> float:
    """a·b / (|a| |b|). Near 1 for any two arrays of positive numbers: read it beside `expected_cosine`.

    Undefined where a or b is zero throughout.
    """
    return _cosine_around(a, b, 0.0)


def cosine_minus_one_similarity(a: Array, b: Array) -> float:
    """The cosine of a − 1 and b − 1: deviations from a gain that started at one.

    Not the centred cosine, though it was published under that name: gains that have left one keep a common mean.
    Undefined where a or b is one throughout.
    """
    return _cosine_around(a, b, 1.0)


def centred_cosine_similarity(a: Array, b: Array) -> float:
    """The cosine after each array's own mean is taken away; this is Pearson's r, and there is no second function.

    Undefined where a or b is constant.
    """
    return pair_moments(a, b).pearson


def spearman_similarity(a: Array, b: Array) -> float:
    """Pearson's r of the ranks, equal values sharing the mean of theirs. Undefined where a or b is constant."""
    x, y = paired_copies(a, b)
    return pair_moments(_ranks(x), _ranks(y)).pearson


def _cosine_around(a: Array, b: Array, centre: float) -> float:
    dot = square_a = square_b = 0.0
    for x, y in paired_blocks(a, b):
        if centre:
            x, y = x - centre, y - centre
        dot += float(np.dot(x, y))
        square_a += float(np.dot(x, x))
        square_b += float(np.dot(y, y))
    for name, square in (("a", square_a), ("b", square_b)):
        if square == 0:
            raise Undefined(f"{name} is {centre:g} throughout, to what float64 can square: it has no direction")
    below = math.sqrt(square_a * square_b)
    return clipped(ratio(dot, below, "the values are too small for float64 to square"), -1, 1)


def _ranks(values: Vector) -> Vector:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(count) - (count - 1) / 2
    return np.asarray(mean_rank[place.reshape(-1)], dtype=np.float64)
