"""Sums over blocks against numpy and scipy on the whole."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from plain_models import bf16
from scipy import stats

from modelkin.relation.elementwise import Elementwise, rounded, spacing


def pair(seed: int = 0, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.standard_t(5, (40, 30)).astype(np.float32)
    return a, (1.3 * a + noise * rng.normal(size=a.shape) + 0.2).astype(np.float32)


def in_blocks(a: np.ndarray, b: np.ndarray, step: int = 7) -> Elementwise:
    sums = Elementwise()
    for start in range(0, len(a), step):
        sums.add(a[start : start + step], b[start : start + step])
    return sums


def test_slope_and_difference_are_those_of_least_squares() -> None:
    a, b = pair()
    sums = in_blocks(a, b)
    x, y = a.ravel().astype(float), b.ravel().astype(float)
    slope = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    assert sums.slope == pytest.approx(slope, rel=1e-10)
    assert sums.difference == pytest.approx(np.linalg.norm(y - slope * x) / np.linalg.norm(x), rel=1e-8)


def test_correlation_and_kurtosis_are_scipys() -> None:
    a, b = pair()
    sums = in_blocks(a, b)
    assert sums.correlation == pytest.approx(stats.pearsonr(a.ravel(), b.ravel())[0], rel=1e-6)
    assert sums.a.kurtosis(sums.n) == pytest.approx(stats.kurtosis(a.ravel().astype(float), fisher=False), rel=1e-8)
    assert sums.b.distance(1.0, sums.n) == pytest.approx(np.sqrt(np.mean((b.astype(float) - 1) ** 2)), rel=1e-10)


def test_a_tiny_difference_is_not_lost_to_the_size_of_the_values() -> None:
    a = np.random.default_rng(1).normal(0, 1, (50, 50)).astype(np.float32)
    b = a.copy()
    b[3, 4] += np.float32(1e-4)
    assert in_blocks(a, b).difference == pytest.approx(float(abs(b - a).max()) / np.linalg.norm(a), rel=1e-3)


def test_constant_sides_have_no_correlation() -> None:
    a, b = np.ones((3, 4), np.float32), pair()[0][:3, :4]
    assert in_blocks(a, b).correlation is None
    assert in_blocks(a, b).a.kurtosis(12) is None


def test_a_cast_is_seen_from_both_sides_and_an_equal_pair_is_none() -> None:
    a, _ = pair()
    b = bf16(a)
    assert in_blocks(a, b).cast_b() == "BF16"
    assert in_blocks(b, a).cast_a() == "BF16"
    assert in_blocks(a, b).cast_a() is None
    assert in_blocks(b, b).cast_b() is None
    assert in_blocks(a, b).b.held() == "BF16"
    assert in_blocks(a, b).a.held() == "F32"


def test_values_of_the_other_or_zero() -> None:
    a, _ = pair()
    b = np.where(np.abs(a) < 0.5, 0, a)
    sums = in_blocks(a, b)
    assert sums.a_or_zero == sums.n
    assert sums.b_or_zero < sums.n
    assert sums.b.zeros == np.sum(np.abs(a) < 0.5)


def test_spacing_is_the_distance_of_neighbours() -> None:
    values = np.array([1.0, 1.5, -3.7, 1e-3, 100.0], dtype=np.float32)
    assert spacing(values, "F32") == pytest.approx(np.abs(np.spacing(values)))
    small = rounded(values, "BF16").astype(ml_dtypes.bfloat16)
    above = (np.abs(small).view(np.uint16) + 1).view(ml_dtypes.bfloat16).astype(np.float32)
    assert spacing(values, "BF16") == pytest.approx(above - np.abs(small).astype(np.float32))
