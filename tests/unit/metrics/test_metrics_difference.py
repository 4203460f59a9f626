from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from modelkin.metrics import (
    Undefined,
    changed_distance,
    coefficient_of_variation,
    cv_distance,
    l2_distance,
    mean_abs_distance,
    p99_abs,
    p99_abs_distance,
    rel_l2_to_a_distance,
    rel_l2_to_b_distance,
)


def test_distances_of_a_right_triangle() -> None:
    a, b = np.array([0.0, 4.0]), np.array([3.0, 0.0])
    assert mean_abs_distance(a, b) == 3.5
    assert l2_distance(a, b) == 5
    assert rel_l2_to_a_distance(a, b) == 1.25
    assert rel_l2_to_b_distance(a, b) == pytest.approx(5 / 3)


def test_relative_distance_is_rmse_over_rms() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 2, (2, 300, 300))
    rmse = math.sqrt(((a - b) ** 2).mean())
    assert rel_l2_to_a_distance(a, b) == pytest.approx(rmse / math.sqrt((a**2).mean()), rel=1e-12)
    assert rel_l2_to_b_distance(a, b) == pytest.approx(rmse / math.sqrt((b**2).mean()), rel=1e-12)
    assert rel_l2_to_a_distance(a, b) == rel_l2_to_b_distance(b, a)


def test_against_numpy_on_many_blocks() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 400, 500), dtype=np.float32)
    step = a.astype(np.float64) - b
    assert l2_distance(a, b) == pytest.approx(np.linalg.norm(step), rel=1e-12)
    assert mean_abs_distance(a, b) == pytest.approx(np.abs(step).mean(), rel=1e-12)


def test_nothing_is_relative_to_zero() -> None:
    zero, one = np.zeros(3), np.ones(3)
    assert rel_l2_to_a_distance(one, zero) == 1
    with pytest.raises(Undefined, match=r"^b is 0 throughout"):
        rel_l2_to_b_distance(one, zero)
    with pytest.raises(Undefined, match=r"^a is 0 throughout"):
        rel_l2_to_a_distance(zero, zero)


def test_a_difference_too_small_to_square_is_not_called_zero() -> None:
    with pytest.raises(Undefined, match="too little"):
        l2_distance(np.array([0.0]), np.array([1e-200]))
    assert mean_abs_distance(np.array([0.0]), np.array([1e-200])) == 1e-200


def test_changed_counts_values_not_bytes() -> None:
    a = np.array([0.0, 1.0, 2.0, 3.0], dtype=np.float32)
    b = np.array([-0.0, 1.0, 2.5, 3.0], dtype=np.float32)
    assert changed_distance(a, b) == 0.25
    assert changed_distance(a.astype(ml_dtypes.bfloat16), a) == 0  # a cast that keeps every value
    assert changed_distance(np.array([1]), np.array([1.0])) == 0


def test_changed_notices_the_last_bit() -> None:
    a = np.ones(100_000, dtype=np.float32)
    b = a.copy()
    b[70_000] = np.nextafter(np.float32(1), np.float32(2))
    assert changed_distance(a, b) == 1e-5


def test_p99_is_a_difference_of_quantiles() -> None:
    a = np.arange(101.0)  # the 0.99 quantile of |a| is 99
    b = -a[::-1] * 0.5
    assert p99_abs(a) == 99
    assert p99_abs(np.array([0.0, -10.0])) == pytest.approx(9.9)
    assert p99_abs_distance(a, b) == 49.5
    assert np.quantile(np.abs(a - b), 0.99) > 90  # what it is not
    assert p99_abs_distance(a, a[::-1]) == 0


def test_p99_against_numpy() -> None:
    a = np.random.default_rng(0).standard_normal((37, 19)).astype(np.float32)
    assert p99_abs(a) == np.quantile(np.abs(a.astype(np.float64)), 0.99)


def test_coefficient_of_variation_is_of_a_population() -> None:
    assert coefficient_of_variation(np.array([1.0, 3.0])) == 0.5
    assert coefficient_of_variation(np.array([-1.0, -3.0])) == 0.5
    assert coefficient_of_variation(np.full(1001, 0.1)) == 0
    assert cv_distance(np.array([1.0, 3.0]), np.array([[2.0, 2.0, 2.0]])) == 0.5
    with pytest.raises(Undefined, match=r"^the mean of b is zero"):
        cv_distance(np.array([1.0, 3.0]), np.array([-1.0, 1.0]))


def test_coefficient_of_variation_against_numpy() -> None:
    a = np.random.default_rng(0).normal(-0.3, 0.01, 5000).astype(np.float16)
    wide = a.astype(np.float64)
    assert coefficient_of_variation(a) == pytest.approx(wide.std() / abs(wide.mean()), rel=1e-12)
