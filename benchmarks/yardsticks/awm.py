"""AWM (ICLR 2026): hidden axes matched by the embeddings of shared tokens, then unbiased CKA of q and of k.

The samples of the CKA are hidden axes, so any orthogonal change inside a head leaves it as it is. A dense rotation of
the stream leaves no axis to be matched, and gains that were moved change the products.
"""

from __future__ import annotations

import numpy as np
from benchmarks.yardsticks.weights import Floats, best_assignment, matrix, shared_embeddings, units
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.records import Role


def aligned_cka(a: Anatomy, b: Anatomy) -> float:
    """The mean over q, k and layers; of models of unequal depth each layer of the shallower has its best partner."""
    left, right = shared_embeddings(a, b)
    if left.shape[1] < right.shape[1]:
        return aligned_cka(b, a)  # the wider one is the base
    axes, signs = signed_axes(left, right)
    scores = np.mean([_layer_scores(a, b, role, axes, signs) for role in (Role.Q, Role.K)], axis=0)
    if scores.shape[0] == scores.shape[1]:
        return float(np.diag(scores).mean())
    scores = scores if scores.shape[0] < scores.shape[1] else scores.T
    return float(scores[np.arange(len(scores)), best_assignment(scores)].mean())


def signed_axes(left: Floats, right: Floats) -> tuple[NDArray[np.intp], Floats]:
    """For every axis of the narrower model an axis of the wider one, and its sign.  (n, d) and (n, d′), d ≥ d′."""
    alike = units(right.T) @ units(left.T).T
    axes = best_assignment(np.abs(alike))
    return axes, np.where(alike[np.arange(len(axes)), axes] < 0, -1.0, 1.0)


def _layer_scores(a: Anatomy, b: Anatomy, role: Role, axes: NDArray[np.intp], signs: Floats) -> Floats:
    mine = [centred_gram((matrix(a, role, layer)[:, axes] * signs).T) for layer in a.layers]
    theirs = [centred_gram(matrix(b, role, layer).T) for layer in b.layers]
    return np.array([[cka(x, y) for y in theirs] for x in mine])


def centred_gram(samples: Floats) -> Floats:
    """XXᵀ without its diagonal, centred so that products of two such are unbiased. [Székely & Rizzo 2014]"""
    gram = samples @ samples.T
    np.fill_diagonal(gram, 0)
    n = len(gram)
    means = gram.sum(axis=0) / (n - 2)
    means -= means.sum() / (2 * (n - 1))
    gram = gram - means[:, None] - means
    np.fill_diagonal(gram, 0)
    return gram


def cka(x: Floats, y: Floats) -> float:
    size = float(np.sqrt(np.vdot(x, x) * np.vdot(y, y)))
    return float(np.vdot(x, y)) / size if size else 0.0
