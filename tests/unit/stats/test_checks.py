"""Assumption checks: silent on exchangeable indices, loud where positions or sizes order them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.errors import NothingComparable
from modelkin.stats import hidden_autocorrelation, importance_order
from modelkin.stats.arrays import average_ranks


def test_the_autocorrelation_of_a_ramp_and_of_a_see_saw() -> None:
    rng = np.random.default_rng(1)
    assert hidden_autocorrelation(np.arange(200.0)[None, :], rng, most=99).statistic > 0.9
    see_saw = np.where(np.arange(200) % 2, 1.0, -1.0)[None, :]
    found = hidden_autocorrelation(see_saw, rng, most=99)
    assert found.statistic < -0.9
    assert found.pvalue == pytest.approx(0.01)


def test_gains_pinned_by_a_position_table_are_noticed() -> None:
    rng = np.random.default_rng(2)
    table = np.sin(np.arange(512) / 9)
    vectors = 1 + 0.1 * (rng.normal(size=(12, 512)) + 0.7 * table)
    found = hidden_autocorrelation(vectors, rng)
    assert found.pvalue < 1e-3
    assert found.statistic > 0.1
    assert not found.exact


def test_exchangeable_axes_have_super_uniform_p_although_layers_resemble_each_other() -> None:
    rng = np.random.default_rng(3)
    pvalues = []
    for _ in range(600):
        vectors = np.round(128 + 12 * rng.normal(size=(4, 48)) + 12 * rng.normal(size=48))
        pvalues.append(hidden_autocorrelation(vectors, rng, most=199).pvalue)
    for level in (0.01, 0.05, 0.25, 0.5):
        assert np.mean(np.array(pvalues) <= level + 1e-9) <= level + 3.3 * math.sqrt(level / 600)
    assert np.mean(np.array(pvalues) <= 0.5) > 0.4


def test_the_centre_is_the_mean_over_all_orders() -> None:
    rng = np.random.default_rng(4)
    draws = [hidden_autocorrelation(rng.normal(size=(1, 8)), rng, most=1).statistic for _ in range(3000)]
    assert np.mean(draws) == pytest.approx(0, abs=3.5 * np.std(draws) / math.sqrt(3000))


@pytest.mark.parametrize("vectors", [np.ones((3, 50)), np.ones((1, 2)), np.zeros((0, 8))])
def test_constant_gains_say_nothing(vectors: np.ndarray) -> None:
    assert hidden_autocorrelation(vectors, np.random.default_rng(0)).pvalue == 1.0


def test_sorted_neurons_are_noticed() -> None:
    rng = np.random.default_rng(5)
    layers = [rng.normal(size=(32, 20)) * np.linspace(1.2, 1.0, 32)[:, None] for _ in range(4)]
    found = importance_order(layers, rng)
    assert found.statistic < -0.2
    assert found.pvalue < 1e-3


def test_one_layer_against_scipy() -> None:
    from scipy.stats import spearmanr

    rows = np.random.default_rng(6).normal(size=(30, 10))
    found = importance_order([rows], np.random.default_rng(7), most=999)
    expected = spearmanr(np.linalg.norm(rows, axis=1), np.arange(30))
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.pvalue == pytest.approx(expected.pvalue, abs=0.15)


def test_unsorted_neurons_have_super_uniform_p() -> None:
    rng = np.random.default_rng(8)
    pvalues = [importance_order(list(rng.normal(size=(2, 16, 4))), rng, most=99).pvalue for _ in range(600)]
    for level in (0.02, 0.1, 0.5):
        assert np.mean(np.array(pvalues) <= level + 1e-9) <= level + 3.3 * math.sqrt(level / 600)


def test_rows_of_one_size_say_nothing() -> None:
    assert importance_order([np.eye(5), np.ones((2, 2))], np.random.default_rng(0)).pvalue == 1.0


def test_the_same_chance_gives_the_same_answer() -> None:
    vectors = np.random.default_rng(9).normal(size=(3, 40))
    first, second = (hidden_autocorrelation(vectors, np.random.default_rng(10)) for _ in "ab")
    assert first == second


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(NothingComparable, match="not finite"):
        hidden_autocorrelation([[1.0, np.nan, 2.0]], np.random.default_rng(0))
    with pytest.raises(NothingComparable, match="not finite"):
        importance_order([np.full((3, 3), np.inf)], np.random.default_rng(0))


@pytest.mark.parametrize("values", [[[3, 1, 2, 2, 1, 2]], [[1.0]], [[5, 5, 5], [1, 3, 2]], np.zeros((2, 0))])
def test_ranks_against_scipy(values: list[list[float]]) -> None:
    from scipy.stats import rankdata

    rows = np.array(values, dtype=np.float64)
    np.testing.assert_array_equal(average_ranks(rows), rankdata(rows, axis=1))


def test_ranks_of_rounded_numbers_against_scipy() -> None:
    from scipy.stats import rankdata

    rows = np.round(np.random.default_rng(11).normal(size=(5, 300)), 1)
    np.testing.assert_array_equal(average_ranks(rows), rankdata(rows, axis=1))
