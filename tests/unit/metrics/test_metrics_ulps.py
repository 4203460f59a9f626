from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from modelkin.metrics import NotFinite, ShapeMismatch, UlpChange, Undefined, Unmeasurable, changed_distance, ulp_change

NARROW: dict[str, Any] = {"BF16": ml_dtypes.bfloat16, "F16": np.float16}
STORED: dict[str, Any] = NARROW | {"F32": np.float32}
every_format = pytest.mark.parametrize("dtype", STORED)


def ordered_values(dtype: str) -> NDArray[np.float64]:
    """Every finite number of a 16-bit format once, in order: the definition of a step, with nothing clever in it."""
    every = np.arange(1 << 16, dtype=np.uint16).view(NARROW[dtype]).astype(np.float32).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # the signalling NaNs among all bit patterns
def test_against_the_list_of_all_numbers(dtype: str) -> None:
    numbers = ordered_values(dtype)
    neighbours = ulp_change(numbers[:-1], numbers[1:], dtype)
    assert neighbours == UlpChange(numbers.size - 1, numbers.size - 1, 1.0, 1)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, numbers.size, (2, 999))
    steps = np.abs(i - j)
    found = ulp_change(numbers[i], numbers[j], dtype)
    assert found.changed == np.count_nonzero(steps)
    assert found.median == np.median(steps[steps > 0])
    assert found.maximum == steps.max()


@example(float(np.finfo(np.float32).max), 3)
@example(-2.0 * 2.0**-149, 5)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-40, 40))
def test_against_nextafter_in_float32(start: float, steps: int) -> None:
    value = np.float32(start)
    toward = np.float32(np.inf if steps > 0 else -np.inf)
    taken = 0
    for _ in range(abs(steps)):
        with np.errstate(over="ignore", under="ignore"):  # the steps at both ends of the format
            following = np.nextafter(value, toward)
        if np.isinf(following):
            break
        value, taken = following, taken + 1
    found = ulp_change(np.array([start]), np.array([value]), "F32")
    assert found.maximum == taken
    assert found.changed == (taken > 0)


@every_format
def test_zero_is_one_value_and_the_count_runs_through_it(dtype: str) -> None:
    tiny = np.asarray(ml_dtypes.finfo(STORED[dtype]).smallest_subnormal, dtype=np.float64).reshape(1)
    assert ulp_change(np.array([0.0]), np.array([-0.0]), dtype) == UlpChange(1, 0, None, 0)
    assert ulp_change(tiny, -tiny, dtype).maximum == 2
    assert ulp_change(-tiny, np.array([0.0]), dtype).maximum == 1
    assert ulp_change(np.array([-0.0]), tiny, dtype).maximum == 1


@every_format
def test_from_the_lowest_number_to_the_highest(dtype: str) -> None:
    top = np.asarray(ml_dtypes.finfo(STORED[dtype]).max, dtype=np.float64).reshape(1)
    finite = {"BF16": 0x7F7F, "F16": 0x7BFF, "F32": 0x7F7FFFFF}[dtype]
    assert ulp_change(-top, top, dtype).maximum == 2 * finite
    assert ulp_change(top, np.array([0.0]), dtype).maximum == finite


@every_format
def test_decoded_and_stored_arrays_count_alike(dtype: str) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.normal(0.5, 0.1, (300, 300)).astype(STORED[dtype]) for _ in range(2))
    b[:200] = a[:200]
    found = ulp_change(a, b, dtype)
    assert found == ulp_change(a.astype(np.float32), b.astype(np.float32), dtype)
    assert found.share == changed_distance(a, b)
    assert found.share <= 1 / 3
    assert found == ulp_change(b, a, dtype)


def test_one_gain_of_4096_moved_by_one_step() -> None:
    """What "0.1 % changed" in the last layers of GLM-4.5-Air and INTELLECT-3 comes down to (0.024 %)."""
    a = np.full(4096, 0.8369140625, dtype=np.float32).astype(ml_dtypes.bfloat16)
    b = a.copy()
    b[17] = ml_dtypes.bfloat16(float(b[17]) + 2.0**-8)
    assert ulp_change(a, b, "BF16") == UlpChange(4096, 1, 1.0, 1)
    assert ulp_change(a, b, "BF16").share == pytest.approx(0.00024, abs=5e-6)


def test_the_median_is_that_of_the_changed_values() -> None:
    a = np.zeros(5)
    tiny = 2.0**-149
    assert ulp_change(a, np.array([0, 0, 1, 2, 9]) * tiny, "F32") == UlpChange(5, 3, 2.0, 9)
    assert ulp_change(a, np.array([0, 0, 0, 2, 9]) * tiny, "F32").median == 5.5


def test_values_that_the_format_cannot_hold_are_refused() -> None:
    fine, coarse = np.array([1.0 + 2.0**-20]), np.array([1.0])
    assert ulp_change(fine, coarse, "F32").maximum == 8
    with pytest.raises(Unmeasurable, match=r"^a holds values that BF16 cannot"):
        ulp_change(fine, coarse, "BF16")
    with pytest.raises(Unmeasurable, match=r"^b holds values that F16 cannot"):
        ulp_change(coarse, np.array([1e6]), "F16")


def test_bad_input_is_refused() -> None:
    one = np.ones(2)
    with pytest.raises(Unmeasurable, match="BF16, F16, F32, not in F8_E4M3"):
        ulp_change(one, one, "F8_E4M3")
    with pytest.raises(NotFinite):
        ulp_change(one, np.array([1.0, np.nan]), "F32")
    with pytest.raises(ShapeMismatch):
        ulp_change(one, np.ones(3), "F32")
    with pytest.raises(Undefined):
        ulp_change(np.empty(0), np.empty(0), "F32")
