"""The edge of rounding, the rank of an adapter, and closed forms of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from plain_models import bf16

from modelkin.relation import spectra
from modelkin.relation.spectra import (
    bulk_and_outliers,
    difference_rank,
    effective_rank,
    excess,
    leading,
    singular_values,
)

BOTH = ("BF16", "BF16")


def base(seed: int, shape: tuple[int, int] = (96, 128)) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.normal(0, 0.5, shape[0]))[:, None]  # rows of different size round by different steps
    return bf16(scales * rng.normal(0, 0.05, shape)), rng


@pytest.mark.parametrize("seed", range(6))
def test_rounding_alone_has_no_rank(seed: int) -> None:
    a, rng = base(seed)
    unrounded = a + spectra.spacing(a, "BF16") * rng.uniform(-0.5, 0.5, a.shape)
    assert difference_rank(bf16(unrounded), unrounded.astype(np.float32), ("BF16", "F32"), rng)[0] == 0


@pytest.mark.parametrize("rank", [1, 4, 8])
@pytest.mark.parametrize("size", [0.01, 0.03, 0.1])
def test_the_rank_of_an_adapter_is_counted(rank: int, size: float) -> None:
    a, rng = base(rank)
    update = rng.normal(size=(96, rank)) @ rng.normal(size=(rank, 128))
    update *= size * np.linalg.norm(a) / np.linalg.norm(update)
    found, values, edge = difference_rank(a, bf16(a + update), BOTH, rng)
    assert found == rank
    assert values[rank] < edge < values[rank - 1]


def test_a_full_update_has_full_rank() -> None:
    a, rng = base(9)
    assert difference_rank(a, bf16(a + 0.1 * rng.normal(0, a.std(), a.shape)), BOTH, rng)[0] > 80


def test_equal_matrices_have_rank_zero() -> None:
    a, rng = base(2)
    assert difference_rank(a, a, BOTH, rng)[0] == 0


@pytest.mark.parametrize("shape", [(64, 64), (64, 300), (700, 600)])
def test_noise_has_no_excess_and_a_direction_has(shape: tuple[int, int]) -> None:
    """The largest singular value of noise tends to √m + √n; one direction as strong as all the noise adds √(mn)."""
    rng = np.random.default_rng(11)
    rows, columns = np.exp(rng.normal(0, 0.5, shape[0]))[:, None], np.exp(rng.normal(0, 0.5, shape[1]))
    for _ in range(8):
        noise = rows * rng.normal(size=shape) * columns
        direction = rows * np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1])) * columns
        assert 0.85 < excess(noise.astype(np.float32), rng) < 1.02
        assert excess((noise + 0.5 * direction).astype(np.float32), rng) > 1.2
    assert excess(np.zeros(shape, dtype=np.float32), rng) == 0


def test_leading_values_of_a_large_matrix_are_those_of_an_exact_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    shape = np.array([50.0, 20, 10, 5, *np.linspace(1, 0.1, 60)])
    matrix = _with_values(shape, rng).astype(np.float32)
    monkeypatch.setattr(spectra, "EXACT", 8)
    assert singular_values(matrix, 4, rng)[:4] == pytest.approx([50, 20, 10, 5], rel=1e-4)
    left, right = leading(matrix, 2, rng)
    assert np.diag(left.T @ matrix @ right) == pytest.approx([50, 20], rel=1e-4)


def _with_values(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    u, v = (np.linalg.qr(rng.normal(size=(100, len(values))))[0] for _ in range(2))
    return u @ np.diag(values) @ v.T


def test_effective_rank_of_equal_values_is_their_number() -> None:
    rng = np.random.default_rng(4)
    assert effective_rank(_with_values(np.ones(7), rng).astype(np.float32)) == pytest.approx(7, rel=1e-3)


def test_bulk_and_outliers_are_told_apart() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(60, 80)) / 10
    ours, theirs = (_with_values(np.array([30.0, 25]), rng)[:60, :80] for _ in range(2))
    a, b = (noise + ours).astype(np.float32), (noise + theirs).astype(np.float32)
    left, right = (np.hstack(side) for side in zip(leading(a, 2, rng), leading(b, 2, rng), strict=True))
    bulk, outliers = bulk_and_outliers(a, b, left, right)
    assert bulk > 0.95
    assert outliers < 0.3
