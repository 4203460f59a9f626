"""Stored number formats: how large an item is, and how bytes become floats. Little-endian always."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.errors import UnsupportedFormat, UsageError

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
    # Known by size, so that a header holding them can be checked; their values are not read.
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64, "C128": 128,
}  # fmt: skip

FP8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
INTEGERS = frozenset({"I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"})
PACKED = frozenset({"F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"})  # mean something only together with other tensors

TORCH_STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL", "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128",
}  # fmt: skip

_STORED = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "BOOL": "u1",
}  # fmt: skip
_WIDE = frozenset({"F64", "I64", "I32", "U64", "U32"})  # float32 would lose digits
_PAIRS_PER_BLOCK = 1 << 16  # numpy widens indices to 8 bytes: half a megabyte at a time stays in the cache

Numbers = NDArray[Any]  # float32, or float64 for the wide formats
Raw = bytes | bytearray | memoryview


def is_readable(dtype: str) -> bool:
    return dtype in _STORED


def item_size(dtype: str) -> int:
    """Bytes of one item of a format that can be read."""
    return np.dtype(_stored_type(dtype)).itemsize


def number_type(dtype: str) -> np.dtype[Any]:
    """What `decode` gives: float32, or float64 where float32 would lose digits."""
    return np.dtype(np.float64 if dtype in _WIDE else np.float32)


def decode(raw: Raw, dtype: str, out: Numbers | None = None) -> Numbers:
    """Bytes to a fresh 1-D float array, or into the front of `out`. NaN and infinities pass through."""
    code = _stored_type(dtype)
    if len(raw) % item_size(dtype):
        raise UsageError(f"{len(raw)} bytes are not a whole number of {dtype} items of {item_size(dtype)} bytes")
    stored = np.frombuffer(raw, dtype=code)
    numbers = _target(stored.size, dtype, out)
    if dtype in FP8:
        _look_up_pairs(stored, dtype, numbers)
        return numbers
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
        np.copyto(numbers, _as_numbers(stored, dtype), casting="unsafe")
    return numbers


def _stored_type(dtype: str) -> str:
    try:
        return _STORED[dtype]
    except KeyError:
        raise UnsupportedFormat(
            f"values of dtype {dtype!r} are not read; readable are {', '.join(_STORED)}",
            hint="use a copy of the model saved in one of these",
        ) from None


def _target(count: int, dtype: str, out: Numbers | None) -> Numbers:
    wanted = number_type(dtype)
    if out is None:
        return np.empty(count, wanted)
    if out.ndim != 1 or out.dtype != wanted or out.size < count or not out.flags.c_contiguous:
        raise UsageError(
            f"decoding {count} items of {dtype} needs a contiguous 1-D {wanted} buffer at least that long, "
            f"found {out.dtype} of shape {out.shape}"
        )
    return out[:count]


def _as_numbers(stored: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "BOOL":
        return stored.astype(np.bool_)
    if dtype == "BF16":
        import ml_dtypes

        return stored.astype(np.uint16, copy=False).view(ml_dtypes.bfloat16)
    return stored


def _look_up_pairs(stored: NDArray[np.uint8], dtype: str, numbers: Numbers) -> None:
    """Two FP8 items at a time: four times the speed of casting one by one."""
    table = _pair_table(dtype)
    even = stored.size & ~1
    pairs, slots = stored[:even].view("<u2"), numbers[:even].view(np.uint64)
    for start in range(0, pairs.size, _PAIRS_PER_BLOCK):
        block = slice(start, start + _PAIRS_PER_BLOCK)
        np.take(table, pairs[block], out=slots[block], mode="wrap")
    if even < stored.size:
        last = int(stored[even])
        numbers[even] = table[last : last + 1].view(np.float32)[0]


@cache
def _pair_table(dtype: str) -> NDArray[np.uint64]:
    """For each two bytes (first one low) both float32 values, as one 8-byte item."""
    import ml_dtypes

    with np.errstate(invalid="ignore"):
        single = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, FP8[dtype])).astype(np.float32)
    pairs = np.empty((256, 256, 2), np.float32)
    pairs[..., 0] = single
    pairs[..., 1] = single[:, None]
    return pairs.reshape(-1).view(np.uint64)
