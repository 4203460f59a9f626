"""Scores from spectra and polar factors: GhostSpec (AAAI 2026) and MDIR (arXiv 2508.06309)."""

from __future__ import annotations

import math

import numpy as np
from benchmarks.yardsticks.weights import Floats, attention_products, best_assignment, shared_embeddings
from scipy.special import gammaln

from modelkin.architectures import Anatomy


def ghost_spectra(a: Anatomy, b: Anatomy) -> float:
    """How little the spectra of q-k and v-o products differ along the best monotone alignment of the layers, below 0.

    Mean squared difference of singular values, cut to the smaller effective rank and stretched to [0, 1]. The paper
    puts it through a sigmoid whose two constants were fitted to the pairs it reports; no threshold changes by that.
    """
    mine, theirs = ([spectra(model, layer) for layer in model.layers] for model in (a, b))
    apart = np.array([[np.mean([distance(x, y) for x, y in zip(i, j, strict=True)]) for j in theirs] for i in mine])
    return -monotone_cost(apart, gap=float(apart.mean()))


def spectra(anatomy: Anatomy, layer: str) -> list[Floats]:
    return [np.linalg.svd(product, compute_uv=False) for product in attention_products(anatomy, layer)]


def effective_rank(values: Floats) -> int:
    """exp of the entropy of the normalised singular values."""
    share = values[values > 0] / values.sum()
    return max(2, round(float(np.exp(-(share * np.log(share)).sum()))))


def distance(x: Floats, y: Floats) -> float:
    rank = min(effective_rank(x), effective_rank(y), len(x), len(y))
    return float(np.mean((_stretched(x[:rank]) - _stretched(y[:rank])) ** 2))


def _stretched(values: Floats) -> Floats:
    width = float(np.ptp(values))
    return (values - values.min()) / width if width else np.zeros_like(values)


def monotone_cost(apart: Floats, gap: float) -> float:
    """The cheapest path through both lists of layers, a layer left out at `gap` each; by the number of layers."""
    height, width = apart.shape
    cost = np.empty((height + 1, width + 1))
    cost[0], cost[:, 0] = gap * np.arange(width + 1), gap * np.arange(height + 1)
    for i in range(1, height + 1):
        for j in range(1, width + 1):
            cost[i, j] = min(cost[i - 1, j - 1] + apart[i - 1, j - 1], cost[i - 1, j] + gap, cost[i, j - 1] + gap)
    return float(cost[-1, -1] / max(height, width))


def polar_trace(a: Anatomy, b: Anatomy) -> float:
    """MDIR: the polar factor U of E_aᵀE_b over shared tokens, and the largest trace of U times a signed permutation,
    by the width. 1: b's axes are those of a, renumbered and with other signs; for a dense rotation as for a stranger.
    """
    left, right = shared_embeddings(a, b)
    return signed_trace(polar_factor(left.T @ right))


def polar_factor(product: Floats) -> Floats:
    u, _, vt = np.linalg.svd(product, full_matrices=False)
    return u @ vt


def signed_trace(factor: Floats) -> float:
    likeness = np.abs(factor if factor.shape[0] <= factor.shape[1] else factor.T)
    return float(likeness[np.arange(len(likeness)), best_assignment(likeness)].mean())


def haar_log10_pvalue(trace: float, width: int) -> float:
    """What MDIR makes of the trace: the large-deviation bound for U uniform on the orthogonal group, over all signed
    permutations. Trained strangers are not uniform, so this is no p-value; the table uses the trace."""
    rate = trace**2 / 2 if trace <= 0.5 else 0.125 - 0.25 * math.log(2 * (1 - min(trace, 1 - 1e-15)))
    union = float(gammaln(width + 1)) + width * math.log(2)
    return min(0.0, union - width**2 * rate) / math.log(10)
