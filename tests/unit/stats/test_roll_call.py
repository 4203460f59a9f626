"""The roll call on rows and on hidden axes: strangers find one, relatives nearly all, ties decide nothing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from modelkin.errors import NothingComparable
from modelkin.stats import hidden_axes, neurons, rank_scores, roll_call
from modelkin.stats.assignment import Likeness, matches
from modelkin.stats.rencontres import log_rencontres_law

Floats = NDArray[np.float64]


def noisy(rows: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    return correlation * rows + np.sqrt(1 - correlation**2) * rng.normal(size=rows.shape)


def follows_the_law(counts: list[int], n: int, level: float = 1e-3) -> bool:
    """Chi-square of counts against the law of fixed points, 4 and more together."""
    law = np.exp(log_rencontres_law(n))
    expected = np.append(law[:4], law[4:].sum()) * len(counts)
    seen = np.bincount(np.minimum(counts, 4), minlength=5)
    used = expected > 0
    return bool(chisquare(seen[used], expected[used]).pvalue > level)


def test_against_the_best_of_all_permutations() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        left, right = rng.normal(size=(6, 5)), rng.normal(size=(6, 5))
        table = np.corrcoef(left, right)[:6, 6:]
        best = max(permutations(range(6)), key=lambda order: sum(table[i, j] for i, j in enumerate(order)))
        assert roll_call(left, right, rng).matches == best


def test_strangers_follow_the_exact_law() -> None:
    rng = np.random.default_rng(2)
    counts = [roll_call(rng.normal(size=(16, 8)), rng.normal(size=(16, 8)), rng).fixed for _ in range(2500)]
    assert follows_the_law(counts, 16)


def test_strangers_with_common_structure_follow_the_exact_law() -> None:
    """Both models have the same strong column mean and covariance; only the numbering is their own."""
    rng = np.random.default_rng(3)
    common, mixing = 3 * rng.normal(size=24), rng.normal(size=(24, 24))
    counts = []
    for _ in range(1500):
        left, right = (common + rng.normal(size=(12, 24)) @ mixing for _ in range(2))
        counts.append(roll_call(left, right, rng).fixed)
    assert follows_the_law(counts, 12)


@pytest.mark.parametrize("likeness", ["cosine", "inner"])
@pytest.mark.parametrize(
    "rows",
    [
        np.ones((64, 64)),
        np.zeros((16, 8)),
        np.tile(np.arange(8.0), (16, 1)),
        np.outer(np.arange(1, 17), np.arange(8.0)),
    ],
    ids=["constant 64 × 64", "all zero", "sixteen identical experts", "rows that differ in length alone"],
)
def test_ties_follow_the_law_of_strangers(rows: Floats, likeness: Likeness) -> None:
    """Nothing is dropped here: the random renumbering alone must keep a solver from preferring the identity."""
    rng = np.random.default_rng(4)
    counts = [int(np.sum(matches(rows, rows.copy(), rng, likeness) == np.arange(len(rows)))) for _ in range(1500)]
    if not (likeness == "inner" and len(set(map(tuple, rows.tolist()))) == len(rows)):  # told apart by their length
        assert follows_the_law(counts, len(rows))


@pytest.mark.parametrize("rows", [np.ones((64, 64)), np.tile(np.arange(8.0), (16, 1)), np.zeros((0, 4))])
def test_where_no_row_can_be_told_apart_nobody_is_asked(rows: Floats) -> None:
    call = roll_call(rows, rows, np.random.default_rng(5))
    assert (call.fixed, call.n, call.dropped) == (0, 0, len(rows))
    assert call.significance.pvalue == 1.0
    assert set(call.matches) <= {-1}


def test_dead_rows_and_all_copies_are_left_out_on_both_sides() -> None:
    rng = np.random.default_rng(6)
    left = rng.normal(size=(10, 6))
    right = left.copy()
    left[0] = 0.7  # no variance
    right[3] = right[4]  # copies
    call = roll_call(left, right, rng)
    assert call.matches == (-1, 1, 2, -1, -1, 5, 6, 7, 8, 9)
    assert (call.fixed, call.n, call.dropped) == (7, 7, 3)


def test_a_negative_zero_is_a_zero() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0], [1.0, 3.0]])
    assert roll_call(rows, rows, np.random.default_rng(0)).dropped == 2


def test_strangers_with_dead_and_doubled_rows_follow_the_law_of_what_remains() -> None:
    rng = np.random.default_rng(7)
    counts = []
    for _ in range(2500):
        left, right = rng.normal(size=(14, 6)), rng.normal(size=(14, 6))
        left[[1, 2]], right[[9, 10, 11]] = 0.0, right[9]
        call = roll_call(left[rng.permutation(14)], right[rng.permutation(14)], rng)
        if call.n == 9:
            counts.append(call.fixed)
    assert len(counts) > 500
    assert follows_the_law(counts, 9)


def test_a_relative_finds_nearly_all_of_its_rows() -> None:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(64, 512))
    call = roll_call(rows, noisy(rows, 0.4, rng), rng)
    assert call.fixed == 64
    assert call.significance.log10_pvalue == pytest.approx(-89.1, abs=0.1)
    assert call.significance.exact


def test_a_renumbered_copy_is_a_stranger_whose_numbers_are_found() -> None:
    rng = np.random.default_rng(9)
    rows, order = rng.normal(size=(40, 30)), rng.permutation(40)
    assert roll_call(rows, rows[order], rng).matches == tuple(np.argsort(order).tolist())


def test_renumbering_both_sides_alike_changes_nothing() -> None:
    rng = np.random.default_rng(10)
    left = rng.normal(size=(50, 20))
    right, order = noisy(left, 0.5, rng), rng.permutation(50)
    plain, moved = roll_call(left, right, rng), roll_call(left[order], right[order], rng)
    assert plain.fixed == moved.fixed
    assert np.array_equal(order[list(moved.matches)], np.array(plain.matches)[order])


def test_the_same_chance_gives_the_same_answer() -> None:
    rows = np.ones((20, 3)) + np.eye(20, 3)
    first, second = (roll_call(rows, rows, np.random.default_rng(11), "inner") for _ in range(2))
    assert first == second


def test_inputs_are_left_as_they_were() -> None:
    rng = np.random.default_rng(12)
    left, right = rng.normal(size=(9, 7)), rng.normal(size=(9, 7))
    copies = left.copy(), right.copy()
    roll_call(left, right, rng)
    hidden_axes(left, right, rng)
    assert np.array_equal(left, copies[0])
    assert np.array_equal(right, copies[1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    rows = np.ones((4, 4))
    broken = rows.copy()
    broken[2, 2] = value
    with pytest.raises(NothingComparable, match="1 of 16 values that are not finite"):
        roll_call(rows, broken, np.random.default_rng(0))


def test_unequal_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        roll_call(np.ones((4, 4)), np.ones((4, 5)), np.random.default_rng(0))


def test_halves_of_a_bfloat_are_compared_in_double() -> None:
    rng = np.random.default_rng(13)
    rows = rng.normal(size=(32, 64)).astype(np.float16)
    assert roll_call(rows, rows.astype(np.float32), rng).fixed == 32


def test_hidden_axes_of_strangers_follow_the_law_with_tied_gains() -> None:
    """Gains near 1 in bfloat16 take a few dozen values, and the layers of a model resemble each other."""
    rng = np.random.default_rng(14)
    counts = []
    for _ in range(700):
        left, right = (np.round((1 + 0.1 * rng.normal(size=(6, 32)) + 0.1 * rng.normal(size=32)) * 128) for _ in "ab")
        counts.append(hidden_axes(left, right, rng).fixed)
    assert follows_the_law(counts, 32)


def test_hidden_axes_of_a_relative_are_found_whatever_the_scale() -> None:
    rng = np.random.default_rng(15)
    left = rng.normal(size=(13, 256))
    right = np.exp(3 * noisy(left, 0.8, rng))  # any increasing function of the gains
    assert hidden_axes(left, right, rng).fixed > 200
    assert hidden_axes(rank_scores(left), rank_scores(right), rng).fixed > 200


def test_what_all_vectors_repeat_does_not_drown_what_tells_axes_apart() -> None:
    """Nine tenths of every vector are common to all, and of the rest the other model kept a correlation of 0.6. By the
    plain inner product 2 of 128 find themselves; a vector whose axes differ in nothing else would be of no use."""
    rng = np.random.default_rng(16)
    common, own = rng.normal(size=128), rng.normal(size=(12, 128))
    left = 3 * common + own
    right = 3 * noisy(common, 0.6, rng) + noisy(own, 0.6, rng)
    plain = roll_call(rank_scores(left).T, rank_scores(right).T, rng, "inner")
    assert plain.fixed < 10 < 30 < hidden_axes(left, right, rng).fixed


def test_of_too_many_axes_a_part_is_asked() -> None:
    rng = np.random.default_rng(16)
    left = rng.normal(size=(13, 300))
    call = hidden_axes(left, left, rng, most=100)
    assert (call.fixed, call.n, call.dropped) == (100, 100, 0)
    assert call.matches.count(-1) == 200


def test_vectors_without_variance_ask_nobody() -> None:
    assert hidden_axes(np.ones((3, 20)), np.ones((3, 20)), np.random.default_rng(0)).n == 0


def test_normal_scores_against_a_table() -> None:
    scores = rank_scores([[10.0, 30.0, 20.0, 20.0], [5.0, 5.0, 5.0, 5.0]])
    assert scores[0] == pytest.approx([-0.841621, 0.841621, 0.0, 0.0], abs=1e-6)
    assert not scores[1].any()
    assert rank_scores(scores) == pytest.approx(scores)


def test_gate_and_up_pay_for_being_two() -> None:
    rng = np.random.default_rng(17)
    gate, up = rng.normal(size=(16, 40)), rng.normal(size=(16, 40))
    layer = neurons(gate, noisy(gate, 0.9, rng), up, rng.normal(size=(16, 40)), rng)
    assert layer.gate.fixed == 16
    assert layer.significance.log10_pvalue == pytest.approx(layer.gate.significance.log10_pvalue + np.log10(2))
    both = layer.gate.significance.log10_evalue, layer.up.significance.log10_evalue
    assert 10 ** (layer.significance.log10_evalue or 0) == pytest.approx(sum(10 ** (e or 0) for e in both) / 2)


def test_gate_and_up_of_strangers_are_super_uniform() -> None:
    """One permutation for both projections, both projections alike: the worst case of their dependence."""
    rng = np.random.default_rng(18)
    pvalues = []
    for _ in range(1500):
        left, right = rng.normal(size=(12, 10)), rng.normal(size=(12, 10))
        layer = neurons(left, right, noisy(left, 0.9, rng), noisy(right, 0.9, rng), rng)
        pvalues.append(layer.significance.pvalue)
    for level in (0.01, 0.04, 0.2, 0.55):  # 3 standard errors above the level
        assert np.mean(np.array(pvalues) <= level) <= level + 3 * np.sqrt(level / 1500)


def test_agreement_of_gate_and_up_is_counted_whatever_they_agree_on() -> None:
    rng = np.random.default_rng(19)
    gate, up, order = rng.normal(size=(12, 40)), rng.normal(size=(12, 40)), np.roll(np.arange(12), 1)
    layer = neurons(gate, gate[order], up, up[order], rng)
    assert (layer.gate.fixed, layer.up.fixed, layer.agreed) == (0, 0, 12)


def test_a_layer_needs_as_many_gate_as_up_rows() -> None:
    with pytest.raises(ValueError, match="one neuron a row"):
        neurons(np.ones((3, 2)), np.ones((3, 2)), np.ones((4, 2)), np.ones((4, 2)), np.random.default_rng(0))
