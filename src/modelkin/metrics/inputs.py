"""What every metric does at its door: refuse what cannot be measured, and hand out float64.

A metric returns a finite number or raises `Unmeasurable`, whose text is the reason that a caller records. There is no
NaN, no None and no zero that stands for "no answer".

Unmeasurable (a ValueError)
├── Undefined         the numbers are fine, but the metric has no value for them: none at all, constant, all zero
├── NotFinite         NaN, infinite, or beyond 2**240, where products of squared norms leave float64
└── ShapeMismatch     shapes that do not go together, or not the number of axes that the metric needs
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # any real dtype, also those of ml_dtypes
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LARGEST = 2.0**240  # the largest float32 is below 2**128
_BLOCK = 1 << 16  # half a megabyte of float64: stays in the cache


class Unmeasurable(ValueError):
    """The text is the reason, written for whoever reads the report."""


class Undefined(Unmeasurable):
    pass


class NotFinite(Unmeasurable):
    pass


class ShapeMismatch(Unmeasurable):
    pass


def paired_blocks(a: Array, b: Array) -> Iterator[tuple[Vector, Vector]]:
    """The values of two arrays of one shape side by side, in row order, as read-only float64 pieces.

    A piece is good until the next one is asked for; neither array is ever held in float64 as a whole.
    """
    left, right = _of_one_shape(a, b)
    for x, y in _walk(left, right):
        _refuse_wild(x, "a")
        _refuse_wild(y, "b")
        yield x, y


def paired_copies(a: Array, b: Array) -> tuple[Vector, Vector]:
    """Both as a whole, for what cannot be done in pieces."""
    left, right = _of_one_shape(a, b)
    return flattened(left, "a"), flattened(right, "b")


def flattened(a: Array, name: str) -> Vector:
    """A fresh float64 copy with one axis."""
    vector = np.array(_checked(a, name), dtype=np.float64).reshape(-1)
    _refuse_wild(vector, name)
    return vector


def matrix(a: Array, name: str) -> Matrix:
    """A fresh float64 copy with two axes."""
    array = _checked(a, name)
    if array.ndim != 2:
        raise ShapeMismatch(f"{name} needs two axes, found shape {array.shape}")
    copy = np.array(array, dtype=np.float64)
    _refuse_wild(copy, name)
    return copy


def ratio(above: float, below: float, reason: str) -> float:
    """above / below; where the denominator is zero, or too small to hold its digits, `Undefined(reason)`."""
    if below < np.finfo(np.float64).tiny:
        raise Undefined(reason)
    return above / below


def clipped(value: float, low: float, high: float) -> float:
    """Takes away what rounding alone put beyond the range."""
    return min(max(float(value), low), high)


def _checked(a: Array, name: str) -> Array:
    array = np.asarray(a)
    if not np.can_cast(array.dtype, np.float64):
        raise Unmeasurable(f"{name} needs real numbers that float64 can hold, found dtype {array.dtype}")
    if array.size == 0:
        raise Undefined(f"{name} is empty (shape {array.shape})")
    return array


def _of_one_shape(a: Array, b: Array) -> tuple[Array, Array]:
    left, right = _checked(a, "a"), _checked(b, "b")
    if left.shape != right.shape:
        raise ShapeMismatch(f"both arrays need one shape, found {left.shape} and {right.shape}")
    return left, right


def _walk(*arrays: Array) -> Any:
    return np.nditer(
        arrays,
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"]] * len(arrays),
        op_dtypes=[np.float64] * len(arrays),
        order="C",
        buffersize=_BLOCK,
    )


def _refuse_wild(values: Vector, name: str) -> None:
    low, high = values.min(), values.max()
    if low >= -LARGEST and high <= LARGEST:
        return
    if np.isnan(low):
        raise NotFinite(f"{name} holds NaN")
    raise NotFinite(f"{name} holds values from {low:g} to {high:g}; those beyond 2**240 are not measured")
