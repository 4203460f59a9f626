"""How much was inherited: rows that find their own counterpart, counted and turned into shares of parameters.

Every row of b chooses the row of a that is most like it. Between strangers one of s chooses its own, whatever they are,
so a share q of inherited rows shows as q + (1 - q)/s. Shares of tensors add up by their parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from modelkin.records import Role, Shared
from modelkin.records.relation import TensorFact
from modelkin.relation.elementwise import half_step
from modelkin.relation.reading import Floats, spread
from modelkin.stats import clopper_pearson

MOST_ROWS = 512
BY_COLUMN = frozenset({Role.O, Role.DOWN, Role.SHARED_DOWN, Role.CROSS_O})  # neurons and heads are their columns
SIGNED = frozenset({Role.UP, Role.DOWN, Role.SHARED_UP, Role.SHARED_DOWN})  # whose neurons may change their signs
MOST = 0.5  # of the rows
VECTOR_ALPHA = 1e-6
COMPUTED = 1e-5  # what turning back, or choosing free numbers, in single precision leaves at most
FREELY = 4  # half steps of the coarser format, left over once free numbers are chosen alike; strangers leave nearly all
Share = tuple[float, float, float]  # estimate, low, high


def rows_found(a: Floats, b: Floats, role: Role, rng: np.random.Generator) -> tuple[int, int]:
    """(rows asked, rows of b that chose their own of a). Rows without variance are not asked.

    Where that are most, the rows of a choose too, and the side counts that finds more: training can draw the rows of a
    table together, and then they are chosen well and choose badly, whichever of the two stands first. Below, one side
    alone keeps what strangers show at one row.
    """
    if role in BY_COLUMN:
        chosen = spread(a.shape[1], MOST_ROWS)
        a, b = a[:, chosen].T, b[:, chosen].T
    else:
        chosen = spread(len(a), MOST_ROWS)
        a, b = a[chosen], b[chosen]
    left, right = _unit(a), _unit(b)
    told = (np.linalg.norm(left, axis=1) > 0) & (np.linalg.norm(right, axis=1) > 0)
    left, right = left[told], right[told]
    if len(left) < 2:
        return 0, 0
    hidden = rng.permutation(len(left))  # among equals the first is chosen, and that must not be its own
    likeness = right @ left[hidden].T
    likeness = np.abs(likeness) if role in SIGNED else likeness
    chosen_by_b = int(np.sum(hidden[np.argmax(likeness, axis=1)] == np.arange(len(left))))
    chosen_by_a = int(np.sum(np.argmax(likeness, axis=0) == hidden))
    most = max(chosen_by_a, chosen_by_b)
    return len(left), most if most > MOST * len(left) else chosen_by_b


def _unit(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    small = size <= 1e-6 * np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.where(small, 0, centred / np.where(size > 0, size, 1)), dtype=np.float32)


@lru_cache(maxsize=4096)  # of thousands of experts most counts are the same
def share_of_rows(found: int, asked: int) -> Share:
    """The share behind a count, with its 95 % interval: (K/s - 1/s) / (1 - 1/s).

    Where fewer than one row was found it is below zero: cut off there, shares of many tensors would add up too high.
    """
    interval = clopper_pearson(found, asked)
    low, share, high = ((part - 1 / asked) / (1 - 1 / asked) for part in (interval.low, found / asked, interval.high))
    return share, low, high


def share_of_fact(fact: TensorFact) -> Share:
    """Of a tensor as it stands; one that is the other's but for numbers that are free, up to rounding, is inherited."""
    if fact.refitted is not None and fact.refitted <= FREELY * stored_step(fact):
        return 1.0, 1.0, 1.0
    return share_in_place(fact)


def stored_step(fact: TensorFact) -> float:
    """The most that storing in the coarser of the two formats moves a number, beside its size."""
    return max(COMPUTED, half_step(fact.dtype_a), half_step(fact.dtype_b))


def share_in_place(fact: TensorFact) -> Share:
    """Of a matrix by its rows; a vector is inherited or not, by its correlation alone."""
    if fact.same == 1 and fact.correlation is not None:
        return 1.0, 1.0, 1.0
    if fact.rows >= 2:
        return share_of_rows(fact.found, fact.rows)
    return (1.0, 0.0, 1.0) if correlated(fact.correlation, fact.values) else (0.0, 0.0, 1.0)


def correlated(r: float | None, n: int) -> bool:
    """Whether so high a correlation of n values would be seen once in a million times by chance. [Fisher 1915]"""
    if r is None or n < 8:
        return False
    return float(ndtr(-math.atanh(min(r, 1 - 1e-12)) * math.sqrt(n - 3))) < VECTOR_ALPHA


def total(parts: Iterable[tuple[int, Share]], whole: int, unseen: int = 0) -> Shared | None:
    """Shares by their parameters over all parameters. Intervals are added in squares. [Zou and Donner 2008]

    But not where all beside what was counted may be inherited too, as gains are that were moved together.
    `unseen` of the whole could not be compared: the share is of the rest, and the interval reaches from none of it
    inherited to all of it. None where nothing is left.
    """
    mass = below = above = free = 0.0
    for count, (share, low, high) in parts:
        mass += count * share
        below += (count * (share - low)) ** 2
        if (low, high) == (share, 1.0):  # counted, and the rest hidden, if it is, for one reason: nothing averages out
            free += count * (high - share)
        else:
            above += (count * (high - share)) ** 2
    if whole <= unseen:
        return None
    high_end = (mass + math.sqrt(above) + free + unseen) / whole
    ends = mass / (whole - unseen), (mass - math.sqrt(below)) / whole, high_end
    fraction, low, high = (min(1.0, max(0.0, end)) for end in ends)
    return Shared(fraction, low, high)
