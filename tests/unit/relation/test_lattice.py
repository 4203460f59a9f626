"""Every grid is named, and nothing that was only trained lies on one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from plain_models import bf16

from modelkin.relation.lattice import lattice, nearest_share, nf4_levels

ROWS = np.random.default_rng(0).standard_t(6, (64, 256)).astype(np.float32) * 0.03


def int8(x: np.ndarray) -> np.ndarray:
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    return np.round(x / step) * step


def int4(x: np.ndarray, group: int) -> np.ndarray:
    parts = x.reshape(len(x), -1, group)
    low, high = parts.min(axis=2, keepdims=True), parts.max(axis=2, keepdims=True)
    step = (high - low) / 15
    zero = np.round(-low / step)
    return ((np.clip(np.round(parts / step) + zero, 0, 15) - zero) * step).reshape(x.shape)


def nf4(x: np.ndarray) -> np.ndarray:
    blocks = x.reshape(-1, 64)
    scale = np.abs(blocks).max(axis=1, keepdims=True)
    levels = nf4_levels()
    return (levels[np.abs(blocks[..., None] / scale[..., None] - levels).argmin(axis=-1)] * scale).reshape(x.shape)


def fp8(x: np.ndarray) -> np.ndarray:
    step = np.abs(x).max() / 448
    return (x / step).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * step


SCHEMES = [
    (int8, "int8", "row"),
    (lambda x: int4(x, 32), "int4", "32"),
    (lambda x: int4(x, 128), "int4", "128"),
    (nf4, "nf4", "64"),
    (fp8, "fp8", "tensor"),
]


@pytest.mark.parametrize(("scheme", "name", "group"), SCHEMES)
@pytest.mark.parametrize("stored", [bf16, np.float32])
def test_a_grid_is_named_with_its_group(scheme, name: str, group: str, stored) -> None:
    rows = np.asarray(stored(scheme(ROWS.astype(np.float64))), dtype=np.float32)
    found = lattice(rows)
    assert found is not None
    assert (found.name, found.group) == (name, group)
    assert nearest_share(rows, ROWS, found) > 0.97


def test_blocks_that_run_on_across_rows_are_found() -> None:
    rows = ROWS[:, :96]
    found = lattice(bf16(nf4(rows.reshape(-1)).reshape(rows.shape)))
    assert found is not None
    assert (found.name, found.group) == ("nf4", "64 across rows")


@pytest.mark.parametrize("seed", range(8))
def test_what_was_only_trained_is_on_no_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (rng.normal(0, 0.02, (64, 256)), rng.standard_t(3, (64, 96)), rng.normal(0, 1, (32, 40))):
        assert lattice(bf16(rows)) is None
        assert lattice(rows.astype(np.float32)) is None


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_pruned_matrix_is_on_no_grid(share: float) -> None:
    rows = np.where(np.abs(ROWS) < np.quantile(np.abs(ROWS), share), 0, ROWS)
    assert lattice(bf16(rows)) is None


def test_a_grid_put_on_other_weights_is_not_the_nearest() -> None:
    other = ROWS + 0.5 * np.random.default_rng(3).normal(0, ROWS.std(), ROWS.shape).astype(np.float32)
    rows = int4(ROWS.astype(np.float64), 32).astype(np.float32)
    found = lattice(rows)
    assert found is not None
    assert nearest_share(rows, other, found) < 0.6
