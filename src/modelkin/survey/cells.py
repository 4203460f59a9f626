"""Numbers become cells: what does not exist is None, and captions count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Value


def cell(value: float | np.floating | None) -> float | None:
    """A finite number, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


def cells(values: NDArray[np.float64]) -> list[float | None]:
    """A row of them."""
    found: list[float | None] = values.tolist()
    return found if np.isfinite(values).all() else [cell(value) for value in found]


def grid(values: NDArray[np.float64]) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(cells(row)) for row in values)


def mean_std(values: NDArray[np.float64]) -> tuple[int, float | None, float | None]:
    """How many exist, their mean, and the population's standard deviation."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0, None, None
    mean = float(np.add.reduce(known)) / known.size
    moved = known - mean
    return known.size, mean, math.sqrt(float(moved @ moved) / known.size)  # for the few values of a cell; std() is slow


def turned(columns: Iterable[Sequence[Value]]) -> list[tuple[Value, ...]]:
    """Columns of one length as rows."""
    return list(zip(*columns, strict=True))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str], most: int = 8) -> str:
    """`a, b and c`; of many the first few and how many more."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"
