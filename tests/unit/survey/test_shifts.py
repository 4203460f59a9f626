"""Renumberings in whole orbits: the Fourier sums against rolling by hand, and p-values against their law."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.survey.shifts import FEWEST, adjusted, at_layers, at_offsets, of_sums, orbits, pvalue, shifted
from modelkin.survey.vectors import _patterns


def both(rng, a, b):
    numbering = rng.permutation(a.shape[1])
    made = [shifted(_patterns(rows), numbering, len(a) + len(b), rng) for rows in (a, b)]
    return numbering, made


def test_every_shift_against_rolling_by_hand():
    """FEWEST wide: one orbit, so every renumbering is a roll of the shared numbering."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, FEWEST)), rng.normal(size=(4, FEWEST))
    numbering, (left, right) = both(rng, a, b)
    first, second = _patterns(a)[:, numbering], _patterns(b)[:, numbering]
    i, j = np.array([0, 2]), np.array([1, 3])
    found = at_layers(left, right, i, j)
    sums = of_sums(left, right)
    offsets = np.array([-2, 0, 1, 3])
    moved = at_offsets(left, right, offsets)
    for step in (0, 1, 777):
        table = first @ np.roll(second, -step, axis=1).T
        assert found[step] == pytest.approx(table[i, j], abs=1e-12)
        assert sums[step] == pytest.approx(table.sum(), abs=1e-12)
        assert moved[step] == pytest.approx([np.trace(table, k) for k in offsets], abs=1e-12)


def test_a_narrow_model_is_renumbered_as_often_as_a_wide_one():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 32)), rng.normal(size=(2, 32))
    _, (left, right) = both(rng, a, b)
    found = at_layers(left, right, np.array([0]), np.array([0]))
    assert orbits(32) == 128
    assert len(found) == FEWEST
    assert found[0, 0] == pytest.approx(np.corrcoef(a[0], b[0])[0, 1])
    # Over all shifts of one orbit the patterns, which have no mean, sum to nothing.
    assert found[:, 0].reshape(128, 32).sum(axis=1) == pytest.approx(np.zeros(128), abs=1e-12)


def test_p_of_strangers_is_uniform():
    """400 pairs with layers alike inside each model. By Kolmogorov's law a distance of 0.1 has p = 7e-4."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(400):
        a, b = (rng.normal(size=24) + 0.5 * rng.normal(size=(5, 24)) for _ in range(2))
        _, (left, right) = both(rng, a, b)
        places = np.arange(5)
        found.append(pvalue(at_layers(left, right, places, places).mean(axis=1)))
    assert np.abs(np.sort(found) - (np.arange(400) + 0.5) / 400).max() < 0.1


def test_adjusted_p_pays_for_all_layers():
    """Strangers: some layer of eight has p ≤ 0.1 in at most a tenth of 300 models, 48 at three standard deviations."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        _, (left, right) = both(rng, rng.normal(size=(8, 32)), rng.normal(size=(8, 32)))
        alarms += min(adjusted(at_layers(left, right, np.arange(8), np.arange(8)))) <= 0.1
    assert 10 <= alarms <= 48


def test_a_row_left_out_counts_nothing():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(3, 64)), rng.normal(size=(3, 64))
    a[1] = np.nan
    _, (left, right) = both(rng, a, b)
    assert left.used.tolist() == [True, False, True]
    assert at_layers(left, right, np.array([1]), np.array([0])) == pytest.approx(0)
