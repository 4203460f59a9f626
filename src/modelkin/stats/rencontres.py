"""How many of n find themselves by chance: the law of the fixed points of a uniform permutation, and of their sum.

With S_m = Σ_{i≤m} (-1)^i / i! (the share of permutations of m without a fixed point), P(K = j) = S_{n-j} / j!, and
E[K (K-1) … (K-j+1)] = 1 for every j ≤ n, hence P(K ≥ k) ≤ 1/k!. All of it is summed in logarithms, from positive terms
only, so that nothing cancels. [Montmort 1713; Riordan, An Introduction to Combinatorial Analysis, ch. 3]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from modelkin.stats.arrays import Floats, log_sum

ENOUGH = 24  # |S_m - 1/e| < 1/(m+1)!: from here on the two are the same float
TERMS = 60  # after k the terms fall faster than 1/1, 1/2!, 1/3!, …: the rest is below 1e-80 of the sum
NEGLIGIBLE = 1e-30


def log_rencontres_tail(n: int, k: int) -> float:
    """ln P(K ≥ k), K the fixed points of a uniform permutation of n; exact to rounding for every n and k."""
    _check_counts(n, k)
    if k <= 0:
        return 0.0
    if k > n:
        return -math.inf
    j = np.arange(k, min(n, k + TERMS) + 1)
    return min(log_sum(_log_derangement_shares(n - j) - gammaln(j + 1.0)), -math.lgamma(k + 1))


def log_total_tail(sizes: Sequence[int], k: int) -> float:
    """ln P(ΣK ≥ k), K the fixed points of independent uniform permutations of these sizes; exact to rounding.

    The laws are tilted (P(j) e^{tj}, normed) until their sum has its mean at k, and then convolved as plain positive
    numbers: what floats cannot hold then lies where it adds nothing. Masses below 1e-30 are left out; all of them
    together change the result by less than rounding does.
    """
    for n in sizes:
        _check_counts(n, k)
    if k <= 0:
        return 0.0
    if k >= sum(sizes):
        return -math.inf if k > sum(sizes) else -math.fsum(math.lgamma(n + 1) for n in sizes)
    tilt, laws = _tilted(Counter(n for n in sizes if n), k)
    mass, start, log_norm = np.ones(1), 0, 0.0
    for (law, first, norm), count in laws:
        for _ in range(count):
            mass, start, log_norm = np.convolve(mass, law), start + first, log_norm + norm
    j = np.arange(start, start + mass.size)
    with np.errstate(divide="ignore"):
        terms = np.log(mass[j >= k]) - tilt * j[j >= k]
    return min(0.0, log_sum(terms) + log_norm)


def log_chosen_tail(share: float, k: int) -> float:
    """ln of a bound on P(K ≥ k), K the fixed points among chosen places of independent uniform permutations.

    Of n places m are chosen, by anything but the numbers under test; `share` is Σ m/n. For one permutation
    E[C(K, k)] = C(m, k) (n-k)!/n! ≤ (m/n)^k / k!, as for a Poisson variable of mean m/n, and so for the sum: therefore
    P(K ≥ k) ≤ share^k / k!. With all places chosen that is the 1/k! of one permutation.
    """
    if share < 0 or k != int(k):
        raise ValueError(f"a share must not be negative and counts be whole, found {share} and {k}")
    if k <= 0:
        return 0.0
    return min(0.0, k * math.log(share) - math.lgamma(k + 1)) if share else -math.inf


def log_rencontres_law(n: int) -> Floats:
    """ln P(K = j) for j = 0 … n; -inf at n - 1, which no permutation has."""
    _check_counts(n, 0)
    j = np.arange(n + 1)
    return np.asarray(_log_derangement_shares(n - j) - gammaln(j + 1.0), dtype=np.float64)


def total_law(sizes: Sequence[int]) -> Floats:
    """P(ΣK = j) for j = 0, 1, …, without what is negligible: for pictures; tails come from `log_total_tail`."""
    mass = np.ones(1)
    for n in sizes:
        law, _, _ = _law(log_rencontres_law(n), 0.0)
        mass = np.convolve(mass, law)
    return mass


def largest_law(law: Floats, tries: int) -> Floats:
    """The law of the largest of so many counts of one law, as if they were independent: for pictures alone."""
    return np.diff(np.minimum(1.0, np.cumsum(law)) ** tries, prepend=0.0)


def even_quantiles(law: Floats, size: int = 100) -> tuple[float, ...]:
    """`size` evenly spaced quantiles of a law of counts: a picture of it that owes nothing to chance."""
    places = np.searchsorted(np.cumsum(law), (np.arange(size) + 0.5) / size)
    return tuple(places.astype(float).tolist())


def e_value(k: int) -> float:
    """K itself: E[K] = 1 for any way of choosing counterparts, also one that is not one-to-one."""
    return float(k)


def log_e_value(k: int) -> float:
    """ln of Σ_j 2^{-(j+1)} K (K-1) … (K-j+1): every factorial moment of K is at most 1, so this is an e-value.

    Needs a one-to-one assignment; never below 1/2, and of the order of K!/2^K where nearly all are fixed, where K
    alone would say no more than n.
    """
    _check_counts(k, 0)
    j = np.arange(k + 1)
    return log_sum(gammaln(k + 1.0) - gammaln(k - j + 1.0) - (j + 1) * math.log(2))


def log_e_mixture(fixed: Sequence[int], share: float = 0.5) -> float:
    """ln Π (1 - ε + ε K_l) over independent layers: an e-value for `share` = ε in (0, 1)."""
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, found {share}")
    return math.fsum(math.log1p(share * (k - 1)) for k in fixed)


def _check_counts(n: int, k: int) -> None:
    if n < 0 or n != int(n) or k != int(k):
        raise ValueError(f"counts must be whole and n not negative, found n = {n}, k = {k}")


def _log_derangement_shares(m: np.ndarray) -> Floats:
    return np.asarray(_small_shares()[np.minimum(m, ENOUGH)])


@lru_cache(maxsize=1)
def _small_shares() -> Floats:
    derangements = [1, 0]
    while len(derangements) < ENOUGH:
        derangements.append((len(derangements) - 1) * (derangements[-1] + derangements[-2]))
    logs = [math.log(count / math.factorial(m)) if count else -math.inf for m, count in enumerate(derangements)]
    return np.array([*logs, -1.0])


def _tilted(sizes: Counter[int], k: int) -> tuple[float, list[tuple[tuple[Floats, int, float], int]]]:
    """The tilt that brings the mean of the sum to k (none if it is there already), and every law under it."""
    plain = {n: log_rencontres_law(n) for n in sizes}

    def mean(tilt: float) -> float:
        return sum(count * _mean(plain[n], tilt) for n, count in sizes.items())

    low, high = 0.0, 40.0 + 2 * math.log(max(sizes))
    if mean(low) >= k:
        high = low
    while high - low > 1e-3:  # near enough: any tilt gives the right answer
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < k else (low, middle)
    return low, [(_law(plain[n], low), count) for n, count in sizes.items()]


def _mean(log_law: Floats, tilt: float) -> float:
    law, first, _ = _law(log_law, tilt)
    return first + float(law @ np.arange(law.size))


def _law(log_law: Floats, tilt: float) -> tuple[Floats, int, float]:
    """The masses of a tilted law that matter, the count of the first of them, and ln of the norm."""
    logs = log_law + tilt * np.arange(log_law.size)
    norm = log_sum(logs)
    law = np.exp(logs - norm)
    kept = np.flatnonzero(law > NEGLIGIBLE)
    return law[kept[0] : kept[-1] + 1], int(kept[0]), norm
