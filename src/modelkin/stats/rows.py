"""Weak inheritance: rows too faint to recognise one by one, but alike on the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from modelkin.records import Null, Significance
from modelkin.stats.arrays import LN10, Floats, matched, unit_rows
from modelkin.stats.assignment import answerable
from modelkin.stats.montecarlo import DRAWS, drawn_pvalue, kept
from modelkin.stats.pair_swap import STEPS, pair_swap

COARSE = 0.828  # what is left of ln e when λ is off by √2, the worst between two steps of the grid: 2√2 - 2


@dataclass(frozen=True, slots=True)
class PooledRows:
    """Mean row correlation, and what the same rows give in any other order.

    `significance` is exact: the pair-swap e-value of the rows. `drawn` and `log10_normal` (the tail of z) are for
    display. `effective_width` is the d for which 1/√(rows · d) is the standard deviation under permutation.
    """

    correlation: float
    expected: float
    z: float
    effective_width: float
    log10_normal: float
    drawn: Significance
    significance: Significance


def pooled_rows(
    layers: Sequence[tuple[ArrayLike, ArrayLike]], rng: np.random.Generator, draws: int = DRAWS
) -> PooledRows:
    """Row i of left and right belong to one index, in each of several independent sets: [((n, p), (n, p)), …].

    T is the mean Pearson correlation of the rows. When the rows of one side are permuted within each layer its mean is
    the mean of the table of all correlations, and its variance Σ Q² / (n - 1) for the doubly centred table Q, exactly.
    Rows without variance and duplicates are left out. [Hoeffding 1951]
    """
    kept_rows = [_kept(*matched(left, right)) for left, right in layers]
    tables = [first @ second.T for first, second in kept_rows]
    count = sum(len(table) for table in tables)
    seen = _mean([np.trace(table) for table in tables], count)
    expected = _mean([table.sum() / max(1, len(table)) for table in tables], count)
    variance = math.fsum(_variance(table) for table in tables) / max(1, count) ** 2
    z = (seen - expected) / math.sqrt(variance) if variance > 0 else 0.0
    null = np.array([_mean([_shuffled_trace(table, rng) for table in tables], count) for _ in range(draws)])
    return PooledRows(
        correlation=seen,
        expected=expected,
        z=z,
        effective_width=1 / (count * variance) if variance > 0 else 0.0,
        log10_normal=float(log_ndtr(-z)) / LN10,
        drawn=_drawn(seen, null, count),
        significance=pair_swap(kept_rows, rng, "exchanging two rows of one model"),
    )


def smallest_detectable(n_rows: int, d_eff: float, alpha: float, power: float) -> float:
    """The row correlation that the pooled z-test finds with this power: (z_α + z_β) / √(n d)."""
    _check_rates(n_rows, d_eff, alpha, power)
    return float(-ndtri(alpha) + ndtri(power)) / math.sqrt(n_rows * d_eff)


def smallest_detectable_exactly(n_rows: int, d_eff: float, alpha: float, power: float) -> float:
    """The same for the pair-swap e-value, which is what grade A allows.

    n/2 pairs give ΣD / sd = ρ √(n d / 2) on average, and ln e = z²/2 at the best λ; averaging over the grid costs at
    most its size and a factor between its steps. So z must reach √(2 ln(steps / α) / 0.828). Approximate: for planning
    and for saying what would have been noticed; the test itself is exact. Infinite where n/2 coins cannot reach 1/α.
    """
    _check_rates(n_rows, d_eff, alpha, power)
    needed = math.sqrt(2 * math.log(len(STEPS) / alpha) / COARSE)
    if n_rows // 2 * math.log(2) < math.log(len(STEPS) / alpha):
        return math.inf
    return (needed + float(ndtri(power))) / math.sqrt(n_rows * d_eff / 2)


def _check_rates(n_rows: int, d_eff: float, alpha: float, power: float) -> None:
    if n_rows < 2 or d_eff <= 0 or not 0 < alpha < 1 or not 0 < power < 1:
        raise ValueError(f"no such test: {n_rows} rows, width {d_eff}, alpha {alpha}, power {power}")


def _kept(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    clear = answerable(left, right)
    return unit_rows(left[clear]), unit_rows(right[clear])


def _mean(sums: Sequence[float], count: int) -> float:
    return math.fsum(sums) / max(1, count)


def _variance(table: Floats) -> float:
    """Of Σ_i table[π(i), i], π uniform."""
    if len(table) < 2:
        return 0.0
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return float(np.sum(centred**2)) / (len(table) - 1)


def _shuffled_trace(table: Floats, rng: np.random.Generator) -> float:
    return float(table[rng.permutation(len(table)), np.arange(len(table))].sum())


def _drawn(seen: float, null: Floats, count: int) -> Significance:
    return Significance(
        statistic=seen,
        log10_pvalue=math.log10(drawn_pvalue(seen, null)),
        null=Null(
            f"the mean correlation of {count} rows, those of one model in any other order: {null.size} draws",
            kept(null),
        ),
        n=count,
        exact=False,
    )
