"""Which head of b is which of a, once the rotation is known: by the subspaces that heads read from and write to.

Values may be mixed by any invertible matrix inside a head, queries and keys by many: what they span on the stream
stays. Groups of one key head are found by what keys and, apart from that, by what values span; the query heads inside
a group by what queries and outputs span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Heads, Unfit, heads
from modelkin.alignment.matching import Rotation, assigned
from modelkin.alignment.sides import Sides

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
WELL_POSED = 1e6  # largest over smallest of a head's squared singular values, for them to be orthonormal to 1e-3


@dataclass(frozen=True)
class HeadMap:
    """For every key group, and every query head, of a layer of b the one of a; -1 where none was left.

    Of `groups` keys and values agreed on `groups_agreed`, of `heads` queries and outputs on `heads_agreed`: between
    strangers on one. `overlap` is the median share of a group's value space that lies in the one it chose; of two
    spaces in no relation it is `chance`.
    """

    a: str
    b: str
    groups: tuple[int, ...]
    groups_agreed: int
    heads: tuple[int, ...]
    heads_agreed: int
    overlap: float
    chance: float


def head_map(sides: Sides, a: str, b: str, rotation: Rotation) -> HeadMap | None:
    """None where one of the layers has no plain attention."""
    try:
        left, right = heads(sides.a.anatomy, a), heads(sides.b.anatomy, b)
    except Unfit as reason:
        sides.note(str(reason))
        return None
    if left is None or right is None:
        return None
    keys, values = overlaps(left.k, right.k, rotation), overlaps(left.v, right.v, rotation)
    by_keys, by_values = assigned(keys, sides.rng), assigned(values, sides.rng)
    groups = assigned(keys + values, sides.rng)
    asked, outputs = overlaps(left.q, right.q, rotation), overlaps(left.o, right.o, rotation)
    ways = [_inside(table, groups, left, right, sides.rng) for table in (asked, outputs, asked + outputs)]
    found = np.flatnonzero(groups >= 0)
    return HeadMap(
        a=a,
        b=b,
        groups=tuple(groups.tolist()),
        groups_agreed=int(((by_keys == by_values) & (by_keys >= 0)).sum()),
        heads=tuple(ways[2].tolist()),
        heads_agreed=int(((ways[0] == ways[1]) & (ways[0] >= 0)).sum()),
        overlap=float(np.median(values[found, groups[found]])),
        chance=max(left.v.shape[1], right.v.shape[1]) / left.v.shape[2],
    )


def overlaps(left: Floats, right: Floats, rotation: Rotation) -> Floats:
    """Mean squared cosine of the angles between what heads of b and of a span.  (heads of b, heads of a)"""
    mine, theirs = _bases(left), _bases((right.reshape(-1, right.shape[2]) @ rotation.T).reshape(*right.shape[:2], -1))
    size = min(mine.shape[1], theirs.shape[1])
    products = theirs.reshape(-1, theirs.shape[2]) @ mine.reshape(-1, mine.shape[2]).T
    squares = products.reshape(len(theirs), theirs.shape[1], len(mine), mine.shape[1]) ** 2
    return np.asarray(squares.sum(axis=(1, 3)) / size, dtype=np.float32)


def _bases(rows: Floats) -> Floats:
    """Orthonormal rows that span the same.  (heads, size, d)

    By Cholesky's factor of the products of all rows, many times faster than by QR; that is left to heads whose rows
    hardly span as many directions as they are.
    """
    products = np.stack([head.astype(np.float64) @ head.T for head in rows])
    sizes = np.linalg.eigvalsh(products)
    if not np.all(sizes[:, 0] > sizes[:, -1] / WELL_POSED):
        q = np.linalg.qr(rows.transpose(0, 2, 1))[0]
        return np.ascontiguousarray(q.transpose(0, 2, 1))
    back = np.linalg.inv(np.linalg.cholesky(products)).astype(np.float32)
    return np.asarray(back @ rows)


def _inside(table: Floats, groups: Indices, a: Heads, b: Heads, rng: np.random.Generator) -> Indices:
    """Query heads are renumbered inside their groups."""
    mine, theirs = len(a.q) // len(a.k), len(b.q) // len(b.k)
    found = np.full(len(b.q), -1, dtype=np.intp)
    for here, there in enumerate(groups):
        if there >= 0:
            rows, first = slice(here * theirs, (here + 1) * theirs), int(there) * mine
            chosen = assigned(table[rows, first : first + mine], rng)
            found[rows] = np.where(chosen >= 0, chosen + first, -1)
    return found
