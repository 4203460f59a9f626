"""Likeness of the geometry of samples: centred kernel alignment with the linear kernel.

Arrays are (samples, features); the samples of a and b correspond, their features need not, nor be equally many. With
Grams K = XXᵀ and L = YYᵀ both are ⟨K, L⟩ / sqrt(⟨K, K⟩ ⟨L, L⟩), differing in how a Gram is centred.

No Gram and no cross-product is ever held as a whole: ⟨K, L⟩ is |XᵀY|² or the sum over K ∘ L, whichever costs fewer
multiplications, and either is summed in pieces of at most 32 MB. The arrays themselves are copied to float64 once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from modelkin.metrics.inputs import Array, Matrix, ShapeMismatch, Undefined, clipped, matrix

_PIECE = 1 << 22  # items of float64: 32 MB
_NOISE = 1e-12  # what is left of ⟨K, K⟩ by rounding alone, relative to it

Alignment = Callable[[Matrix, Matrix], float]


def linear_cka_similarity(a: Array, b: Array) -> float:
    """CKA after Kornblith et al. (2019). Biased: with fewer samples than features strangers come close to 1.

    Undefined below 2 samples, or where all samples of a or of b are alike.
    """
    x, y = _samples(a, b, at_least=2)
    return _aligned(x, y, _gram_product, low=0)


def unbiased_cka_similarity(a: Array, b: Array) -> float:
    """CKA from the unbiased estimator of HSIC of Song et al. (2012): zero on average between independent arrays.

    The same number as from Grams whose diagonal is emptied and whose rows are centred with n − 2 and n − 1 (Székely
    and Rizzo 2014). Undefined below 4 samples, or where that centring leaves nothing of a or of b.
    """
    x, y = _samples(a, b, at_least=4)
    return _aligned(x, y, _unbiased_product, low=-1)


def _samples(a: Array, b: Array, *, at_least: int) -> tuple[Matrix, Matrix]:
    x, y = matrix(a, "a"), matrix(b, "b")
    if len(x) != len(y):
        raise ShapeMismatch(f"both arrays need as many samples (rows), found {x.shape} and {y.shape}")
    if len(x) < at_least:
        raise Undefined(f"at least {at_least} samples (rows) are needed, found {len(x)}")
    return _centred(x, "a"), _centred(y, "b")


def _centred(x: Matrix, name: str) -> Matrix:
    """In place: features of mean zero, the whole of norm one. Subtracting a row first makes constants exactly zero."""
    x -= x[0].copy()
    x -= x.mean(axis=0)
    norm = math.sqrt(np.vdot(x, x))
    if norm == 0:
        raise Undefined(f"all samples of {name} are alike")
    x /= norm
    return x


def _aligned(x: Matrix, y: Matrix, product: Alignment, *, low: float) -> float:
    own_x, own_y = product(x, x), product(y, y)
    for name, own, of in (("a", own_x, x), ("b", own_y, y)):
        if own <= _NOISE * _gram_product(of, of):
            raise Undefined(f"centring leaves nothing of {name} but rounding")
    return clipped(product(x, y) / math.sqrt(own_x * own_y), low, 1)


def _gram_product(x: Matrix, y: Matrix) -> float:
    """The sum of XXᵀ ∘ YYᵀ."""
    n, p, q = len(x), x.shape[1], y.shape[1]
    if p * q <= n * (p + q):
        width = max(1, _PIECE // q)
        crosses = (x[:, start : start + width].T @ y for start in range(0, p, width))
        return float(sum(np.vdot(cross, cross) for cross in crosses))
    height = max(1, _PIECE // n)
    rows = (slice(start, start + height) for start in range(0, n, height))
    return float(sum(np.vdot(x[some] @ x.T, y[some] @ y.T) for some in rows))


def _unbiased_product(x: Matrix, y: Matrix) -> float:
    """n (n − 3) HSIC₁ of Song et al., eq. 5, from the factors: K̃ is XXᵀ with its diagonal emptied."""
    n = len(x)
    diagonal_k, diagonal_l = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y)
    rows_k, rows_l = x @ x.sum(axis=0) - diagonal_k, y @ y.sum(axis=0) - diagonal_l
    trace = _gram_product(x, y) - float(np.dot(diagonal_k, diagonal_l))
    means = float(rows_k.sum() * rows_l.sum()) / ((n - 1) * (n - 2))
    return trace + means - 2 / (n - 2) * float(np.dot(rows_k, rows_l))
