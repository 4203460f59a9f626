"""HuRef (NeurIPS 2024): products of weights between embeddings, which a renumbering of the hidden axes cannot change.

With X the embeddings of rare tokens: X qᵀk Xᵀ, X vᵀoᵀ Xᵀ, X upᵀdownᵀ Xᵀ of the last two layers. Each is centred and
scaled, and the mean of their correlations is the score. Gains stand outside: whoever moves them into the matrices, and
then turns the stream, changes every term.
"""

from __future__ import annotations

import numpy as np
from benchmarks.yardsticks.weights import Floats, attention_products, matrix, shared_embeddings

from modelkin.architectures import Anatomy
from modelkin.records import Role

LAST = 2


def invariant_terms(a: Anatomy, b: Anatomy) -> float:
    left, right = shared_embeddings(a, b)
    pairs = zip(operators(a), operators(b), strict=True)
    return float(np.mean([term_correlation(left, mine, right, theirs) for mine, theirs in pairs]))


def operators(anatomy: Anatomy) -> list[Floats]:
    """Six matrices (d, d) that stand between the embeddings."""
    found = []
    for layer in anatomy.layers[-LAST:]:
        passed = matrix(anatomy, Role.UP, layer).T @ matrix(anatomy, Role.DOWN, layer).T
        found += [*attention_products(anatomy, layer), passed]
    return found


def term_correlation(x: Floats, a: Floats, y: Floats, b: Floats) -> float:
    """Correlation of the entries of XAXᵀ and YBYᵀ, (n, n) each, from matrices as wide as the models alone."""
    count = len(x)
    means = [float(rows.sum(axis=0) @ inner @ rows.sum(axis=0)) / count**2 for rows, inner in ((x, a), (y, b))]
    joint = _inner(x, a, y, b) / count**2 - means[0] * means[1]
    spread = (_inner(x, a, x, a) / count**2 - means[0] ** 2) * (_inner(y, b, y, b) / count**2 - means[1] ** 2)
    return float(joint / np.sqrt(spread)) if spread > 0 else 0.0


def _inner(x: Floats, a: Floats, y: Floats, b: Floats) -> float:
    """Σ over entries of XAXᵀ times YBYᵀ: tr(Aᵀ XᵀY B YᵀX)."""
    between = x.T @ y
    return float(np.vdot(a, between @ b @ between.T))
