"""The pair-swap e-value, against all sign flips and all permutations."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest

from modelkin.errors import NothingComparable
from modelkin.stats import pair_swap_axes
from modelkin.stats.pair_swap import STEPS, log_e


def test_the_mean_over_all_signs_is_one() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.exponential(size=8)
    values = [math.exp(log_e(sizes * np.array(signs))) for signs in product((-1.0, 1.0), repeat=8)]
    assert np.mean(values) == pytest.approx(1.0)


def test_the_mean_over_all_permutations_is_one() -> None:
    """The same pairings for every permutation of one side: what the null hypothesis says, in full."""
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(2, 3, 6))
    values = [
        10 ** pair_swap_axes(left, right[:, list(order)], np.random.default_rng(3), pairings=2).statistic
        for order in permutations(range(6))
    ]
    assert np.mean(values) == pytest.approx(1.0)


def test_strangers_win_nothing_on_average() -> None:
    rng = np.random.default_rng(4)
    evalues = []
    for _ in range(600):
        left, right = (rng.normal(size=(5, 40)) + rng.normal(size=40) for _ in "ab")
        evalues.append(10 ** pair_swap_axes(left, right, rng, pairings=4).statistic)
    assert np.mean(evalues) <= 1 + 3 * np.std(evalues) / math.sqrt(600)
    assert np.mean(np.array(evalues) >= 20) <= 0.05 + 3 * math.sqrt(0.05 / 600)


def test_against_the_formula() -> None:
    differences = np.array([0.3, -1.2, 2.0])
    scale = math.sqrt(np.mean(differences**2))
    terms = [math.exp(s * sum(differences) / scale) / np.prod(np.cosh(s * differences / scale)) for s in STEPS]
    assert math.exp(log_e(differences)) == pytest.approx(np.mean(terms))


def test_equal_axes_win_nearly_a_bit_a_pair() -> None:
    left = np.random.default_rng(5).normal(size=(13, 256))
    found = pair_swap_axes(left, left, np.random.default_rng(6))
    assert 30 < found.statistic < 128 * math.log10(2)
    assert found.log10_pvalue == -found.statistic
    assert found.exact


def test_a_weak_likeness_of_many_vectors_is_found() -> None:
    rng = np.random.default_rng(7)
    left = rng.normal(size=(24, 1024))
    right = 0.1 * left + rng.normal(size=(24, 1024))
    assert pair_swap_axes(left, right, rng).log10_pvalue < -15


def test_opposite_vectors_are_no_likeness() -> None:
    left = np.random.default_rng(8).normal(size=(5, 100))
    assert pair_swap_axes(left, -left, np.random.default_rng(9)).pvalue == 1.0


@pytest.mark.parametrize("vectors", [np.ones((3, 16)), np.zeros((2, 5)), np.ones((1, 1))])
def test_constant_vectors_say_nothing(vectors: np.ndarray) -> None:
    found = pair_swap_axes(vectors, vectors, np.random.default_rng(0))
    assert (found.statistic, found.pvalue) == (0.0, 1.0)


def test_the_same_chance_gives_the_same_answer_and_inputs_stay() -> None:
    left, right = np.random.default_rng(10).normal(size=(2, 4, 31))
    copy = left.copy()
    first, second = (pair_swap_axes(left, right, np.random.default_rng(11)) for _ in "ab")
    assert first == second
    assert np.array_equal(left, copy)


def test_what_is_not_finite_or_not_paired_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(NothingComparable, match="not finite"):
        pair_swap_axes([[1.0, np.nan]], [[1.0, 2.0]], rng)
    with pytest.raises(ValueError, match="pairings"):
        pair_swap_axes([[1.0, 2.0]], [[1.0, 2.0]], rng, pairings=0)
