from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.errors import NothingComparable
from modelkin.stats import conformal
from modelkin.stats.montecarlo import drawn_pvalue, stopped_pvalue


def test_p_counts_the_controls_that_reach_the_observed_value() -> None:
    found = conformal(3.0, [1.0, 2.0, 3.0, 4.0])
    assert found.significance.pvalue == pytest.approx(3 / 5)
    assert found.floor == 1 / 5
    assert not found.significance.exact


def test_p_is_never_below_its_floor() -> None:
    found = conformal(9999.0, np.arange(999.0))
    assert found.significance.pvalue == pytest.approx(found.floor) == pytest.approx(1e-3)
    assert "1/1000" in found.significance.null.text


def test_without_controls_p_is_one() -> None:
    assert conformal(5.0, []).significance.pvalue == 1.0


def test_an_unrelated_pair_has_uniform_p() -> None:
    rng = np.random.default_rng(1)
    pvalues = np.array([conformal(*_split(rng.normal(size=20))).significance.pvalue for _ in range(2000)])
    for level in (0.05, 0.25, 0.5):
        assert np.mean(pvalues <= level + 1e-9) == pytest.approx(level, abs=3.3 * math.sqrt(level * (1 - level) / 2000))


def _split(values: np.ndarray) -> tuple[float, np.ndarray]:
    return float(values[0]), values[1:]


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(NothingComparable, match="not finite"):
        conformal(1.0, [1.0, np.nan])
    with pytest.raises(ValueError, match="finite"):
        conformal(np.nan, [1.0])


def test_a_drawn_p_counts_what_is_equal_up_to_rounding() -> None:
    assert drawn_pvalue(0.3, [0.1 + 0.2, 0.3, 0.1]) == 3 / 4
    assert drawn_pvalue(0.1 + 0.2, [0.3]) == 1.0


def test_drawing_stops_early_for_strangers_and_stays_super_uniform() -> None:
    rng = np.random.default_rng(2)
    results = [stopped_pvalue(rng.normal(), rng.normal, most=199, enough=5) for _ in range(2000)]
    assert np.mean([draws.size for _, draws in results]) < 40
    pvalues = np.array([p for p, _ in results])
    for level in (0.01, 0.05, 0.25, 0.5):
        assert np.mean(pvalues <= level + 1e-9) <= level + 3.3 * math.sqrt(level / 2000)
