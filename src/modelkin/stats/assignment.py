"""Who finds whom, by likeness alone: one-to-one assignment behind hidden numbers."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.stats.arrays import Floats, Indices, unit_rows

Likeness = Literal["cosine", "inner"]


def matches(left: Floats, right: Floats, rng: np.random.Generator, likeness: Likeness = "cosine") -> Indices:
    """Which row of `right` every row of `left` chooses, one-to-one, greatest total likeness.  (n, p) twice -> (n,).

    The rows of `right` are renumbered at random before anything is computed from both sides, and the numbers restored
    after the assignment. So ties, and differences in rounding, are broken by chance: for exchangeable rows the result
    is a uniform permutation whatever stands in the rows, and whatever the solver prefers.
    """
    hidden = rng.permutation(len(right))
    if likeness == "cosine":
        left, right = unit_rows(left), unit_rows(right)
    _, chosen = linear_sum_assignment(left @ right[hidden].T, maximize=True)
    return np.asarray(hidden[chosen], dtype=np.intp)


def answerable(left: Floats, right: Floats, likeness: Likeness = "cosine") -> NDArray[np.bool_]:
    """The indices whose rows can be told apart on both sides.  (n, p) twice -> (n,).

    Rows without variance (for inner products: of zeros) have no likeness to anything. Of equal rows all copies go, for
    which of them is the first depends on the very numbers under test. Whether a row stays depends on the set of rows
    and not on their order, so what remains is as exchangeable as the whole.
    """
    return _distinct(left, likeness) & _distinct(right, likeness)


def _distinct(rows: Floats, likeness: Likeness) -> NDArray[np.bool_]:
    if not rows.size:
        return np.zeros(len(rows), dtype=np.bool_)
    alive = np.ptp(rows, axis=1) > 0 if likeness == "cosine" else np.any(rows != 0, axis=1)
    names = [hashlib.sha256(row.tobytes()).digest() for row in np.ascontiguousarray(rows + 0.0)]  # -0 is 0
    copies = Counter(names)
    return np.asarray(alive & np.array([copies[name] == 1 for name in names]), dtype=np.bool_)
