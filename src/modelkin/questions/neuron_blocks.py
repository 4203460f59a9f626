"""Which sets of neurons of two models stand beside each other, and the rows that were read of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.questions.question import Cuts, Pair
from modelkin.records import Cut, Role, Slot
from modelkin.sampling.facing import Facing, two_depths
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Readings, bytes_of

DENSE, SHARED = (Role.GATE, Role.UP), (Role.SHARED_GATE, Role.SHARED_UP)
ALIKE = ((None, None), (0, 0), (1, 1))  # experts of a and of b, None for a dense MLP
MIXED = ((None, 0), (None, 1), (0, None), (1, None))

Floats = NDArray[np.float64]
Names = tuple[str, str]
Block = tuple[tuple[Slot, Slot], ...]  # one or two projections of the same neurons
Blocks = dict[Names, list[Block]]


def readers(anatomy: Anatomy) -> set[Slot]:
    roles = {*DENSE, *SHARED}
    found = (slot for slot in anatomy.slots if slot.role in roles and (slot.expert or 0) < 2)
    return {slot for slot in found if anatomy.shape(slot)[1:] == (anatomy.facts.hidden,)}


def blocks_at_two_depths(beside: Facing, mine: Collection[Slot], theirs: Collection[Slot]) -> Blocks:
    """The blocks to compare at two depths, among layers that have any. Of those already chosen it chooses all."""
    found = {names: blocks for names in beside if (blocks := _in_layer(names, mine, theirs))}
    order = [str(i) for i in range(len(found))]
    kept = {int(i) for i, _ in two_depths(order, order)}
    return {names: blocks for i, (names, blocks) in enumerate(found.items()) if i in kept}


def _in_layer(names: Names, mine: Collection[Slot], theirs: Collection[Slot]) -> list[Block]:
    def block(roles: Sequence[Role], a: int | None, b: int | None) -> Block:
        pairs = ((_slot(role, names[0], a), _slot(role, names[1], b)) for role in roles)
        return tuple((x, y) for x, y in pairs if x in mine and y in theirs)

    alike = [block(DENSE, *experts) for experts in ALIKE]
    mixed = [] if any(alike) else [block(DENSE, *experts) for experts in MIXED]
    return [found for found in (*alike, *mixed, block(SHARED, None, None)) if found]


def _slot(role: Role, name: str, expert: int | None) -> Slot:
    stack, _, layer = name.rpartition(".")
    return Slot(role, layer=int(layer), expert=expert, stack=stack)


def bytes_a_model(pair: Pair, cuts: Cuts) -> int:
    """What a plan reads of the weights of the model that costs more."""
    return max(bytes_of(pair.a, cuts[0]), bytes_of(pair.b, cuts[1]))


def columns_that_fit(pair: Pair, wanted: Block, room: int, most: int) -> tuple[int, int] | None:
    """A block of hidden axes, as wide as fits, where both models store the matrices by them; None elsewhere."""
    sides = ((pair.a, [a for a, _ in wanted]), (pair.b, [b for _, b in wanted]))
    if any(side.view(slot).axis != "columns" for side, slots in sides for slot in slots):
        return None
    one = max(bytes_of(side, [Cut(slot, columns=(0, 1)) for slot in dict.fromkeys(slots)]) for side, slots in sides)
    width = pair.a.facts.hidden or 0
    count = min(most, width, room // max(1, one))
    first = offset(pair.seed, "hidden axes", width, count)
    return (first, first + count) if count > 0 else None


def rows_read(readings: Readings) -> dict[Slot, Floats]:
    """By slot. Rows that are not finite become zeros, and so are left out like other dead rows."""
    found = {cut.slot: rows for cut, rows in readings.arrays.items() if cut.start is not None and rows.ndim == 2}
    return {slot: _numbers(rows) for slot, rows in found.items()}


def _numbers(rows: NDArray[np.float32]) -> Floats:
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    return np.where(finite, rows, 0.0).astype(np.float64)
