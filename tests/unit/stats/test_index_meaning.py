"""Whether an index means something in one model: silent on rows in any order, loud where a formula fills them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from modelkin.stats import index_meaning

Floats = NDArray[np.float64]
LAYERS, NEURONS, WIDTH = 6, 48, 64


def layers(seed: int, count: int = LAYERS) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, NEURONS, WIDTH))


def banded() -> Floats:
    return np.array(np.abs(np.arange(NEURONS)[:, None] * WIDTH // NEURONS - np.arange(WIDTH)) <= 3, dtype=np.float64)


@pytest.mark.parametrize(
    "filled",
    [
        lambda rows: rows * banded(),
        lambda rows: rows * np.kron(np.eye(8), np.ones((6, 8))),
        lambda rows: 0.3 * rows + np.eye(NEURONS, WIDTH),
        lambda rows: 0.3 * rows + hadamard(WIDTH)[:NEURONS] / 8,
        lambda rows: rows * (np.random.default_rng(0).random((NEURONS, WIDTH)) < 0.3),
    ],
    ids=["bands", "blocks", "identity", "hadamard", "mask"],
)
def test_what_a_formula_filled_is_noticed(filled: Callable[[Floats], Floats]) -> None:
    found = index_meaning(list(filled(layers(1))), np.random.default_rng(2))
    assert found.pvalue < 1e-3
    assert not found.exact


def test_rows_in_any_order_have_super_uniform_p_although_they_are_far_from_independent() -> None:
    """Rows of all layers from one small set of directions, with empty and equal ones, shuffled in each layer."""
    rng = np.random.default_rng(3)
    pvalues = []
    for _ in range(500):
        directions = rng.normal(size=(6, 12))
        rows = rng.normal(size=(4, 20, 6)) @ directions + rng.normal(size=12)
        rows[:, :2], rows[:, 3] = 0.0, rows[:, 4]
        shuffled = [layer[rng.permutation(20)] for layer in rows]
        pvalues.append(index_meaning(shuffled, rng, most=199).pvalue)
    for level in (0.01, 0.05, 0.25, 0.5):
        assert np.mean(np.array(pvalues) <= level + 1e-9) <= level + 3.3 * math.sqrt(level / 500)


def test_rows_of_noise_have_uniform_p() -> None:
    rng = np.random.default_rng(13)
    pvalues = np.array([index_meaning(list(rng.normal(size=(3, 16, 10))), rng, most=199).pvalue for _ in range(500)])
    for level in (0.05, 0.25, 0.5):
        assert np.mean(pvalues <= level + 1e-9) == pytest.approx(level, abs=3.5 * math.sqrt(level / 500))


def test_against_all_orders_of_few_rows() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(2, 5, 9))
    rows[1] += 0.4 * rows[0] / np.abs(rows[0]).mean()
    found = [index_meaning(list(rows), rng, most=4000) for _ in range(25)]
    every = [index_meaning([rows[0], rows[1][list(order)]], rng, most=1).statistic for order in permutations(range(5))]
    exact = float(np.mean(np.array(every) >= found[0].statistic - 1e-9))
    # Every run stops at 20 draws that reach it, so it is off by 1/√20 of the p-value.
    assert np.mean([run.pvalue for run in found]) == pytest.approx(exact, rel=4 / math.sqrt(20 * 25) + 0.05)


def test_a_few_repeated_layers_say_nothing_of_the_index() -> None:
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows = layers(seed)
        rows[3:5] = rows[1:3] + 0.5 * rng.normal(size=rows[1:3].shape)
        alarms += index_meaning(list(rows), rng, most=99).pvalue <= 0.05
    assert alarms <= 13  # of 100 at 5 %; more has a chance of 1 in 1,000


def test_where_most_layers_are_alike_they_count() -> None:
    rows = layers(5, 1) + 0.05 * layers(6, 4)
    assert index_meaning(list(rows), np.random.default_rng(7)).pvalue < 1e-3


def test_neurons_left_empty_in_every_layer_are_left_out() -> None:
    rows = layers(8)
    rows[:, 30:] = 0.0
    found = index_meaning(list(rows), np.random.default_rng(9))
    assert found.n == 30
    assert found.pvalue > 0.01


def test_heads_that_a_formula_fills_are_compared_with_the_same_head_of_other_layers() -> None:
    """Of an identity over all heads no two heads of a layer have anything in common."""
    heads = 0.3 * np.random.default_rng(10).normal(size=(3, 4, 16, 64)) + 3 * np.eye(64).reshape(4, 16, 64)
    sets, kinds = list(heads.reshape(12, 16, 64)), list(range(4)) * 3
    assert index_meaning(sets, np.random.default_rng(11)).pvalue >= 1e-3  # which is not noticed
    assert index_meaning(sets, np.random.default_rng(11), kinds=kinds).pvalue < 1e-3


@pytest.mark.parametrize("sets", [[], [np.ones((4, 3))], [np.ones((4, 3)), np.ones((4, 3))], [np.eye(3), np.eye(5)]])
def test_too_little_says_nothing(sets: list[Floats]) -> None:
    found = index_meaning(sets, np.random.default_rng(0))
    assert (found.pvalue, found.n) == (1.0, 0)


def test_every_pair_of_sets_is_looked_at() -> None:
    count = len(list(combinations(range(LAYERS), 2)))
    assert f"in {count} pairs" in index_meaning(list(layers(1)), np.random.default_rng(0)).null.text
