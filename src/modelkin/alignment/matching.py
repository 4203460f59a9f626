"""Who is whose counterpart, by signature or under a rotation; and the rotation that counterparts show.

Signs of what a gated neuron reads and writes are free (both may be flipped), so only the size of their cosine counts.
Before every assignment the neurons of one side are renumbered at random: where nothing can be told apart, chance
decides, and for every way of looking anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.alignment.sides import BlockPair, Sides, unit
from modelkin.stats.arrays import rank_scores
from modelkin.stats.rencontres import log_rencontres_tail

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Rotation = NDArray[np.float32]  # (d of a, d of b): a row of a times it is a row of b
NEGLIGIBLE = 1e-5  # of the largest singular value: a direction that no counterpart showed
FEWEST_ROWS = 2  # for every axis of the wider, to say which it kept
ROUNDS = 8
LN10 = math.log(10)


@dataclass(frozen=True, eq=False)
class Choice:
    """For every neuron of b that was asked, the neuron of a that each way of looking chose; -1 where none was left."""

    views: tuple[Indices, ...]

    @property
    def two(self) -> NDArray[np.bool_]:
        """Neurons on which the first two ways of looking agree."""
        first, second = self.views[:2]
        return np.asarray((first == second) & (first >= 0))

    @property
    def three(self) -> NDArray[np.bool_]:
        """… and the third as well; nobody where there are but two."""
        return self.two & (self.views[2] == self.views[0]) if len(self.views) > 2 else np.zeros_like(self.two)

    @property
    def asked(self) -> int:
        return int((self.views[0] >= 0).sum())

    @property
    def log10_pvalue(self) -> float:
        """Of the agreement, if two ways of looking at strangers chose apart from each other: then one agrees."""
        return log_rencontres_tail(self.asked, int(self.two.sum())) / LN10


def assigned(likeness: NDArray[np.floating], rng: np.random.Generator) -> Indices:
    """One-to-one, the greatest sum: for every row the column it got, -1 where columns ran out."""
    hidden = rng.permutation(likeness.shape[1])
    rows, columns = linear_sum_assignment(likeness[:, hidden], maximize=True)
    chosen = np.full(len(likeness), -1, dtype=np.intp)
    chosen[rows] = hidden[columns]
    return chosen


def by_signature(
    left: Sequence[Floats], right: Sequence[Floats], rng: np.random.Generator, together: bool = False
) -> Choice:
    """The nearest, by scored signatures of a and of b, one array a way of looking."""
    sides = zip(left, right, strict=True)
    return choice_of((2 * b @ a.T - np.sum(a**2, axis=1) for a, b in sides), rng, together)


def choice_of(likenesses: Iterable[Floats], rng: np.random.Generator, together: bool) -> Choice:
    """Every way of looking by itself; or all together, by the sum of what they see, and then none can disagree."""
    if not together:
        return Choice(tuple(assigned(each, rng) for each in likenesses))
    one = assigned(reduce(np.add, likenesses), rng)
    return Choice((one, one))


def scored(signatures: Floats) -> Floats:
    """Every number by its place among those of its layer, so that no operator outweighs another.  (n, p) -> (n, p)"""
    return rank_scores(signatures.T).T.astype(np.float32)


def by_rotation(sides: Sides, pair: BlockPair, rotation: Rotation, ways: int = 3, together: bool = False) -> Choice:
    views = sides.views(pair)[:ways]
    return choice_of((np.abs(turned(b, rotation) @ a.T) for a, b in views), sides.rng, together)


def turned(rows: Floats, rotation: Rotation) -> Floats:
    """Unit rows of b in the coordinates of a, length one again."""
    return unit(rows @ rotation.T)


def likeness(sides: Sides, pair: BlockPair, rotation: Rotation, choice: Choice) -> NDArray[np.float64]:
    """|cosine| of every neuron of b, by the first way of looking, with the one that it chose."""
    a, b = sides.views(pair)[0]
    asked = np.flatnonzero(choice.views[0] >= 0)
    cosines = np.einsum("ij,ij->i", turned(b[asked], rotation), a[choice.views[0][asked]], dtype=np.float64)
    return np.asarray(np.abs(cosines))


def anchors(sides: Sides, pair: BlockPair, choice: Choice, rotation: Rotation | None) -> tuple[Floats, Floats]:
    """Rows of a and of b that belong together, (m, d of a) and (m, d of b), signs settled.

    Gates have no free sign, nor has anything where there is no gate. Without a rotation yet, nothing else can be told.
    """
    agreed = np.flatnonzero(choice.two)
    chosen = choice.views[0][agreed]
    gates = sides.has_gates(pair)
    left, right = [], []
    for view, (a, b) in enumerate(sides.views(pair)):
        mine, theirs = a[chosen], b[agreed]
        if gates and view > 0:
            if rotation is None:
                continue
            signs = np.sign(np.einsum("ij,ij->i", turned(theirs, rotation), mine))
            theirs = theirs * signs[:, None]
        left.append(mine)
        right.append(theirs)
    return np.concatenate(left), np.concatenate(right)


def procrustes(left: Floats, right: Floats) -> Rotation:
    """The rotation that takes rows of `left` nearest to those of `right`; nothing is said of directions not shown.

    With few rows, from their spans, without forming the product of the widths. [Schönemann 1966]
    """
    narrow = min(left.shape[1], right.shape[1])
    if 2 * len(left) <= narrow:
        (ql, rl), (qr, rr) = np.linalg.qr(left.T), np.linalg.qr(right.T)
        return np.asarray(ql @ isometry(rl @ rr.T) @ qr.T, dtype=np.float32)
    return isometry(left.T @ right)


def part_turned(left: Floats, right: Floats) -> Rotation:
    """The same between unit rows of two widths, where the narrower has a part of what the wider has.

    The nearest rotation leans towards what was cut, as far as that goes along with what was kept. So rows of the wider
    explain those of the narrower, by least squares: what was cut has no say. A row is as long as the part of its
    counterpart that was kept, which is known once the part is: both are found in turns.
    """
    if left.shape[1] < right.shape[1]:
        return np.ascontiguousarray(part_turned(right, left).T)
    if len(left) < FEWEST_ROWS * left.shape[1]:
        return procrustes(left, right)
    wide = left.astype(np.float64)
    explain = np.linalg.pinv(wide.T @ wide, rcond=NEGLIGIBLE**2, hermitian=True) @ wide.T
    found = procrustes(left, right).astype(np.float64)
    for _ in range(ROUNDS):
        kept = wide @ found
        found = explain @ (right * np.linalg.norm(kept, axis=1, keepdims=True))
        found *= np.sqrt(right.shape[1]) / max(float(np.linalg.norm(found)), 1e-30)  # as large as a rotation
    return isometry(found)


def isometry(product: NDArray[np.floating]) -> Rotation:
    """The nearest matrix whose singular values are one, or zero where those of the product are."""
    u, s, vt = np.linalg.svd(product, full_matrices=False)
    rank = int(np.count_nonzero(s > NEGLIGIBLE * s[:1]))
    return np.asarray(u[:, :rank] @ vt[:rank], dtype=np.float32)
