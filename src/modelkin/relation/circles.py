"""A straight mean of two models or a way along a great circle: weights of the one sum to one, of the other to more.

On a circle the norm is kept, so weights sum to 1 + t (1 - t) angle² / 2, nearly. Over all values of a tensor that is
seen long before single values differ; where it is not, nobody can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from modelkin.relation.products import Products, solved

Bend = Literal["straight", "circle", "either"]
PARALLEL = math.acos(0.9995)  # nearer than this every implementation follows the chord
SIGMA = 0.1  # largest standard error of the bend, which is none for a chord and one for a circle
NEAR = 0.25  # of either
# Steps of the number format that the bend of a circle moves values by, below which rounding may undo all of it: values
# of a mean lie on few places between two steps, and all of them may be away from where rounding turns.
VISIBLE = 0.12
COARSE = 0.01  # sums that arithmetic in few bits may change as well


def bend(products: Sequence[Products]) -> Bend:
    """Of the way from the first of two sources to the second, judged by what the weights of all tensors sum to."""
    foreseen = np.array([_sum_on_circle(p) - 1 for p in products])
    seen, variance = np.array([p.excess() for p in products]), np.array([_variance(p) for p in products])
    precision = float(np.sum(foreseen**2 / variance))
    if precision < SIGMA**-2:
        return "either"
    found = float(np.sum(foreseen * seen / variance)) / precision
    if abs(found - 1) <= NEAR:
        return "circle"
    steps = np.array([math.sqrt(12 * p.rounding / p.raw_total) if p.raw_total else 1.0 for p in products])
    is_visible = float(np.max(foreseen / np.maximum(steps, 1e-12))) >= VISIBLE
    return "straight" if (abs(found) <= NEAR and is_visible) or foreseen.max() > COARSE else "either"


def _sum_on_circle(p: Products) -> float:
    return float(np.sum(_on_circle(_angle(p), min(1.0, max(0.0, float(solved([p])[1]))))))


def _variance(p: Products) -> float:
    """Of the sum of the best weights: what rounding, or whatever is left over, makes of it."""
    noise = max(p.rounding, p.least()) / max(1, p.values)
    return max(1e-24, noise * float(np.linalg.pinv(p.raw).sum()))


def _on_circle(angle: float, t: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if angle < PARALLEL:
        return np.array([1 - t, t])
    return np.array([math.sin((1 - t) * angle), math.sin(t * angle)]) / math.sin(angle)


def along_circle(products: Sequence[Products]) -> tuple[float, float]:
    """(t, what is left over) for one t for all."""
    found = minimize_scalar(lambda t: sum(_off_circle(p, t) for p in products), bounds=(0, 1), method="bounded")
    return float(found.x), max(0.0, float(found.fun))


def _angle(p: Products) -> float:
    size = math.sqrt(p.raw[0, 0] * p.raw[1, 1])
    return math.acos(min(1.0, max(-1.0, p.raw[0, 1] / size))) if size else 0.0


def _off_circle(p: Products, t: float) -> float:
    """|y - s0 a - s1 b|², from the products. Parallel tensors follow the chord."""
    angle = _angle(p)
    if angle < PARALLEL:
        return p.left_over(np.array([t]))
    s = _on_circle(angle, t)
    return float(p.raw_total - 2 * s @ p.raw_y + s @ p.raw @ s)
