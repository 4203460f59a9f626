"""A checkpoint seen as slots: every stored tensor placed, set apart, or left over, in one orientation (out, in)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from modelkin.architectures.family import Norm, Placement, Positions
from modelkin.architectures.views import Columns, Floats, Rows, View
from modelkin.errors import NothingComparable
from modelkin.records import Role, Slot

if TYPE_CHECKING:
    from modelkin.checkpoint import Checkpoint

Layers = int | dict[str, int] | None
Request = tuple[str, slice | list[int] | None]
Wanted = tuple[Slot, Rows] | tuple[Slot, Rows, Columns | None]


class Facts(msgspec.Struct, frozen=True):
    """What kind of model it is. None or "unknown": neither the config nor the tensors tell.

    `layers` counts what is stored (per stack where there are two), `configured_layers` what the config claims;
    `hidden` is measured on the tensors where it can be, everything else is the config's. Where `gain_offset` is None,
    gains are read as stored, and nobody knows what the model adds to them.
    """

    family: str
    model_type: str
    layers: Layers
    configured_layers: Layers
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    intermediate: int | None
    expert_intermediate: int | None
    experts: int | None
    vocabulary: int | None
    norm: Norm
    gain_offset: float | None
    norm_bias: bool | None
    norm_placement: Placement
    stream_norm: bool | None
    positions: Positions
    activation: str | None
    gated: bool | None
    tied: bool
    exchangeable_hidden: bool
    why: str


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Slots of a checkpoint, and what is not one. `layers` names the layers found: `3`, or `encoder.3`."""

    checkpoint: Checkpoint
    facts: Facts
    slots: Mapping[Slot, View]
    unmapped: tuple[str, ...]
    apart: Mapping[str, str]
    notes: tuple[str, ...]
    layers: tuple[str, ...]

    def read(self, slot: Slot, rows: Rows = None) -> Floats:
        """A slot as float32: (out, in), or (n,) for gains and biases; gains as the model applies them, if known."""
        return self.read_many([(slot, rows)])[0]

    def read_many(self, wanted: Sequence[Wanted], kind: str = "tensor") -> list[Floats]:
        """Several slots in one batch: (slot, rows), or (slot, rows, columns).

        `rows` (None, a slice, or indices) are rows of the slot, `columns` a block [start, stop) of every row.
        """
        asked = [_in_full(part) for part in wanted]
        places, distinct = _distinct(self.view(slot).request(rows, columns) for slot, rows, columns in asked)
        arrays = self.checkpoint.read_many(distinct, kind)
        return [
            self._effective(slot, self.view(slot).result(arrays[place], rows, columns))
            for place, (slot, rows, columns) in zip(places, asked, strict=True)
        ]

    def bytes_of(self, wanted: Sequence[Wanted]) -> int:
        """What `read_many` would read of the weights: whole matrices where a slot is not stored the way it is asked."""
        asked = [_in_full(part) for part in wanted]
        _, distinct = _distinct(self.view(slot).request(rows, columns) for slot, rows, columns in asked)
        return sum(self._stored_bytes(*request) for request in distinct)

    def transfer(self, wanted: Sequence[Wanted]) -> int:
        """What `read_many` would read of the source, with the gaps between near ranges that a Hub sends along."""
        asked = [_in_full(part) for part in wanted]
        _, distinct = _distinct(self.view(slot).request(rows, columns) for slot, rows, columns in asked)
        return self.checkpoint.transfer(distinct)

    def _stored_bytes(self, name: str, rows: slice | list[int] | None) -> int:
        ref = self.checkpoint.tensors[name]
        height = math.prod(ref.shape[:-1])
        if rows is None or not height:
            return ref.extent.size
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return count * ref.extent.size // height

    def view(self, slot: Slot) -> View:
        """Where a slot is stored."""
        try:
            return self.slots[slot]
        except KeyError:
            raise NothingComparable(f"there is no {slot}", where=self.checkpoint.id) from None

    def shape(self, slot: Slot) -> tuple[int, ...]:
        return self.view(slot).shape

    def dtype(self, slot: Slot) -> str:
        return self.checkpoint.tensors[self.view(slot).tensor].dtype

    def roles(self) -> tuple[Role, ...]:
        """The roles that occur, in the order of the vocabulary."""
        found = {slot.role for slot in self.slots}
        return tuple(role for role in Role if role in found)

    def of(self, role: Role) -> tuple[Slot, ...]:
        """The slots of one role, in order."""
        return tuple(slot for slot in self.slots if slot.role is role)

    def _effective(self, slot: Slot, array: Floats) -> Floats:
        array = array.astype(np.float32, copy=False)
        if slot.role.is_gain and self.facts.gain_offset:
            return array + np.float32(self.facts.gain_offset)
        return array


def _in_full(part: Wanted) -> tuple[Slot, Rows, Columns | None]:
    return part if len(part) == 3 else (part[0], part[1], None)


def _distinct(requests: Iterable[Request]) -> tuple[list[int], list[Request]]:
    """Each different request once (three slots of one fused tensor may need the same bytes), and who wants which."""
    found: dict[object, int] = {}
    distinct: list[Request] = []
    places = []
    for name, rows in requests:
        key = (name, rows if rows is None else (rows.start, rows.stop) if isinstance(rows, slice) else tuple(rows))
        if key not in found:
            found[key] = len(distinct)
            distinct.append((name, rows))
        places.append(found[key])
    return places, distinct
