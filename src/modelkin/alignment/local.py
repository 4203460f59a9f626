"""Signatures from one layer's own operators: for models of other depths, whose layers cannot be set side by side.

A neuron is described by the operators of its own layer and their products, so that it looks the same wherever the layer
went. Every layer of one model is tried with every layer of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.operators import Operator

Floats = NDArray[np.float32]


def local_signatures(rows: Floats, operators: Sequence[Operator]) -> Floats:
    """Forms of every operator of the layer, and xᵀMNx of every ordered two.  (n, d) -> (n, 3k + k(k - 1))"""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(size > 0, size, 1)
    left = [unit @ each.left.T * each.values for each in operators]
    right = [unit @ each.right.T * each.values for each in operators]
    alone = [each.forms(unit) for each in operators]
    products = [
        np.einsum("ij,jk,ik->i", left[i], operators[i].right @ operators[j].left.T, right[j], optimize=True)[:, None]
        for i, j in permutations(range(len(operators)), 2)
    ]
    return np.concatenate([*alone, *products], axis=1)
