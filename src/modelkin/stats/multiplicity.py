"""Several p-values, one error budget. Everything in log10, where p-values far below what a float holds still count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from modelkin.stats.arrays import LN10, Floats, log_sum


@dataclass(frozen=True)
class Budget:
    """An error rate `alpha` divided among questions by weights that sum to at most one.

    A question rejects if p ≤ weight · alpha, that is if its adjusted p = p / weight is at most alpha. The chance of any
    false rejection is then at most alpha under any dependence, in any order, and with early stopping. [Weighted
    Bonferroni: Rosenthal and Rubin 1983]
    """

    alpha: float
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, found {self.alpha}")
        if not all(weight > 0 for weight in self.weights.values()) or math.fsum(self.weights.values()) > 1 + 1e-12:
            raise ValueError(f"weights must be positive and sum to at most 1, found {dict(self.weights)}")

    def adjusted(self, question: str, log10_pvalue: float) -> float:
        """log10 of p / weight, at most 0."""
        return min(0.0, float(_checked([log10_pvalue])[0]) - math.log10(self.weights[question]))

    def rejects(self, question: str, log10_pvalue: float) -> bool:
        return self.adjusted(question, log10_pvalue) <= math.log10(self.alpha)

    def smallest(self, log10_pvalues: Mapping[str, float]) -> float:
        """log10 of the smallest adjusted p of the questions that were answered: the p of the whole; 0 if none was."""
        return min((self.adjusted(name, value) for name, value in log10_pvalues.items()), default=0.0)


def holm(log10_pvalues: Sequence[float]) -> tuple[float, ...]:
    """log10 of Holm's adjusted p-values, in the order given. Valid under any dependence. [Holm 1979]"""
    values = _checked(log10_pvalues)
    order = np.argsort(values, kind="stable")
    steps = values[order] + np.log10(np.arange(values.size, 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 0.0)
    return tuple(adjusted.tolist())


def fisher(log10_pvalues: Sequence[float]) -> float:
    """log10 of Fisher's combination of INDEPENDENT p-values; 0 for none.

    With x = -Σ ln p and m p-values, P = e^{-x} Σ_{i<m} x^i / i!, the upper tail of chi-square with 2m degrees of
    freedom at 2x. p-values of discrete statistics are larger than uniform ones, which makes it conservative. Not for
    statistics of one permutation (gate and up of a layer; all vectors on the residual stream). [Fisher 1932]
    """
    values = _checked(log10_pvalues)
    x = -float(np.sum(values)) * LN10
    if not values.size or x == 0:
        return 0.0
    i = np.arange(values.size)
    return min(0.0, (log_sum(i * math.log(x) - gammaln(i + 1.0)) - x) / LN10)


def _checked(log10_pvalues: Sequence[float]) -> Floats:
    values = np.array(log10_pvalues, dtype=np.float64)
    if np.any(np.isnan(values)) or np.any(values > 1e-12):
        raise ValueError(f"expected logarithms of p-values, found {list(log10_pvalues)}")
    return np.minimum(values, 0.0)
