"""The pair-swap e-value: exchanging two indices of one model turns the sign of what they have in common.

Pair the indices at random; for a pair (i, i′) let D = ½ ⟨a_i − a_i′, b_i − b_i′⟩. If the indices of one model are
exchangeable, swapping i and i′ there changes nothing but the sign of D; so given all |D| the signs are fair coins, and

    e = exp(λ ΣD) / Π cosh(λD)

has mean one for every λ that is chosen before, or from |D| alone. So has the mean of e over several pairings and
several λ, whatever their dependence. P(e ≥ 1/p) ≤ p by Markov's inequality: 1/e is a p-value. Neither ties nor tails
matter, and D = 0 counts for nothing. m pairs are m coins: e never exceeds 2^m, so a small index set has its limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from modelkin.records import Null, Significance
from modelkin.stats.arrays import LN10, Floats, log_sum, matched, rank_scores

STEPS = tuple(2.0**i for i in range(-5, 5))  # λ in units of 1 / root mean square of D
PAIRINGS = 32
LN2 = math.log(2)


def pair_swap_axes(
    left: ArrayLike, right: ArrayLike, rng: np.random.Generator, pairings: int = PAIRINGS
) -> Significance:
    """Hidden axes by vectors on the residual stream, rank-scored here.  (vectors, d) twice, vector l of both alike."""
    first, second = matched(left, right)
    items = [(rank_scores(first).T, rank_scores(second).T)]
    return pair_swap(items, rng, "exchanging two hidden axes of one model", pairings)


def pair_swap(
    items: Sequence[tuple[Floats, Floats]], rng: np.random.Generator, what: str, pairings: int = PAIRINGS
) -> Significance:
    """Several index sets, renumbered independently: in each, item i of both sides is a row of (n, p)."""
    if pairings < 1:
        raise ValueError(f"pairings must be at least 1, found {pairings}")
    log_es = [log_e(np.concatenate([_in_common(a, b, rng) for a, b in items])) for _ in range(pairings)]
    evalue = (log_sum(log_es) - math.log(pairings)) / LN10
    n = sum(len(first) for first, _ in items)
    return Significance(
        statistic=evalue,
        log10_pvalue=min(0.0, -evalue),
        null=Null(
            f"log10 of an e-value: {what} turns the signs into fair coins; e has mean 1, above 1/p with chance p"
        ),
        n=n,
        exact=True,
        log10_evalue=evalue,
    )


def log_e(differences: Floats) -> float:
    """ln of the mean over the grid of λ of exp(λ ΣD − Σ ln cosh λD).  differences: (pairs,)."""
    scale = math.sqrt(float(np.mean(differences**2))) if differences.size else 0.0
    if scale == 0:
        return 0.0
    unit = differences / scale
    return log_sum([_log_e_at(step * unit) for step in STEPS]) - math.log(len(STEPS))


def _log_e_at(tilted: Floats) -> float:
    size = np.abs(tilted)
    return float(np.sum(tilted - (size + np.log1p(np.exp(-2 * size)) - LN2)))


def _in_common(left: Floats, right: Floats, rng: np.random.Generator) -> Floats:
    """D of a random pairing of the rows; one row stays over where their number is odd.  (n, p) twice -> (n // 2,)."""
    order = rng.permutation(len(left))
    half = len(left) // 2
    first, second = order[:half], order[half : 2 * half]
    return np.asarray(0.5 * np.einsum("ij,ij->i", left[first] - left[second], right[first] - right[second]))
