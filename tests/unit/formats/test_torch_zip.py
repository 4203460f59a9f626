"""PyTorch zip files, beside torch itself."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from modelkin.errors import HeaderLies, UnsafePickle, UnsupportedFormat
from modelkin.formats import read_layout
from modelkin.formats.reading import read_rows
from modelkin.sources.memory import MemorySource

torch = pytest.importorskip("torch")


def saved(value, **options):
    body = io.BytesIO()
    torch.save(value, body, **options)
    return body.getvalue()


def opened(value, **options):
    source = MemorySource({"pytorch_model.bin": saved(value, **options)})
    return source, read_layout(source, {})


def repacked(body, change=None, **options):
    """The same archive written by another zip writer: no padding, no data descriptors."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(out, "w", **options) as new:
        entries = {name: old.read(name) for name in old.namelist()}
        for name, data in (change(entries) if change else entries).items():
            new.writestr(name, data)
    return out.getvalue()


def assert_reads_like_torch(source, layout, tensors):
    refs = [layout.tensors[name] for name in tensors]
    for ref, read in zip(refs, read_rows(source, layout, [(ref, None) for ref in refs]), strict=True):
        expected = tensors[ref.name].detach().double().numpy()
        assert read.shape == expected.shape
        np.testing.assert_array_equal(read, expected.astype(read.dtype))


DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def test_every_number_format_is_read_like_torch_reads_it():
    tensors = {name: torch.arange(-3, 3).reshape(2, 3).abs().to(dtype) for name, dtype in DTYPES.items()}
    source, layout = opened(tensors)
    assert {name: ref.dtype for name, ref in layout.tensors.items()} == {name: name for name in DTYPES}
    assert layout.format == "torch"
    assert_reads_like_torch(source, layout, tensors)


def test_a_state_dict_with_its_metadata_is_read():
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    state = model.state_dict()
    assert hasattr(state, "_metadata")
    source, layout = opened(state)
    assert list(layout.tensors) == list(state)
    assert_reads_like_torch(source, layout, state)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_is_read(protocol):
    tensors = {"a": torch.randn(4, 4), "b": torch.randn(3).half()}
    source, layout = opened(tensors, pickle_protocol=protocol)
    assert_reads_like_torch(source, layout, tensors)


def test_views_transposed_sliced_and_expanded_by_one_are_honoured():
    base = torch.randn(6, 8)
    tensors = {
        "transposed": base.t(),
        "sliced": base[1:4, 2:5],
        "stepped": base[::2, ::3],
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "positions": torch.arange(5).expand(1, -1),
        "tail": base.flatten()[40:],
        "number": torch.tensor(2.5),
        "nothing": torch.empty(0, 3),
    }
    source, layout = opened(tensors)
    assert layout.tensors["transposed"].strides == (1, 8)
    assert layout.tensors["positions"].strides is None
    assert_reads_like_torch(source, layout, tensors)


def test_rows_of_a_transposed_tensor_are_its_rows():
    tensor = torch.randn(6, 8).t()
    source, layout = opened({"x": tensor})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], [5, 0])])
    np.testing.assert_array_equal(read, tensor[[5, 0]].numpy())


def test_tied_weights_are_two_names_for_the_same_bytes():
    weight = torch.randn(4, 4)
    _, layout = opened({"embed": weight, "head": weight})
    assert layout.tensors["embed"].extent == layout.tensors["head"].extent


def test_nested_dictionaries_have_dotted_names_and_the_rest_is_noted():
    value = {
        "state_dict": {"model.x": torch.ones(2)},
        "epoch": 3,
        "args": {"lr": 0.1, "tags": ["a", None]},
        7: [torch.ones(1)],
    }
    _, layout = opened(value)
    assert list(layout.tensors) == ["state_dict.model.x", "7.0"]
    assert layout.notes == (
        "pytorch_model.bin: 4 values that are no tensors were passed over "
        "('epoch', 'args.lr', 'args.tags.0', 'args.tags.1')",
    )


def test_an_archive_without_padding_and_one_in_zip64_are_read():
    tensors = {"a": torch.randn(40, 40), "b": torch.randn(7).bfloat16()}
    for body in (repacked(saved(tensors)), _zip64(saved(tensors))):
        source = MemorySource({"pytorch_model.bin": body})
        assert_reads_like_torch(source, read_layout(source, {}), tensors)


def _zip64(body):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            with new.open(name, "w", force_zip64=True) as entry:
                entry.write(old.read(name))
    return out.getvalue()


class CountingSource(MemorySource):
    def __init__(self, files):
        super().__init__(files)
        self.calls = []

    def read(self, extents, kind="file"):
        self.calls.append(list(extents))
        return super().read(extents, kind)


def test_a_large_file_takes_a_head_a_tail_and_one_round_of_local_headers():
    tensors = {f"layers.{i}": torch.full((300, 300), float(i)) for i in range(6)}
    source = CountingSource({"pytorch_model.bin": saved(tensors)})
    layout = read_layout(source, {})
    opening, locals_ = source.calls
    size = source.files()["pytorch_model.bin"].size
    assert [(e.start, e.stop) for e in opening] == [(0, 256 << 10), (size - (64 << 10), size)]
    assert 0 < len(locals_) < 6
    assert all(extent.size < 64 for extent in locals_)
    assert_reads_like_torch(source, layout, tensors)


def test_a_small_file_takes_one_read():
    source = CountingSource({"pytorch_model.bin": saved({"x": torch.ones(3)})})
    read_layout(source, {})
    assert [len(call) for call in source.calls] == [1]


def test_a_long_pickle_is_read_to_its_end():
    tensors = {f"layers.{i}.{'x' * 300}": torch.full((1,), float(i)) for i in range(1500)}
    source, layout = opened(tensors)
    assert len(source.files()) == 1
    assert_reads_like_torch(source, layout, tensors)


def test_shards_with_an_index_are_read_together():
    first, second = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
    tensors = {"a": torch.randn(300, 300), "b": torch.randn(300, 300)}
    index = json.dumps({"weight_map": {"a": first, "b": second}}).encode()
    files = {
        first: saved({"a": tensors["a"]}),
        second: saved({"b": tensors["b"]}),
        "pytorch_model.bin.index.json": index,
    }
    source = CountingSource(files)
    layout = read_layout(source, {})
    assert {extent.file for extent in source.calls[0]} == set(files)
    assert_reads_like_torch(source, layout, tensors)


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        (torch.zeros(2).to(torch.float8_e4m3fn), "_rebuild_tensor_v3"),
        (torch.zeros(2).to(torch.uint16), "_rebuild_tensor_v3"),
        (torch.nn.Parameter(torch.zeros(2)), "_rebuild_parameter"),
        (torch.nn.Parameter(torch.zeros(2).to(torch.float8_e5m2), requires_grad=False), "_rebuild_parameter"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_harmless_form_of_tensor_that_is_not_read_is_named_without_alarm(tensor, name, protocol):
    with pytest.raises(UnsupportedFormat, match=f"{name}, a form of tensor that is not read") as caught:
        opened({"x": tensor, "y": torch.ones(2)}, pickle_protocol=protocol)
    assert caught.value.hint == "save it again as safetensors"


def test_a_single_tensor_without_a_name_is_refused():
    with pytest.raises(UnsupportedFormat, match="expected named tensors"):
        opened(torch.ones(2))


def test_a_file_from_before_pytorch_1_6_is_refused_with_advice():
    with pytest.raises(UnsupportedFormat, match=r"before 1\.6") as caught:
        opened({"x": torch.ones(2)}, _use_new_zipfile_serialization=False)
    assert "safetensors" in caught.value.hint


def test_an_archive_with_code_is_refused():
    body = repacked(saved({"x": torch.ones(2)}), lambda entries: entries | {"archive/code/__torch__.py": b"pass"})
    with pytest.raises(UnsupportedFormat, match="TorchScript"):
        read_layout(MemorySource({"pytorch_model.bin": body}), {})


def test_compressed_entries_are_refused():
    body = repacked(saved({"x": torch.ones(2)}), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsupportedFormat, match="compressed"):
        read_layout(MemorySource({"pytorch_model.bin": body}), {})


def test_another_byte_order_is_refused():
    body = repacked(saved({"x": torch.ones(2)}), lambda entries: entries | {"archive/byteorder": b"big"})
    with pytest.raises(UnsupportedFormat, match="byte order b'big'"):
        read_layout(MemorySource({"pytorch_model.bin": body}), {})


def test_an_archive_without_a_byte_order_is_little():
    def older(entries):
        return {name: data for name, data in entries.items() if not name.endswith("byteorder")}

    tensors = {"x": torch.randn(3)}
    source = MemorySource({"pytorch_model.bin": repacked(saved(tensors), older)})
    assert_reads_like_torch(source, read_layout(source, {}), tensors)


def test_a_missing_storage_is_named():
    def without(entries):
        return {name: data for name, data in entries.items() if not name.endswith("data/0")}

    with pytest.raises(HeaderLies, match="'x': there is no storage '0'"):
        read_layout(MemorySource({"pytorch_model.bin": repacked(saved({"x": torch.ones(2)}), without)}), {})


def test_a_storage_of_another_size_is_refused():
    body = repacked(saved({"x": torch.ones(2)}), lambda entries: entries | {"archive/data/0": b"\0" * 4})
    with pytest.raises(HeaderLies, match="2 items of F32 do not fill the 4 bytes"):
        read_layout(MemorySource({"pytorch_model.bin": body}), {})


@pytest.mark.parametrize(
    ("body", "error", "found"),
    [
        (b"\x80\x04K\x01.", UnsafePickle, "a bare pickle"),
        (b"\0" * 257 + b"ustar" + b"\0" * 300, UnsupportedFormat, "before 1.6"),
        (b"hello world", UnsupportedFormat, "expected a PyTorch zip file"),
        (b"", UnsupportedFormat, "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1", UnsupportedFormat, "Git LFS pointer"),
        (b"PK\3\4" + b"\0" * 100, HeaderLies, "no zip directory"),
    ],
)
def test_other_files_are_told_apart(body, error, found):
    with pytest.raises(error, match=found):
        read_layout(MemorySource({"pytorch_model.bin": body}), {})
