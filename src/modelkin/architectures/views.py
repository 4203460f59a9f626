"""How a slot is cut out of a stored tensor: by stored rows where it can be, so that few rows cost few bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.architectures.config import Dimensions
from modelkin.architectures.templates import Placed
from modelkin.errors import UsageError
from modelkin.records import Role, TensorRef

Floats = NDArray[np.float32]
Rows = slice | Sequence[int] | NDArray[np.integer] | None
Columns = tuple[int, int]  # [start, stop) of every row
MAX_EXPERTS = 1 << 16
READERS = frozenset({Role.GATE, Role.UP, Role.SHARED_GATE, Role.SHARED_UP, Role.Q, Role.K, Role.V})


class CannotCut(ValueError):
    """A split that the config or the shape does not allow; the message says why."""


class View(msgspec.Struct, frozen=True, gc=False):
    """Part of a stored tensor. Slot row i is number offset + i // block * stride + i % block along the stored axis.

    `axis` "rows": the stored tensor's rows (all leading axes flattened). "columns": its last axis, inside the stored
    rows `slab`; so are transposed matrices and vectors kept. "whole": read whole and reshaped.
    """

    tensor: str
    shape: tuple[int, ...]
    axis: Literal["rows", "columns", "whole"] = "whole"
    offset: int = 0
    block: int = 1
    stride: int = 1
    slab: tuple[int, int] = (0, 1)

    def request(self, rows: Rows = None, columns: Columns | None = None) -> tuple[str, slice | list[int] | None]:
        """What to ask of the checkpoint: a stored name, and which of its rows.

        Few rows of a slot cost few bytes where it is stored by rows, and few columns where it is stored transposed.
        """
        if self.axis == "whole":
            return self.tensor, None
        if self.axis == "columns":
            return self.tensor, slice(*self.slab) if columns is None else slice(*self._slab(columns))
        stored = self._stored(rows)
        if len(stored) and stored[-1] - stored[0] == len(stored) - 1 and bool(np.all(np.diff(stored) == 1)):
            return self.tensor, slice(int(stored[0]), int(stored[-1]) + 1)
        return self.tensor, [int(index) for index in stored]

    def result(self, array: Floats, rows: Rows = None, columns: Columns | None = None) -> Floats:
        """The slot's rows out of what the request brought: (n, in), or (n,) for a vector."""
        if self.axis == "columns":
            start, stop = self.slab if columns is None else self._slab(columns)
            slab = array.reshape(stop - start, -1)[:, self._stored(rows)]
            return slab[0] if len(self.shape) == 1 else np.ascontiguousarray(slab.T)
        if self.axis == "rows":
            found = array.reshape(-1, self.shape[1])
        else:
            found = array.reshape(self.shape)[chosen(rows, self.shape[0])]
        return found if columns is None else np.ascontiguousarray(found[:, slice(*self._within(columns))])

    def of(self, tensor: str) -> View:
        """The same cut of another tensor of the same shape."""
        return View(tensor, self.shape, self.axis, self.offset, self.block, self.stride, self.slab)

    def _slab(self, columns: Columns) -> Columns:
        start, stop = self._within(columns)
        return self.slab[0] + start, self.slab[0] + stop

    def _within(self, columns: Columns) -> Columns:
        start, stop = columns
        if len(self.shape) != 2 or not 0 <= start < stop <= self.shape[1]:
            raise UsageError(f"columns {start}–{stop} were asked for, but the slot has the shape {list(self.shape)}")
        return columns

    def _stored(self, rows: Rows) -> NDArray[np.intp]:
        index = chosen(rows, self.shape[0])
        return self.offset + index // self.block * self.stride + index % self.block


def chosen(rows: Rows, count: int) -> NDArray[np.intp]:
    """Row numbers inside a slot of `count` rows."""
    if rows is None:
        return np.arange(count)
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    index = np.asarray(rows).reshape(-1)
    if index.size and index.dtype.kind not in "iu":
        raise UsageError(f"rows are given by whole numbers, found {index.dtype}")
    index = index.astype(np.intp)
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise UsageError(f"rows {int(index.min())}–{int(index.max())} were asked for, but the slot has {count}")
    return index


class _Piece(msgspec.Struct, frozen=True):
    role: Role
    count: int
    offset: int
    block: int
    stride: int


def cut(placed: Placed, ref: TensorRef, dims: Dimensions) -> list[tuple[Role, int | None, View]]:
    """The slots of one stored tensor as (role, expert within a stack, view); raises CannotCut."""
    spec, roles = placed.rule.spec, placed.rule.roles
    vector = roles[0].is_gain or roles[0].is_bias
    if not spec.stacked:
        views = _vector(ref, placed, dims) if vector else _matrix(ref, ref.shape, placed, dims)
        return [(role, None, view) for role, view in views]
    experts = ref.shape[0] if ref.shape else 0
    if not 0 < experts <= MAX_EXPERTS or len(ref.shape) != (2 if vector else 3):
        raise CannotCut(f"shape {list(ref.shape)} is no stack of experts")
    if vector:
        pieces = _pieces(placed, ref.shape[-1], None, dims)
        flat = [(e, _columns(ref.name, piece, (e, e + 1), ())) for e in range(experts) for piece in pieces]
        return [(role, expert, view) for expert, (role, view) in flat]
    cuts = _matrix(ref, ref.shape[1:], placed, dims)
    return [(role, expert, _moved(view, expert, ref.shape[1])) for expert in range(experts) for role, view in cuts]


def _vector(ref: TensorRef, placed: Placed, dims: Dimensions) -> list[tuple[Role, View]]:
    if ref.shape and ref.parameters == ref.shape[-1]:
        return [_columns(ref.name, piece, (0, 1), ()) for piece in _pieces(placed, ref.shape[-1], None, dims)]
    if len(placed.rule.roles) > 1:
        raise CannotCut(f"shape {list(ref.shape)} is no vector")
    return [(placed.rule.roles[0], View(ref.name, (ref.parameters,)))]  # per-head gains, kept flat


def _matrix(ref: TensorRef, body: tuple[int, ...], placed: Placed, dims: Dimensions) -> list[tuple[Role, View]]:
    while len(body) > 2 and body[0] == 1:
        body = body[1:]
    if placed.rule.roles == (Role.FRONT_CONV,) and len(body) > 2:
        return [(Role.FRONT_CONV, View(ref.name, (body[0], ref.parameters // body[0])))]
    if len(body) != 2:
        raise CannotCut(f"shape {list(ref.shape)} is no matrix")
    transposed = _is_transposed(placed, body, dims)
    out, inside = (body[1], body[0]) if transposed else (body[0], body[1])
    pieces = _pieces(placed, out, inside, dims)
    if transposed:
        return [_columns(ref.name, piece, (0, inside), (inside,)) for piece in pieces]
    return [(p.role, View(ref.name, (p.count, inside), "rows", p.offset, p.block, p.stride)) for p in pieces]


def _columns(name: str, p: _Piece, slab: tuple[int, int], rest: tuple[int, ...]) -> tuple[Role, View]:
    return p.role, View(name, (p.count, *rest), "columns", p.offset, p.block, p.stride, slab)


def _moved(view: View, expert: int, rows: int) -> View:
    """The same cut in the stack's slab of another expert."""
    start = expert * rows
    if view.axis == "rows":
        return msgspec.structs.replace(view, offset=view.offset + start)
    return msgspec.structs.replace(view, slab=(view.slab[0] + start, view.slab[1] + start))


def _is_transposed(placed: Placed, body: tuple[int, ...], dims: Dimensions) -> bool:
    """As the family says; for stacked experts, which are stored either way, by where the hidden size lies."""
    spec = placed.rule.spec
    if spec.transposed is not None or not spec.stacked:
        return bool(spec.transposed)
    if dims.hidden is None:
        raise CannotCut("the orientation of stacked experts needs the hidden size")
    reads = placed.rule.roles[0] in READERS
    plain, turned = (body[1], body[0]) if reads else (body[0], body[1])
    if plain == turned == dims.hidden and dims.stacked_shape:  # the square is as its neighbour, which is none
        return dims.stacked_shape[1] == dims.hidden
    if (plain == dims.hidden) == (turned == dims.hidden):
        kind = "both axes have" if plain == dims.hidden else "neither axis has"
        raise CannotCut(f"{kind} the hidden size {dims.hidden}, so the orientation of stacked experts is unknown")
    return turned == dims.hidden


def _pieces(placed: Placed, out: int, inside: int | None, dims: Dimensions) -> list[_Piece]:
    """The parts of the output axis, in the order of the roles."""
    roles, how = placed.rule.roles, placed.rule.spec.how
    if len(roles) == 1:
        return [_Piece(roles[0], out, 0, max(out, 1), max(out, 1))]
    if how == "concat":
        return _one_after_another(roles, _head_sizes(roles, out, dims))
    if how == "grouped":
        return _grouped(roles, out, dims)
    if out % len(roles):
        raise CannotCut(f"{out} rows do not divide by {len(roles)}")
    part = out // len(roles)
    _check_part(placed, part, inside, dims)
    return _one_after_another(roles, [part] * len(roles))


def _one_after_another(roles: tuple[Role, ...], sizes: list[int]) -> list[_Piece]:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [_Piece(role, size, start, size, size) for role, size, start in zip(roles, sizes, starts, strict=True)]


def _heads(dims: Dimensions) -> tuple[int, int, int]:
    if dims.heads is None or dims.kv_heads is None or dims.head_dim is None:
        raise CannotCut("the split needs the number of heads, which the config does not give")
    if dims.heads % dims.kv_heads:
        raise CannotCut(f"{dims.kv_heads} key-value heads do not divide {dims.heads} heads")
    return dims.heads, dims.kv_heads, dims.head_dim


def _head_sizes(roles: tuple[Role, ...], out: int, dims: Dimensions) -> list[int]:
    heads, kv_heads, head_dim = _heads(dims)
    sizes = [(heads if role in (Role.Q, Role.Q_BIAS) else kv_heads) * head_dim for role in roles]
    if sum(sizes) != out:
        raise CannotCut(f"the config makes {' + '.join(map(str, sizes))} rows, the tensor has {out}")
    return sizes


def _grouped(roles: tuple[Role, ...], out: int, dims: Dimensions) -> list[_Piece]:
    """Rows in groups of (query heads of the group, one key head, one value head)."""
    heads, groups, head_dim = _heads(dims)
    stride = (heads // groups + 2) * head_dim
    if groups * stride != out:
        raise CannotCut(f"the config makes {groups} groups of {stride} rows, the tensor has {out}")
    queries = heads // groups * head_dim
    offsets, blocks = (0, queries, queries + head_dim), (queries, head_dim, head_dim)
    parts = zip(roles, offsets, blocks, strict=True)
    return [_Piece(role, groups * block, offset, block, stride) for role, offset, block in parts]


def _check_part(placed: Placed, part: int, inside: int | None, dims: Dimensions) -> None:
    """Equal parts need no config, but must not contradict it."""
    role = placed.rule.roles[0]
    if role in (Role.GATE, Role.GATE_BIAS):
        expert = placed.rule.spec.stacked or placed.expert is not None
        known = (dims.expert_intermediate if expert else None) or dims.intermediate
        if known is not None and part != known:
            raise CannotCut(f"the config makes {known} neurons, the tensor {part}")
    elif role is Role.Q and inside is not None and part != inside:
        raise CannotCut(f"thirds of {part} rows do not match {inside} columns")
