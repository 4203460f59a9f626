"""Bins of ridges: equal, over every value, and each with as many numbers of the format as its neighbours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm

from modelkin.survey.bins import BINS, histogram

FORMATS = {
    "BF16": (ml_dtypes.bfloat16, np.uint16),
    "F16": (np.float16, np.uint16),
    "F8_E4M3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "F8_E5M2": (ml_dtypes.float8_e5m2, np.uint8),
}


def numbers_of(dtype: str, low: float, high: float) -> np.ndarray:
    """Every number that the format knows between these, once."""
    kind, bits = FORMATS[dtype]
    with np.errstate(invalid="ignore"):  # NaNs are among the bits
        every = np.arange(np.iinfo(bits).max + 1, dtype=bits).view(kind).astype(np.float64)
    return np.unique(every[np.isfinite(every) & (every >= low) & (every <= high)])


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("low", "high"), [(0.51, 0.99), (0.25, 0.49), (1.0, 1.99), (-1.99, -1.01)])
def test_inside_one_binade_every_bin_holds_equally_many_numbers(low, high, dtype, offset):
    """Numbers lie evenly there, so all bins but those at the two ends must be alike: no comb."""
    numbers = numbers_of(dtype, low, high) + offset
    density, edges = histogram(numbers, dtype, offset)
    assert len(density) <= BINS
    assert np.ptp(density[1:-1]) == pytest.approx(0, abs=1e-12)
    assert (density > 0).all()
    assert np.ptp(np.diff(edges)) == 0


def test_sixty_bins_over_few_numbers_would_be_a_comb():
    """What the bins are for: the same numbers in sixty equal bins leave most of them empty."""
    numbers = numbers_of("BF16", 0.97, 1.03)
    assert (np.histogram(numbers, BINS)[0] == 0).sum() > BINS / 2
    assert (histogram(numbers, "BF16")[0] > 0).all()


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("spread", [0.01, 0.05, 0.3])
def test_a_smooth_spread_of_bfloat16_numbers_is_drawn_smooth(dtype, spread):
    """Rounded normal numbers, on both sides of the power of two at 1, against the normal's own share of every bin.

    Counts are binomial, so five standard deviations are exceeded once in two million bins; half a percent is for the
    curve of the density inside a step.
    """
    row = np.random.default_rng(0).normal(1, spread, 200_000).astype(ml_dtypes.bfloat16).astype(np.float64)
    density, edges = histogram(row, dtype)  # in a file of float32 they are the same numbers
    expected = row.size * np.diff(norm.cdf(edges, 1, spread))
    seen = expected > 100
    assert seen.sum() >= 5
    off = np.abs(density * np.diff(edges) * row.size - expected)[seen]
    assert (off <= 5 * np.sqrt(expected[seen]) + 0.005 * expected.max()).all()


@given(
    arrays.arrays(np.float32, st.integers(2, 200), elements=st.floats(-(2.0**99), 2.0**99, width=32)),
    st.sampled_from(["F32", "BF16", "F16"]),
    st.sampled_from([0.0, 1.0]),
)
def test_any_values_lie_in_at_most_sixty_bins(row, dtype, offset):
    """Counted by brute force, a value on an edge half on either side."""
    kind: Any = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F16": np.float16}[dtype]
    with np.errstate(over="ignore"):
        stored = np.clip(row, -6e4, 6e4).astype(kind).astype(np.float32) if dtype == "F16" else row.astype(kind)
    values = (stored.astype(np.float32) + np.float32(offset)).astype(np.float64)
    density, edges = histogram(values, dtype, offset)
    assert edges[0] < values.min()
    assert values.max() < edges[-1]
    assert 2 <= edges.size <= BINS + 1
    left, right = edges[:-1, None], edges[1:, None]
    inside = ((values > left) & (values < right)).sum(axis=1)
    on = ((values == left) | (values == right)).sum(axis=1)
    assert density * np.diff(edges) * values.size == pytest.approx(inside + on / 2)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-40])
def test_a_constant_has_one_bin(value):
    row = np.full(8, np.float32(value), dtype=np.float64)
    density, edges = histogram(row, "F32")
    assert edges.size == 2
    assert edges[0] < row[0] < edges[1]
    assert density[0] * (edges[1] - edges[0]) == pytest.approx(1)
