"""Which rows of a model were read, and what a question must know of the model they come from."""

from __future__ import annotations

from typing import Literal

import msgspec

from modelkin.records.models import Slot


class Cut(msgspec.Struct, frozen=True, order=True):
    """Rows [start, stop) of a slot, or those listed, or all of it; of these all columns, or [first, last) alone."""

    slot: Slot
    start: int | None = None
    stop: int | None = None
    rows: tuple[int, ...] = ()
    columns: tuple[int, int] | None = None

    def __str__(self) -> str:
        block = "" if self.columns is None else f", columns {self.columns[0]} to {self.columns[1]}"
        if self.rows:
            return f"{self.slot}, {len(self.rows)} rows{block}"
        return f"{self.slot}{block}" if self.start is None else f"{self.slot}, rows {self.start} to {self.stop}{block}"


class StoredRows(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a cut, in the smallest dtype that holds them exactly."""

    cut: Cut
    dtype: Literal["BF16", "F16", "F32"]
    shape: tuple[int, ...]
    data: bytes


class ReadDigest(msgspec.Struct, frozen=True, kw_only=True):
    """sha256 of the numbers of a cut as they were read: float32, little-endian, row by row.

    Experts of a layer have one digest together (slot without expert, `matrices` their number): that of the digests of
    all of them in order, as hexadecimal text.
    """

    cut: Cut
    sha256: str
    matrices: int = 1


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one model that an answer depends on. `layers` are names: `3`, or `encoder.3`."""

    family: str
    layers: tuple[str, ...]
    hidden: int | None
    neurons: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    experts: int | None
    norm: str
    gain_offset: float | None
    positions: str
    tied: bool
    exchangeable_hidden: bool
    why: str
