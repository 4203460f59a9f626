"""One model as tensors that can be read row by row: by their places, or by their stored names where places are unknown.

What a name says of a tensor decides whether its equality may count: a role that only training fills; a name like that
of a weight; a name that says nothing; or one that a buffer has, which two strangers may well share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.copies import DETERMINED, Thing
from modelkin.questions.digests import Floats, format_of
from modelkin.questions.tensor_sample import FEWEST_ROWS, Shape, Stored, further_rows, shared_shapes, spread
from modelkin.records import Slot, TensorRef

BLOCK = 4 << 20  # numbers held at once
ROWS_AT_ONCE = 256  # first rows asked for in one batch
ALREADY_SEEN = ("the same bytes as", "tied to")
FIXED = "buffer determined by the config"
# In names of tensors that have no role: what is often made by a formula, or drawn once from a fixed seed.
BUFFERS = (
    *("rot", "freq", "pos", "mask", "mel", "filter", "window", "fourier", "random", "norm", "scale", "bias"),
    *("stft", "fft", "dct", "spectro", "wavelet", "hadamard", "sincos", "sinusoid", "cis", "grid", "anchor", "coord"),
    *("blur", "resample", "basis", "index", "buffer", "alibi", "decay", "codebook"),
)


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
    """The tensors of one model, as they are looked at. `by_name`: as they are stored, whatever their roles.

    `parameters`: all numbers, also those in tensors that cannot be read as numbers or are not looked at. `stored`: how
    many tensors could be looked at. `share`: what share of their numbers is in tensors of shapes that both models have.
    """

    def __init__(self, anatomy: Anatomy, *, by_name: bool = False) -> None:
        self.anatomy = anatomy
        refs = anatomy.checkpoint.tensors
        if by_name:
            names, slots = [*refs], []
        else:
            names = _without_place(anatomy)
            slots = [Tensor(slot, view.shape, anatomy.dtype(slot)) for slot, view in anatomy.slots.items()]
        readable = [name for name in names if _is_readable(anatomy, refs[name])]
        stored = [Tensor(name, refs[name].shape, refs[name].dtype) for name in readable]
        self.tensors = [tensor for tensor in (*slots, *stored) if 0 not in tensor.shape]
        unread = sum(refs[name].parameters for name in {*names} - {*readable})
        self.parameters = sum(math.prod(tensor.shape) for tensor in self.tensors) + unread
        self.stored, self.share, self._all = len(self.tensors), 1.0, self.tensors
        self._roles = {view.tensor: slot.role for slot, view in anatomy.slots.items()}
        self._is_cut = False
        self._first: dict[Tensor, Floats] = {}

    def rows_of(self) -> list[Stored]:
        """The tensors with what a row of each costs; all of one that is not stored row by row."""
        refs = [self.anatomy.checkpoint.tensors[self._stored_name(tensor)] for tensor in self._all]
        heights = [math.prod(ref.shape[:-1]) for ref in refs]
        return [
            Stored(ref.name, ref.shape, height, ref.extent.size // (1 if ref.strides else height))
            for ref, height in zip(refs, heights, strict=True)
        ]

    def choose(self, names: Collection[str], rows: Mapping[Shape, int]) -> None:
        """From now on only the first `rows` of these tensors are looked at; shapes without rows the other has not.

        The first row of each is held between two passes.
        """
        sizes = [(math.prod(tensor.shape), tensor.shape in rows) for tensor in self._all]
        self.share = sum(size for size, shared in sizes if shared) / max(1, sum(size for size, _ in sizes))
        self.tensors = [replace(tensor, most=rows[tensor.shape]) for tensor in self._all if tensor.thing in names]
        self._is_cut = True

    def standing(self, tensor: Tensor) -> Standing:
        role = tensor.thing.role if isinstance(tensor.thing, Slot) else self._roles.get(tensor.thing)
        if role is not None:
            return Standing.BUFFER if role in DETERMINED else Standing.LEARNED
        name = str(tensor.thing).lower()
        if sum(size > 1 for size in tensor.shape) < 2 or any(word in name for word in BUFFERS):
            return Standing.BUFFER
        return Standing.NAMED if name.endswith(".weight") else Standing.NAMELESS

    def first_rows(self) -> Iterator[tuple[Tensor, Floats]]:
        for batch in self._batches():
            rows = self._read([(tensor.thing, slice(0, 1)) for tensor in batch])
            self._first |= zip(batch, rows, strict=True) if self._is_cut else ()
            yield from zip(batch, rows, strict=True)
        for tensor in self.tensors:
            if not self._is_stored_by_rows(tensor):
                yield tensor, next(self.blocks(tensor)).reshape(tensor.rows, -1)[:1]

    def blocks(self, tensor: Tensor) -> Iterator[Floats]:
        """The rows in order, about 16 MB at a time. Of a part, which is small, the first row is held already."""
        held = self._first.get(tensor)
        if held is not None:
            rest = self._read([(tensor.thing, slice(1, tensor.rows))]) if tensor.rows > 1 else []
            yield np.concatenate([held, *rest])
            return
        step = max(1, BLOCK // tensor.width) if self._is_stored_by_rows(tensor) else tensor.rows
        for start in range(0, tensor.rows, step):
            whole = step >= tensor.rows and tensor.is_whole
            rows = None if whole else slice(start, min(start + step, tensor.rows))
            yield from self._read([(tensor.thing, rows)])

    def least_bytes(self) -> int:
        """What the first rows cost of the weights, with what a Hub sends along."""
        by_rows = sum(self._transfer([(tensor.thing, slice(0, 1)) for tensor in batch]) for batch in self._batches())
        others = [tensor for tensor in self.tensors if not self._is_stored_by_rows(tensor)]
        return by_rows + sum(self._transfer([(tensor.thing, None)]) for tensor in others)

    def most_bytes(self) -> int:
        """What all of it costs: the first rows, which are read first, and every stored tensor once."""
        refs = self.anatomy.checkpoint.tensors
        if self._is_cut:
            rows = {stored.name: stored.row for stored in self.rows_of()}
            return self.least_bytes() + sum((t.rows - 1) * rows[self._stored_name(t)] for t in self.tensors)
        return self.least_bytes() + sum(refs[name].extent.size for name in {*map(self._stored_name, self.tensors)})

    def _batches(self) -> Iterator[list[Tensor]]:
        """Tensors whose first rows are asked for together."""
        by_rows = [tensor for tensor in self.tensors if self._is_stored_by_rows(tensor)]
        for start in range(0, len(by_rows), ROWS_AT_ONCE):
            yield by_rows[start : start + ROWS_AT_ONCE]

    def _transfer(self, wanted: Sequence[tuple[Thing, slice | None]]) -> int:
        slots = [(thing, rows) for thing, rows in wanted if isinstance(thing, Slot)]
        names = [(thing, rows) for thing, rows in wanted if isinstance(thing, str)]
        return self.anatomy.transfer(slots) + self.anatomy.checkpoint.transfer(names)

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
    """Both models the same way: by name where the places of one are mostly unknown, or only `most_bytes` are read."""
    by_name = most_bytes is not None or is_nameless(a) or is_nameless(b)
    sides = Side(a, by_name=by_name), Side(b, by_name=by_name)
    if most_bytes is not None:
        _fit(sides, most_bytes)
    return sides


def _fit(sides: tuple[Side, Side], most_bytes: int) -> None:
    """As many tensors as can be looked at, then as many rows; first rows may bring what lies between them along."""
    stored = [side.rows_of() for side in sides]
    room = most_bytes
    while True:
        names = [{*some} for some in spread(stored, room)]
        chosen = [[t for t in some if t.name in taken] for some, taken in zip(stored, names, strict=True)]
        _choose(sides, names, dict.fromkeys(shared_shapes(*stored), FEWEST_ROWS))
        costs = [side.most_bytes() for side in sides]
        if max(costs) <= most_bytes or not any(names):
            break
        room = room * most_bytes // (max(costs) + 1)
    rows = further_rows(chosen, [most_bytes - cost for cost in costs])
    _choose(sides, names, dict.fromkeys(shared_shapes(*stored), 0) | rows)


def _choose(sides: Sequence[Side], names: Sequence[Collection[str]], rows: Mapping[Shape, int]) -> None:
    for side, some in zip(sides, names, strict=True):
        side.choose(some, rows)


def is_nameless(anatomy: Anatomy) -> bool:
    """Whether most of a model's numbers stand under names that no family file knows."""
    tensors = anatomy.checkpoint.tensors
    unknown = sum(tensors[name].parameters for name in anatomy.unmapped)
    return 2 * unknown > anatomy.checkpoint.parameters


def _without_place(anatomy: Anatomy) -> list[str]:
    """Names of tensors that no slot claims, but tied copies, which were seen in their first place, and fixed tables."""
    apart = [name for name, why in anatomy.apart.items() if not why.startswith((*ALREADY_SEEN, FIXED))]
    return [*anatomy.unmapped, *apart]


def _is_readable(anatomy: Anatomy, ref: TensorRef) -> bool:
    return ref.name not in anatomy.checkpoint.layout.packed and ref.dtype.startswith(("F", "BF"))
