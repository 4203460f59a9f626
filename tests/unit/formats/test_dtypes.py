"""Bytes to floats: every stored format, every bit pattern where there are few enough."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from modelkin.errors import UnsupportedFormat, UsageError
from modelkin.formats.dtypes import BITS, TORCH_STORAGES, decode, is_readable, item_size, number_type

ALL_16_BITS = np.arange(1 << 16, dtype="<u2")
ALL_8_BITS = np.arange(1 << 8, dtype=np.uint8)


def bits_of(numbers):
    return numbers.view(np.uint32 if numbers.dtype == np.float32 else np.uint64)


def test_every_bf16_pattern_keeps_its_bits_also_nan_payloads_and_subnormals():
    assert (bits_of(decode(ALL_16_BITS.tobytes(), "BF16")) == ALL_16_BITS.astype(np.uint32) << 16).all()


def test_every_f16_pattern_has_its_value_and_nan_stays_nan():
    halves = ALL_16_BITS.view("<f2")
    decoded = decode(ALL_16_BITS.tobytes(), "F16")
    numbers = ~np.isnan(halves)
    assert (np.isnan(decoded) == ~numbers).all()
    assert (decoded[numbers].astype(np.float16).view("<u2") == ALL_16_BITS[numbers]).all()


@pytest.mark.parametrize(("dtype", "kind"), [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")])
def test_every_pair_of_fp8_patterns_is_what_ml_dtypes_makes_of_it(dtype, kind):
    raw = ALL_16_BITS.view(np.uint8)
    expected = raw.view(getattr(ml_dtypes, kind)).astype(np.float32)
    np.testing.assert_array_equal(decode(raw.tobytes(), dtype), expected)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 255])
def test_fp8_of_odd_length_reads_its_last_item(count):
    expected = ALL_8_BITS[:count].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(decode(ALL_8_BITS[:count].tobytes(), "F8_E4M3"), expected)


def test_fp8_longer_than_a_block_is_looked_up_throughout():
    raw = np.random.default_rng(0).integers(0, 256, (1 << 18) + 7).astype(np.uint8)
    expected = raw.view(ml_dtypes.float8_e5m2).astype(np.float32)
    np.testing.assert_array_equal(decode(raw.tobytes(), "F8_E5M2"), expected)


@pytest.mark.parametrize(("dtype", "kind"), [("F32", "<f4"), ("F64", "<f8")])
def test_floats_keep_their_bits(dtype, kind):
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).smallest_subnormal, np.finfo(kind).max], kind
    )
    payload = np.frombuffer(b"\x01" + b"\x00" * (special.itemsize - 3) + b"\xf4\x7f", kind)
    values = np.concatenate([special, payload])
    assert (bits_of(decode(values.tobytes(), dtype)) == bits_of(values)).all()


@pytest.mark.parametrize("dtype", ["I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"])
def test_integers_have_their_values_to_the_ends_of_their_range(dtype):
    kind = np.dtype(f"<{dtype[0].lower()}{int(dtype[1:]) // 8}")
    values = np.array([np.iinfo(kind).min, 0, 1, np.iinfo(kind).max], kind)
    decoded = decode(values.tobytes(), dtype)
    assert decoded.dtype == number_type(dtype)
    np.testing.assert_array_equal(decoded, values.astype(decoded.dtype))


def test_booleans_are_zero_or_one_whatever_byte_is_stored():
    assert decode(bytes([0, 1, 2, 255]), "BOOL").tolist() == [0.0, 1.0, 1.0, 1.0]


def test_wide_formats_become_float64_and_the_others_float32():
    assert {dtype for dtype in BITS if is_readable(dtype) and number_type(dtype) == np.float64} == {
        "F64", "I64", "I32", "U64", "U32"
    }  # fmt: skip


def test_a_buffer_is_filled_from_its_front_and_reused():
    buffer = np.full(8, 7.0, np.float32)
    decoded = decode(np.arange(3, dtype="<f2").tobytes(), "F16", out=buffer)
    assert np.shares_memory(decoded, buffer)
    assert buffer.tolist() == [0, 1, 2, 7, 7, 7, 7, 7]


@pytest.mark.parametrize(
    "buffer",
    [np.empty(2, np.float32), np.empty(3, np.float64), np.empty((3, 1), np.float32), np.empty(6, np.float32)[::2]],
)
def test_a_buffer_of_the_wrong_kind_is_refused(buffer):
    with pytest.raises(UsageError, match="3 items of BF16"):
        decode(b"\0" * 6, "BF16", out=buffer)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64", "F8_E4M3", "I32"])
def test_unaligned_bytes_decode_alike(dtype):
    raw = np.random.default_rng(1).integers(0, 120, 64 * item_size(dtype)).astype(np.uint8).tobytes()
    shifted = memoryview(b"x" + raw)[1:]
    np.testing.assert_array_equal(decode(shifted, dtype), decode(raw, dtype))


def test_the_result_owns_its_memory():
    raw = bytearray(np.ones(4, "<f4").tobytes())
    decoded = decode(raw, "F32")
    raw[:] = bytes(16)
    decoded += 1
    assert decoded.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("dtype", ["F4", "F8_E8M0", "F6_E2M3", "F6_E3M2", "C64", "Q9"])
def test_other_formats_are_refused_by_name(dtype):
    with pytest.raises(UnsupportedFormat, match=dtype):
        decode(b"\0" * 8, dtype)


def test_half_an_item_is_refused():
    with pytest.raises(UsageError, match="5 bytes"):
        decode(b"\0" * 5, "F32")


def test_every_torch_storage_has_a_size():
    assert set(TORCH_STORAGES.values()) <= BITS.keys()
