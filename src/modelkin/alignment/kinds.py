"""What kind of rotation it is: none at all, other numbers for the axes, other signs, or a turn of the whole stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.judging import Cell
from modelkin.alignment.matching import Rotation, anchors, part_turned, procrustes, turned
from modelkin.alignment.sides import Sides, unit
from modelkin.alignment.tokens import axes_of

Floats = NDArray[np.float32]
Hidden = Literal["identity", "permutation", "signed permutation", "rotation", "subset", "rectangular", "none"]
ENOUGH = 4  # rows an axis
AS_GOOD = 0.99  # of the mean cosine under the rotation: what a simpler kind must keep to explain it


@dataclass(frozen=True, eq=False)
class Kind:
    hidden: Hidden
    rotation: Rotation | None


def hidden_kind(sides: Sides, cells: Sequence[Cell]) -> Kind:
    """The simplest kind that sets neurons beside each other as well as the rotation that other layers taught.

    Axes are matched by one half of the recognised neurons, and tried on the other.
    """
    if not cells:
        return Kind("none", None)
    left, right, shown = _recognised(sides, cells)
    half, judged = np.array_split(sides.rng.permutation(len(left)), 2)
    square = left.shape[1] == right.shape[1]
    plain = np.eye(left.shape[1], dtype=np.float32)
    if square and _cosine(left[judged], right[judged], plain) >= AS_GOOD * shown:
        return Kind("identity", plain)
    axes = axes_of(left[half].T @ right[half], sides.rng)
    if _cosine(left[judged], right[judged], axes) >= AS_GOOD * shown:
        return Kind(_named(axes, square), axes)
    if not square:
        return Kind("rectangular", part_turned(left, right))
    rotation = procrustes(left, right)
    centred = all(side.anatomy.facts.norm == "layer" for side in (sides.a, sides.b))
    return Kind("rotation", keeping_the_mean(rotation) if centred else rotation)


def keeping_the_mean(rotation: Rotation) -> Rotation:
    """The nearest rotation that leaves the mean of the axes where it is, as LayerNorms demand.

    They take the mean out of the stream, so no reader shows what a rotation does to it.
    """
    width = len(rotation)
    mean = np.full((width, width), 1 / width)
    rest = np.eye(width) - mean
    u, _, vt = np.linalg.svd(rest @ rotation @ rest)
    return np.asarray(u[:, :-1] @ vt[:-1] + mean, dtype=np.float32)


def _named(axes: Rotation, square: bool) -> Hidden:
    if not square:
        return "subset"
    return "signed permutation" if (axes < 0).any() else "permutation"


def _recognised(sides: Sides, cells: Sequence[Cell]) -> tuple[Floats, Floats, float]:
    """Rows of neurons that belong together, at most ENOUGH for every axis, and their mean cosine.

    The cosine is that under the rotation which judged each layer, and which the layer had no part in.
    """
    inside = [(cell, pair, choice) for cell in cells for pair, choice in cell.blocks]
    left, right, cosines = [], [], []
    for cell, pair, choice in inside:
        a, b = anchors(sides, pair, choice, cell.rotation)
        most = max(1, ENOUGH * max(a.shape[1], b.shape[1]) // len(inside))
        drawn = sides.rng.permutation(len(a))[:most]
        left.append(a[drawn])
        right.append(b[drawn])
        cosines.append(_cosines(left[-1], right[-1], cell.rotation))
    return np.concatenate(left), np.concatenate(right), float(np.mean(np.concatenate(cosines)))


def _cosine(left: Floats, right: Floats, rotation: Rotation) -> float:
    return float(np.mean(_cosines(left, right, rotation)))


def _cosines(left: Floats, right: Floats, rotation: Rotation) -> Floats:
    """In the coordinates of the narrower model: what the other has beside them counts under no rotation."""
    if rotation.shape[0] > rotation.shape[1]:
        return np.asarray(np.einsum("ij,ij->i", unit(left @ rotation), right), dtype=np.float32)
    return np.asarray(np.einsum("ij,ij->i", turned(right, rotation), left), dtype=np.float32)
