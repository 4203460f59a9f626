"""The rows that were read of one model: fetched by a plan, kept in a record, and found again there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.errors import NothingComparable, UnreadableError
from modelkin.records import Cut, Portrait, StoredRows

Floats = NDArray[np.float32]
DTYPES = {"BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}


@dataclass(frozen=True, eq=False)
class Readings:
    """Cuts of one model as float32 arrays, each (rows, in) or (n,)."""

    portrait: Portrait
    arrays: Mapping[Cut, Floats]

    def __getitem__(self, cut: Cut) -> Floats:
        try:
            return self.arrays[cut]
        except KeyError:
            raise NothingComparable(f"{cut} was not read", where=self.portrait.family) from None

    def only(self, cuts: Iterable[Cut]) -> Readings:
        return Readings(self.portrait, {cut: self[cut] for cut in cuts})


def read(anatomy: Anatomy, cuts: Sequence[Cut]) -> dict[Cut, Floats]:
    """All cuts in one batch of requests."""
    wanted = [(cut.slot, list(cut.rows) if cut.rows else _rows(cut)) for cut in cuts]
    return dict(zip(cuts, anatomy.read_many(wanted), strict=True))


def _rows(cut: Cut) -> slice | None:
    return None if cut.start is None else slice(cut.start, cut.stop)


def portrait(anatomy: Anatomy) -> Portrait:
    facts = anatomy.facts
    return Portrait(
        family=facts.family,
        layers=anatomy.layers,
        hidden=facts.hidden,
        neurons=facts.expert_intermediate if facts.experts else facts.intermediate,
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        experts=facts.experts,
        norm=facts.norm,
        gain_offset=facts.gain_offset,
        positions=facts.positions,
        tied=facts.tied,
        exchangeable_hidden=facts.exchangeable_hidden,
        why=facts.why,
    )


def pack(arrays: Mapping[Cut, Floats]) -> tuple[StoredRows, ...]:
    """Every array in the smallest dtype that holds it to the bit."""
    return tuple(_packed(cut, array) for cut, array in sorted(arrays.items(), key=lambda item: str(item[0])))


def _packed(cut: Cut, array: Floats) -> StoredRows:
    for name in ("BF16", "F16", "F32"):
        with np.errstate(over="ignore"):
            small = array.astype(DTYPES[name])
        if np.array_equal(small.astype(np.float32), array, equal_nan=True):
            return StoredRows(cut=cut, dtype=name, shape=array.shape, data=small.tobytes())
    raise UnreadableError(f"{cut} is not float32", where="readings")


def unpack(stored: Iterable[StoredRows]) -> dict[Cut, Floats]:
    """What `pack` kept. Sizes are checked, for the record may have been edited."""
    found: dict[Cut, Floats] = {}
    for part in stored:
        dtype = DTYPES[part.dtype]
        expected = int(np.prod(part.shape, dtype=np.int64)) * dtype.itemsize
        if expected != len(part.data):
            raise UnreadableError(f"{part.cut}: {len(part.data)} bytes kept for {expected}", where="rows")
        found[part.cut] = np.frombuffer(part.data, dtype).astype(np.float32).reshape(part.shape)
    return found
