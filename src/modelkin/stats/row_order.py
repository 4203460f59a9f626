"""Does what a row holds follow from where it stands? Inside one set, where no second layer is needed to tell.

A matrix that was filled by a formula (an identity, shifted or in strides; cosines, waves, Walsh functions; bands and
blocks) shows its index: from row to row the place of the largest coefficient moves by the same step, or steadily on, or
neighbours read alike. Rows that training made of noise show nothing of the kind. What cannot be seen is a table of
numbers that look like noise, the same for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, rfft

from modelkin.records import Null, Significance
from modelkin.stats.arrays import Floats, Indices, average_ranks, finite, unit_rows
from modelkin.stats.assignment import answerable
from modelkin.stats.montecarlo import kept, stopped_pvalue

DRAWS, TRIALS = 1000, 60  # p < 1e-3 just within reach; orders drawn beforehand for the scale of each look
ROWS = 64  # of a set that are looked at
FEWEST = 4
COPIED = 0.5  # share of places that two sets have in common, from which on they are copies
LAGS = (1, 2, 3, 4, 8, 16, 32)

Single = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Traits:
    """What n rows show of their order.

    `places` (bases, parts, n): where each row is largest, as it is and in three bases. `likeness` (2, n, n): of every
    two rows, as they are and squared, such that the sum over n pairs has variance n between rows in any order.
    """

    places: Indices
    likeness: Floats

    @property
    def n(self) -> int:
        return int(self.places.shape[2])


def traits(parts: Sequence[ArrayLike]) -> Traits:
    """Of the first rows of a set, each described by one or several parts: [(n, p), …].

    Rows without variance and those that another one equals are left out, as they are when the roll is called.
    """
    rows = [finite(np.asarray(part)[:ROWS], 2, "rows") for part in parts]
    units = np.concatenate([unit_rows(part) for part in rows], axis=1)
    clear = answerable(units, units, "inner")
    return Traits(places_of([part[clear] for part in rows]), likeness_of(units[clear]))


def places_of(parts: Sequence[Floats]) -> Indices:
    """Where the rows of every part are largest: as they are, by cosines, by waves of any phase, by Walsh functions."""
    scaled = [part / max(float(np.max(np.abs(part), initial=0.0)), np.finfo(np.float64).tiny) for part in parts]
    found = [[_largest(seen) for seen in _bases(part.astype(np.float32))] for part in scaled]
    return np.array(found, dtype=np.intp).swapaxes(0, 1)


def likeness_of(units: Floats) -> Floats:
    """Correlations of unit rows and their squares, less what a row has with all others, off the diagonal.  (n, n)."""
    table = units @ units.T
    return np.array([_off_diagonal(table), _off_diagonal(table**2)])


def row_order(sets: Sequence[Traits], rng: np.random.Generator, most: int = DRAWS) -> Significance:
    """Do the rows of some set stand in an order that a formula could have given them?

    Looked at are, in every basis, how often the place of the largest coefficient moves by the commonest step from row
    to row (0 left out: a column that is large in all rows gives that), how steadily it moves on, and how alike rows are
    that stand LAGS apart. Squares add up over sets, so that one set in many is noticed as well as a little in each. The
    statistic is the largest look, in standard deviations of the same rows in any order; its null permutes the rows of
    every set. Of sets that are copies of each other, as in a model with repeated layers, one counts: their orders are
    one.
    """
    asked = _apart([it for it in sets if it.n >= FEWEST])
    if not asked:
        return Significance(statistic=0.0, log10_pvalue=0.0, null=Null("too few rows"), n=0, exact=False)
    stack = _Stack(asked)
    # What is drawn here depends on the rows and not on their order, and so does the scale of every look.
    trials = np.array([stack.looks(stack.drawn(rng)) for _ in range(TRIALS)])
    centre, spread = trials.mean(axis=0), np.maximum(trials.std(axis=0), 1.0)

    def statistic(orders: Indices) -> float:
        return float(np.max((stack.looks(orders) - centre) / spread))

    observed = statistic(stack.plain)
    p, draws = stopped_pvalue(observed, lambda: statistic(stack.drawn(rng)), most)
    count = sum(it.n for it in asked)
    text = f"how what rows hold follows their index, {count} rows in {len(asked)} sets, permuted: {len(draws)} draws"
    return Significance(
        statistic=observed, log10_pvalue=math.log10(p), null=Null(text, kept(draws)), n=count, exact=False
    )


def _apart(sets: Sequence[Traits]) -> list[Traits]:
    """Without those that have most places in common with an earlier one."""
    kept: list[Traits] = []
    for it in sets:
        alike = (other for other in kept if other.places.shape == it.places.shape)
        if not any(np.mean(it.places[0] == other.places[0]) > COPIED for other in alike):
            kept.append(it)
    return kept


class _Stack:
    """Sets side by side, the shorter ones filled up with rows that count for nothing and stay at the end."""

    def __init__(self, sets: Sequence[Traits]) -> None:
        self.sizes = np.array([it.n for it in sets])
        count, parts = int(self.sizes.max()), min(it.places.shape[1] for it in sets)
        self.plain: Indices = np.tile(np.arange(count), (len(sets), 1))
        self._filled = self.plain >= self.sizes[:, None]
        self._places = np.zeros((len(sets), sets[0].places.shape[0], parts, count), dtype=np.int32)  # sorts faster
        self._likeness = np.zeros((2, len(sets), count, count))
        self._ranks = np.zeros(self._places.shape)
        for i, it in enumerate(sets):
            self._places[i, ..., : it.n] = it.places[:, :parts]
            self._ranks[i, ..., : it.n] = _ranked(it.places[:, :parts])
            self._likeness[:, i, : it.n, : it.n] = it.likeness
        self._rising = np.zeros(self.plain.shape)
        for row, size in zip(self._rising, self.sizes, strict=True):
            row[:size] = unit_rows(np.arange(size, dtype=np.float64)[None, :])[0]
        lags = [lag for lag in LAGS if lag < count]
        before = [np.arange(count - lag) for lag in lags]
        after = [rows + lag for rows, lag in zip(before, lags, strict=True)]
        starts = np.cumsum([0, *(len(rows) for rows in before[:-1])])
        self._pairs = np.concatenate(before), np.concatenate(after), starts
        self._lengths = np.sqrt(np.maximum(self.sizes[:, None] - np.array(lags), 1))

    def drawn(self, rng: np.random.Generator) -> Indices:
        return np.asarray(np.argsort(rng.random(self.plain.shape) + self._filled, axis=1), dtype=np.intp)

    def looks(self, orders: Indices) -> Floats:
        return np.concatenate([self._steps(orders), self._rise(orders), self._neighbours(orders)])

    def _steps(self, orders: Indices) -> Floats:
        """For every basis the sum over sets of the squared count of the commonest step."""
        places = np.take_along_axis(self._places, orders[:, None, None, :], axis=3)
        steps = np.diff(places, axis=3)
        steps = np.where(self._filled[:, None, None, 1:], 0, steps).reshape(*steps.shape[:2], -1)
        steps.sort(axis=2)
        total = np.zeros(steps.shape[1])
        for run in range(1, steps.shape[2] + 1):
            first = steps[:, :, : steps.shape[2] - run + 1]
            reached = np.any((first == steps[:, :, run - 1 :]) & (first != 0), axis=2)
            if not reached.any():
                break
            total += (2 * run - 1) * reached.sum(axis=0)
        return total

    def _rise(self, orders: Indices) -> Floats:
        """For every basis the squared rank correlation of place and index, times what its variance is."""
        ranks = np.take_along_axis(self._ranks, orders[:, None, None, :], axis=3)
        slopes = np.einsum("sbpn,sn->sbp", ranks, self._rising)
        return np.asarray(np.sum(slopes**2 * (self.sizes - 1)[:, None, None], axis=(0, 2)), dtype=np.float64)

    def _neighbours(self, orders: Indices) -> Floats:
        """For rows as they are, for squares, and every lag: the sum over sets of squared likeness, where positive."""
        before, after, starts = self._pairs
        count = orders.shape[1]
        flat = orders[:, before] * count + orders[:, after] + np.arange(len(orders))[:, None] * count**2
        pairs = np.array([np.add.reduceat(np.take(table, flat), starts, axis=1) for table in self._likeness])
        return np.asarray(np.sum(np.maximum(pairs / self._lengths, 0) ** 2, axis=1).ravel(), dtype=np.float64)


def _bases(rows: Single) -> tuple[Single, ...]:
    return rows, dct(rows, axis=1, norm="ortho"), np.abs(rfft(rows, axis=1)), _walsh(rows)


def _walsh(rows: Single) -> Single:
    """The fast Walsh–Hadamard transform, in the order of Sylvester's matrix; widths are filled up with zeros."""
    count, width = rows.shape
    found = np.zeros((count, 1 << max(0, width - 1).bit_length()), dtype=np.float32)
    found[:, :width] = rows
    if not count:
        return found
    half = 1
    while half < found.shape[1]:
        pairs = found.reshape(count, -1, 2, half)
        found = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        found = found.reshape(count, -1)
        half *= 2
    return found


def _largest(rows: Single) -> Indices:
    """Where every row is farthest from the mean of all; columns that are large in most rows are made like others.

    The largest number of a column does not count for its size, or a formula with one number a column would hide in it.
    """
    if not rows.size:
        return np.zeros(len(rows), dtype=np.intp)
    sizes = np.abs(rows - rows.mean(axis=0))
    usual = (sizes.sum(axis=0) - sizes.max(axis=0)) / max(1, len(rows) - 1)
    scale: Single = np.maximum(usual, max(float(np.median(usual)), float(np.finfo(np.float32).tiny)))
    return np.asarray(np.argmax(sizes / scale, axis=1), dtype=np.intp)


def _ranked(places: Indices) -> Floats:
    flat = places.reshape(-1, places.shape[2]).astype(np.float64)
    return unit_rows(average_ranks(flat)).reshape(places.shape)


def _off_diagonal(table: Floats) -> Floats:
    count = len(table)
    if count < FEWEST:
        return np.zeros_like(table)
    apart = ~np.eye(count, dtype=np.bool_)
    own = np.where(apart, table, 0).sum(axis=1) / (count - 1)
    centred = np.where(apart, table - own[:, None] - own + own.mean(), 0)
    spread = math.sqrt(float(np.sum(centred**2)) / (count * (count - 1)))
    return np.asarray(centred / spread if spread > 0 else np.zeros_like(centred), dtype=np.float64)
