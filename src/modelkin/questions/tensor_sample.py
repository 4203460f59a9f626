"""Which tensors, and how many rows of each, are looked at where not all of them fit a budget of bytes.

Only tensors of shapes that both models have can be equal. Of each at least sixteen rows are looked at, for fewer do
not show whether a formula made them. Where that is too much for all tensors, of every shape equally many are taken,
spread evenly over the order in which they are stored, so that a copy in the same order shows the same ones. What is
left of the budget goes into further rows, equally many bytes a tensor. Headers alone decide, so that a later reading of
the same models looks at the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FEWEST_ROWS = 16

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A tensor of one model: how many rows it has, and what one costs in bytes."""

    name: str
    shape: Shape
    rows: int
    row: int

    @property
    def cost(self) -> int:
        return self.row * min(self.rows, FEWEST_ROWS)


def shared_shapes(a: Iterable[Stored], b: Iterable[Stored]) -> list[Shape]:
    theirs = {tensor.shape for tensor in b}
    return list(dict.fromkeys(tensor.shape for tensor in a if tensor.shape in theirs))


def spread(sides: Sequence[Sequence[Stored]], most_bytes: int) -> list[list[str]]:
    """Names of tensors of each side whose fewest rows cost no more than `most_bytes` together.

    Round by round one tensor of every shape; a shape whose next tensor does not fit is done with.
    """
    groups = [_by_shape(side) for side in sides]
    open_shapes = shared_shapes(*sides)
    chosen: list[list[str]] = [[], []]
    left = [most_bytes, most_bytes]
    turn = 0
    while open_shapes:
        still = []
        for shape in open_shapes:
            turns = [group[shape][turn : turn + 1] for group in groups]
            fits = all(tensor.cost <= room for some, room in zip(turns, left, strict=True) for tensor in some)
            if any(turns) and fits:
                still.append(shape)
                for side, some in enumerate(turns):
                    chosen[side] += [tensor.name for tensor in some]
                    left[side] -= sum(tensor.cost for tensor in some)
        open_shapes = still
        turn += 1
    return chosen


def further_rows(sides: Sequence[Sequence[Stored]], left: Sequence[int]) -> dict[Shape, int]:
    """Rows to look at of tensors of each shape, the fewest and more for `left` bytes of each side.

    Equally many of both sides, or parts of two lengths would be held against each other.
    """
    share = min(max(0, room) // max(1, len(side)) for side, room in zip(sides, left, strict=True))
    rows: dict[Shape, int] = {}
    for tensor in (tensor for side in sides for tensor in side):
        some = min(tensor.rows, FEWEST_ROWS + share // max(1, tensor.row))
        rows[tensor.shape] = min(some, rows.get(tensor.shape, some))
    return rows


def _by_shape(tensors: Sequence[Stored]) -> Mapping[Shape, list[Stored]]:
    """Of every shape the tensors in an order of which any beginning is spread evenly over the whole."""
    groups: dict[Shape, list[Stored]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.shape, []).append(tensor)
    return {shape: [group[i] for i in _spread_order(len(group))] for shape, group in groups.items()}


def _spread_order(count: int) -> list[int]:
    """0, the middle, the quarters, the eighths, …: numbers sorted by their bits read backwards."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda i: int(f"{i:0{width}b}"[::-1], 2))
