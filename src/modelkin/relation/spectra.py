"""Singular values of two tensors and of their difference.

Rounding to the stored format is noise of known size, so the rank of a difference can be counted: singular values above
the largest that such noise reaches. Noise differs from entry to entry; rows and columns are first scaled so that it has
mean variance one in each of them, and then its largest singular value is √m + √n. [Landa, Zhang and Kluger 2022]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from modelkin.records.relation import Spectra
from modelkin.relation.elementwise import Floats, spacing

Doubles = NDArray[np.float64]
EXACT = 512  # up to so many rows or columns all singular values are computed
MOST_RANK = 256
MORE, ROUNDS = 16, 2
SLACK = 1.02
SINKHORN_ROUNDS = 8
LEADING_SHARE, MOST_LEADING = 16, 32  # one direction in so many is leading, at most so many
ROWS_FOR_RANK = 512


def compared(a: Floats, b: Floats, formats: tuple[str, str], rng: np.random.Generator) -> Spectra:
    """a, b: (m, n), two stored formats -> everything that singular values tell."""
    rank, values, edge = difference_rank(a, b, formats, rng)
    count = max(1, min(MOST_LEADING, min(a.shape) // LEADING_SHARE))
    left_a, right_a = leading(a, count, rng)
    left_b, right_b = leading(b, count, rng)
    d = b - a
    bulk, outliers = bulk_and_outliers(a, b, np.hstack([left_a, left_b]), np.hstack([right_a, right_b]))
    return Spectra(
        rank=rank,
        capped=rank == len(values),
        strength=float(values[0] / edge) if edge else float(values[0] > 0) * math.inf,
        next=float(values[rank] / edge) if edge and rank < len(values) else 0.0,
        leading_a=_share(d, left_a, right_a),
        leading_b=_share(d, left_b, right_b),
        bulk=bulk,
        outliers=outliers,
        effective_rank_a=effective_rank(a),
        effective_rank_b=effective_rank(b),
        excess=excess(d, rng),
    )


def excess(d: Floats, rng: np.random.Generator) -> float:
    """The largest singular value of d over that of noise with as large rows and columns: about one if d is noise.

    What is learnt has directions; rounding has none. Of 64 rows and columns or more noise stays below 1.02.
    """
    if not np.any(d):
        return 0.0
    rows, columns = whitening(d**2)
    values = singular_values((d * rows[:, None] * columns[None, :]).astype(np.float32), MORE, rng)
    return float(values[0]) / (math.sqrt(d.shape[0]) + math.sqrt(d.shape[1]))


def difference_rank(
    a: Floats, b: Floats, formats: tuple[str, str], rng: np.random.Generator
) -> tuple[int, Doubles, float]:
    """(rank above rounding, singular values of the scaled difference, the edge)."""
    noise = (spacing(a, formats[0]) ** 2 + spacing(b, formats[1]) ** 2) / 12
    noise[(a == 0) & (b == 0)] = 0  # a place where both are empty has no noise
    if not np.any(a != b):
        return 0, np.zeros(1), 1.0
    rows, columns = whitening(noise)
    values = singular_values(((b - a) * rows[:, None] * columns[None, :]).astype(np.float32), MOST_RANK, rng)
    edge = SLACK * (math.sqrt(a.shape[0]) + math.sqrt(a.shape[1]))
    return int(np.sum(values > edge)), values, edge


def whitening(noise: Floats | Doubles) -> tuple[Doubles, Doubles]:
    """Factors for rows and columns under which every row and column of the noise has mean variance one."""
    scale = float(noise.mean()) or 1.0
    rows, columns = np.ones(noise.shape[0]), np.ones(noise.shape[1])
    matrix = noise / np.float32(scale)
    for _ in range(SINKHORN_ROUNDS):
        rows = _inverse(matrix @ columns / noise.shape[1])
        columns = _inverse(rows @ matrix / noise.shape[0])
    return np.sqrt(rows / scale), np.sqrt(columns)


def _inverse(values: Doubles) -> Doubles:
    return np.where(values > 1e-12, 1 / np.maximum(values, 1e-12), 0.0)


def singular_values(matrix: Floats, most: int, rng: np.random.Generator) -> Doubles:
    """All of a small matrix, the leading ones of a large one, largest first."""
    if min(matrix.shape) <= EXACT:
        return np.linalg.svd(matrix, compute_uv=False).astype(np.float64)
    basis = _range(matrix, most, rng)
    return np.linalg.svd(basis.T @ matrix, compute_uv=False)[:most].astype(np.float64)


def leading(matrix: Floats, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Left (m, count) and right (n, count) singular vectors of the largest singular values."""
    if min(matrix.shape) <= EXACT:
        u, _, vt = np.linalg.svd(matrix, full_matrices=False)
        return u[:, :count], vt[:count].T
    basis = _range(matrix, count, rng)
    u, _, vt = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    return (basis @ u)[:, :count], vt[:count].T


def _range(matrix: Floats, count: int, rng: np.random.Generator) -> Floats:
    """An orthonormal basis that holds the leading directions. [Halko, Martinsson and Tropp 2011]"""
    probes = rng.standard_normal((matrix.shape[1], count + MORE), dtype=np.float32)
    basis = np.linalg.qr(matrix @ probes)[0]
    for _ in range(ROUNDS):
        other = np.linalg.qr(matrix.T @ basis)[0]
        basis = np.linalg.qr(matrix @ other)[0]
    return np.asarray(basis, dtype=np.float32)


def _share(d: Floats, left: Floats, right: Floats) -> float:
    """Of the squares of d, in the directions: the mean of what the left ones and what the right ones hold."""
    total = float(np.sum(d.astype(np.float64) ** 2))
    if total == 0:
        return 0.0
    return float(np.sum((left.T @ d) ** 2, dtype=np.float64) + np.sum((d @ right) ** 2, dtype=np.float64)) / (2 * total)


def bulk_and_outliers(a: Floats, b: Floats, left: Floats, right: Floats) -> tuple[float, float]:
    """Cosines of a and b outside the given directions, and inside them.

    A shared initial seed lives in the bulk, what was learnt lives in the leading directions.
    """
    left, right = (np.linalg.qr(side)[0] for side in (left, right))
    bulk_a, bulk_b = (_outside(x, left, right) for x in (a, b))
    return _cosine(bulk_a, bulk_b), _cosine(a - bulk_a, b - bulk_b)


def _outside(x: Floats, left: Floats, right: Floats) -> Floats:
    x = x - left @ (left.T @ x)
    return np.asarray(x - (x @ right) @ right.T)


def _cosine(x: Floats, y: Floats) -> float:
    size = math.sqrt(float(np.sum(x.astype(np.float64) ** 2)) * float(np.sum(y.astype(np.float64) ** 2)))
    return float(np.sum(x.astype(np.float64) * y)) / size if size else 0.0


def effective_rank(a: Floats) -> float:
    """exp of the entropy of the singular values as shares; of at most 512 rows. [Roy and Vetterli 2007]"""
    rows = a if len(a) <= ROWS_FOR_RANK else a[np.linspace(0, len(a) - 1, ROWS_FOR_RANK).astype(int)]
    values = np.linalg.svd(rows, compute_uv=False).astype(np.float64)
    shares = values[values > 0] / values.sum() if values.sum() else np.ones(1)
    return float(np.exp(-np.sum(shares * np.log(shares))))
