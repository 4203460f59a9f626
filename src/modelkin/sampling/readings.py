"""The rows that were read of one model: fetched by a plan, kept in a record, and found again there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.architectures.views import Columns, Rows
from modelkin.errors import NothingComparable, UnreadableError
from modelkin.records import Cut, KeptRows, Portrait, ReadDigest, Slot, StoredRows

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
    return dict(zip(cuts, anatomy.read_many([_wanted(cut) for cut in cuts]), strict=True))


def bytes_of(anatomy: Anatomy, cuts: Iterable[Cut]) -> int:
    """What `read` would read of the weights."""
    return anatomy.bytes_of([_wanted(cut) for cut in cuts])


def transfer_of(anatomy: Anatomy, cuts: Iterable[Cut]) -> int:
    """The same with what lies between near ranges, which a Hub sends along."""
    return anatomy.transfer([_wanted(cut) for cut in cuts])


def kept_bytes(anatomy: Anatomy, cuts: Iterable[Cut]) -> int:
    """What a record would keep of the cuts, at most: four bytes a number, or two where it is stored in two."""
    return sum(_numbers(anatomy, cut) * _kept_size(anatomy, cut.slot) for cut in cuts)


def _numbers(anatomy: Anatomy, cut: Cut) -> int:
    rows, *rest = anatomy.shape(cut.slot)
    height = len(cut.rows) or (rows if cut.start is None else (cut.stop or rows) - cut.start)
    return height * (math.prod(rest) if cut.columns is None else _length(cut.columns))


def _kept_size(anatomy: Anatomy, slot: Slot) -> int:
    as_stored = not (slot.role.is_gain and anatomy.facts.gain_offset)
    return 2 if as_stored and anatomy.dtype(slot) in ("BF16", "F16") else 4


def _wanted(cut: Cut) -> tuple[Slot, Rows, Columns | None]:
    rows = None if cut.start is None else slice(cut.start, cut.stop)
    return cut.slot, list(cut.rows) if cut.rows else rows, cut.columns


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
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is kept wider
            small = array.astype(DTYPES[name])
        if np.array_equal(small.astype(np.float32), array, equal_nan=True):
            return StoredRows(cut=cut, dtype=name, shape=array.shape, data=small.tobytes())
    raise UnreadableError(f"{cut} is not float32", where="readings")


def keep(a: Readings, b: Readings) -> KeptRows:
    """What a record keeps of two models, sealed."""
    return sealed(KeptRows(portrait_a=a.portrait, portrait_b=b.portrait, a=pack(a.arrays), b=pack(b.arrays)))


def sealed(rows: KeptRows) -> KeptRows:
    """The same with the digest of everything in it."""
    body = msgspec.json.encode(msgspec.structs.replace(rows, sha256=""))
    return msgspec.structs.replace(rows, sha256=sha256(body).hexdigest())


def digests(arrays: Mapping[Cut, Floats]) -> tuple[ReadDigest, ...]:
    """What was read, by digest, for whoever reads it again."""
    return tuple(
        ReadDigest(cut=cut, sha256=sha256(np.ascontiguousarray(array, "<f4").data).hexdigest())
        for cut, array in arrays.items()
    )


def unpack(stored: Iterable[StoredRows]) -> dict[Cut, Floats]:
    """What `pack` kept. Everything is checked before it is believed, for the record may have been edited."""
    found: dict[Cut, Floats] = {}
    for part in stored:
        dtype = DTYPES[part.dtype]
        if not 1 <= len(part.shape) <= 2 or min(part.shape) < 1 or not _fits(part.cut, part.shape):
            raise UnreadableError(f"{part.cut} cannot have the shape {list(part.shape)}", where="rows")
        expected = math.prod(part.shape) * dtype.itemsize
        if expected != len(part.data):
            raise UnreadableError(f"{part.cut}: {len(part.data)} bytes kept for {expected}", where="rows")
        if part.cut in found:
            raise UnreadableError(f"{part.cut} is kept twice", where="rows")
        found[part.cut] = np.frombuffer(part.data, dtype).astype(np.float32).reshape(part.shape)
    return found


def _fits(cut: Cut, shape: tuple[int, ...]) -> bool:
    """Whether a cut can have as many rows and columns."""
    if cut.columns is not None and (len(shape) != 2 or cut.columns[0] < 0 or _length(cut.columns) != shape[1]):
        return False
    if cut.rows:
        return len(cut.rows) == shape[0] and min(cut.rows) >= 0
    if cut.start is None or cut.stop is None:
        return cut.start is cut.stop
    return cut.start >= 0 and _length((cut.start, cut.stop)) == shape[0]


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]
