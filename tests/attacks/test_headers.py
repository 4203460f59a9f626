"""Safetensors headers that lie: each is refused for its own reason, and no mutation gets past as something else."""

from __future__ import annotations

import json
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelkin.errors import HeaderLies, ModelkinError
from modelkin.formats import read_layout
from modelkin.formats.reading import iter_blocks, read_rows
from modelkin.sources.memory import MemorySource

MANY = settings(max_examples=1000, deadline=None, database=None)
GOOD = b'{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'


def packed(text, data=b"\1\2"):
    return struct.pack("<Q", len(text)) + text + data


def one(fields, data=b"\1\2"):
    return packed(b'{"x":' + (fields if isinstance(fields, bytes) else json.dumps(fields).encode()) + b"}", data)


def entry(dtype="U8", shape=(2,), offsets=(0, 2), **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def opened(body):
    return read_layout(MemorySource({"model.safetensors": body}), {})


def two(first, second, data):
    header = {"a": entry(shape=(first[1] - first[0],), offsets=first)}
    header["b"] = entry(shape=(second[1] - second[0],), offsets=second)
    return packed(json.dumps(header).encode(), data)


LIES = {
    "an empty file": (b"", "the file has 0"),
    "a file of seven bytes": (b"\0" * 7, "the file has 7"),
    "a header of no length": (struct.pack("<Q", 0) + b"{}", "claims 0 bytes"),
    "a header longer than the file": (struct.pack("<Q", 3) + b"{}", "claims 3 bytes; expected 1 to 2"),
    "a header of 2^64 - 1 bytes": (b"\xff" * 8 + b"{}", "claims 18446744073709551615"),
    "no JSON": (packed(b"hello world"), "starts with '{'"),
    "no UTF-8 in a key": (packed(b'{"\xff\xfe":' + GOOD + b"}"), "not UTF-8"),
    "no UTF-8 in a dtype": (one(b'{"dtype":"\xff","shape":[2],"data_offsets":[0,2]}'), "utf-8"),
    "a byte order mark": (packed(b"\xef\xbb\xbf{}"), "starts with '{'"),
    "UTF-16": (packed("{}".encode("utf-16-le")), 'expected "name"'),
    "half a surrogate": (packed(b'{"\\ud800":' + GOOD + b"}"), "not UTF-8 JSON"),
    "an array": (packed(b"[]"), "starts with '{'"),
    "a number": (packed(b"7"), "starts with '{'"),
    "JSON that ends early": (packed(b'{"x":' + GOOD), 'expected "name"'),
    "JSON that goes on": (packed(b'{"x":' + GOOD + b"} {}"), "the header goes on"),
    "a comma too many": (packed(b'{"x":' + GOOD + b",}"), 'expected "name"'),
    "a control character in a key": (packed(b'{"\0":' + GOOD + b"}"), 'expected "name"'),
    "a key twice": (packed(b'{"x":' + GOOD + b',"x":' + GOOD + b"}"), "'x' appears twice"),
    "a key twice, once escaped": (packed(b'{"x":' + GOOD + b',"\\u0078":' + GOOD + b"}"), "'x' appears twice"),
    "metadata twice": (packed(b'{"__metadata__":{},"__metadata__":{}}'), "appears twice"),
    "a field twice": (one(b'{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}'), "a field twice"),
    "offsets twice": (one(b'{"dtype":"U8","shape":[2],"data_offsets":[0,2],"data_offsets":[0,2]}'), "a field twice"),
    "a metadata key twice": (packed(b'{"__metadata__":{"a":"1","a":"2"}}'), "a field twice"),
    "metadata of numbers": (packed(b'{"__metadata__":{"a":1}}'), "expected text"),
    "metadata of lists": (packed(b'{"__metadata__":["a"]}'), 'expected "name"'),
    "metadata of surrogates": (packed(b'{"__metadata__":{"a":"\\ud800"}}'), "expected text"),
    "an entry that is a list": (one([]), 'expected "name"'),
    "an entry that is null": (one(None), 'expected "name"'),
    "an object inside an entry": (one(entry(dtype={})), 'expected "name"'),
    "an unknown field": (one(entry(extra=1)), "expected dtype, shape and data_offsets"),
    "a missing shape": (one({"dtype": "U8", "data_offsets": [0, 2]}), "expected dtype, shape and data_offsets"),
    "a missing dtype": (one({"shape": [2], "data_offsets": [0, 2]}), "expected dtype, shape and data_offsets"),
    "missing offsets": (one({"shape": [2], "dtype": "U8"}), "expected dtype, shape and data_offsets"),
    "a dtype that is a number": (one(entry(dtype=8)), "Expected `str`"),
    "a shape that is a number": (one(entry(shape=2)), "Expected `array`"),
    "a shape of text": (one(entry(shape=["2"])), "Expected `int`"),
    "a shape of true": (one(entry(shape=[2, True])), "Expected `int`"),
    "a shape of floats": (one(entry(shape=[2.0])), "Expected `int`"),
    "a shape of NaN": (one(entry(shape=[float("nan")])), "expected dtype, shape and data_offsets"),
    "a negative shape": (one(entry(shape=[-2])), "whole numbers from 0"),
    "a shape of 2^48": (one(entry(shape=[0, 2**48], offsets=[0, 0])), "whole numbers from 0"),
    "a shape of 10^400": (one(entry(shape=[10**400])), "whole numbers from 0"),
    "a shape of 33 axes": (one(entry(shape=[1] * 33)), "at most 32"),
    "a product beyond 2^64": (one(entry(shape=[2**33, 2**33])), "overflows"),
    "a product that is 2 modulo 2^64": (one(entry(shape=[2**32 + 1, 2**32 - 1, 2])), "overflows"),
    "an empty product beyond 2^64": (one(entry(shape=[0, 2**40, 2**40], offsets=[0, 0])), "overflows"),
    "a shape larger than the offsets": (one(entry(shape=[3])), "needs 3 bytes, its offsets span 2"),
    "a dtype larger than the offsets": (one(entry(dtype="F32")), "needs 8 bytes, its offsets span 2"),
    "offsets larger than the shape": (one(entry(shape=[])), "needs 1 bytes, its offsets span 2"),
    "offsets behind the data": (one(entry(offsets=[1, 3])), "inside the 2 bytes of data"),
    "offsets far behind the data": (one(entry(shape=[2], offsets=[2**62, 2**62 + 2])), "inside the 2 bytes"),
    "offsets beyond 2^64": (one(entry(offsets=[2**64, 2**64 + 2])), "inside the 2 bytes"),
    "negative offsets": (one(entry(offsets=[-2, 0])), "inside the 2 bytes of data"),
    "offsets in reverse": (one(entry(shape=[0], offsets=[2, 0])), "inside the 2 bytes of data"),
    "one offset": (one(entry(offsets=[0])), "Expected `array` of length 2"),
    "three offsets": (one(entry(offsets=[0, 1, 2])), "Expected `array` of length 2"),
    "offsets of true": (one(entry(shape=[1], offsets=[False, True])), "Expected `int`"),
    "offsets of floats": (one(entry(offsets=[0.0, 2.0])), "Expected `int`"),
    "offsets as text": (one(entry(offsets="02")), "Expected `array`"),
    "tensors that overlap by one byte": (two((0, 3), (2, 5), bytes(5)), "'a' and 'b' overlap"),
    "tensors in the same place": (two((0, 2), (0, 2), bytes(4)), "overlap"),
    "a tensor inside another": (two((0, 5), (1, 2), bytes(5)), "overlap"),
    "objects a thousand deep": (packed(b'{"x":' * 1000), 'expected "name"'),
    "lists a million deep": (packed(b'{"x":{"shape":' + b"[" * 10**6), 'expected "name"'),
    "closed lists a thousand deep": (one(b'{"shape":' + b"[" * 1500 + b"]" * 1500 + b"}"), "'x'"),
    "an entry of a megabyte": (one(b'{"shape":[' + b"1," * 10**6 + b"1]}"), "at most 4096 are read"),
    "metadata a million deep": (packed(b'{"__metadata__":{"a":' + b"[" * 10**6 + b"]" * 10**6 + b"}}"), "got `array`"),
    "metadata of ten megabytes": (
        packed(b'{"__metadata__":{"a":"' + b"x" * 10**7 + b'"}}'),
        "at most 4194304 are read",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_for_its_own_reason(lie):
    body, found = LIES[lie]
    with pytest.raises(HeaderLies) as caught:
        opened(body)
    assert found in str(caught.value)
    assert str(caught.value).startswith("memory/model.safetensors: ")
    assert len(str(caught.value)) < 1000


def test_a_header_beyond_the_limit_is_refused_before_it_is_read():
    class Large(MemorySource):
        """A file of 3 GB that holds only its first bytes."""

        def files(self):
            (fact,) = super().files().values()
            return {fact.name: type(fact)(fact.name, 3 << 30)}

        def read(self, extents, kind="file"):
            assert kind == "header"
            assert all(extent.stop <= 512 << 10 for extent in extents)
            return [memoryview(struct.pack("<Q", 2 << 30).ljust(extent.size, b"x")) for extent in extents]

    with pytest.raises(HeaderLies, match="at most 100000000 are read"):
        read_layout(Large({"model.safetensors": b""}), {})


@pytest.mark.parametrize(
    "body",
    [
        one(entry(shape=[2**47])),
        struct.pack("<Q", 90_000_000) + b"{}",
        packed(b'{"x":' * 10**6),
        packed(b'{"x":{"shape":[' + b"[]," * 10**6 + b"[]]}}"),
        packed(b'{"__metadata__":{"a":[' + b"[]," * 10**6 + b"[]]}}"),
    ],
    ids=["shape", "length", "objects", "lists", "metadata"],
)
def test_no_claim_makes_us_allocate(body):
    source = MemorySource({"model.safetensors": body})
    tracemalloc.start()
    try:
        with pytest.raises(HeaderLies):
            read_layout(source, {})
        assert tracemalloc.get_traced_memory()[1] < 2 * len(body) + (1 << 20)
    finally:
        tracemalloc.stop()


# Mutations: thousands of files that are nearly right.

KINDS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2, "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?",
}  # fmt: skip
HEADER = {
    "__metadata__": {"format": "pt"},
    "model.embed.weight": entry("BF16", (4, 3), (0, 24)),
    "model.norm.weight": entry("F32", (3,), (24, 36)),
    "model.up.weight": entry("F8_E4M3", (2, 3), (36, 42)),
    "model.up.weight_scale_inv": entry("F32", (), (42, 46)),
    "model.mask": entry("BOOL", (2, 1, 2), (46, 50)),
    "empty": entry("F16", (0, 5), (50, 50)),
}
TEXT = json.dumps(HEADER, separators=(",", ":")).encode()
BODY = packed(TEXT, np.random.default_rng(0).integers(0, 2, 50).astype(np.uint8).tobytes())


def expected_numbers(body, name, header):
    """What a tensor holds according to the header alone, computed the plain way."""
    fields = header[name]
    start = 8 + int.from_bytes(body[:8], "little")
    raw = body[start + fields["data_offsets"][0] : start + fields["data_offsets"][1]]
    with np.errstate(all="ignore"):
        numbers = np.frombuffer(raw, KINDS[fields["dtype"]]).astype(np.float64).reshape(fields["shape"])
        scale = f"{name}_scale_inv"
        if scale in header and fields["dtype"].startswith("F8"):
            numbers = numbers * expected_numbers(body, scale, header)
    return numbers


def refused_or_right(body):
    source = MemorySource({"model.safetensors": bytes(body)})
    try:
        layout = read_layout(source, {})
    except ModelkinError:
        return
    header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
    assert layout.tensors.keys() == header.keys() - {"__metadata__"}
    for name, ref in layout.tensors.items():
        try:
            whole, rows = read_rows(source, layout, [(ref, None), (ref, slice(None))])
            blocks = [block.copy() for block in iter_blocks(source, layout, ref, rows_per_block=1)]
        except ModelkinError:
            continue
        expected = expected_numbers(body, name, header)
        assert whole.shape == expected.shape
        np.testing.assert_allclose(whole, expected, rtol=1e-6)
        np.testing.assert_array_equal(rows.ravel(), whole.ravel())
        assert sum(block.size for block in blocks) == whole.size


def test_the_file_that_is_mutated_is_right():
    refused_or_right(BODY)
    assert len(opened(BODY).tensors) == 6


@MANY
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes_are_refused_or_read_right(changes):
    body = bytearray(BODY)
    for position, value in changes:
        body[position] = value
    refused_or_right(bytes(body))


@MANY
@given(st.integers(0, len(BODY) + 40), st.one_of(st.none(), st.integers(0, 2**64 - 1), st.integers(0, len(BODY) + 20)))
def test_truncated_and_extended_files_and_other_lengths_are_refused_or_read_right(size, length):
    body = BODY[:size].ljust(size, b"\0")
    if length is not None and size >= 8:
        body = struct.pack("<Q", length) + body[8:]
    refused_or_right(body)


NUMBERS = st.one_of(
    st.integers(0, 60), st.integers(-3, 3), st.sampled_from([2**31, 2**47, 2**48, 2**63, 2**64, 10**30]), st.booleans(),
    st.none(), st.floats(), st.text(max_size=3), st.lists(st.integers(0, 9), max_size=3),
)  # fmt: skip
FIELD = st.one_of(
    st.tuples(st.just("dtype"), st.one_of(st.sampled_from([*KINDS, "F4", "F8_E8M0", "C64", "F99", ""]), NUMBERS)),
    st.tuples(st.just("shape"), st.one_of(st.lists(NUMBERS, max_size=5), NUMBERS)),
    st.tuples(st.just("data_offsets"), st.one_of(st.lists(NUMBERS, min_size=2, max_size=2), NUMBERS)),
    st.tuples(st.text(max_size=5), NUMBERS),
)


@MANY
@given(st.lists(st.tuples(st.sampled_from(sorted(HEADER)), FIELD), min_size=1, max_size=3), st.booleans())
@example([("model.mask", ("shape", [2**64]))], False)
def test_edited_fields_are_refused_or_read_right(edits, as_ascii):
    header = {name: dict(fields) for name, fields in HEADER.items()}
    for name, (field, value) in edits:
        header[name][field] = value
    text = json.dumps(header, ensure_ascii=as_ascii).encode("utf-8", "surrogatepass")
    refused_or_right(packed(text, BODY[-50:]))


@MANY
@given(st.integers(0, len(TEXT)), st.integers(0, 30), st.text(alphabet='{}[]",:0123456789 xé\\\0', max_size=12))
def test_spliced_headers_are_refused_or_read_right(start, cut, inserted):
    text = TEXT[:start] + inserted.encode() + TEXT[start + cut :]
    refused_or_right(packed(text, BODY[-50:]))
