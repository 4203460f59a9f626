"""Rows of a tensor seen as a matrix: which are meant, and which runs of them lie next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.errors import UsageError
from modelkin.formats.parts import shown
from modelkin.records import TensorRef

Rows = slice | Sequence[int] | NDArray[np.integer[Any]] | None
Run = tuple[int, int]
MAX_INDICES = 1 << 28  # only a tensor without columns can claim more rows than this


class Selection(msgspec.Struct, frozen=True):
    """Rows as ascending runs [start, stop); `order` puts them into the order asked for, None where it is that."""

    runs: tuple[Run, ...]
    order: NDArray[np.intp] | None = None

    @property
    def count(self) -> int:
        """Rows that are read; each once."""
        return sum(stop - start for start, stop in self.runs)

    def indices(self) -> NDArray[np.intp]:
        """The row numbers that are read, ascending."""
        return np.concatenate([np.arange(start, stop) for start, stop in self.runs] or [np.empty(0, np.intp)])


def matrix_shape(ref: TensorRef) -> tuple[int, int]:
    """(prod(shape[:-1]), shape[-1]); a vector is one row, a single number a matrix of one."""
    columns = ref.shape[-1] if ref.shape else 1
    rows = 1
    for axis in ref.shape[:-1]:
        rows *= axis
    return rows, columns


def select(rows: Rows, height: int, name: str) -> Selection:
    """The rows asked for, checked against the number of rows there are."""
    if rows is None:
        return _one_run(0, height)
    if isinstance(rows, slice):
        start, stop, step = _slice(rows, height, name)
        if step == 1:
            return _one_run(start, stop)
        if len(range(start, stop, step)) > MAX_INDICES:
            raise UsageError(f"rows of {shown(name)}: more than {MAX_INDICES} single rows; ask for a range")
        return _from_indices(np.arange(start, stop, step))
    return _from_indices(_checked_indices(rows, height, name))


def _one_run(start: int, stop: int) -> Selection:
    return Selection(((start, stop),) if stop > start else ())


def _slice(rows: slice, height: int, name: str) -> tuple[int, int, int]:
    try:
        return rows.indices(height)
    except (TypeError, ValueError) as error:
        raise UsageError(f"rows of {shown(name)}: {error}") from error


def _checked_indices(rows: Sequence[int] | NDArray[np.integer[Any]], height: int, name: str) -> NDArray[np.intp]:
    try:
        indices = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise UsageError(f"rows of {shown(name)}: expected row numbers, found {shown(rows)}") from error
    if indices.size == 0 and indices.ndim == 1:
        return np.empty(0, np.intp)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise UsageError(
            f"rows of {shown(name)}: expected a list of row numbers, found {indices.dtype} of shape {indices.shape}"
        )
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= height:
        raise UsageError(f"rows of {shown(name)}: expected 0 to {height - 1}, found {low if low < 0 else high}")
    return indices.astype(np.intp)


def _from_indices(indices: NDArray[np.intp]) -> Selection:
    steps = np.diff(indices)
    if indices.size and bool((steps == 1).all()):
        return _one_run(int(indices[0]), int(indices[-1]) + 1)
    order = None
    if not bool((steps > 0).all()):
        indices, order = np.unique(indices, return_inverse=True)
        steps = np.diff(indices)
    if not indices.size:
        return Selection(())
    breaks = np.flatnonzero(steps != 1)
    starts = indices[np.concatenate(([0], breaks + 1))]
    stops = indices[np.concatenate((breaks, [indices.size - 1]))] + 1
    return Selection(tuple(zip(starts.tolist(), stops.tolist(), strict=True)), order)
