"""Unmasking: the rotation of the residual stream between two models, found from their neurons without a token.

1. Neurons of facing layers are matched by signature, once by what opens them, once by what they read, once by what
   they write. Those that two ways of looking agree on are anchors. Between strangers about one of a layer does.
2. The anchors of some layers give the rotation (orthogonal Procrustes), and the rotation gives better anchors.
3. It is judged on layers that had no part in it: how many neurons two (K2) or three (K3) ways of looking agree on.

Where the widths differ, the rotation is a rectangle with orthonormal rows or columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm, rankdata

from modelkin.alignment.folding import Neurons

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Matches = tuple[Indices, ...]  # for every way of looking, the neuron of a that each neuron of b chose
ROUNDS = 3
FEWEST_ANCHORS = 2


@dataclass(frozen=True, eq=False)
class Facing:
    """One layer of a beside one of b: their neurons, and the signatures of each way of looking."""

    names: tuple[str, str]
    a: Neurons
    b: Neurons
    signatures_a: tuple[Floats, ...]
    signatures_b: tuple[Floats, ...]


@dataclass(frozen=True)
class HeldOut:
    """A layer judged by a rotation that others gave: of `n` neurons two ways agreed on `two`, three on `three`."""

    names: tuple[str, str]
    n: int
    two: int
    three: int
    likeness: float  # median |cosine| of neurons with the ones they chose


@dataclass(frozen=True, eq=False)
class Unmasked:
    """`rotation` (d of a, d of b) takes rows of a to those of b; None where nothing was found to fit it on."""

    rotation: NDArray[np.float64] | None
    matches: tuple[Matches, ...]
    held_out: tuple[HeldOut, ...]


def unmask(layers: Sequence[Facing]) -> Unmasked:
    """Even layers give a rotation that odd ones judge, and the reverse; all together give the one that is kept."""
    first = [by_signature(layer) for layer in layers]
    held_out: dict[int, HeldOut] = {}
    for parity in (0, 1):
        taught = [i for i in range(len(layers)) if i % 2 == parity]
        rotation = fit([layers[i] for i in taught], [first[i] for i in taught])
        for i in range(1 - parity, len(layers), 2):
            held_out[i] = judged(layers[i], first[i], rotation)
    rotation = fit(layers, first)
    matches = first if rotation is None else [by_rotation(layer, rotation) for layer in layers]
    return Unmasked(rotation, tuple(matches), tuple(held_out[i] for i in range(len(layers))))


def by_signature(layer: Facing) -> Matches:
    """Signatures are compared by their places among the neurons of the layer, so that no operator outweighs another."""
    sides = zip(layer.signatures_a, layer.signatures_b, strict=True)
    return tuple(_assigned(_scores(b) @ _scores(a).T) for a, b in sides)


def by_rotation(layer: Facing, rotation: NDArray[np.float64]) -> Matches:
    """The sign of what a neuron reads and writes is free, so only the size of the cosine counts."""
    pairs = zip(layer.a.views, layer.b.views, strict=True)
    return tuple(_assigned(np.abs(_turned(b, rotation) @ _unit(a).T)) for a, b in pairs)


def fit(layers: Sequence[Facing], first: Sequence[Matches]) -> NDArray[np.float64] | None:
    """A rotation from the neurons that two ways of looking agree on, made better by what it shows."""
    matches, rotation = list(first), None
    for _ in range(1 + ROUNDS):
        anchors = [_anchored(layer, found, rotation) for layer, found in zip(layers, matches, strict=True)]
        if sum(count for count, _ in anchors) < FEWEST_ANCHORS:
            return rotation
        rotation = _orthogonal(np.sum([product for _, product in anchors], axis=0))
        matches = [by_rotation(layer, rotation) for layer in layers]
    return rotation


def judged(layer: Facing, first: Matches, rotation: NDArray[np.float64] | None) -> HeldOut:
    """Without a rotation, what signatures alone agree on."""
    matches = first if rotation is None else by_rotation(layer, rotation)
    two = matches[0] == matches[1]
    three = two & (matches[1] == matches[2]) if len(matches) > 2 else two & False
    likeness = 0.0
    if rotation is not None:
        rows = _turned(layer.b.views[0], rotation), _unit(layer.a.views[0])[matches[0]]
        likeness = float(np.median(np.abs(np.einsum("ij,ij->i", *rows))))
    return HeldOut(layer.names, len(two), int(two.sum()), int(three.sum()), likeness)


def _anchored(layer: Facing, found: Matches, rotation: NDArray[np.float64] | None) -> tuple[int, Floats]:
    """How many anchors, and the sum of their products aᵀb (d of a, d of b)."""
    agreed = np.flatnonzero(found[0] == found[1])
    total = np.zeros((layer.a.up.shape[1], layer.b.up.shape[1]))
    for view, (a, b) in enumerate(zip(layer.a.views, layer.b.views, strict=True)):
        chosen = found[0][agreed]
        left, right = _unit(a)[chosen], _unit(b)[agreed]
        if layer.a.gate is not None and view == 0:
            total += left.T @ right  # a gate has no free sign
        elif rotation is not None:
            signs = np.sign(np.einsum("ij,ij->i", left @ rotation, right))
            total += left.T @ (right * signs[:, None])
    if layer.a.gate is None and rotation is None:
        total = _signed(layer, found[0][agreed], agreed)
    return len(agreed), total


def _signed(layer: Facing, chosen: Indices, agreed: Indices) -> Floats:
    """Without a gate a neuron may be scaled by a positive number only if its activation allows; its sign is its own."""
    return np.asarray(_unit(layer.a.up)[chosen].T @ _unit(layer.b.up)[agreed])


def _orthogonal(product: Floats) -> NDArray[np.float64]:
    left, _, right = np.linalg.svd(product.astype(np.float64), full_matrices=False)
    return np.asarray(left @ right, dtype=np.float64)


def _assigned(likeness: NDArray[np.floating]) -> Indices:
    """One-to-one, the greatest sum: for every row the column it got, -1 where columns ran out."""
    rows, columns = linear_sum_assignment(likeness, maximize=True)
    chosen = np.full(len(likeness), -1, dtype=np.intp)
    chosen[rows] = columns
    return chosen


def _scores(values: Floats) -> Floats:
    ranks = (rankdata(values, axis=0) - 0.5) / len(values)
    return np.asarray(norm.ppf(ranks), dtype=np.float32)


def _unit(rows: Floats) -> Floats:
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(size > 0, size, 1), dtype=np.float32)


def _turned(rows: Floats, rotation: NDArray[np.float64]) -> Floats:
    """Rows of b in the coordinates of a, length one again."""
    return _unit(_unit(rows) @ rotation.T.astype(np.float32))
