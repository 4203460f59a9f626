"""Operators: the matrices that a model's own layers make on the residual stream, kept by their leading directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Factors, Neurons

Floats = NDArray[np.float32]
RANK = 32
MORE = 16  # directions beyond RANK while looking for the leading ones
ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Operator:
    """Σ values[i] · left[i] right[i]ᵀ, rows (rank, d), scaled to norm one before it was cut."""

    left: Floats
    right: Floats
    values: Floats

    def forms(self, rows: Floats) -> Floats:
        """Three numbers a row x that no rotation of the stream changes: xᵀMx, |Mᵀx|², |Mx|².  (n, d) -> (n, 3)"""
        left, right = rows @ self.left.T * self.values, rows @ self.right.T
        return np.stack(
            [
                np.einsum("ij,ij->i", left, right),
                np.einsum("ij,ij->i", left, left),
                np.einsum("ij,j,ij->i", right, self.values**2, right),
            ],
            axis=1,
        )


def operator(factors: Factors, rng: np.random.Generator, rank: int = RANK) -> Operator:
    """The leading directions of leftᵀ·right, found without forming it. [Halko, Martinsson & Tropp 2011]"""
    left, right = factors.left.astype(np.float32), factors.right.astype(np.float32)
    if min(left.shape) <= rank + MORE:
        return _exact(left, right, rank)
    basis = _spanned(left.T @ (right @ rng.standard_normal((left.shape[1], rank + MORE), dtype=np.float32)))
    for _ in range(ROUNDS):
        other = _spanned(right.T @ (left @ basis))
        basis = _spanned(left.T @ (right @ other))
    u, s, vt = np.linalg.svd((basis.T @ left.T) @ right, full_matrices=False)
    return _scaled(u.T @ basis.T, s, vt, rank)


def _exact(left: Floats, right: Floats, rank: int) -> Operator:
    (ql, rl), (qr, rr) = np.linalg.qr(left.T), np.linalg.qr(right.T)
    u, s, vt = np.linalg.svd(rl @ rr.T)
    return _scaled(u.T @ ql.T, s, vt @ qr.T, rank)


def _scaled(left: Floats, values: Floats, right: Floats, rank: int) -> Operator:
    size = float(np.linalg.norm(values)) or 1.0
    return Operator(left[:rank], right[:rank], (values[:rank] / size).astype(np.float32))


def _spanned(columns: Floats) -> Floats:
    return np.asarray(np.linalg.qr(columns)[0], dtype=np.float32)


def mlp_operators(neurons: Neurons, rng: np.random.Generator) -> list[Operator]:
    """What the MLP writes for what it reads, and what opens it: DU and GG."""
    found = [operator(Factors(neurons.down, neurons.up), rng)]
    return found if neurons.gate is None else [*found, operator(Factors(neurons.gate, neurons.gate), rng)]


def signatures(rows: Floats, operators: Sequence[Operator]) -> Floats:
    """Every row by its forms with every operator.  (n, d) -> (n, 3 · operators)"""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(size > 0, size, 1)
    return np.concatenate([each.forms(unit) for each in operators], axis=1)
