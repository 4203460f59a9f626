"""The heads of one layer where another model has them: their order, and the basis of the values inside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import heads
from modelkin.alignment.heads import HeadMap
from modelkin.alignment.matching import Rotation
from modelkin.architectures import Anatomy

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
MIXED = 0.9  # of the cosine with the best basis: what values in their own basis have at least, if nobody mixed them
WELL_POSED = 1e3


@dataclass(frozen=True, eq=False)
class HeadOrder:
    """At place i stand group groups[i] and query head heads[i] of b; values of a group are multiplied by its mixer.

    `mixers` (groups, size, size) is None where values stand in the basis of a already.
    """

    size: int
    groups: Indices
    heads: Indices
    mixers: Floats | None

    def queries(self, rows: Floats) -> Floats:
        """Rows of q, or its bias."""
        return rows.reshape(-1, self.size, *rows.shape[1:])[self.heads].reshape(rows.shape)

    def keys(self, rows: Floats) -> Floats:
        return rows.reshape(-1, self.size, *rows.shape[1:])[self.groups].reshape(rows.shape)

    def values(self, rows: Floats) -> Floats:
        ordered = self.keys(rows)
        if self.mixers is None:
            return ordered
        parts = ordered.reshape(len(self.groups), self.size, -1)
        return np.asarray((self.mixers @ parts).reshape(rows.shape), dtype=np.float32)

    def outputs(self, matrix: Floats) -> Floats:
        """Columns of o."""
        parts = matrix.reshape(len(matrix), -1, self.size)[:, self.heads]
        if self.mixers is not None:
            back = np.repeat(np.linalg.inv(self.mixers), parts.shape[1] // len(self.groups), axis=0)
            parts = np.einsum("ohj,hji->ohi", parts, back, optimize=True)
        return np.asarray(parts.reshape(matrix.shape), dtype=np.float32)


def head_order_of(a: Anatomy, b: Anatomy, found: HeadMap, rotation: Rotation) -> HeadOrder | None:
    """None where not every head has a counterpart: then no order is that of a."""
    mine, theirs = heads(a, found.a), heads(b, found.b)
    if mine is None or theirs is None or -1 in (*found.groups, *found.heads):
        return None
    if mine.v.shape[:2] != theirs.v.shape[:2] or len(mine.q) != len(theirs.q):
        return None
    groups = np.argsort(found.groups)
    values = theirs.v[groups] @ rotation.T
    return HeadOrder(mine.v.shape[1], groups, np.argsort(found.heads), _mixers(mine.v, values))


def _mixers(mine: Floats, theirs: Floats) -> Floats | None:
    """The basis in which the values of b come nearest to those of a, group by group, by least squares."""
    grams = theirs @ theirs.transpose(0, 2, 1)
    if any(not np.linalg.cond(gram) < WELL_POSED**2 for gram in grams):
        return None
    found = np.linalg.solve(grams, theirs @ mine.transpose(0, 2, 1)).transpose(0, 2, 1)
    if any(not np.linalg.cond(mixer) < WELL_POSED for mixer in found):
        return None  # what a's values span is less than what b's do: no change of basis
    plain, best = _cosine(mine, theirs), _cosine(mine, found @ theirs)
    return None if plain >= MIXED * best else np.asarray(found, dtype=np.float32)


def _cosine(left: Floats, right: Floats) -> float:
    return float(np.sum(left * right) / max(float(np.linalg.norm(left) * np.linalg.norm(right)), 1e-30))
