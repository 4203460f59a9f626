"""Joint permutation of the hidden axes: how alike are vectors on the residual stream, index by index?

All layers of a model share one set of hidden axes, so their correlations rise and fall together and must never be
pooled as if they were independent. Here one permutation moves all vectors at once. p-values are drawn, so they end at
one over the number of draws and are for display and cross-checks (`exact` is false); grade A asks the same vectors by
roll call and by pair swap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from modelkin.records import Null, Significance
from modelkin.stats.arrays import Floats, finite, matched, rank_scores, unit_rows
from modelkin.stats.montecarlo import DRAWS, drawn_pvalue, kept


@dataclass(frozen=True, slots=True)
class JointPermutation:
    """The weighted mean rank correlation, and every vector's own with its p adjusted for all vectors."""

    significance: Significance
    z: float
    sd: float
    correlations: tuple[float, ...]
    adjusted: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LayerOffset:
    """Layer l of the left against layer l + shift of the right: z of every shift, and p adjusted for all shifts."""

    shift: int
    shifts: tuple[int, ...]
    z: tuple[float, ...]
    adjusted: tuple[float, ...]
    significance: Significance


def joint_permutation(
    left: ArrayLike,
    right: ArrayLike,
    rng: np.random.Generator,
    weights: ArrayLike | None = None,
    draws: int = DRAWS,
) -> JointPermutation:
    """T = Σ_l w_l r_l, r_l the correlation of rank scores of vector l, w_l = 1/L unless given.  (L, d) twice.

    Under a uniform joint permutation E T = 0 and Var T = Σ_{l,m} w_l w_m R^A_{lm} R^B_{lm} / (d - 1) exactly, R being
    the correlations among one model's own vectors. One-sided: likeness. Single vectors are judged by step-down max-T on
    the same permutations. [Hoeffding 1951; Westfall and Young 1993]
    """
    first, second = (_scored(side) for side in matched(left, right))
    parts = _checked_weights(weights, len(first))
    sd = _sd(first, second, parts)
    seen = np.einsum("ij,ij->i", first, second)
    null = np.array([np.einsum("ij,ij->i", first[:, _shuffle(first, rng)], second) for _ in range(draws)])
    null = null.reshape(draws, len(first))
    observed, totals = float(parts @ seen), null @ parts
    return JointPermutation(
        _significance(observed, totals, f"the mean of {len(first)} rank correlations", first.shape[1]),
        observed / sd if sd else 0.0,
        sd,
        tuple(seen.tolist()),
        step_down(seen, null),
    )


def step_down(observed: Floats, null: Floats) -> tuple[float, ...]:
    """Adjusted p-values of Westfall and Young's step-down max-T.  (m,), (draws, m) -> m p-values.

    The largest statistic is held against the largest of all in every draw, the next against the largest of the rest,
    and so on; p never falls on the way down.
    """
    order = np.argsort(-observed, kind="stable")
    rest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    steps = [drawn_pvalue(float(observed[place]), rest[:, i]) for i, place in enumerate(order)]
    adjusted = np.empty(len(observed))
    adjusted[order] = np.maximum.accumulate(np.array(steps)) if steps else []
    return tuple(adjusted.tolist())


def layer_offset(
    left: ArrayLike, right: ArrayLike, rng: np.random.Generator, reach: int = 4, draws: int = DRAWS
) -> LayerOffset:
    """The joint permutation test for every shift of the layers up to `reach`, paid for by max-T on the same draws.

    (layers of left, vectors a layer, d), (layers of right, vectors a layer, d). Every shift's T is divided by its exact
    standard deviation, so that short overlaps compete fairly.
    """
    first, second = finite(left, 3, "left"), finite(right, 3, "right")
    if first.shape[1:] != second.shape[1:] or not first.size or not second.size:
        raise ValueError(f"left and right must differ in layers only, found {first.shape} and {second.shape}")
    first, second = _by_part(first), _by_part(second)
    shifts = tuple(k for k in range(-reach, reach + 1) if -first.shape[1] < k < second.shape[1])
    sds = np.array([_shift_sd(first, second, k) for k in shifts])
    seen = _diagonals(first, second, shifts, sds)
    null = np.array([_diagonals(first[:, :, _shuffle(first, rng)], second, shifts, sds) for _ in range(draws)])
    null = null.reshape(draws, len(shifts))
    best = int(np.argmax(seen))
    largest = null.max(axis=1)
    found = _significance(float(seen[best]), largest, f"the largest z of {len(shifts)} layer shifts", first.shape[2])
    adjusted = tuple(drawn_pvalue(float(value), largest) for value in seen)
    return LayerOffset(shifts[best], shifts, tuple(seen.tolist()), adjusted, found)


def _scored(vectors: Floats) -> Floats:
    if vectors.shape[-1] < 2 or not vectors.size:
        raise ValueError(f"needs at least one vector over two hidden axes, found shape {vectors.shape}")
    return unit_rows(rank_scores(vectors))


def _by_part(vectors: Floats) -> Floats:
    """(layers, parts, d) -> scored (parts, layers, d)."""
    layers, parts, width = vectors.shape
    return _scored(vectors.reshape(-1, width)).reshape(layers, parts, width).transpose(1, 0, 2)


def _checked_weights(weights: ArrayLike | None, count: int) -> Floats:
    if weights is None:
        return np.full(count, 1 / count)
    parts = finite(weights, 1, "weights")
    if parts.size != count or np.any(parts < 0):
        raise ValueError(f"expected {count} weights that are not negative, found {parts.tolist()}")
    return parts


def _sd(first: Floats, second: Floats, weights: Floats) -> float:
    shared = (first @ first.T) * (second @ second.T)
    return math.sqrt(max(0.0, float(weights @ shared @ weights)) / (first.shape[1] - 1))


def _overlap(first: Floats, second: Floats, shift: int) -> tuple[Floats, Floats]:
    start, stop = max(0, -shift), min(first.shape[1], second.shape[1] - shift)
    width = first.shape[2]
    above, below = first[:, start:stop], second[:, start + shift : stop + shift]
    return above.reshape(-1, width), below.reshape(-1, width)


def _shift_sd(first: Floats, second: Floats, shift: int) -> float:
    above, below = _overlap(first, second, shift)
    return _sd(above, below, np.ones(len(above)))


def _diagonals(first: Floats, second: Floats, shifts: tuple[int, ...], sds: Floats) -> Floats:
    """T of every shift in units of its standard deviation."""
    table = np.matmul(first, second.transpose(0, 2, 1)).sum(axis=0)
    sums = np.array([np.trace(table, offset=k) for k in shifts])
    return np.asarray(np.divide(sums, sds, out=np.zeros_like(sds), where=sds > 0))


def _shuffle(vectors: Floats, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(vectors.shape[-1])


def _significance(observed: float, draws: Floats, what: str, width: int) -> Significance:
    return Significance(
        statistic=observed,
        log10_pvalue=math.log10(drawn_pvalue(observed, draws)),
        null=Null(
            f"{what} when the {width} hidden axes of one model are permuted together: {draws.size} draws", kept(draws)
        ),
        n=width,
        exact=False,
    )
