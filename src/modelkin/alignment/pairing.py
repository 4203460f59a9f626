"""All neurons of a block beside those of another under a known rotation, for rewriting; and their free factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Neurons
from modelkin.alignment.matching import Rotation, assigned
from modelkin.alignment.sides import unit

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Views = Sequence[tuple[Floats, Floats]]  # unit rows of a, and of b in the coordinates of a
MOST_ASSIGNED = 4096  # neurons that one assignment takes in a few seconds
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class NeuronOrder:
    """`order[i]` is the neuron of b that stands at place i; what it reads is multiplied by `factors[i]`, and what it
    writes divided by it. Neurons with a counterpart stand in the order of a, the others after them."""

    order: Indices
    factors: Floats


def neuron_order(a: Neurons, b: Neurons, rotation: Rotation, rng: np.random.Generator) -> NeuronOrder:
    narrows = rotation.shape[1] < rotation.shape[0]  # what was cut of a neuron says nothing of its size
    a, b = (_turned(a, rotation), b) if narrows else (a, _turned(b, rotation.T))
    views = [(unit(x.copy()), unit(y.copy())) for x, y in ((a.gate, b.gate), (a.up, b.up), (a.down, b.down))
             if x is not None and y is not None]  # fmt: skip
    chosen = counterparts(views, rng)
    order = np.argsort(np.where(chosen >= 0, chosen, len(a.up)), kind="stable")
    gates = a.gate is not None and b.gate is not None
    factors = _factors(a, b, chosen, views[-2]) if gates else np.ones(len(chosen), dtype=np.float32)
    return NeuronOrder(order, factors[order])


def _turned(each: Neurons, rotation: Rotation) -> Neurons:
    gate = None if each.gate is None else each.gate @ rotation
    return Neurons(gate, each.up @ rotation, each.down @ rotation)


def counterparts(views: Views, rng: np.random.Generator) -> Indices:
    """For every neuron of b the one of a whose rows are most like its own, one-to-one; -1 where none is.

    By assignment. In blocks too large for that, first by mutual choice, which leaves few.
    """
    mine, theirs = len(views[0][0]), len(views[0][1])
    if max(mine, theirs) <= MOST_ASSIGNED:
        return assigned(_likeness(views, np.arange(theirs), np.arange(mine)), rng)
    chosen = _mutual(views)
    left, free = np.flatnonzero(chosen < 0), np.setdiff1d(np.arange(mine), chosen)
    if left.size and free.size and max(left.size, free.size) <= MOST_ASSIGNED:
        rest = assigned(_likeness(views, left, free), rng)
        chosen[left] = np.where(rest >= 0, free[rest], -1)
    return chosen


def _likeness(views: Views, theirs: Indices, mine: Indices) -> Floats:
    """Signs are free in up and down, and tell nothing in the gate of a counterpart."""
    return np.asarray(sum(np.abs(b[theirs] @ a[mine].T) for a, b in views))


def _mutual(views: Views) -> Indices:
    """Neurons that are each other's best."""
    mine, theirs = np.arange(len(views[0][0])), np.arange(len(views[0][1]))
    best_of_b, best_of_a, most = np.empty(len(theirs), np.intp), np.zeros(len(mine), np.intp), np.zeros(len(mine))
    for start in range(0, len(theirs), CHUNK):
        table = _likeness(views, theirs[start : start + CHUNK], mine)
        best_of_b[start : start + CHUNK] = table.argmax(axis=1)
        here, rows = table.max(axis=0), table.argmax(axis=0) + start
        best_of_a, most = np.where(here > most, rows, best_of_a), np.maximum(here, most)
    return np.where(best_of_a[best_of_b] == theirs, best_of_b, -1).astype(np.intp)


def _factors(a: Neurons, b: Neurons, chosen: Indices, up: tuple[Floats, Floats]) -> Floats:
    """What makes up and down of b as large, and as signed, as those of their counterparts, leaving their product."""
    found = np.flatnonzero(chosen >= 0)
    pairs = chosen[found]
    factors = np.ones(len(chosen), dtype=np.float32)
    size = [np.linalg.norm(rows, axis=1) for rows in (a.up[pairs], b.up[found], b.down[found], a.down[pairs])]
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sqrt(size[0] * size[2] / (size[1] * size[3]))
    signs = np.where(np.einsum("ij,ij->i", up[0][pairs], up[1][found]) < 0, -1.0, 1.0)
    factors[found] = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0) * signs
    return factors
