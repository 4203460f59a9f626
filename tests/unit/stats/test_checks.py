"""Assumption checks: silent on exchangeable indices, loud where positions or sizes order them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkin.errors import NothingComparable
from modelkin.stats import hidden_autocorrelation, importance_order
from modelkin.stats.arrays import average_ranks, rank_scores, unit_rows
from modelkin.stats.checks import lagged

Integers = NDArray[np.intp]


def test_the_autocorrelation_of_a_ramp_and_of_a_see_saw() -> None:
    rng = np.random.default_rng(1)
    assert hidden_autocorrelation(np.arange(200.0)[None, :], rng, most=99).statistic > 0.9
    see_saw = np.where(np.arange(200) % 2, 1.0, -1.0)[None, :]
    found = hidden_autocorrelation(see_saw, rng, most=99)
    assert abs(found.statistic) > 0.9
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


def test_the_autocorrelation_of_a_few_axes_against_all_orders() -> None:
    rng = np.random.default_rng(4)
    vectors = np.array([[1.0, 2.0, 4.0, 3.0, 5.0, 6.0], [2.0, 1.0, 3.0, 5.0, 6.0, 4.0]])
    orders = [vectors[:, list(order)] for order in permutations(range(6))]
    every = np.array([hidden_autocorrelation(turned, rng, most=1).statistic for turned in orders])
    exact = float(np.mean(np.abs(every) >= abs(every[0]) - 1e-9))
    found = [hidden_autocorrelation(vectors, rng, most=4000).pvalue for _ in range(25)]
    # Every run stops at 20 draws that reach it, so it is off by 1/√20 of the p-value.
    assert np.mean(found) == pytest.approx(exact, rel=4 / math.sqrt(20 * 25) + 0.05)
    assert exact < 0.2


def test_the_autocorrelation_at_each_lag_is_centred() -> None:
    rng = np.random.default_rng(14)
    scores = unit_rows(rank_scores(rng.normal(size=(1, 24))))[0]
    drawn = np.array([rng.permutation(scores) for _ in range(20_000)]).T
    for lag in (1, 4, 12):
        found = lagged(drawn, lag)
        assert np.mean(found) == pytest.approx(0, abs=3.5 * np.std(found) / math.sqrt(20_000))
        assert np.std(found) == pytest.approx(math.sqrt(24 - lag) / 24, rel=0.06)


@pytest.mark.parametrize(
    "table",
    [
        lambda axis, token: np.where(axis % 2, np.cos(token * waves(axis)), np.sin(token * waves(axis))),
        lambda axis, token: np.where(
            axis < 64, np.cos(token * 50 ** (-axis / 64)), np.sin(token * 50 ** (1 - axis / 64))
        ),
        lambda axis, token: ((token >> axis) % 2 * 2 - 1) * (axis < 10),
        lambda axis, token: np.cos(axis * np.pi / 2 + token),
    ],
    ids=["waves in turn", "waves in halves", "bits", "period 4"],
)
def test_tables_that_a_formula_makes_are_noticed(table: Callable[[Integers, Integers], NDArray[np.float64]]) -> None:
    axis, tokens = np.arange(128)[None, :], np.random.default_rng(15).permutation(1000)[:12, None]
    vectors = table(axis, tokens) + 0.3 * np.random.default_rng(16).normal(size=(12, 128))
    assert hidden_autocorrelation(vectors, np.random.default_rng(17), most=1000).pvalue < 1e-3


def waves(axis: Integers) -> NDArray[np.float64]:
    return np.asarray(10_000.0 ** -(axis // 2 * 2 / 128), dtype=np.float64)


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
