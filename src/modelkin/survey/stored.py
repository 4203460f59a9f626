"""Values as they are stored, in slots of two models that face each other.

Stored, not as the model applies them: bytes, steps of a number format and casts are questions about what lies in the
file. Of a large tensor windows are read, the same rows in every model and in every layer, chosen by the seed and the
role alone; a tensor that is no larger than its windows is read whole, and no value is ever read twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.metrics.inputs import LARGEST
from modelkin.records import Role, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.offsets import offset
from modelkin.survey.reading import Collected, Model

WINDOWS = 3
WINDOW_VALUES = 1 << 16  # three of these see a cosine of 0.01 at 4.4 standard deviations, and cost 400 kB in BF16
LAYERS_TOGETHER = 8
BATCH_VALUES = 16 << 20  # held at once by one read

Numbers = NDArray[Any]  # float32, or float64 for formats that float32 cannot hold
Wanted = tuple[Slot, list[int] | None]


@dataclass(frozen=True, eq=False)
class Beside:
    """A role in two layers that face each other. A slot is None where the model has none."""

    a: Model
    b: Model
    role: Role
    layer_a: str
    layer_b: str
    slot_a: Slot | None
    slot_b: Slot | None

    @property
    def slots(self) -> tuple[Slot, Slot] | None:
        return None if self.slot_a is None or self.slot_b is None else (self.slot_a, self.slot_b)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return () if self.slots is None else (self.a.anatomy.shape(self.slots[0]), self.b.anatomy.shape(self.slots[1]))

    @property
    def dtypes(self) -> tuple[str, ...]:
        return () if self.slots is None else (self.a.anatomy.dtype(self.slots[0]), self.b.anatomy.dtype(self.slots[1]))

    @property
    def alike(self) -> bool:
        """Both there, in one shape."""
        return len(set(self.shapes)) == 1

    def __str__(self) -> str:
        layer = self.layer_a if self.layer_a == self.layer_b else f"{self.layer_a} and {self.layer_b}"
        return f"{self.role.value}{f' of layer {layer}' if layer else ''}, {self.a.label} and {self.b.label}"


def beside(collected: Collected, role: Role) -> list[Beside]:
    """Every pair of models, every two facing layers of which at least one has the role; what has no layer as well.

    Gains and biases cost little, so all their layers are there; of matrices those that were chosen.
    """
    slots = {model.label: _by_layer(model.anatomy, role) for model in collected.models}
    found = []
    for a, b in collected.pairs():
        mine, theirs = slots[a.label], slots[b.label]
        outside = [(name, name) for name in dict.fromkeys([*mine, *theirs]) if not name[-1:].isdigit()]
        light = role.is_gain or role.is_bias
        layers = facing(a.anatomy.layers, b.anatomy.layers) if light else collected.facing(a, b)
        for left, right in (*layers, *outside):
            pair = _one_each(mine.get(left, []), theirs.get(right, []), collected.seed)
            if pair != (None, None):
                found.append(Beside(a, b, role, left, right, *pair))
    return found


def _by_layer(anatomy: Anatomy, role: Role) -> dict[str, list[Slot]]:
    found: dict[str, list[Slot]] = {}
    for slot in anatomy.of(role):
        found.setdefault(slot.layer_name, []).append(slot)
    return found


def _one_each(mine: Sequence[Slot], theirs: Sequence[Slot], seed: int) -> tuple[Slot | None, Slot | None]:
    """Of many experts one, of the same number in both; a dense layer stands beside an expert as it would if copied."""
    counts = [len(side) for side in (mine, theirs) if len(side) > 1]
    number = offset(seed, "one expert", min(counts), 1) if counts else 0
    left, right = (side[number if len(side) > 1 else 0] if side else None for side in (mine, theirs))
    return left, right


def window_rows(shape: Sequence[int], role: Role, seed: int) -> list[range]:
    """Rows of the windows: apart from each other, the same for every tensor of this role and shape.

    The room that the windows leave free is divided by sorted offsets, so that none can overlap whatever the offsets.
    """
    rows, each = shape[0], max(1, WINDOW_VALUES // max(1, math.prod(shape[1:])))
    if rows <= WINDOWS * each:
        return [range(rows)]
    room = rows - WINDOWS * each
    starts = sorted(offset(seed, f"windows:{role.value}:{i}", room, 0) for i in range(WINDOWS))
    return [range(start + i * each, start + (i + 1) * each) for i, start in enumerate(starts)]


def rows_of(windows: Sequence[range]) -> list[int]:
    return [row for window in windows for row in window]


def read_windows(collected: Collected, pairs: Sequence[Beside]) -> dict[tuple[str, Slot], Numbers]:
    """By model and slot, what the windows of every pair of one shape hold; each once."""
    wanted: dict[str, dict[Slot, list[int] | None]] = {model.label: {} for model in collected.models}
    for pair in pairs:
        if pair.slots is not None and pair.alike:
            windows = window_rows(pair.shapes[0], pair.role, collected.seed)
            rows = None if len(windows) == 1 else rows_of(windows)
            wanted[pair.a.label][pair.slots[0]] = wanted[pair.b.label][pair.slots[1]] = rows
    found: dict[tuple[str, Slot], Numbers] = {}
    for model in collected.models:
        asked = list(wanted[model.label].items())
        arrays = read_stored(model.anatomy, asked)
        found |= {(model.label, slot): array for (slot, _), array in zip(asked, arrays, strict=True)}
    return found


def read_stored(anatomy: Anatomy, wanted: Sequence[Wanted]) -> list[Numbers]:
    """Rows of slots, (rows, in) or (n,), in the order asked for."""
    return [array for batch in _batches(anatomy, wanted) for array in _read(anatomy, batch)]


def _read(anatomy: Anatomy, wanted: Sequence[Wanted]) -> list[Numbers]:
    views = [anatomy.view(slot) for slot, _ in wanted]
    arrays = anatomy.checkpoint.read_many([view.request(rows) for view, (_, rows) in zip(views, wanted, strict=True)])
    return [view.result(array, rows) for view, array, (_, rows) in zip(views, arrays, wanted, strict=True)]


def _batches(anatomy: Anatomy, wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    batch: list[Wanted] = []
    size = 0
    for one in wanted:
        batch.append(one)
        size += _held(anatomy, one)
        if size > BATCH_VALUES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _held(anatomy: Anatomy, wanted: Wanted) -> int:
    """Values in memory while this is read: of what does not lie row by row, the whole tensor."""
    slot, rows = wanted
    view = anatomy.view(slot)
    if view.axis != "rows" or rows is None:
        return anatomy.checkpoint.tensors[view.tensor].parameters
    return len(rows) * math.prod(view.shape[1:])


def batches_of_layers(pairs: Sequence[Beside]) -> Iterator[list[Beside]]:
    """A few layers of one pair of models at a time: few requests, and little in memory."""
    for _, same in groupby(pairs, key=lambda pair: (pair.a.label, pair.b.label)):
        rest = list(same)
        yield from (rest[at : at + LAYERS_TOGETHER] for at in range(0, len(rest), LAYERS_TOGETHER))


def measurable(*arrays: Numbers) -> bool:
    """Finite throughout, and not so large that float64 could not square it."""
    return all(bool(np.all(np.abs(array) <= np.float64(LARGEST))) for array in arrays)


def same_bytes(pair: Beside, x: Numbers, y: Numbers) -> bool | None:
    """Were the stored bytes equal? None where decoded values do not tell: scaled formats, and two formats."""
    if pair.slots is None or len(set(pair.dtypes)) > 1:
        return None
    for model, slot in zip((pair.a, pair.b), pair.slots, strict=True):
        if model.anatomy.view(slot).tensor in model.anatomy.checkpoint.layout.scales:
            return None
    return x.dtype == y.dtype and x.tobytes() == y.tobytes()
