"""Shares of rows against what was planted, and intervals against how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.records import Role
from modelkin.relation.inheritance import correlated, rows_found, share_of_rows, total


def test_between_strangers_one_row_finds_itself() -> None:
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(400):
        a, b = rng.normal(size=(2, 64, 24)).astype(np.float32)
        counts.append(rows_found(a, b, Role.UP, rng)[1])
    assert np.mean(counts) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("rows", [np.ones((40, 12)), np.tile(np.arange(12.0), (40, 1))])
def test_constant_and_equal_rows_do_not_find_themselves(rows: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    counts = [rows_found(rows.astype(np.float32), rows.astype(np.float32), Role.UP, rng)[1] for _ in range(100)]
    assert np.mean(counts) < 2


@pytest.mark.parametrize("role", [Role.UP, Role.DOWN])
def test_a_planted_share_of_neurons_is_estimated(role: Role) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 400, 64)).astype(np.float32)
    b[:120] = a[:120] + 0.3 * rng.normal(size=(120, 64))
    sides = (a, b) if role is Role.UP else (a.T, b.T)
    asked, found = rows_found(*sides, role, rng)
    share, low, high = share_of_rows(found, asked)
    assert asked == 400
    assert low < 0.3 < high
    assert share == pytest.approx(0.3, abs=0.02)


def test_intervals_of_sums_hold_the_truth_often_enough() -> None:
    rng = np.random.default_rng(3)
    truth, sizes = np.array([0.0, 0.3, 0.9, 1.0, 0.6]), np.array([10, 400, 200, 50, 300])
    whole, held, trials = int(sizes.sum()), 0, 800
    wanted = float(truth @ sizes) / whole
    for _ in range(trials):
        chance = truth + (1 - truth) / 200
        found = rng.binomial(200, chance)
        parts = [(int(n), share_of_rows(int(k), 200)) for n, k in zip(sizes, found, strict=True)]
        share = total(parts, whole)
        assert share is not None
        held += share.low <= wanted <= share.high
    assert held / trials >= 0.94  # nominal 0.95, each part by Clopper and Pearson, which is wider


def test_what_stands_beside_nothing_counts_as_new() -> None:
    share = total([(300, (1.0, 1.0, 1.0))], 1000)
    assert share is not None
    assert (share.fraction, share.low, share.high) == (0.3, 0.3, 0.3)


def test_what_could_not_be_compared_widens_the_interval_and_leaves_the_share() -> None:
    parts = [(300, (0.5, 0.4, 0.6)), (300, (1.0, 1.0, 1.0))]
    share = total(parts, 1000, unseen=400)
    assert share is not None
    assert share.fraction == pytest.approx(450 / 600)
    assert share.low == pytest.approx((450 - 30) / 1000)  # none of the 400 inherited
    assert share.high == pytest.approx((450 + 30 + 400) / 1000)  # all of them
    assert total([], 1000, unseen=1000) is None


def test_vectors_need_more_than_a_chance_correlation() -> None:
    assert correlated(0.5, 200)
    assert not correlated(0.2, 200)
    assert not correlated(None, 200)
    assert not correlated(-0.9, 200)
