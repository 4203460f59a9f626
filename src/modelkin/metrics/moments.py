"""Means, variances and the covariance of two arrays, and what they alone make of a cosine.

    cos(a, b) = (r s_a s_b + m_a m_b) / sqrt((s_a² + m_a²) (s_b² + m_b²))

with means m, population standard deviations s and Pearson's r. The second term is there whatever the pattern: two
strangers with coefficients of variation near 0.1 have a cosine of 0.99.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from modelkin.metrics.inputs import (
    LARGEST,
    Array,
    NotFinite,
    Undefined,
    Unmeasurable,
    Vector,
    clipped,
    paired_blocks,
    ratio,
)


@dataclass(frozen=True, slots=True)
class CosineParts:
    """A cosine as the sum of what the two means give and what the pattern adds; the pattern can add ±`reach`."""

    from_means: float
    from_pattern: float
    reach: float

    @property
    def cosine(self) -> float:
        return self.from_means + self.from_pattern


@dataclass(frozen=True, slots=True)
class PairMoments:
    """Of n pairs of values; variances and the covariance are those of a population (divided by n)."""

    n: int
    mean_a: float
    mean_b: float
    var_a: float
    var_b: float
    cov: float

    def merged(self, other: PairMoments) -> PairMoments:
        """Of both sets of pairs together, as if they had been measured at once (Chan, Golub and LeVeque 1979)."""
        n = self.n + other.n
        mine, theirs = self.n / n, other.n / n
        step_a, step_b = other.mean_a - self.mean_a, other.mean_b - self.mean_b
        between = mine * theirs
        return PairMoments(
            n,
            self.mean_a + theirs * step_a,
            self.mean_b + theirs * step_b,
            mine * self.var_a + theirs * other.var_a + between * step_a * step_a,
            mine * self.var_b + theirs * other.var_b + between * step_b * step_b,
            mine * self.cov + theirs * other.cov + between * step_a * step_b,
        )

    @property
    def pearson(self) -> float:
        for name, variance in (("a", self.var_a), ("b", self.var_b)):
            if variance == 0:
                raise Undefined(f"{name} is constant: without variation there is no correlation")
        below = math.sqrt(self.var_a * self.var_b)
        return clipped(ratio(self.cov, below, "the variation is too small for float64"), -1, 1)

    def parts(self) -> CosineParts:
        below = math.sqrt((self.var_a + self.mean_a**2) * (self.var_b + self.mean_b**2))
        reason = "a or b is zero throughout: it has no direction"
        return CosineParts(
            ratio(self.mean_a * self.mean_b, below, reason),
            ratio(self.cov, below, reason),
            ratio(math.sqrt(self.var_a * self.var_b), below, reason),
        )


def pair_moments(a: Array, b: Array) -> PairMoments:
    """Of the values of two arrays of one shape, in one pass. A constant array has variance zero to the last bit."""
    total: PairMoments | None = None
    first_a = first_b = 0.0
    for x, y in paired_blocks(a, b):
        if total is None:
            first_a, first_b = float(x[0]), float(y[0])
        here = _moments(x - first_a, y - first_b)  # differences from one of the values: nothing is lost to the mean
        total = here if total is None else total.merged(here)
    assert total is not None  # an empty array is refused at the door
    return PairMoments(total.n, total.mean_a + first_a, total.mean_b + first_b, total.var_a, total.var_b, total.cov)


def cosine_parts(a: Array, b: Array) -> CosineParts:
    """How much of the cosine of two arrays of one shape comes from their means, and how much from their pattern."""
    return pair_moments(a, b).parts()


def expected_cosine(*, mean_a: float, std_a: float, mean_b: float, std_b: float) -> float:
    """The cosine of two arrays without any correlation, from means and population standard deviations alone.

    It is sign(m_a m_b) / sqrt((1 + CV_a²)(1 + CV_b²)): print it beside every cosine.
    """
    if not all(abs(value) <= LARGEST for value in (mean_a, std_a, mean_b, std_b)):
        raise NotFinite("means and standard deviations have to be finite, and at most 2**240")
    if std_a < 0 or std_b < 0:
        raise Unmeasurable("a standard deviation is never negative")
    return PairMoments(1, mean_a, mean_b, std_a**2, std_b**2, 0.0).parts().from_means


def _moments(x: Vector, y: Vector) -> PairMoments:
    n, mean_x, mean_y = x.size, float(x.mean()), float(y.mean())
    x -= mean_x
    y -= mean_y
    return PairMoments(n, mean_x, mean_y, float(np.dot(x, x)) / n, float(np.dot(y, y)) / n, float(np.dot(x, y)) / n)
