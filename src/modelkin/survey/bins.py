"""Histograms of stored numbers: bins of whole steps of their format, or a comb would be drawn that is not there.

A format of few digits knows few numbers. Bins narrower than their distance stay empty here and there, and bins of one
and a half steps hold one number and two in turn; both look like structure. Bins are therefore equal and a whole number
of steps wide, steps of the largest value, which are the longest. Edges lie half-way between these; smaller values have
numbers there too, and one that lies on an edge stands for what was rounded to it from both sides: half goes to each.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from modelkin.survey.vectors import Doubles

BINS = 60  # at most
EIGHT_BITS: tuple[Any, ...] = (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)
NARROW: tuple[Any, ...] = (ml_dtypes.bfloat16, np.float16)
FIRST_LOOK = 64  # values that settle most questions of a format


def histogram(row: Doubles, dtype: str, offset: float = 0.0) -> tuple[Doubles, Doubles]:
    """Density and edges over all of `row` (n,), finite, each value `offset` more than the number stored as `dtype`."""
    stored = row - offset
    step = max(_step(stored, _format(stored, dtype)), _step(row, np.float32))  # as float32 they were read
    low, high = float(stored.min()), float(stored.max())
    width = step * (np.floor((high - low + step) / (BINS * step)) + 1)
    start = step * (np.ceil(low / step + 0.5) - 1.5)
    at = (stored - start) / width
    count = int(at.max()) + 1
    lower, upper = np.ceil(at).astype(np.intp) - 1, np.floor(at).astype(np.intp)  # differ on an edge alone
    inside = np.bincount(lower, minlength=count) + np.bincount(upper, minlength=count)
    return inside / (2 * row.size * width), np.asarray(start + width * np.arange(count + 1) + offset)


def _format(stored: Doubles, dtype: str) -> Any:
    """The narrowest format that holds all: bfloat16 numbers are often kept in a file of float32."""
    candidates = (*EIGHT_BITS, *NARROW) if dtype.startswith("F8") else NARROW
    with np.errstate(over="ignore", invalid="ignore"):
        return next(
            (it for it in candidates if _holds(it, stored[:FIRST_LOOK]) and _holds(it, stored)), np.dtype(np.float32)
        )


def _holds(narrow: Any, stored: Doubles) -> bool:
    return np.array_equal(stored.astype(narrow).astype(np.float64), stored)


def _step(stored: Doubles, kind: Any) -> float:
    """From the largest number to its neighbour."""
    limits: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    size = float(np.abs(stored).max())
    smallest = float(limits.smallest_subnormal)
    return max(smallest, 2.0 ** (np.frexp(size)[1] - 1 - limits.nmant)) if size else smallest
