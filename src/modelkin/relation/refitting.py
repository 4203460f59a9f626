"""What is left of a difference once the numbers that a model may choose freely are chosen as the other has them.

A gain may be moved into the matrices that read it, which scales their columns; what a gated neuron reads may be scaled
and what it writes divided by as much; inside a head values may be mixed, queries and keys turned. The function stays.
Quantisers do so in good faith, and so do those who hide a copy: in either case nothing was learnt.
"""

from __future__ import annotations

import math

import numpy as np

from modelkin.records import Role
from modelkin.relation.elementwise import Floats

ROUNDS = 8  # of scaling rows and columns in turn
IN_ROWS, IN_COLUMNS = (Role.Q, Role.K, Role.V), (Role.O,)  # where heads lie
POWERS = 4  # of the products, to begin with
TINY = np.float32(1e-30)


def left_over(a: Floats, b: Floats, role: Role, head_dim: int | None) -> float:
    """|b - fitted| beside |b|, (m, n) both: a with its rows and columns scaled, or mixed inside heads.

    The smaller of the two. Between strangers it is near one, for a matrix and its copy what rounding leaves.
    """
    size = float(np.linalg.norm(b))
    if not size:
        return 0.0 if not a.any() else math.inf
    found = [_rescaled(a, b)]
    if role in IN_COLUMNS:
        a, b = a.T, b.T
    if role in (*IN_ROWS, *IN_COLUMNS) and head_dim and len(a) % head_dim == 0 and head_dim < a.shape[1]:
        found.append(_mixed(a, b, head_dim))
    return min(found) / size


def _rescaled(a: Floats, b: Floats) -> float:
    """What is left of b beside a with every row and every column scaled, by least squares in turn."""
    columns = _signed_columns(a, b)
    for _ in range(ROUNDS):
        x = a * columns
        rows = np.einsum("ij,ij->i", x, b) / np.maximum(np.einsum("ij,ij->i", x, x), TINY)
        x = a * rows[:, None]
        columns = np.einsum("ij,ij->j", x, b) / np.maximum(np.einsum("ij,ij->j", x, x), TINY)
    return float(np.linalg.norm(b - x * columns))


def _signed_columns(a: Floats, b: Floats) -> Floats:
    """Where to begin: the products of two entries are rank one up to squares, if b is a scaled, signs and all.

    From equal columns, scales of both signs would cancel each other in the rows, and least squares may stay there.
    """
    products = a * b
    columns = products[np.argmax(np.einsum("ij,ij->i", products, products))]
    for _ in range(POWERS):
        columns = products.T @ (products @ columns)
        columns = columns / max(float(np.linalg.norm(columns)), TINY)
    return np.asarray(columns, dtype=np.float32)


def _mixed(a: Floats, b: Floats, head_dim: int) -> float:
    """What is left of the rows of every head of b beside the best mixtures of those of a."""
    squares = 0.0
    for start in range(0, len(a), head_dim):
        mine, theirs = a[start : start + head_dim], b[start : start + head_dim]
        mixture = np.linalg.lstsq(mine.T, theirs.T, rcond=None)[0]
        squares += float(np.sum((theirs - mixture.T @ mine) ** 2, dtype=np.float64))
    return math.sqrt(squares)
