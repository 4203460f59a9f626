"""How sure a rate is: intervals for counts, and bounds for rates over pairs that share models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri

from modelkin.stats.arrays import Floats


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairRate:
    """Errors among pairs of models, with one-sided upper bounds on their rate.

    `independent`  Clopper and Pearson, as if no two pairs shared a model. For an exact test this is nearly right: if
                   the indices of every model are exchangeable, the outcomes of any two pairs are independent, also of
                   two that share a model.
    `jackknife`    the same with the number of pairs divided by the design effect, which is the variance of the rate
                   when whole models are left out, over the binomial variance. Up to twice the true variance where
                   models do not matter; blind where no error was seen.
    `guaranteed`   for pairs of one error rate, holds under any dependence through shared models: the pairs fall into
                   (most pairs of any model + 1) sets of disjoint pairs of nearly equal size, by an equitable edge
                   colouring, and Chernoff's bound holds for their average as it does for one of them.
                   [Vizing 1964; de Werra 1971; Hoeffding 1963, §5]
    """

    errors: int
    pairs: int
    models: int
    independent: float
    jackknife: float
    guaranteed: float


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact two-sided interval for a binomial share. [Clopper and Pearson 1934]"""
    _check(successes, n, confidence)
    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    return Interval(low, _upper(successes, n, 1 - tail))


def upper_bound(successes: int, n: int, confidence: float = 0.95) -> float:
    """The exact one-sided bound; without any success 1 - (1 - confidence)^(1/n)."""
    _check(successes, n, confidence)
    return _upper(successes, n, confidence)


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The score interval: not exact, but near its nominal coverage where Clopper and Pearson is wide. [Wilson 1927]"""
    _check(successes, n, confidence)
    if not n:
        return Interval(0.0, 1.0)
    z = float(ndtri((1 + confidence) / 2))
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return Interval(max(0.0, centre - half) if successes else 0.0, min(1.0, centre + half) if successes < n else 1.0)


def pair_rate(pairs: Sequence[tuple[str, str]], errors: Sequence[bool], confidence: float = 0.95) -> PairRate:
    """The rate of errors over pairs of models, each pair named by its two models and given once."""
    if len(pairs) != len(errors) or not pairs:
        raise ValueError(f"every pair needs one outcome, found {len(pairs)} pairs and {len(errors)} outcomes")
    if len({frozenset(pair) for pair in pairs}) != len(pairs) or any(a == b for a, b in pairs):
        raise ValueError("a pair joins two different models and is given once")
    wrong, count = sum(map(bool, errors)), len(pairs)
    degree = Counter(name for pair in pairs for name in pair)
    effective = count / _design_effect(pairs, np.array(errors, dtype=np.float64), degree)
    most = max(degree.values())
    disjoint = count // (most + 1 if most > 1 else 1)
    return PairRate(
        errors=wrong,
        pairs=count,
        models=len(degree),
        independent=_upper(wrong, count, confidence),
        jackknife=_upper(wrong / count * effective, effective, confidence),
        guaranteed=_chernoff(wrong / count, disjoint, confidence),
    )


def _design_effect(pairs: Sequence[tuple[str, str]], errors: Floats, degree: Counter[str]) -> float:
    """Jackknife variance over models by binomial variance; at least 1."""
    rate, count = float(errors.mean()), len(pairs)
    if not 0 < rate < 1:
        return 1.0
    hits: Counter[str] = Counter(name for pair, error in zip(pairs, errors, strict=True) if error for name in pair)
    rest = [(errors.sum() - hits[name]) / (count - degree[name]) for name in degree if degree[name] < count]
    variance = (len(rest) - 1) / len(rest) * float(np.sum((np.array(rest) - np.mean(rest)) ** 2)) if rest else 0.0
    return max(1.0, variance * count / (rate * (1 - rate)))


def _chernoff(rate: float, n: int, confidence: float) -> float:
    """The largest p with n · KL(rate, p) ≤ ln 1/(1 - confidence)."""
    if not n or rate >= 1:
        return 1.0
    room = -math.log1p(-confidence) / n

    def excess(p: float) -> float:
        above = rate * math.log(rate / p) if rate else 0.0
        return above + (1 - rate) * (math.log1p(-rate) - math.log1p(-p)) - room

    return float(brentq(excess, rate, 1 - 1e-15, xtol=1e-15)) if excess(1 - 1e-15) > 0 else 1.0


def _upper(successes: float, n: float, confidence: float) -> float:
    return float(betaincinv(successes + 1, n - successes, confidence)) if successes < n else 1.0


def _check(successes: int, n: int, confidence: float) -> None:
    if not 0 <= successes <= n or not 0 < confidence < 1:
        raise ValueError(f"no such count: {successes} of {n} at confidence {confidence}")
