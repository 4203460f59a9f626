"""Numbers that follow from the published means, standard deviations and correlations, without any weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics import PairMoments
from modelkin.reference.published import chosen, rows
from modelkin.stats.assignment import matches

Floats = NDArray[np.float64]

HIDDEN = 4096


def identity_errors() -> Floats:
    """cos = cA cB + r sA sB on each of the 92 published rows: computed from the moments, minus printed."""
    errors = []
    for row in rows("layernorm_sanity"):
        mean_a, std_a, mean_b, std_b = (float(row[name]) for name in ("A_mean", "A_std", "B_mean", "B_std"))
        cov = float(row["cosine_centered"]) * std_a * std_b
        parts = PairMoments(HIDDEN, mean_a, mean_b, std_a**2, std_b**2, cov).parts()
        errors.append(parts.cosine - float(row["cosine"]))
    return np.array(errors)


def means_only(category: str) -> Floats:
    """(layers of A, layers of B): the cosine that means and standard deviations alone predict."""
    found = chosen("layernorm_sanity", category=category)
    own, other = (np.array([_share_of_mean(row, side) for row in found]) for side in ("A", "B"))
    return np.outer(own, other)


def _share_of_mean(row: dict[str, str], side: str) -> float:
    mean, std = float(row[f"{side}_mean"]), float(row[f"{side}_std"])
    return mean / math.hypot(mean, std)


def off_diagonal(matrix: Floats) -> Floats:
    return matrix[~np.eye(*matrix.shape, dtype=np.bool_)]


def gain_norms(category: str, side: str) -> Floats:
    """L2 norm of the gains per layer: sqrt(d (m² + s²)); 64 if all were one."""
    found = chosen("layernorm_sanity", category=category)
    return np.array([math.sqrt(HIDDEN) * math.hypot(float(r[f"{side}_mean"]), float(r[f"{side}_std"])) for r in found])


def facing(category: str, column: str) -> Floats:
    """One column of the layer-by-layer table, in order of layers."""
    found = chosen("layerwise_similarity", category=category)
    return np.array([float(row[column]) for row in found])


def cohens_d(first: Iterable[float], second: Iterable[float]) -> float:
    """Difference of means in pooled population standard deviations: what was published as sigma."""
    a, b = np.fromiter(first, float), np.fromiter(second, float)
    return float((a.mean() - b.mean()) / math.sqrt((a.var() + b.var()) / 2))


def claimed_values(note: str) -> list[float]:
    """The four within-model (`within-model baseline`) or four across-model (`cross-model`) cosines of the claim."""
    return [float(row["printed_value"]) for row in chosen("claim_tables", note=note)]


def claimed_sigma() -> float:
    """Published as 182 sigma: four across-model values, layer 0 left out, against four that all involve layer 0."""
    return cohens_d(claimed_values("cross-model"), claimed_values("within-model baseline"))


def windowed(tensor: str) -> Floats:
    """Cosines of the sampled windows of one tensor kind, every layer that has them."""
    ok = [row for row in rows("solar_vs_glm_detailed") if row["status"] == "ok" and f".{tensor}." in row["key"]]
    return np.array([float(row["cosine"]) for row in ok])


def matched_by_chance(experts: int, width: int, rng: np.random.Generator) -> float:
    """Mean row cosine after optimal matching of two sets of random directions: what strangers reach."""
    directions = rng.standard_normal((2, experts, width))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    likeness = directions[0] @ directions[1].T
    return float(likeness[np.arange(experts), matches(directions[0], directions[1], rng)].mean())


def relative_to_other(cosine: float, relative: float) -> float:
    """|a − b| / |b| of a pair known by its cosine and |a − b| / |a|, b being the shorter one.

    With x = |b| / |a|: x² − 2 x cos + 1 = relative².
    """
    size = cosine - math.sqrt(cosine**2 - 1 + relative**2)
    return relative / size


def bf16_step(value: float) -> float:
    """Distance between neighbouring bfloat16 numbers at a value: 8 bits of significand."""
    return math.ldexp(1.0, math.frexp(abs(value))[1] - 8)


def changed_rows(column: str) -> Sequence[float | None]:
    """A column of the change analysis, by layer; None where the picture did not resolve it."""
    return [float(row[column]) if row[column] else None for row in rows("glm_intellect_change_digitised")]
