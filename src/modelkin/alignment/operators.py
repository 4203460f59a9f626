"""Operators: the matrices that a model's own layers make on the residual stream, kept by their leading directions.

A neuron is recognised by the quadratic forms that it makes with them. They stay what they are however the stream is
turned, so no token is needed and nothing has to be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Factors, Neurons

Floats = NDArray[np.float32]
RANK, LEAST_RANK = 32, 8
ALL_RANKS = 1024  # of all operators together: how many there are matters more than how many directions each keeps
MORE = 16  # directions beyond those kept, while looking for the leading ones
ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Operator:
    """Σ values[i] · left[i] right[i]ᵀ, rows (rank, d), of norm one: its size says nothing."""

    left: Floats
    right: Floats
    values: Floats


def rank_for(count: int) -> int:
    """How many directions each of so many operators keeps."""
    return max(LEAST_RANK, min(RANK, ALL_RANKS // max(1, count)))


def operator(factors: Factors, rng: np.random.Generator, rank: int = RANK) -> Operator:
    """The leading directions of leftᵀ·right, found without forming it. [Halko, Martinsson & Tropp 2011]"""
    left, right = _tame(factors.left), _tame(factors.right)
    if min(left.shape) <= rank + MORE:
        return _exact(left, right, rank)
    basis = _spanned(left.T @ (right @ rng.standard_normal((left.shape[1], rank + MORE), dtype=np.float32)))
    for _ in range(ROUNDS):
        other = _spanned(right.T @ (left @ basis))
        basis = _spanned(left.T @ (right @ other))
    u, s, vt = np.linalg.svd((basis.T @ left.T) @ right, full_matrices=False)
    return _scaled(u.T @ basis.T, s, vt, rank)


def _tame(rows: Floats) -> Floats:
    """Largest value one: the scale of an operator does not matter, and its square must not leave the floats."""
    largest = float(np.max(np.abs(rows), initial=0.0))
    return rows / np.float32(largest) if largest > 0 else rows


def _exact(left: Floats, right: Floats, rank: int) -> Operator:
    (ql, rl), (qr, rr) = np.linalg.qr(left.T), np.linalg.qr(right.T)
    u, s, vt = np.linalg.svd(rl @ rr.T)
    return _scaled(u.T @ ql.T, s, vt @ qr.T, rank)


def _scaled(left: Floats, values: Floats, right: Floats, rank: int) -> Operator:
    size = float(np.linalg.norm(values[:rank])) or 1.0
    return Operator(left[:rank], right[:rank], (values[:rank] / size).astype(np.float32))


def _spanned(columns: Floats) -> Floats:
    return np.asarray(np.linalg.qr(columns)[0], dtype=np.float32)


def mlp_operators(neurons: Neurons, rng: np.random.Generator, rank: int = RANK) -> list[Operator]:
    """What the MLP writes for what it reads, and what opens it: DU and GG."""
    found = [operator(Factors(neurons.down, neurons.up), rng, rank)]
    return found if neurons.gate is None else [*found, operator(Factors(neurons.gate, neurons.gate), rng, rank)]


def signatures(rows: Floats, operators: Sequence[Operator]) -> Floats:
    """Unit rows x by xᵀMx, |Mᵀx|² and |Mx|² of every operator M.  (n, d) -> (n, 3 · operators)

    One product for all operators: hundreds of narrow ones take several times as long.
    """
    starts = np.cumsum([0, *(len(each.values) for each in operators[:-1])])
    values = np.concatenate([each.values for each in operators])
    left = rows @ np.concatenate([each.left for each in operators]).T * values
    right = rows @ np.concatenate([each.right for each in operators]).T
    forms = (left * right, left**2, (right * values) ** 2)
    return np.concatenate([np.add.reduceat(form, starts, axis=1) for form in forms], axis=1)


def local_signatures(rows: Floats, operators: Sequence[Operator]) -> Floats:
    """The same of the operators of one layer, and xᵀMNx of every two.  (n, d) -> (n, 3k + k(k - 1))

    For models whose layers cannot be set side by side: a neuron looks the same wherever its layer went.
    """
    left = [rows @ each.left.T * each.values for each in operators]
    right = [rows @ each.right.T * each.values for each in operators]
    products = [
        np.einsum("ij,jk,ik->i", left[i], operators[i].right @ operators[j].left.T, right[j], optimize=True)[:, None]
        for i, j in permutations(range(len(operators)), 2)
    ]
    return np.concatenate([signatures(rows, operators), *products], axis=1)
