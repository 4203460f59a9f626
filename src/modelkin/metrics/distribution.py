"""Statistics of one array that ignore the order of its values, and how far two arrays differ in them.

The two arrays may have any shapes. These distances compare summaries: two strangers can be at distance zero.
"""

from __future__ import annotations

import math

import numpy as np

from modelkin.metrics.inputs import Array, Undefined, flattened


def coefficient_of_variation(a: Array) -> float:
    """Population standard deviation / |mean|. Meaningless, though finite, where the mean is near zero (projections).

    Undefined where the mean is exactly zero.
    """
    return _cv(a, "a")


def p99_abs(a: Array) -> float:
    """The 0.99 quantile of |a|, linear between the two nearest values."""
    return _p99(a, "a")


def p99_abs_distance(a: Array, b: Array) -> float:
    """|p99_abs(a) − p99_abs(b)|: the difference of two quantiles, NOT a quantile of the differences."""
    return abs(_p99(a, "a") - _p99(b, "b"))


def cv_distance(a: Array, b: Array) -> float:
    """|cv(a) − cv(b)| of the coefficients of variation. Undefined where either mean is exactly zero."""
    return abs(_cv(a, "a") - _cv(b, "b"))


def _cv(a: Array, name: str) -> float:
    values = flattened(a, name)
    first = float(values[0])
    values -= first  # a constant array then varies by exactly zero
    mean = float(values.mean())
    values -= mean
    if first + mean == 0:
        raise Undefined(f"the mean of {name} is zero: variation has nothing to be relative to")
    return math.sqrt(float(np.dot(values, values)) / values.size) / abs(first + mean)


def _p99(a: Array, name: str) -> float:
    values = flattened(a, name)
    return float(np.quantile(np.abs(values, out=values), 0.99, overwrite_input=True))
