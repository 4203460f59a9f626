"""What a method of merging leaves behind in single entries.

TIES drops the smallest changes of every parent, DARE drops changes by lot and enlarges the rest: both leave entries of
the base untouched, to the bit. A mean or a great circle leaves none, but for coincidences of rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as every

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Slot
from modelkin.records.relation import MergeMethod
from modelkin.relation.reading import LINEAR, Floats, Weights, spread

UNTOUCHED = 0.1  # share of entries that are the base's, where the parents have other values
TRIMMED = 0.6  # untouched entries by size of change over others: small ones were dropped, not just any
MOST_TENSORS, MOST_ROWS = 24, 512
MOST_PARENTS = 4
EXPLAINED = 0.9

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Marks:
    """A method that drops changes, which source is the base, and what the others weigh."""

    method: MergeMethod
    base: int
    weights: tuple[float, ...]  # of the other sources
    density: float | None
    explained: float
    told: tuple[str, ...]


def marks_of(product: Weights, sources: Sequence[Weights], slots: Sequence[Slot]) -> Marks | None:
    some = [slot for slot in slots if slot.role in LINEAR]
    parts = [_entries(product, sources, some[i]) for i in spread(len(some), MOST_TENSORS)]
    if not parts:
        return None
    return marked(np.concatenate([y for y, _ in parts]), np.concatenate([xs for _, xs in parts], axis=1))


def _entries(product: Weights, sources: Sequence[Weights], slot: Slot) -> tuple[Floats, Floats]:
    rows = slice(0, min(product.shape(slot)[0], MOST_ROWS))
    return product.read(slot, rows).ravel(), np.array([w.read(slot, rows).ravel() for w in sources])


def marked(y: Floats, xs: Floats) -> Marks | None:
    """y: (n,) entries of the merge, xs: (sources, n) of its sources. None: nothing was dropped, entry by entry."""
    differ = np.any(xs != xs[:1], axis=0)
    y, xs = y[differ], xs[:, differ]
    if not y.size or len(xs) > MOST_PARENTS + 1:
        return None
    untouched = np.mean(xs == y, axis=1)
    base = int(np.argmax(untouched))
    if untouched[base] < UNTOUCHED or untouched[base] == 1:
        return None
    changes = (np.delete(xs, base, axis=0) - xs[base]).astype(np.float64)
    step = (y - xs[base]).astype(np.float64)
    size, stayed = np.abs(changes).max(axis=0), step == 0
    ratio = float(size[stayed].mean() / size[~stayed].mean())
    share = f"{untouched[base]:.0%} of the entries are those of one source, to the bit"
    return (
        _trimmed(base, changes, step, ratio, share) if ratio < TRIMMED else _by_lot(base, changes, step, ratio, share)
    )


def _trimmed(base: int, changes: Doubles, step: Doubles, ratio: float, share: str) -> Marks | None:
    """TIES: what changed is the mean of those parents whose change was large enough and of the elected sign."""
    weights = np.maximum(_weights(changes, step), 1e-6)
    choices = [np.array(on) * weights for on in every((0.0, 1.0), repeat=len(weights))]
    explained = atoms(step, changes, [on / on.sum() if on.sum() else on for on in choices])
    if explained < EXPLAINED:
        return None
    told = f"where an entry stayed, the parents' changes are {ratio:.2f} times those elsewhere: small ones were trimmed"
    return Marks("ties", base, tuple(map(float, weights / weights.sum())), None, explained, (share, told))


def _by_lot(base: int, changes: Doubles, step: Doubles, ratio: float, share: str) -> Marks | None:
    """DARE: every change was kept by lot and divided by the density, so least squares finds its weight on average."""
    weights = _weights(changes, step)
    density = 1 - float(np.mean(step == 0)) ** (1 / len(weights))
    choices = [np.array(on) * weights / density for on in every((0.0, 1.0), repeat=len(weights))]
    explained = atoms(step, changes, choices)
    if explained < EXPLAINED:
        return None
    told = f"where an entry stayed, changes of the parents are {ratio:.2f} times as large as elsewhere: dropped by lot"
    atom = f"{explained:.0%} of the change lies on the atoms of density {density:.2f}"
    return Marks("dare", base, tuple(map(float, weights)), density, explained, (share, told, atom))


def _weights(changes: Doubles, step: Doubles) -> Doubles:
    return np.asarray(np.linalg.lstsq(changes @ changes.T, changes @ step, rcond=None)[0])


def atoms(step: Doubles, changes: Doubles, choices: Sequence[Doubles]) -> float:
    """Share of the squares of `step` that the best of some mixtures of the changes explains, chosen entry by entry.

    Mixtures of unrelated changes explain some of it too, a quarter or so, and never nearly all.
    """
    left = step**2
    for choice in choices:
        left = np.minimum(left, (step - choice @ changes) ** 2)
    total = float(np.sum(step**2))
    return 1 - float(left.sum()) / total if total else 0.0
