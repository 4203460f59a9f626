"""What kind of rotation it is: none at all, other numbers for the axes, other signs, or a turn of the whole stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.judging import Cell
from modelkin.alignment.matching import Rotation, anchors, procrustes, turned
from modelkin.alignment.sides import Sides
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
    if square and _cosine(left[judged], right[judged]) >= AS_GOOD * shown:
        return Kind("identity", np.eye(left.shape[1], dtype=np.float32))
    axes = axes_of(left[half].T @ right[half], sides.rng)
    if _cosine(left[judged] @ axes, right[judged]) >= AS_GOOD * shown:
        return Kind(_named(axes, square), axes)
    return Kind("rotation" if square else "rectangular", procrustes(left, right))


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
        most = max(1, ENOUGH * a.shape[1] // len(inside))
        drawn = sides.rng.permutation(len(a))[:most]
        left.append(a[drawn])
        right.append(b[drawn])
        cosines.append(np.einsum("ij,ij->i", turned(right[-1], cell.rotation), left[-1]))
    return np.concatenate(left), np.concatenate(right), float(np.mean(np.concatenate(cosines)))


def _cosine(left: Floats, right: Floats) -> float:
    sizes = np.linalg.norm(left, axis=1)
    return float(np.mean(np.einsum("ij,ij->i", left, right) / np.where(sizes > 0, sizes, 1)))
