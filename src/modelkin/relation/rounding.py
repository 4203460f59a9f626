"""Which of two came first where one holds the other's values rounded: a step is filled only by what was there before.

Numbers that are rounded lie anywhere between two steps, half a half-step away on the average, and on which side has
nothing to do with anything. Numbers that were made from rounded ones lie near to these, as by writing them down in a
finer format, by moving gains to and fro or by a little training; or all of them off in one way, as by weight decay, by
a factor a row or a column, or by an adapter. Rounding them again gives the coarser model all the same, and no order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.records.relation import TensorFact

Floats = NDArray[np.float32]
# Mean distance in half steps: 0.5 of what was rounded; 0.47 to 0.52 on the six bases of the zoo that were rounded to
# grids, where storing blurs them. Normal changes so small that 0.992 of the values round back, as is asked for on
# coarse grids, reach 0.30; with 0.95, as on finer ones, 0.41.
FILLED, OVERFULL = 0.45, 0.6
# The largest singular value of these distances over that of noise as large: 1.05 at most in 1,008 matrices of the zoo
# that were rounded to grids, 1.33 where heavy tails are drawn and rounded to four bits, for more of them lie towards
# zero in every cell. A common factor, or one a row or a column, reaches 1.9 in a matrix of 16 rows and columns and 3.6
# or more in one of 48 and 64; adapters of rank 16 on a grid of eight bits reach 1.9.
EVEN = 1.5
# So many rows and columns show it. In more, also the slope of a bell inside the cells of a coarse grid would be seen.
ROWS, COLUMNS = 64, 512


@dataclass(frozen=True)
class Filling:
    """`filled`: mean distance from the rounded value in half steps. `pattern`: how far these distances follow one, over
    what noise does; None of vectors."""

    filled: float | None = None
    pattern: float | None = None


NOT_ROUNDED = Filling()


def filling(off: Floats, coarse: Floats) -> Filling:
    """off: distances from the rounded values, in half steps, NaN where nothing is known; coarse: those values."""
    told = np.isfinite(off)
    if not told.any():
        return NOT_ROUNDED
    filled = float(np.mean(np.abs(off[told])))
    if off.ndim != 2:
        return Filling(filled)
    some = np.ix_(*(_spread(size, most) for size, most in zip(off.shape, (ROWS, COLUMNS), strict=True)))
    here = np.where(told[some], off[some], 0)
    # A factor moves all values outward or inward, a constant all of them up or down.
    return Filling(filled, max(_pattern(here), _pattern(here * np.sign(coarse[: len(off)][some]))))


def _spread(size: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(np.intp))


def _pattern(off: Floats) -> float:
    """The largest singular value over the most that noise of the same size reaches in a matrix of this shape."""
    noise = float(np.linalg.norm(off)) * sum(size**-0.5 for size in off.shape)
    return float(np.linalg.norm(off, 2)) / noise if noise else 0.0


def is_filled(fact: TensorFact) -> bool:
    """Whether the finer values lie anywhere in the steps of the coarser, in no pattern."""
    if fact.filled is None or fact.pattern is None:
        return False
    return FILLED <= fact.filled <= OVERFULL and fact.pattern <= EVEN


def is_cast(fact: TensorFact) -> bool:
    """Whether one is the other rounded to a coarser format, and no coarse model written down finer."""
    return bool(fact.cast_a or fact.cast_b) and is_filled(fact)
