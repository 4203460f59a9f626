"""How alike must rows be for a roll call to notice? For saying what an answer without a rejection excludes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc, ndtr

from modelkin.stats import log_total_tail
from modelkin.stats.arrays import LN10

POWER = 0.99
GRID = np.linspace(-8, 8, 801)


def detectable_by_roll_call(sizes: Sequence[int], width: float, log10_alpha: float) -> float | None:
    """The correlation of rows at equal index that the total over layers finds 99 times in 100; None where none does.

    A row of n finds its own if that is more like it than the n - 1 others, with noise 1/√width: approximate, and on
    the safe side, for the one-to-one assignment does better than rows that choose alone.
    """
    asked = sorted(n for n in sizes if n)
    needed = next((k for k in range(sum(asked) + 1) if log_total_tail(asked, k) / LN10 <= log10_alpha), None)
    if needed is None or width <= 0:
        return None
    low, high = 0.0, 1.0
    if _power(asked, width, high, needed) < POWER:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if _power(asked, width, middle, needed) >= POWER else (middle, high)
    return high


def _power(sizes: Sequence[int], width: float, correlation: float, needed: int) -> float:
    shares = [_finds_itself(n, correlation * math.sqrt(width)) for n in sizes]
    share = math.fsum(n * q for n, q in zip(sizes, shares, strict=True)) / sum(sizes)
    return float(bdtrc(needed - 1, sum(sizes), share))


def _finds_itself(n: int, shift: float) -> float:
    """P(own > all n - 1 others) for own = shift + noise, all noise standard normal."""
    density = np.exp(-0.5 * GRID**2) / math.sqrt(2 * math.pi)
    wins = float(np.sum(density * ndtr(GRID + shift) ** (n - 1)) * (GRID[1] - GRID[0]))
    return min(1.0, wins)
