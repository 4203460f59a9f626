"""The independence tests of Zhu et al. (ICML 2025): neurons matched by likeness, their order tested by Spearman's rho.

csu asks whether the rows of `up` keep their numbers, csw the same of every matrix of a layer. match asks whether gate
and up choose the same partners, whatever the numbers. The paper takes activations for that; here the inputs are each
model's own embeddings of shared tokens behind the norm, so that no forward pass is needed: what a rotation of the
stream or a refactoring of gains does, cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from benchmarks.yardsticks.weights import (
    Floats,
    NotApplicable,
    best_assignment,
    matrix,
    same_slots,
    shared_embeddings,
    units,
)
from numpy.typing import NDArray
from scipy.stats import chi2, spearmanr, t

from modelkin.architectures import Anatomy
from modelkin.records import Role

EVERY = (Role.GATE, Role.UP, Role.DOWN, Role.Q, Role.K, Role.V, Role.O)
LEAST = math.log(2.3e-308)  # what the paper's floats can hold
MOST_ROWS = 2048


def kept_order_of_up(a: Anatomy, b: Anatomy) -> float:
    """csu: -log10 p, layers together by Fisher."""
    return kept_order(a, b, (Role.UP,))


def kept_order_of_all(a: Anatomy, b: Anatomy) -> float:
    """csw. It takes rows of q and k for exchangeable, which positions do not allow: its p is no p."""
    return kept_order(a, b, EVERY)


def kept_order(a: Anatomy, b: Anatomy, roles: Sequence[Role]) -> float:
    found = []
    for slot in same_slots(a, b, roles):
        rows = (np.asarray(model.read(slot)[:MOST_ROWS], dtype=np.float64) for model in (a, b))
        chosen = best_assignment(np.matmul(*(_as_factor(units(side), i) for i, side in enumerate(rows))))
        found.append(log_pvalue(chosen, np.arange(len(chosen))))
    return together(found)


def agreement(a: Anatomy, b: Anatomy) -> float:
    """match: -log10 p that the partners chosen by gate and by up agree."""
    tokens = shared_embeddings(a, b)
    if len(a.layers) != len(b.layers):
        raise NotApplicable("layers are compared by number, and there are not as many")
    return together(_agreement(a, b, tokens, pair) for pair in zip(a.layers, b.layers, strict=True))


def _agreement(a: Anatomy, b: Anatomy, tokens: tuple[Floats, Floats], layers: tuple[str, str]) -> float:
    by_role = []
    for role in (Role.GATE, Role.UP):
        mine, theirs = (
            _responses(model, role, layer, rows) for model, layer, rows in zip((a, b), layers, tokens, strict=True)
        )
        if mine.shape != theirs.shape:
            raise NotApplicable("there are not as many neurons")
        by_role.append(best_assignment(mine @ theirs.T))
    return log_pvalue(*by_role)


def _responses(anatomy: Anatomy, role: Role, layer: str, tokens: Floats) -> Floats:
    """What every neuron says to every token, centred and of length one: (neurons, tokens)."""
    gain = matrix(anatomy, Role.POST_NORM, layer)
    stream = tokens - tokens.mean(axis=1, keepdims=True) if anatomy.facts.norm == "layer" else tokens
    stream = stream / np.sqrt(np.mean(stream**2, axis=1, keepdims=True) + 1e-12) * gain
    said = matrix(anatomy, role, layer)[:MOST_ROWS] @ stream.T
    return units(said - said.mean(axis=1, keepdims=True))


def log_pvalue(left: NDArray[np.intp], right: NDArray[np.intp]) -> float:
    """ln p of Spearman's rho, one-sided, by Student's t: as published, so far beyond what n! orders allow."""
    n = len(left)
    if n < 4:
        raise NotApplicable("fewer than four rows")
    rho = float(spearmanr(left, right).statistic)
    if rho >= 1:
        return LEAST
    return max(LEAST, float(t.logsf(rho * math.sqrt((n - 2) / (1 - rho**2)), n - 2)))


def together(logs: Iterable[float]) -> float:
    """-log10 p of Fisher's method, from ln p of each."""
    found = list(logs)
    joint = float(chi2.logsf(-2 * sum(found), 2 * len(found)))
    if not math.isfinite(joint):  # beyond the floats of the tail: its leading term
        joint = sum(found)
    return -joint / math.log(10)


def _as_factor(rows: Floats, place: int) -> Floats:
    return rows.T if place else rows
