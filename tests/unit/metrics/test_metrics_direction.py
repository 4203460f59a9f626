from __future__ import annotations

import math

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from modelkin.metrics import (
    NotFinite,
    PairMoments,
    Undefined,
    Unmeasurable,
    centred_cosine_similarity,
    cosine_minus_one_similarity,
    cosine_parts,
    cosine_similarity,
    expected_cosine,
    pair_moments,
    spearman_similarity,
)

Array = NDArray[np.float64]
NUMBERS = st.floats(-1000, 1000, width=32, allow_subnormal=False)
PAIRS = arrays.arrays(np.float32, st.tuples(st.just(2), st.integers(2, 40)), elements=NUMBERS)


def test_cosines_of_known_angles() -> None:
    assert cosine_similarity(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(math.sqrt(0.5))
    assert cosine_similarity(np.array([1.0, 0.0]), np.array([0.0, 3.0])) == 0
    assert cosine_similarity(np.array([2.0, 1.0]), np.array([-4.0, -2.0])) == -1
    assert cosine_minus_one_similarity(np.array([2.0, 1.0]), np.array([1.0, 2.0])) == 0


def test_constant_vectors_have_a_cosine_but_no_correlation() -> None:
    constant, other = np.full(7, 0.1), np.arange(7.0)
    assert cosine_similarity(constant, constant) == pytest.approx(1)
    assert 0 < cosine_similarity(constant, other) < 1
    for metric in (centred_cosine_similarity, spearman_similarity):
        with pytest.raises(Undefined, match=r"^a is constant"):
            metric(constant, other)
        with pytest.raises(Undefined, match=r"^b is constant"):
            metric(other, constant)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-30, 7e60])
def test_a_long_constant_is_constant_to_the_last_bit(value: float) -> None:
    constant = np.full(200_001, value)
    assert pair_moments(constant, constant).var_a == 0


def test_zero_has_no_direction_and_one_none_from_one() -> None:
    zero, other = np.zeros(3), np.arange(3.0)
    with pytest.raises(Undefined, match=r"^b is 0 throughout"):
        cosine_similarity(other, zero)
    with pytest.raises(Undefined, match=r"^a is 1 throughout"):
        cosine_minus_one_similarity(np.ones(3), other)
    with pytest.raises(Undefined, match="has no direction"):
        cosine_parts(zero, other)


def test_values_that_cannot_be_squared_are_not_called_orthogonal() -> None:
    tiny = np.array([1e-170, -1e-170])
    for metric in (cosine_similarity, centred_cosine_similarity):
        with pytest.raises(Undefined):
            metric(tiny, tiny)
    with pytest.raises(Undefined, match="too small"):
        cosine_similarity(tiny * 1e60, tiny * 1e50)


@given(PAIRS)
def test_against_numpy_and_scipy(pair: Array) -> None:
    a, b = pair.astype(np.float64)
    assume(np.ptp(a) > 1e-3)
    assume(np.ptp(b) > 1e-3)
    assert cosine_similarity(a, b) == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-12)
    assert centred_cosine_similarity(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-6)
    assert spearman_similarity(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)


def test_against_scipy_on_many_blocks_with_ties() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 50, (500, 400)).astype(np.float32)
    b = a + rng.integers(0, 50, a.shape)
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    assert centred_cosine_similarity(a, b) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, rel=1e-12)
    assert spearman_similarity(a, b) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, rel=1e-12)
    assert centred_cosine_similarity(a.T, b.T) == pytest.approx(centred_cosine_similarity(a, b), rel=1e-12)


def test_correlation_survives_a_mean_a_billion_times_the_variation() -> None:
    rng = np.random.default_rng(0)
    a = np.round(rng.standard_normal(5000) * 1024)
    b = np.round((a + 1024 * rng.standard_normal(5000)) / 2)
    far = centred_cosine_similarity(a + 2.0**42, b - 2.0**42)
    assert far == pytest.approx(np.corrcoef(a, b)[0, 1], rel=1e-12)


@given(PAIRS)
def test_a_cosine_is_the_sum_of_its_parts(pair: Array) -> None:
    a, b = pair.astype(np.float64)
    assume(np.abs(a).max() > 1e-3)
    assume(np.abs(b).max() > 1e-3)
    parts, moments = cosine_parts(a, b), pair_moments(a, b)
    assert parts.cosine == pytest.approx(cosine_similarity(a, b), abs=1e-12)
    assert abs(parts.from_pattern) <= parts.reach * (1 + 1e-9)
    expected = expected_cosine(
        mean_a=moments.mean_a, std_a=math.sqrt(moments.var_a), mean_b=moments.mean_b, std_b=math.sqrt(moments.var_b)
    )
    assert parts.from_means == pytest.approx(expected, abs=1e-12)


def test_parts_of_a_constant_come_from_its_mean_alone() -> None:
    parts = cosine_parts(np.full(3, 2.0), np.array([1.0, 2.0, 3.0]))
    assert (parts.from_pattern, parts.reach) == (0, 0)
    assert parts.from_means == pytest.approx(6 / math.sqrt(3 * 14))


def test_expected_cosine_follows_the_coefficients_of_variation() -> None:
    found = expected_cosine(mean_a=2.0, std_a=1.0, mean_b=-3.0, std_b=6.0)
    assert found == pytest.approx(-1 / math.sqrt((1 + 0.5**2) * (1 + 2.0**2)))
    assert expected_cosine(mean_a=0, std_a=1, mean_b=5, std_b=1) == 0
    with pytest.raises(Undefined):
        expected_cosine(mean_a=0, std_a=0, mean_b=5, std_b=1)
    with pytest.raises(NotFinite):
        expected_cosine(mean_a=math.nan, std_a=1, mean_b=5, std_b=1)
    with pytest.raises(NotFinite):
        expected_cosine(mean_a=1e200, std_a=1, mean_b=5, std_b=1)
    with pytest.raises(Unmeasurable, match="never negative"):
        expected_cosine(mean_a=1, std_a=-1, mean_b=5, std_b=1)


def test_moments_of_pieces_merge_to_those_of_the_whole() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(50, 1, (2, 1000))
    whole, left, right = (pair_moments(a[s], b[s]) for s in (slice(None), slice(0, 130), slice(130, None)))
    merged = left.merged(right)
    assert merged.n == whole.n == 1000
    assert merged.pearson == pytest.approx(whole.pearson, rel=1e-10)
    assert (merged.mean_a, merged.var_a, merged.cov) == pytest.approx((whole.mean_a, whole.var_a, whole.cov), rel=1e-10)
    assert whole.mean_a == pytest.approx(a.mean(), rel=1e-14)
    assert (whole.var_b, whole.cov) == pytest.approx((b.var(), np.cov(a, b, bias=True)[0, 1]), rel=1e-10)


def test_moments_know_when_there_is_no_correlation() -> None:
    with pytest.raises(Undefined, match=r"^b is constant"):
        _ = PairMoments(5, 1.0, 1.0, 2.0, 0.0, 0.0).pearson
