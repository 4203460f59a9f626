"""Pooled row correlation: exact moments, an exact e-value, and what would have been noticed."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from modelkin.errors import NothingComparable
from modelkin.stats import pooled_rows, smallest_detectable, smallest_detectable_exactly

Floats = NDArray[np.float64]


def noisy(rows: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    return correlation * rows + np.sqrt(1 - correlation**2) * rng.normal(size=rows.shape)


def test_moments_against_all_permutations() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, 6, 5)) + np.array([3.0, 0, 0, 0, 0])
    table = np.corrcoef(left, right)[:6, 6:]
    values = [np.mean([table[i, j] for i, j in enumerate(order)]) for order in permutations(range(6))]
    found = pooled_rows([(left, right)], rng, draws=19)
    assert found.correlation == pytest.approx(np.trace(table) / 6)
    assert found.expected == pytest.approx(np.mean(values))
    assert found.z == pytest.approx((found.correlation - np.mean(values)) / np.std(values))
    assert found.effective_width == pytest.approx(1 / (6 * np.var(values)))
    assert found.log10_normal == pytest.approx(norm.logsf(found.z) / math.log(10))


def test_the_effective_width_of_plain_noise_is_its_width() -> None:
    rng = np.random.default_rng(2)
    layers = [(rng.normal(size=(64, 200)), rng.normal(size=(64, 200))) for _ in range(4)]
    assert pooled_rows(layers, rng, draws=1).effective_width == pytest.approx(200, rel=0.05)


def test_strangers_with_a_common_direction_are_not_alike() -> None:
    """All rows of both models lean the same way: the mean correlation is high, its excess is not."""
    rng = np.random.default_rng(3)
    common = 3 * rng.normal(size=40)
    pvalues, evalues, scores = [], [], []
    for _ in range(250):
        left, right = (common + rng.normal(size=(20, 40)) for _ in "ab")
        found = pooled_rows([(left, right)], rng, draws=39)
        assert found.correlation > 0.5
        pvalues.append(found.drawn.pvalue)
        evalues.append(10 ** (found.significance.log10_evalue or 0.0))
        scores.append(found.z)
    for level in (0.05, 0.25, 0.5):
        assert np.mean(np.array(pvalues) <= level + 1e-9) == pytest.approx(level, abs=3.3 * math.sqrt(level / 250))
    assert np.mean(evalues) <= 1 + 3 * np.std(evalues) / math.sqrt(250)
    assert np.std(scores) == pytest.approx(1, abs=0.15)


def test_a_faint_likeness_that_no_row_shows_is_found() -> None:
    rng = np.random.default_rng(4)
    layers = [(rows, noisy(rows, 0.04, rng)) for rows in rng.normal(size=(8, 64, 400))]
    found = pooled_rows(layers, rng, draws=99)
    assert found.drawn.pvalue == pytest.approx(0.01)
    assert not found.drawn.exact
    assert found.significance.exact
    assert found.significance.log10_pvalue < -6
    assert found.significance.n == 512


def test_what_would_have_been_noticed_is_noticed() -> None:
    """At the smallest detectable correlation the tests must reject as often as they promise."""
    rng = np.random.default_rng(5)
    alpha, power, trials = 1e-4, 0.9, 50
    pooled, exact = (
        smallest(2 * 32, 100.0, alpha, power) for smallest in (smallest_detectable, smallest_detectable_exactly)
    )
    assert pooled < exact < 2.2 * pooled
    hits = {"pooled": 0, "exact": 0}
    for _ in range(trials):
        for name, correlation in (("pooled", pooled), ("exact", exact)):
            layers = [(rows, noisy(rows, correlation, rng)) for rows in rng.normal(size=(2, 32, 100))]
            found = pooled_rows(layers, rng, draws=1)
            p = found.log10_normal if name == "pooled" else found.significance.log10_pvalue
            hits[name] += p <= math.log10(alpha)
    assert hits["pooled"] / trials == pytest.approx(power, abs=0.14)
    assert hits["exact"] / trials >= power - 0.14


def test_the_smallest_detectable_correlation_by_hand() -> None:
    assert smallest_detectable(1000, 160.0, 0.05, 0.5) == pytest.approx(1.6449 / 400, rel=1e-4)
    assert smallest_detectable(100, 100.0, 1e-6, 0.99) > smallest_detectable(400, 100.0, 1e-6, 0.99)


def test_too_few_rows_cannot_convince_however_alike_they_are() -> None:
    """n rows make n/2 fair coins, so no e-value beyond 2^(n/2)."""
    assert smallest_detectable_exactly(32, 1e9, 5e-8, 0.99) == math.inf
    assert smallest_detectable_exactly(64, 1e9, 5e-8, 0.99) < 1e-3


def test_dead_and_doubled_rows_do_not_count() -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(10, 8))
    rows[0], rows[1] = 1.0, rows[2]
    assert pooled_rows([(rows, rows)], rng, draws=9).significance.n == 7


@pytest.mark.parametrize("rows", [np.ones((5, 4)), np.zeros((0, 4)), np.zeros((4, 0)), np.eye(1, 4)])
def test_without_rows_there_is_nothing_to_say(rows: Floats) -> None:
    found = pooled_rows([(rows, rows)], np.random.default_rng(0), draws=9)
    assert (found.z, found.drawn.pvalue, found.significance.pvalue) == (0.0, 1.0, 1.0)


def test_strange_input_is_refused() -> None:
    with pytest.raises(NothingComparable, match="not finite"):
        pooled_rows([(np.full((3, 3), np.nan), np.ones((3, 3)))], np.random.default_rng(0))
    with pytest.raises(ValueError, match="no such test"):
        smallest_detectable(100, 100.0, 0.0, 0.99)
