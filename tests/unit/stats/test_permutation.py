"""The joint permutation test, against all permutations, and its max-T adjustments."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from modelkin.errors import NothingComparable
from modelkin.stats import joint_permutation, layer_offset, rank_scores
from modelkin.stats.arrays import unit_rows
from modelkin.stats.permutation import step_down


def test_mean_and_variance_against_all_permutations() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, 3, 6))
    weights = np.array([0.5, 0.3, 0.2])
    a, b = unit_rows(rank_scores(left)), unit_rows(rank_scores(right))
    values = [float(weights @ np.einsum("ij,ij->i", a[:, list(order)], b)) for order in permutations(range(6))]
    found = joint_permutation(left, right, rng, weights, draws=19)
    assert np.mean(values) == pytest.approx(0, abs=1e-12)
    assert found.sd == pytest.approx(np.std(values))
    assert found.z == pytest.approx(found.significance.statistic / np.std(values))


def test_the_drawn_p_against_all_permutations() -> None:
    rng = np.random.default_rng(2)
    left = rng.normal(size=(2, 6))
    right = left + rng.normal(size=(2, 6))
    a, b = unit_rows(rank_scores(left)), unit_rows(rank_scores(right))
    values = np.array([float(np.sum(a[:, list(order)] * b)) for order in permutations(range(6))])
    exact = float(np.mean(values >= np.sum(a * b) - 1e-9))
    found = joint_permutation(left, right, rng, draws=3999).significance.pvalue
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact / 4000) + 1 / 4000)


def test_correlations_are_near_those_of_spearman() -> None:
    rng = np.random.default_rng(3)
    left = rng.normal(size=(2, 400))
    right = np.exp(left + rng.normal(size=(2, 400)))
    found = joint_permutation(left, right, rng, draws=9).correlations
    assert found == pytest.approx([spearmanr(a, b).statistic for a, b in zip(left, right, strict=True)], abs=0.04)


def test_layers_that_share_their_axes_are_not_counted_twice() -> None:
    """One pair of vectors repeated in thirty layers is no more evidence than once; pooling would multiply z by √30."""
    left, right = np.random.default_rng(4).normal(size=(2, 1, 200))
    once = joint_permutation(left, right, np.random.default_rng(0), draws=9)
    often = joint_permutation(np.tile(left, (30, 1)), np.tile(right, (30, 1)), np.random.default_rng(0), draws=9)
    assert often.z == pytest.approx(once.z)


def test_strangers_with_correlated_layers_have_uniform_p() -> None:
    rng = np.random.default_rng(5)
    pvalues, adjusted, shifts = [], [], []
    for _ in range(300):
        left, right = (rng.normal(size=(4, 30)) + 2 * rng.normal(size=30) for _ in "ab")
        found = joint_permutation(left, right, rng, draws=39)
        pvalues.append(found.significance.pvalue)
        adjusted.append(min(found.adjusted))
        shifts.append(layer_offset(left[:, None], right[:, None], rng, reach=1, draws=39).significance.pvalue)
    for level in (0.05, 0.25, 0.5):
        margin = 3.3 * math.sqrt(level * (1 - level) / 300)
        assert np.mean(np.array(pvalues) <= level + 1e-9) == pytest.approx(level, abs=margin)
        assert np.mean(np.array(adjusted) <= level + 1e-9) == pytest.approx(level, abs=margin)
        assert np.mean(np.array(shifts) <= level + 1e-9) == pytest.approx(level, abs=margin)


def test_a_relative_is_found_and_p_ends_at_one_over_the_draws() -> None:
    rng = np.random.default_rng(6)
    left = rng.normal(size=(12, 128))
    found = joint_permutation(left, 0.4 * left + rng.normal(size=(12, 128)), rng, draws=199)
    assert found.significance.pvalue == pytest.approx(1 / 200)
    assert not found.significance.exact
    assert found.z > 8
    assert len(found.significance.null.sample) == 199


def test_the_one_layer_that_was_kept_is_named() -> None:
    rng = np.random.default_rng(7)
    left, right = rng.normal(size=(2, 8, 128))
    right[5] = left[5] + rng.normal(size=128)
    adjusted = joint_permutation(left, right, rng, draws=199).adjusted
    assert adjusted[5] == pytest.approx(1 / 200)
    assert adjusted[5] < min(adjusted[:5] + adjusted[6:])


def test_step_down_by_hand() -> None:
    null = np.array([[0.0, 3.0], [2.0, 0.0], [0.0, 1.0]])
    # 2.5 against the largest of both (3, 2, 1): one reaches it; 0.5 against its own column (0, 2, 0): one
    assert step_down(np.array([0.5, 2.5]), null) == (0.5, 0.5)
    assert step_down(np.array([9.0, 2.5]), null) == (0.25, 0.5)


@pytest.mark.parametrize("shift", [-2, 0, 3])
def test_a_shift_of_the_layers_is_found(shift: int) -> None:
    rng = np.random.default_rng(8)
    whole = rng.normal(size=(14, 2, 96))
    left, right = whole[4:10], whole[4 - shift : 12 - shift] + rng.normal(size=(8, 2, 96))
    found = layer_offset(left, right, rng, reach=4, draws=99)
    assert found.shift == shift
    assert found.adjusted[found.shifts.index(shift)] == found.significance.pvalue == pytest.approx(0.01)


def test_shifts_beyond_the_last_layer_are_not_tried() -> None:
    rng = np.random.default_rng(9)
    assert layer_offset(rng.normal(size=(2, 1, 9)), rng.normal(size=(3, 1, 9)), rng, draws=9).shifts == (-1, 0, 1, 2)


def test_constant_vectors_say_nothing() -> None:
    found = joint_permutation(np.ones((2, 8)), np.ones((2, 8)), np.random.default_rng(0), draws=19)
    assert (found.z, found.sd, found.significance.pvalue) == (0.0, 0.0, 1.0)
    assert found.adjusted == (1.0, 1.0)


def test_the_same_chance_gives_the_same_answer_and_inputs_stay() -> None:
    left, right = np.random.default_rng(10).normal(size=(2, 4, 31))
    copy = right.copy()
    first, second = (joint_permutation(left, right, np.random.default_rng(11), draws=49) for _ in "ab")
    assert first == second
    assert np.array_equal(right, copy)


def test_strange_input_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(NothingComparable, match="not finite"):
        joint_permutation([[1.0, np.inf]], [[1.0, 2.0]], rng)
    with pytest.raises(ValueError, match="weights"):
        joint_permutation([[1.0, 3.0]], [[1.0, 2.0]], rng, weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="two hidden axes"):
        joint_permutation([[1.0]], [[1.0]], rng)
    with pytest.raises(ValueError, match="layers only"):
        layer_offset(np.ones((2, 1, 3)), np.ones((2, 1, 4)), rng)
