"""Singular values of a matrix, and how far two profiles of them are apart.

Spectra are low in information: those of independent models look alike. They route; they never convict.
"""

from __future__ import annotations

import math

import numpy as np

from modelkin.metrics.inputs import Array, Undefined, Vector, clipped, matrix


def singular_values(a: Array) -> Vector:
    """Of a (rows, columns) -> (min(rows, columns),), largest first."""
    return _singular_values(a, "a")


def spectral_distance(a: Array, b: Array) -> float:
    """The Euclidean distance of the two lists of singular values, each divided by its norm; the shorter ends in zeros.

    For matrices of one shape that is what is left of |a/|a| − U b Vᵀ/|b|| after the best rotations U and V of both
    sides (von Neumann 1937). From 0 to below sqrt(2). Undefined where a or b is zero throughout.
    """
    profile_a, profile_b = _profile(a, "a"), _profile(b, "b")
    length = max(profile_a.size, profile_b.size)
    padded_a, padded_b = (np.pad(profile, (0, length - profile.size)) for profile in (profile_a, profile_b))
    return clipped(float(np.linalg.norm(padded_a - padded_b)), 0, math.sqrt(2))


def _singular_values(a: Array, name: str) -> Vector:
    return np.asarray(np.linalg.svd(matrix(a, name), compute_uv=False), dtype=np.float64)


def _profile(a: Array, name: str) -> Vector:
    values = _singular_values(a, name)
    if values[0] == 0:
        raise Undefined(f"{name} is 0 throughout: it has no spectrum")
    values /= values[0]
    return values / np.linalg.norm(values)
