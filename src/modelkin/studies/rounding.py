"""What rounding to a small format leaves of a pattern: measured on values, and exactly for a normal pattern.

A pattern survives as far as the rounded values still tell the original ones: the square of their correlation, the share
of its variance that is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
REACH = 12.0  # standard deviations beyond which a normal pattern has no weight in float64


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format, by its name here and in ml_dtypes or numpy; `significand` counts the hidden bit."""

    name: str
    dtype: str
    significand: int


FORMATS = (
    Format("BF16", "bfloat16", 8),
    Format("F16", "float16", 11),
    Format("F8_E4M3", "float8_e4m3fn", 4),
    Format("F8_E5M2", "float8_e5m2", 3),
)


@dataclass(frozen=True, slots=True)
class Left:
    """The share of the pattern's variance that survives, and the variance of the rounding errors."""

    survived: float
    noise: float


def rounded(values: Floats, kind: Format) -> Floats:
    return np.asarray(values.astype(_dtype(kind)).astype(np.float64))


def measured(values: Floats, back: Floats) -> Left:
    """Of original and restored values along the last axis, averaged over the others.

    A vector that comes back constant has lost its pattern: 0.
    """
    x, y = (side - side.mean(axis=-1, keepdims=True) for side in (values, back))
    cov, var_x, var_y = ((left * right).mean(axis=-1) for left, right in ((x, y), (x, x), (y, y)))
    constant = np.ptp(back, axis=-1) == 0
    below = np.where(constant, 1.0, var_x * var_y)
    survived = np.where(constant, 0.0, cov**2 / below)
    return Left(float(np.mean(survived)), float(np.mean((y - x) ** 2)))


@lru_cache(maxsize=4096)
def exactly(mean: float, std: float, kind: Format) -> Left:
    """The same for values from N(mean, std²), in closed form.

    Rounding is a staircase, with steps of height g_k at the midpoints t_k between neighbouring numbers. By Stein's
    identity Cov(X, Q(X)) = std² E Q′(X) = std Σ g_k φ((t_k − mean) / std); the variance of Q is that of a discrete law.
    """
    levels = _levels_around(mean, std, kind)
    at = ((levels[1:] + levels[:-1]) / 2 - mean) / std
    chance = _between(at)
    offsets = levels - levels[np.argmax(chance)]  # from the commonest: what is rare is not lost to rounding
    variance = float(chance @ offsets**2) - float(chance @ offsets) ** 2
    density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)
    cov = std * float(np.diff(levels) @ density)
    survived = cov / std * (cov / std / variance) if variance > 0 else 0.0
    return Left(min(1.0, survived), max(0.0, variance + std**2 - 2 * cov))


def step(value: float, kind: Format) -> float:
    """The distance of neighbouring numbers of a format at `value`: its unit in the last place."""
    levels = _levels(kind)
    place = int(np.searchsorted(levels, abs(value), side="right"))
    place = min(max(place, 1), levels.size - 1)
    return float(levels[place] - levels[place - 1])


def uniform_noise(std: float, ulp: float) -> Left:
    """The rule of thumb: errors uniform over one step, of variance ulp²/12, that know nothing of the pattern."""
    noise = ulp**2 / 12
    return Left(std**2 / (std**2 + noise), noise)


def _between(at: Floats) -> Floats:
    """The chance of a standard normal below the first place, between each and the next, and above the last.

    Differences are taken in the nearer tail, where they keep their digits.
    """
    lower, upper = (np.diff(ndtr(x), prepend=first, append=1 - first) for x, first in ((at, 0.0), (-at, 1.0)))
    right = np.append(False, at > 0)  # the interval begins above the middle
    return np.asarray(np.where(right, -upper, lower))


def _levels_around(mean: float, std: float, kind: Format) -> Floats:
    levels = _levels(kind)
    first = int(np.searchsorted(levels, mean - REACH * std)) - 1
    last = int(np.searchsorted(levels, mean + REACH * std)) + 1
    return levels[max(first, 0) : last]


@cache
def _levels(kind: Format) -> Floats:
    """Every finite number of a format, in order."""
    dtype = _dtype(kind)
    bits = np.uint8 if dtype.itemsize == 1 else np.uint16
    with np.errstate(invalid="ignore"):
        values = np.arange(np.iinfo(bits).max + 1).astype(bits).view(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@cache
def _dtype(kind: Format) -> np.dtype[np.generic]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, kind.dtype, None) or kind.dtype)
