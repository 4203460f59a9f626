"""The law of fixed points, against counting and against fractions."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from scipy.stats import poisson

from modelkin.stats import e_value, log_e_mixture, log_e_value, log_rencontres_tail, log_total_tail
from modelkin.stats.rencontres import even_quantiles, log_rencontres_law, total_law


def counted(n: int) -> Counter[int]:
    return Counter(sum(i == place for i, place in enumerate(order)) for order in permutations(range(n)))


def law(n: int) -> list[Fraction]:
    derangements = [1, 0]
    while len(derangements) <= n:
        derangements.append((len(derangements) - 1) * (derangements[-1] + derangements[-2]))
    return [Fraction(math.comb(n, j) * derangements[n - j], math.factorial(n)) for j in range(n + 1)]


def convolved(laws: list[list[Fraction]]) -> list[Fraction]:
    total = [Fraction(1)]
    for other in laws:
        longer = [Fraction(0)] * (len(total) + len(other) - 1)
        for (i, a), (j, b) in product(enumerate(total), enumerate(other)):
            longer[i + j] += a * b
        total = longer
    return total


def log(share: Fraction) -> float:
    return math.log(share.numerator) - math.log(share.denominator)


@pytest.mark.parametrize("n", range(9))
def test_against_all_permutations(n: int) -> None:
    counts = counted(n)
    for k in range(n + 1):
        expected = sum(times for fixed, times in counts.items() if fixed >= k) / math.factorial(n)
        assert math.exp(log_rencontres_tail(n, k)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("n", [10, 11, 16, 23, 24, 25, 26, 40, 59, 60])
def test_against_fractions(n: int) -> None:
    exact = law(n)
    for k in range(n + 1):
        assert log_rencontres_tail(n, k) == pytest.approx(log(sum(exact[k:], Fraction(0))), rel=1e-13, abs=1e-13)


def test_large_sets_have_the_poisson_tail() -> None:
    for k in range(1, 60):
        assert log_rencontres_tail(100_000, k) == pytest.approx(poisson.logsf(k - 1, 1), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 300, 4096])
def test_the_tail_falls_and_stays_below_one_over_k_factorial(n: int) -> None:
    tails = [log_rencontres_tail(n, k) for k in range(n + 1)]
    assert all(later <= earlier for earlier, later in pairwise(tails))
    assert all(tail <= -math.lgamma(k + 1) for k, tail in enumerate(tails))
    assert tails[0] == 0.0
    assert tails[n] == pytest.approx(-math.lgamma(n + 1), rel=1e-14)
    assert log_rencontres_tail(n, n + 1) == -math.inf


def test_all_but_one_cannot_be_fixed() -> None:
    assert log_rencontres_tail(50, 49) == pytest.approx(log_rencontres_tail(50, 50), rel=1e-14)
    assert log_rencontres_law(50)[49] == -math.inf


@pytest.mark.parametrize("n", [-1, 2.5])
def test_strange_counts_are_refused(n: float) -> None:
    with pytest.raises(ValueError, match="whole"):
        log_rencontres_tail(n, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[1], [1, 1], [2, 3], [4, 4, 4], [5, 0, 2, 7], [16, 16], [9] * 6, [3, 40]])
def test_the_sum_over_layers_against_fractions(sizes: list[int]) -> None:
    exact = convolved([law(n) for n in sizes])
    for k in range(sum(sizes) + 1):
        assert log_total_tail(sizes, k) == pytest.approx(log(sum(exact[k:], Fraction(0))), rel=1e-12, abs=1e-12)


def test_one_layer_alone_is_its_own_sum() -> None:
    for k in (1, 2, 5, 40, 63, 64):
        assert log_total_tail([64], k) == pytest.approx(log_rencontres_tail(64, k), rel=1e-12)


def test_many_large_layers_have_the_poisson_tail_and_keep_to_it_far_out() -> None:
    for k in (10, 28, 60, 120, 200):
        assert log_total_tail([2048] * 28, k) == pytest.approx(poisson.logsf(k - 1, 28), rel=1e-9)
    assert log_total_tail([64] * 28, 28 * 64) == pytest.approx(-28 * math.lgamma(65))


def test_no_layer_finds_nothing() -> None:
    assert log_total_tail([], 0) == 0.0
    assert log_total_tail([], 1) == -math.inf


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_e_values_have_mean_at_most_one(n: int) -> None:
    orders, counts = math.factorial(n), counted(n)
    assert sum(times * e_value(k) for k, times in counts.items()) / orders == 1.0
    assert sum(times * math.exp(log_e_value(k)) for k, times in counts.items()) / orders <= 1.0
    mixed = sum(a * b * math.exp(log_e_mixture([i, j])) for (i, a), (j, b) in product(counts.items(), repeat=2))
    assert mixed / orders**2 == pytest.approx(1.0)


def test_the_e_value_grows_with_the_factorial() -> None:
    assert log_e_value(0) == pytest.approx(math.log(0.5))
    assert log_e_value(64) > math.lgamma(65) - 65 * math.log(2)


def test_a_mixture_needs_a_share_between_none_and_all() -> None:
    with pytest.raises(ValueError, match="share"):
        log_e_mixture([1, 2], share=1.0)


def test_the_picture_of_the_law_has_its_shares() -> None:
    shares = Counter(even_quantiles(total_law([64]), 1000))
    assert all(abs(shares[float(k)] - 1000 * poisson.pmf(k, 1)) <= 1.5 for k in range(5))
    assert np.mean(even_quantiles(total_law([64] * 20), 1000)) == pytest.approx(20, abs=0.05)
