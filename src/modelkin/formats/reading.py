"""Tensors to numbers: whole, by rows, or streamed in blocks; nothing beyond the bytes asked for is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.errors import PackedTensor, UnsupportedFormat, UsageError
from modelkin.formats.dtypes import Numbers, decode, is_readable, item_size, number_type
from modelkin.formats.layout import Layout
from modelkin.formats.packing import HINT
from modelkin.formats.parts import shown
from modelkin.formats.rows import Rows, Selection, matrix_shape, select
from modelkin.records import Extent, TensorRef
from modelkin.sources.protocol import Source

__all__ = ["Rows", "iter_blocks", "read_rows"]

BLOCK_BYTES = 4 << 20  # decoded while still in the cache
BLOCKS_AHEAD = 4  # fetched together, so that a remote source has something to do side by side


class Scaling(msgspec.Struct, frozen=True):
    """Block scales of an FP8 tensor: which rows of them are needed, and which of those each row read uses."""

    plan: Plan
    uses: NDArray[np.intp]  # per row read, the row among those of the plan
    width: int  # columns that share one scale; 0 for a single scale for all

    def apply(self, numbers: Numbers, views: Sequence[memoryview]) -> None:
        """Multiply (rows, columns) in place."""
        scales = self.plan.finish(views)
        changes = np.flatnonzero(np.diff(self.uses)) + 1
        bounds = [0, *changes.tolist(), len(numbers)]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, as it is for who runs it
            if self.width == 0:
                numbers *= scales.reshape(())
                return
            for first, last in pairwise(bounds):
                factors = np.repeat(scales[self.uses[first]], self.width)[: numbers.shape[1]]
                numbers[first:last] *= factors


class Plan(msgspec.Struct, frozen=True):
    """What to read for one request, and how it becomes an array."""

    ref: TensorRef
    rows: Selection
    whole: bool  # in the stored shape rather than as rows
    scaling: Scaling | None = None

    @property
    def own(self) -> list[Extent]:
        """Extents of the tensor itself: its covering extent if strided, else one per run of rows."""
        height, width = matrix_shape(self.ref)
        if not height * width or not self.rows.runs:
            return []
        if self.ref.strides is not None:
            return [self.ref.extent]
        row = width * item_size(self.ref.dtype)
        start = self.ref.start
        return [Extent(self.ref.file, start + first * row, start + last * row) for first, last in self.rows.runs]

    @property
    def extents(self) -> list[Extent]:
        return self.own + (self.scaling.plan.extents if self.scaling else [])

    def finish(self, views: Sequence[memoryview], out: Numbers | None = None) -> Numbers:
        """Bytes of `extents` to numbers; into the front of `out` where it is given."""
        count = len(self.own)
        numbers = self._strided(views) if self.ref.strides is not None else self._runs(views[:count], out)
        if self.scaling is not None and numbers.size:
            self.scaling.apply(numbers, views[count:])
        if self.rows.order is not None:
            numbers = numbers[self.rows.order]
        return numbers.reshape(self.ref.shape) if self.whole else numbers

    def _runs(self, views: Sequence[memoryview], out: Numbers | None) -> Numbers:
        shape = (self.rows.count, matrix_shape(self.ref)[1])
        size = shape[0] * shape[1]
        numbers = np.empty(size, number_type(self.ref.dtype)) if out is None else out[:size]
        position = 0
        for view in views:
            position += decode(view, self.ref.dtype, numbers[position:]).size
        return numbers.reshape(shape)

    def _strided(self, views: Sequence[memoryview]) -> Numbers:
        shape = matrix_shape(self.ref)
        if not views:
            return np.empty((self.rows.count, shape[1]), number_type(self.ref.dtype))
        cover = decode(views[0], self.ref.dtype)
        steps = tuple(stride * cover.itemsize for stride in self.ref.strides or ())
        tensor = np.lib.stride_tricks.as_strided(cover, self.ref.shape, steps, writeable=False)
        matrix = np.ascontiguousarray(tensor).reshape(shape)
        return matrix if self.rows.count == shape[0] else matrix[self.rows.indices()]


def read_rows(
    source: Source, layout: Layout, wanted: Sequence[tuple[TensorRef, Rows]], kind: str = "tensor"
) -> list[NDArray[np.float32]]:
    """Several tensors, or rows of them, in a single read of the source.

    `rows` None: the stored shape. Otherwise rows of the tensor seen as a matrix (prod(shape[:-1]), shape[-1]); a
    vector is one row. F64 and wide integers come as float64.
    """
    plans = [plan_read(layout, ref, rows) for ref, rows in wanted]
    return _run(source, plans, kind)


def iter_blocks(
    source: Source, layout: Layout, ref: TensorRef, *, rows_per_block: int | None = None, kind: str = "stream"
) -> Iterator[NDArray[np.float32]]:
    """The rows of a tensor in order, in blocks (rows, shape[-1]) of about 4 MiB stored, or of `rows_per_block`.

    For passes over whole weights that need no more than a few rows at a time: a comparison that streams two models,
    or a digest. Who wants a tensor in one piece, or chosen rows, asks `read_rows`.

    Every block lies in the same buffer: use or copy it before asking for the next. A block holds at least one row; a
    tensor without values has none.
    """
    if rows_per_block is not None and rows_per_block < 1:
        raise UsageError(f"a block needs at least one row, not {rows_per_block}")
    check_readable(layout, ref)
    height, width = matrix_shape(ref)
    if ref.parameters == 0:
        return
    if ref.strides is not None:
        yield from _slices(read_rows(source, layout, [(ref, slice(None))], kind)[0], rows_per_block)
        return
    step = rows_per_block or max(1, BLOCK_BYTES // (width * item_size(ref.dtype)))
    buffer = np.empty(min(step, height) * width, number_type(ref.dtype))
    plans = (plan_read(layout, ref, slice(start, start + step)) for start in range(0, height, step))
    while batch := list(islice(plans, BLOCKS_AHEAD)):
        extents = [plan.extents for plan in batch]
        views = iter(source.read([extent for some in extents for extent in some], kind))
        for plan, some in zip(batch, extents, strict=True):
            yield plan.finish([next(views) for _ in some], buffer)


def check_readable(layout: Layout, ref: TensorRef) -> None:
    """Refuse, by name, a tensor whose bytes are not plain numbers."""
    scheme = layout.packed.get(ref.name)
    if scheme is not None:
        raise PackedTensor(f"{shown(ref.name)} does not hold plain numbers: {scheme}", where=ref.file, hint=HINT)
    if not is_readable(ref.dtype):
        raise UnsupportedFormat(
            f"{shown(ref.name)} is stored as {ref.dtype}, which is not read",
            where=ref.file,
            hint="use a copy of the model in another number format",
        )


def plan_read(layout: Layout, ref: TensorRef, rows: Rows) -> Plan:
    check_readable(layout, ref)
    chosen = select(rows, matrix_shape(ref)[0], ref.name)
    plan = Plan(ref, chosen, rows is None)
    scale_name = layout.scales.get(ref.name)
    if scale_name is None or ref.parameters == 0:
        return plan
    return msgspec.structs.replace(plan, scaling=_scaling(ref, layout.tensors[scale_name], chosen, layout.block))


def _scaling(ref: TensorRef, scale: TensorRef, rows: Selection, block: tuple[int, int]) -> Scaling:
    if scale.shape in ((), (1,)):
        return Scaling(Plan(scale, select(None, 1, scale.name), False), np.empty(0, np.intp), 0)
    # A stack of matrices has a stack of scale matrices: count blocks inside each.
    matrix, row = np.divmod(rows.indices(), ref.shape[-2])
    needed, uses = np.unique(matrix * scale.shape[-2] + row // block[0], return_inverse=True)
    width = min(block[1], ref.shape[-1])  # a block may be claimed far wider than the tensor
    return Scaling(Plan(scale, select(needed, matrix_shape(scale)[0], scale.name), False), uses, width)


def _run(source: Source, plans: Sequence[Plan], kind: str) -> list[NDArray[Any]]:
    extents = [plan.extents for plan in plans]
    asked = [extent for some in extents for extent in some]
    views = iter(source.read(asked, kind) if asked else ())
    return [plan.finish([next(views) for _ in some]) for plan, some in zip(plans, extents, strict=True)]


def _slices(numbers: Numbers, rows_per_block: int | None) -> Iterator[Numbers]:
    step = rows_per_block or max(1, BLOCK_BYTES // (numbers.shape[1] * numbers.itemsize))
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step]
