"""One model as tensors that can be read row by row: by their places, or by their stored names where places are unknown.

What a name says of a tensor decides whether its equality may count: a role that only training fills; a name like that
of a weight; a name that says nothing; or one that a buffer has, which two strangers may well share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from modelkin.architectures import Anatomy
from modelkin.questions.copies import DETERMINED, Thing
from modelkin.questions.digests import Floats, format_of
from modelkin.records import Slot, TensorRef

BLOCK = 4 << 20  # numbers held at once
ROWS_AT_ONCE = 256  # first rows asked for in one batch
ALREADY_SEEN = ("the same bytes as", "tied to")
FIXED = "buffer determined by the config"
# In names of tensors that have no role: what is often made by a formula, or drawn once from a fixed seed.
BUFFERS = ("rot", "freq", "pos", "mask", "mel", "filter", "window", "fourier", "random", "norm", "scale", "bias")


class Standing(IntEnum):
    """What is known of a tensor's origin, from nothing to certainty. BUFFER: a formula or a fixed seed may fill it."""

    BUFFER = 0
    NAMELESS = 1
    NAMED = 2
    LEARNED = 3


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model, or the first `most` rows of it."""

    thing: Thing
    shape: tuple[int, ...]
    dtype: str
    most: int | None = None

    @property
    def form(self) -> str:
        return format_of(self.dtype)

    @property
    def width(self) -> int:
        return self.shape[-1] if len(self.shape) > 1 else math.prod(self.shape)

    @property
    def rows(self) -> int:
        """As many as are looked at."""
        stored = math.prod(self.shape) // self.width
        return stored if self.most is None else min(stored, self.most)

    @property
    def values(self) -> int:
        return self.rows * self.width

    @property
    def is_whole(self) -> bool:
        return self.values == math.prod(self.shape)


class Side:
    """The tensors of one model. `unread`: numbers in tensors that cannot be read as numbers.

    `by_name`: as they are stored, whatever their roles. `allowance`: bytes to be read of a tensor at most, but a row.
    """

    def __init__(self, anatomy: Anatomy, *, by_name: bool = False, allowance: int | None = None) -> None:
        self.anatomy = anatomy
        refs = anatomy.checkpoint.tensors
        if by_name:
            names, slots = [*refs], []
        else:
            names = _without_place(anatomy)
            slots = [Tensor(slot, view.shape, anatomy.dtype(slot)) for slot, view in anatomy.slots.items()]
        readable = [name for name in names if _is_readable(anatomy, refs[name])]
        stored = [Tensor(name, refs[name].shape, refs[name].dtype) for name in readable]
        self.tensors = [_cut(tensor, allowance) for tensor in (*slots, *stored) if 0 not in tensor.shape]
        self.unread = sum(refs[name].parameters for name in {*names} - {*readable})
        self._roles = {view.tensor: slot.role for slot, view in anatomy.slots.items()}

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors) + self.unread

    def standing(self, tensor: Tensor) -> Standing:
        role = tensor.thing.role if isinstance(tensor.thing, Slot) else self._roles.get(tensor.thing)
        if role is not None:
            return Standing.BUFFER if role in DETERMINED else Standing.LEARNED
        name = str(tensor.thing).lower()
        if len(tensor.shape) < 2 or any(word in name for word in BUFFERS):
            return Standing.BUFFER
        return Standing.NAMED if name.endswith(".weight") else Standing.NAMELESS

    def first_rows(self) -> Iterator[tuple[Tensor, Floats]]:
        by_rows = [tensor for tensor in self.tensors if self._is_stored_by_rows(tensor)]
        for start in range(0, len(by_rows), ROWS_AT_ONCE):
            batch = by_rows[start : start + ROWS_AT_ONCE]
            yield from zip(batch, self._read([(tensor.thing, slice(0, 1)) for tensor in batch]), strict=True)
        for tensor in self.tensors:
            if not self._is_stored_by_rows(tensor):
                yield tensor, next(self.blocks(tensor)).reshape(tensor.rows, -1)[:1]

    def blocks(self, tensor: Tensor) -> Iterator[Floats]:
        """The rows in order, about 16 MB at a time."""
        step = max(1, BLOCK // tensor.width) if self._is_stored_by_rows(tensor) else tensor.rows
        for start in range(0, tensor.rows, step):
            whole = step >= tensor.rows and tensor.is_whole
            rows = None if whole else slice(start, min(start + step, tensor.rows))
            yield from self._read([(tensor.thing, rows)])

    def least_bytes(self) -> int:
        """What the first rows cost of the weights."""
        refs = self.anatomy.checkpoint.tensors
        things = [tensor.thing for tensor in self.tensors]
        slots = [(thing, slice(0, 1)) for thing in things if isinstance(thing, Slot)]
        names = [refs[thing] for thing in things if isinstance(thing, str)]
        rows = [ref.extent.size // max(1, math.prod(ref.shape[:-1])) for ref in names]
        return self.anatomy.bytes_of(slots) + sum(rows)

    def most_bytes(self) -> int:
        """What all of it costs: the first rows, which are read first, and every stored tensor once."""
        refs = self.anatomy.checkpoint.tensors
        stored = {self._stored_name(tensor): tensor for tensor in self.tensors}
        sizes = [refs[name].extent.size * tensor.values // math.prod(tensor.shape) for name, tensor in stored.items()]
        return self.least_bytes() + sum(sizes)

    def _stored_name(self, tensor: Tensor) -> str:
        return tensor.thing if isinstance(tensor.thing, str) else self.anatomy.view(tensor.thing).tensor

    def _read(self, wanted: Sequence[tuple[Thing, slice | None]]) -> list[Floats]:
        slots = [(thing, rows) for thing, rows in wanted if isinstance(thing, Slot)]
        names = [(thing, rows) for thing, rows in wanted if isinstance(thing, str)]
        by_slot, by_name = (
            iter(self.anatomy.read_many(slots, "stream")),
            iter(self.anatomy.checkpoint.read_many(names, "stream")),
        )
        return [next(by_slot if isinstance(thing, Slot) else by_name) for thing, _ in wanted]

    def _is_stored_by_rows(self, tensor: Tensor) -> bool:
        """A few rows of a transposed matrix cost all of it."""
        return isinstance(tensor.thing, str) or self.anatomy.view(tensor.thing).axis == "rows"


def sides_of(a: Anatomy, b: Anatomy, most_bytes: int | None = None) -> tuple[Side, Side]:
    """Both models the same way: by name where the places of one are mostly unknown."""
    by_name = is_nameless(a) or is_nameless(b)
    allowance = None
    if most_bytes is not None:
        allowance = most_bytes // max(1, *(len(anatomy.checkpoint.tensors) for anatomy in (a, b)))
    return Side(a, by_name=by_name, allowance=allowance), Side(b, by_name=by_name, allowance=allowance)


def is_nameless(anatomy: Anatomy) -> bool:
    """Whether most of a model's numbers stand under names that no family file knows."""
    tensors = anatomy.checkpoint.tensors
    unknown = sum(tensors[name].parameters for name in anatomy.unmapped)
    return 2 * unknown > anatomy.checkpoint.parameters


def _cut(tensor: Tensor, allowance: int | None) -> Tensor:
    if allowance is None or isinstance(tensor.thing, Slot):
        return tensor
    return Tensor(tensor.thing, tensor.shape, tensor.dtype, max(1, allowance // (4 * tensor.width)))


def _without_place(anatomy: Anatomy) -> list[str]:
    """Names of tensors that no slot claims, but tied copies, which were seen in their first place, and fixed tables."""
    apart = [name for name, why in anatomy.apart.items() if not why.startswith((*ALREADY_SEEN, FIXED))]
    return [*anatomy.unmapped, *apart]


def _is_readable(anatomy: Anatomy, ref: TensorRef) -> bool:
    return ref.name not in anatomy.checkpoint.layout.packed and ref.dtype.startswith(("F", "BF"))
