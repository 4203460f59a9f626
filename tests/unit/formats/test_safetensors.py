"""The safetensors header, beside the safetensors library."""

from __future__ import annotations

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save

from modelkin.errors import HeaderLies, NothingComparable, PackedTensor, UnsupportedFormat
from modelkin.formats import read_layout
from modelkin.formats.reading import read_rows
from modelkin.formats.safetensors import expected_prefix
from modelkin.records import Extent
from modelkin.sources.memory import MemorySource

VALUES = np.arange(12).reshape(3, 4)
KINDS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
    "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "BOOL": np.bool_,
}  # fmt: skip


def packed(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="U8", shape=(0,), offsets=(0, 0)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def layout_of(body, name="model.safetensors"):
    return read_layout(MemorySource({name: body}), {})


@pytest.mark.parametrize("dtype", KINDS)
def test_what_the_library_writes_is_read_back(dtype):
    array = VALUES.astype(KINDS[dtype])
    source = MemorySource({"model.safetensors": save({"x": array}, metadata={"format": "np"})})
    layout = read_layout(source, {})
    ref = layout.tensors["x"]
    assert (ref.dtype, ref.shape, layout.metadata) == (dtype, (3, 4), {"format": "np"})
    (read,) = read_rows(source, layout, [(ref, None)])
    np.testing.assert_array_equal(read, array.astype(read.dtype))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float64"])
def test_what_torch_writes_is_read_back(dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save as save_torch

    tensor = (torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 3).to(getattr(torch, dtype))
    source = MemorySource({"model.safetensors": save_torch({"x": tensor})})
    layout = read_layout(source, {})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], None)])
    np.testing.assert_array_equal(read, tensor.double().numpy() if dtype == "float64" else tensor.float().numpy())


def test_names_keep_the_order_of_the_header():
    body = packed({"z": entry(), "a": entry(), "m": entry()})
    assert list(layout_of(body).tensors) == ["z", "a", "m"]


def test_names_may_be_escaped_or_in_any_script():
    body = packed(json.dumps({"층.가중치": entry()}, ensure_ascii=True).encode())
    assert list(layout_of(body).tensors) == ["층.가중치"]
    body = packed(json.dumps({'층."x"\\': entry()}, ensure_ascii=False).encode())
    assert list(layout_of(body).tensors) == ['층."x"\\']


def test_braces_inside_metadata_text_are_only_text():
    meta = {"config": '{"a": {"b": "}"}}'}
    assert layout_of(packed({"__metadata__": meta, "x": entry()})).metadata == meta


@pytest.mark.parametrize("header", [b"{}", b"{ }   ", b'{"__metadata__":{"format":"pt"}}'])
def test_a_file_without_tensors_has_nothing_to_compare(header):
    with pytest.raises(NothingComparable, match="memory: holds no tensors") as caught:
        layout_of(packed(header))
    assert caught.value.exit_code == 5


def test_padding_is_accepted():
    assert list(
        layout_of(packed(b'{ "x" :\n{"shape":[], "dtype":"U8" , "data_offsets":[0,1]} } \n', b"\7")).tensors
    ) == ["x"]


def test_gaps_and_trailing_bytes_are_noted():
    layout = layout_of(packed({"x": entry("U8", [1], [2, 3])}, b"\0" * 8))
    assert layout.notes == (
        "model.safetensors: 2 bytes between tensors belong to none",
        "model.safetensors: 5 bytes after the last tensor belong to none",
    )


def test_the_prefix_of_a_single_file_is_read_once():
    source = MemorySource({"model.safetensors": save({"x": np.zeros(1 << 20, np.float32)})})
    read_layout(source, {})
    assert [(e.kind, e.start, e.stop) for e in source.ledger.exchanges] == [("header", 0, 128 << 10)]


def test_the_prefix_holds_the_header_that_the_index_lets_expect():
    names = [f"model.layers.7.mlp.experts.{i}.{p}_proj.weight" for i in range(128) for p in ("gate", "up", "down")]
    header = {name: entry("BF16", [1408, 4096], [10**9, 10**9 + 1408 * 8192]) for name in names}
    index = json.dumps({"weight_map": dict.fromkeys(names, "model-00008-of-00047.safetensors")}, indent=2)
    assert len(json.dumps(header, separators=(",", ":"))) < expected_prefix(len(index), 1) < 128 << 10
    assert expected_prefix(100, 47) == 32 << 10
    assert expected_prefix(10**12, 1) == 1 << 20


def test_a_header_longer_than_the_prefix_takes_one_more_read_of_the_rest():
    header = {f"layers.{i}.{'x' * 100}": entry() for i in range(5000)}
    body = packed(header)
    source = MemorySource({"model.safetensors": body})
    assert list(read_layout(source, {}).tensors) == list(header)
    assert [(e.start, e.stop) for e in source.ledger.exchanges] == [(0, 128 << 10), (128 << 10, len(body))]


class CountingSource(MemorySource):
    def __init__(self, files):
        super().__init__(files)
        self.calls = []

    def read(self, extents, kind="file"):
        self.calls.append((kind, list(extents)))
        return super().read(extents, kind)


def test_shards_and_index_come_in_one_round_and_long_headers_in_a_second():
    long = {f"layers.{i}.{'x' * 100}": entry() for i in range(2000)}
    bodies = {
        "model-00001-of-00002.safetensors": packed({"a": entry()}),
        "model-00002-of-00002.safetensors": packed(long),
    }
    weight_map = {"a": "model-00001-of-00002.safetensors"} | dict.fromkeys(long, "model-00002-of-00002.safetensors")
    index = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    source = CountingSource({**bodies, "model.safetensors.index.json": index})
    assert len(read_layout(source, {}).tensors) == 2001
    prefix = expected_prefix(len(index), 2)
    assert source.calls == [
        (
            "header",
            [
                Extent("model-00001-of-00002.safetensors", 0, len(bodies["model-00001-of-00002.safetensors"])),
                Extent("model-00002-of-00002.safetensors", 0, prefix),
                Extent("model.safetensors.index.json", 0, len(index)),
            ],
        ),
        (
            "header",
            [Extent("model-00002-of-00002.safetensors", prefix, len(bodies["model-00002-of-00002.safetensors"]))],
        ),
    ]


def test_a_number_format_of_half_bytes_must_fill_whole_ones():
    with pytest.raises(HeaderLies, match=r"needs 1\.5 bytes"):
        layout_of(packed({"x": entry("F4", [3], [0, 2])}, bytes(2)))


@pytest.mark.parametrize(
    ("dtype", "count", "size"), [("F4", 4, 2), ("F6_E2M3", 4, 3), ("F6_E3M2", 4, 3), ("F8_E8M0", 4, 4), ("C64", 2, 16)]
)
def test_formats_that_are_not_read_are_still_listed_and_checked(dtype, count, size):
    source = MemorySource({"model.safetensors": packed({"x": entry(dtype, [count], [0, size])}, bytes(size))})
    layout = read_layout(source, {})
    with pytest.raises(UnsupportedFormat if dtype == "C64" else PackedTensor, match=dtype):
        read_rows(source, layout, [(layout.tensors["x"], None)])


def test_an_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(UnsupportedFormat, match=r"'x': unknown dtype 'F128'; known are F64, F32"):
        layout_of(packed({"x": entry("F128", [1], [0, 16])}, bytes(16)))


def test_a_git_lfs_pointer_is_recognised():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    with pytest.raises(UnsupportedFormat, match="Git LFS pointer") as caught:
        layout_of(pointer)
    assert "git lfs pull" in caught.value.hint
