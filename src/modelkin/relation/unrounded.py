"""A rearranged model as it may have been before it was rounded or emptied: what that alone accounts for.

Quantisers work on the model as it is stored, and so do those who prune it after turning it. Turned back, neither grid
nor zeros are to be seen, and what they changed looks like any other change. So the values as stored are moved inside
their cells at random, zeros as far as the smallest value that was left, and turned back in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from modelkin.alignment import Rewritten
from modelkin.architectures import Anatomy
from modelkin.architectures.anatomy import Wanted
from modelkin.architectures.views import Columns, Rows, chosen
from modelkin.records import Slot
from modelkin.relation.lattice import half_cells, lattice
from modelkin.relation.reading import LINEAR, Floats

ZEROS = 0.005  # share from which on values were emptied


@dataclass(frozen=True, eq=False)
class Unrounded(Anatomy):
    """Reads like the model, with matrices inside the layers moved inside their cells."""

    rounded: Anatomy = field(kw_only=True)

    def read_many(self, wanted: Sequence[Wanted], kind: str = "tensor") -> list[Floats]:
        return [self._one(part[0], part[1], part[2] if len(part) == 3 else None, kind) for part in wanted]

    def _one(self, slot: Slot, rows: Rows, columns: Columns | None, kind: str) -> Floats:
        (whole,) = self.rounded.read_many([(slot, None)], kind)
        if slot.role in LINEAR:
            whole = moved_inside_cells(whole, np.random.default_rng(0))
        part = whole[chosen(rows, len(whole))]
        return part if columns is None else part[:, slice(*columns)]


def moved_inside_cells(values: Floats, rng: np.random.Generator) -> Floats:
    """(m, n) -> the same with every value anywhere inside the cell of the grid, or of the zeros, that it stands for."""
    found = lattice(values)
    if found is not None:
        reach = half_cells(values, found)
    elif 1 - np.count_nonzero(values) / values.size > ZEROS:
        sizes = np.abs(values)
        smallest = np.where(sizes > 0, sizes, np.inf).min(axis=1, keepdims=True)
        reach = np.where((sizes == 0) & np.isfinite(smallest), np.broadcast_to(smallest, values.shape), 0.0)
    else:
        return values
    return np.asarray(values + rng.uniform(-1, 1, values.shape) * reach, dtype=np.float32)


def before_rounding(b: Rewritten) -> Rewritten:
    """The rewritten model, written in the same coordinates from values that were moved inside their cells."""
    stored = b.alignment.b
    given = {each.name: getattr(stored, each.name) for each in fields(Anatomy)}
    return replace(b, alignment=replace(b.alignment, b=Unrounded(**given, rounded=stored)))
