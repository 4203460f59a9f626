from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from modelkin.stats import clopper_pearson, pair_rate, upper_bound, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (5, 3000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_against_scipy(k: int, n: int, confidence: float) -> None:
    found = binomtest(k, n).proportion_ci(confidence, "exact")
    assert (found.low, found.high) == pytest.approx(tuple(_ends(clopper_pearson(k, n, confidence))))
    found = binomtest(k, n).proportion_ci(confidence, "wilson")
    assert (found.low, found.high) == pytest.approx(tuple(_ends(wilson(k, n, confidence))), abs=1e-12)


def _ends(interval: object) -> list[float]:
    return [interval.low, interval.high]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("errors", "pairs", "rate"), [(0, 2995, 1e-3), (1, 4742, 1e-3), (2, 6294, 1e-3), (0, 299, 1e-2)]
)
def test_how_many_clean_pairs_a_rate_needs(errors: int, pairs: int, rate: float) -> None:
    assert upper_bound(errors, pairs) <= rate < upper_bound(errors, pairs - 1)


def test_the_exact_interval_covers() -> None:
    n, share = 40, 0.07
    covered = sum(binom.pmf(k, n, share) for k in range(n + 1) if _covers(k, n, share))
    assert covered >= 0.95


def _covers(k: int, n: int, share: float) -> bool:
    low, high = _ends(clopper_pearson(k, n))
    return low <= share <= high


def test_without_observations_anything_is_possible() -> None:
    assert _ends(clopper_pearson(0, 0)) == _ends(wilson(0, 0)) == [0.0, 1.0]
    assert upper_bound(0, 0) == 1.0


@pytest.mark.parametrize(("k", "n", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0)])
def test_impossible_counts_are_refused(k: int, n: int, confidence: float) -> None:
    for interval in (clopper_pearson, wilson, upper_bound):
        with pytest.raises(ValueError, match="no such count"):
            interval(k, n, confidence)


def test_without_errors_the_guarantee_counts_models_and_the_others_pairs() -> None:
    pairs = [(f"m{i}", f"m{j}") for i, j in combinations(range(80), 2)]
    found = pair_rate(pairs, [False] * len(pairs))
    assert (found.errors, found.pairs, found.models) == (0, 3160, 80)
    assert found.independent == found.jackknife == pytest.approx(1 - 0.05 ** (1 / 3160))
    assert found.guaranteed == pytest.approx(1 - 0.05 ** (1 / 39))


def test_disjoint_pairs_need_no_correction() -> None:
    pairs = [(f"a{i}", f"b{i}") for i in range(100)]
    assert pair_rate(pairs, [False] * 100).guaranteed == pytest.approx(1 - 0.05 ** (1 / 100))


def test_errors_of_one_model_widen_the_bound_more_than_scattered_ones() -> None:
    pairs = [(f"m{i}", f"m{j}") for i, j in combinations(range(30), 2)]
    one = pair_rate(pairs, [pair[0] == "m0" for pair in pairs])
    scattered = pair_rate(pairs, [i % 15 == 0 for i in range(len(pairs))])
    assert one.errors == scattered.errors == 29
    assert one.jackknife > 1.5 * one.independent
    assert scattered.jackknife < 1.4 * scattered.independent
    assert one.independent < one.jackknife < one.guaranteed


def test_the_bounds_hold_where_whole_models_err() -> None:
    """Every model is bad with chance 0.1, and a pair errs if either of its models is bad."""
    rng = np.random.default_rng(1)
    pairs = [(str(i), str(j)) for i, j in combinations(range(24), 2)]
    missed = {"independent": 0, "jackknife": 0, "guaranteed": 0}
    for _ in range(200):
        bad = rng.uniform(size=24) < 0.1
        found = pair_rate(pairs, [bool(bad[int(a)] or bad[int(b)]) for a, b in pairs])
        for name in missed:
            missed[name] += getattr(found, name) < 1 - 0.9**2
    assert missed["guaranteed"] <= 10
    assert missed["guaranteed"] <= missed["jackknife"] < missed["independent"]


def test_pairs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="given once"):
        pair_rate([("a", "b"), ("b", "a")], [False, False])
    with pytest.raises(ValueError, match="given once"):
        pair_rate([("a", "a")], [False])
    with pytest.raises(ValueError, match="one outcome"):
        pair_rate([("a", "b")], [])
