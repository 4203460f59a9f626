"""What every test asks of its arrays, checked once at the door; and the scores that tests on ranks use."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from modelkin.errors import NothingComparable

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
LN10 = math.log(10)


def finite(values: ArrayLike, ndim: int, name: str) -> Floats:
    """A float64 copy with `ndim` axes, or the reason there is none."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, found shape {array.shape}")
    strange = array.size - int(np.count_nonzero(np.isfinite(array)))
    if strange:
        raise NothingComparable(
            f"{name} has {strange} of {array.size} values that are not finite",
            hint="a NaN or an infinity in a checkpoint makes every comparison meaningless: leave this tensor out",
        )
    return array


def matched(left: ArrayLike, right: ArrayLike, ndim: int = 2) -> tuple[Floats, Floats]:
    """Two float64 copies of one shape."""
    first, second = finite(left, ndim, "left"), finite(right, ndim, "right")
    if first.shape != second.shape:
        raise ValueError(f"left and right must have one shape, found {first.shape} and {second.shape}")
    return first, second


def rank_scores(vectors: ArrayLike) -> Floats:
    """Normal scores of the ranks of each vector, ties averaged, centred.  (vectors, d) -> (vectors, d).

    Φ⁻¹(rank / (d + 1)), van der Waerden's scores. Ranks make the scale and the outliers of a gain vector irrelevant;
    normal scores rather than plain ranks because for vectors joined by a Gaussian copula the inner product of normal
    scores is the log likelihood of a matching, so that the assignment which maximises it is the most likely one. The
    axes in the tails, the only ones that a gain vector names with any certainty, keep their weight.
    Scoring scores again changes nothing. A vector without variance scores 0 throughout.
    """
    values = finite(vectors, 2, "vectors")
    if not values.size:
        return values
    scores: Floats = np.asarray(ndtri(average_ranks(values) / (values.shape[1] + 1)), dtype=np.float64)
    scores -= scores.mean(axis=1, keepdims=True)
    scores[np.ptp(values, axis=1) == 0] = 0.0
    return scores


def average_ranks(rows: Floats) -> Floats:
    """Ranks from 1 on inside every row, equal values sharing their mean.  (n, p) -> (n, p).

    As scipy.stats does it; to import that costs as much as a whole quick comparison.
    """
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    ranks = np.empty(rows.shape)
    for values, places, row in zip(ordered, order, ranks, strict=True):
        starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        lengths = np.diff(starts, append=len(values))
        row[places] = np.repeat(starts + (lengths + 1) / 2, lengths)
    return ranks


def unit_rows(rows: Floats) -> Floats:
    """Every row centred and of length one, so that inner products are Pearson's r; rows without variance become 0."""
    if not rows.size:
        return rows.copy()
    centred = rows - rows.mean(axis=1, keepdims=True)
    centred[np.ptp(rows, axis=1) == 0] = 0.0  # rounding of the mean must not invent a direction
    largest = np.max(np.abs(centred), axis=1, keepdims=True)
    centred = np.divide(centred, largest, out=np.zeros_like(centred), where=largest > 0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0))


def log_sum(logs: ArrayLike) -> float:
    """ln Σ exp(logs) without leaving the range of floats; for a few numbers ten times as fast as scipy's."""
    values = np.asarray(logs, dtype=np.float64)
    largest = float(values.max()) if values.size else -math.inf
    return largest + math.log(float(np.exp(values - largest).sum())) if math.isfinite(largest) else largest
