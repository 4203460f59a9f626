"""Scores of weights as they lie: gains, all parameters, profiles of standard deviations. No number may have moved."""

from __future__ import annotations

import numpy as np
from benchmarks.yardsticks.weights import Floats, NotApplicable, cosine, matrix, same_slots

from modelkin.architectures import Anatomy
from modelkin.records import Role

ATTENTION = (Role.Q, Role.K, Role.V, Role.O)
FEWEST_LAYERS = 3


def gain_cosine(a: Anatomy, b: Anatomy) -> float:
    """Mean cosine of the norm gains of same-numbered layers (the "182 sigma" claim of 2026)."""
    slots = same_slots(a, b, (Role.INPUT_NORM, Role.POST_NORM))
    return float(np.mean([cosine(_flat(a.read(slot)), _flat(b.read(slot))) for slot in slots]))


def parameter_cosine(a: Anatomy, b: Anatomy) -> float:
    """Cosine of all tensors of equal place and shape, laid end to end (PCS, the baseline of HuRef and others)."""
    product = size_a = size_b = 0.0
    for slot in same_slots(a, b):
        mine, theirs = _flat(a.read(slot)), _flat(b.read(slot))
        product, size_a, size_b = product + mine @ theirs, size_a + mine @ mine, size_b + theirs @ theirs
    return float(product / np.sqrt(size_a * size_b)) if size_a and size_b else 0.0


def deviation_profile(a: Anatomy, b: Anatomy) -> float:
    """Correlation over depth of the standard deviations of q, k, v and o (PDF, arXiv 2507.03014), mean of the four.

    The shorter profile is stretched to the longer by straight lines.
    """
    return float(np.mean([profile_correlation(profile(a, role), profile(b, role)) for role in ATTENTION]))


def profile(anatomy: Anatomy, role: Role) -> Floats:
    return np.array([matrix(anatomy, role, layer).std() for layer in anatomy.layers])


def profile_correlation(a: Floats, b: Floats) -> float:
    if min(len(a), len(b)) < FEWEST_LAYERS:
        raise NotApplicable("a profile of fewer than three layers")
    depth = np.linspace(0, 1, max(len(a), len(b)))
    mine, theirs = (np.interp(depth, np.linspace(0, 1, len(line)), line) for line in (a, b))
    return float(np.corrcoef(mine, theirs)[0, 1]) if np.ptp(mine) and np.ptp(theirs) else 0.0


def _flat(array: np.ndarray) -> Floats:
    return np.asarray(array, dtype=np.float64).ravel()
