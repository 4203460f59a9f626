"""How alike two matrices are, measured against the same matrices with one of their axes renumbered."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from modelkin.records import Role
from modelkin.survey.reading import Model

SMALLEST_TAIL = 1e-6  # a normal tail says no more than this
# Their rows lie on the residual stream (or are the channels of a convolution); of all others the columns do.
WRITERS = frozenset({Role.O, Role.CROSS_O, Role.DOWN, Role.SHARED_DOWN, Role.FRONT_CONV})


@dataclass(frozen=True, slots=True)
class Renumbered:
    """The sum of products of two matrices, and what it is when the columns of one are put into any order.

    Mean and standard deviation are exact; `p` is the normal tail of z, for display, and never below one in a million.
    """

    seen: float
    mean: float
    sd: float

    @property
    def z(self) -> float | None:
        return (self.seen - self.mean) / self.sd if self.sd > 0 else None

    @property
    def p(self) -> float | None:
        return None if self.z is None else max(SMALLEST_TAIL, float(ndtr(-self.z)))


def renumbered(x: NDArray[np.floating], y: NDArray[np.floating]) -> Renumbered:
    """Σ x_ij y_ij against Σ x_ij y_iπ(j), π uniform over the columns.  (rows, axes) twice.

    With the rows of both centred the mean is what the row means give, and the variance Σ (x xᵀ)∘(y yᵀ) / (axes − 1),
    which is the same number as |xᵀ y|² / (axes − 1): taken from the smaller side. [Hoeffding 1951]
    """
    left, right = np.asarray(x, np.float64), np.asarray(y, np.float64)
    means = left.mean(axis=1), right.mean(axis=1)
    left, right = left - means[0][:, None], right - means[1][:, None]
    rows, axes = left.shape
    expected = axes * float(means[0] @ means[1])
    if axes < 2:
        return Renumbered(expected, expected, 0.0)
    square = np.sum((left @ left.T) * (right @ right.T)) if rows <= axes else np.sum((left.T @ right) ** 2)
    seen = expected + float(np.einsum("ij,ij->", left, right))
    return Renumbered(seen, expected, math.sqrt(max(0.0, float(square)) / (axes - 1)))


def by_role(role: Role, x: NDArray[np.floating], y: NDArray[np.floating]) -> Renumbered:
    """The axis on the residual stream is renumbered: columns of what reads it, rows of what writes to it."""
    return renumbered(x.T, y.T) if role in WRITERS else renumbered(x, y)


def may_be_renumbered(*models: Model) -> bool:
    """Do the families of all models say that their hidden axes have no order of their own?"""
    return all(model.anatomy.facts.exchangeable_hidden for model in models)
