"""Which files are the weights, and whether they agree with each other."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save

from modelkin.errors import HeaderLies, NotFound, NothingComparable, UnsupportedFormat
from modelkin.formats import read_layout
from modelkin.sources.memory import MemorySource

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def weights(*names):
    return save({name: np.ones((2, 3), np.float32) for name in names})


def index_of(weight_map):
    return json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}).encode()


def layout_of(files, **options):
    return read_layout(MemorySource(files, id="some/model"), {}, **options)


def files_of(layout):
    return sorted({ref.file for ref in layout.tensors.values()})


SHARDED = {FIRST: weights("a"), SECOND: weights("b"), INDEX: index_of({"a": FIRST, "b": SECOND})}


def test_shards_are_read_in_their_order():
    layout = layout_of(SHARDED)
    assert list(layout.tensors) == ["a", "b"]
    assert (layout.format, layout.notes) == ("safetensors", ())


def test_a_shard_without_tensors_beside_one_that_has_some_is_no_harm():
    assert list(layout_of({"one.safetensors": weights("a"), "two.safetensors": weights()}).tensors) == ["a"]


@pytest.mark.parametrize("id", ["models/zero.safetensors", "zero.safetensors", r"C:\models\zero.safetensors"])
def test_a_source_that_is_the_file_itself_is_named_once(id):
    with pytest.raises(HeaderLies) as caught:
        read_layout(MemorySource({"zero.safetensors": b""}, id=id), {})
    assert caught.value.where == id


def test_a_file_is_named_beside_a_source_of_another_name_or_of_several_files():
    with pytest.raises(HeaderLies) as caught:
        read_layout(MemorySource({"x.safetensors": b""}, id="a/prefix.x.safetensors"), {})
    assert caught.value.where == "a/prefix.x.safetensors/x.safetensors"
    with pytest.raises(HeaderLies) as caught:
        read_layout(MemorySource({"x.safetensors": b"", "config.json": b"{}"}, id="x.safetensors"), {})
    assert caught.value.where == "x.safetensors/x.safetensors"


def test_progress_is_told():
    told = []
    read_layout(MemorySource(SHARDED), {}, lambda *step: told.append(step))
    assert told == [("headers of 2 files", 0, 0)]


def test_the_index_need_not_be_read_where_shard_names_are_complete():
    source = MemorySource(SHARDED)
    layout = read_layout(source, {}, read_index=False)
    assert list(layout.tensors) == ["a", "b"]
    assert layout.notes == ("index not read: shard names are complete",)
    assert INDEX not in {exchange.file for exchange in source.ledger.exchanges}


@pytest.mark.parametrize("read_index", [True, False])
def test_the_index_tells_shards_of_other_names(read_index):
    files = {"one.safetensors": weights("a"), "two.safetensors": weights("b"), "stray.safetensors": weights("c")}
    layout = layout_of(
        files | {INDEX: index_of({"a": "one.safetensors", "b": "two.safetensors"})}, read_index=read_index
    )
    assert files_of(layout) == ["one.safetensors", "two.safetensors"]


def test_a_further_shard_that_only_the_index_names_is_read_too():
    files = SHARDED | {"extra.safetensors": weights("c")}
    files[INDEX] = index_of({"a": FIRST, "b": SECOND, "c": "extra.safetensors"})
    assert files_of(layout_of(files)) == ["extra.safetensors", FIRST, SECOND]


def test_two_sets_of_shards_are_told_apart_by_the_index():
    stale = {f"model-0000{i}-of-00003.safetensors": weights(str(i)) for i in (1, 2, 3)}
    assert files_of(layout_of(SHARDED | stale)) == [FIRST, SECOND]


@pytest.mark.parametrize("read_index", [True, False])
def test_a_shard_that_is_listed_but_missing_is_named(read_index):
    files = {FIRST: weights("a"), INDEX: index_of({"a": FIRST, "b": SECOND})}
    with pytest.raises(NotFound, match=SECOND):
        layout_of(files, read_index=read_index)


def test_an_index_without_any_shard_names_them():
    with pytest.raises(NotFound, match=f"lists '{FIRST}', '{SECOND}'"):
        layout_of({INDEX: SHARDED[INDEX]})


def test_a_missing_shard_is_noticed_without_an_index():
    with pytest.raises(NotFound, match=f"{SECOND} is missing; 1 of 2 shards are there"):
        layout_of({FIRST: weights("a"), "config.json": b"{}"})


def test_a_single_shard_may_be_looked_at_alone():
    layout = layout_of({FIRST: weights("a")})
    assert layout.notes == (f"{FIRST} is one shard of 2",)


@pytest.mark.parametrize(
    ("weight_map", "found"),
    [
        ({"a": FIRST, "b": FIRST}, f"puts 'b' into {FIRST}"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, f"puts 'c' into {SECOND}"),
        ({"a": FIRST}, f"names no tensor of '{SECOND}'"),
    ],
)
def test_an_index_that_disagrees_with_a_header_lies(weight_map, found):
    with pytest.raises(HeaderLies, match=found):
        layout_of(SHARDED | {INDEX: index_of(weight_map)})


def test_a_tensor_that_the_index_leaves_out_is_noted():
    layout = layout_of({FIRST: weights("a", "c"), SECOND: weights("b"), INDEX: index_of({"a": FIRST, "b": SECOND})})
    assert list(layout.tensors) == ["a", "c", "b"]
    assert any("'c'" in note for note in layout.notes)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "a/../../x.safetensors", "/etc/x", "..\\x", "a\\x", "C:x", "", "x\0", "\ud800"]
)
def test_shard_names_with_path_tricks_are_refused(name):
    index = json.dumps({"weight_map": {"a": name}}).encode()
    with pytest.raises(HeaderLies):
        layout_of({INDEX: index, "one.safetensors": weights("a")})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {"a": 3}}', b"\xff", b"[" * 100_000]
)
def test_an_index_that_is_none_is_refused(body):
    with pytest.raises(HeaderLies, match="expected an object with a weight_map"):
        layout_of(SHARDED | {INDEX: body})


def test_a_tensor_in_two_files_is_refused_with_both_named():
    with pytest.raises(HeaderLies, match=r"'a' is in one\.safetensors and again in two\.safetensors"):
        layout_of({"one.safetensors": weights("a"), "two.safetensors": weights("a", "b")})


def test_model_safetensors_is_preferred_to_other_files():
    files = {"model.safetensors": weights("a"), "model.fp16.safetensors": weights("a"), "pytorch_model.bin": b"junk"}
    assert files_of(layout_of(files)) == ["model.safetensors"]


def test_adapters_and_consolidated_copies_are_left_out_and_noted():
    files = {
        "weights.safetensors": weights("a"),
        "adapter_model.safetensors": weights("a"),
        "consolidated.safetensors": weights("a"),
    }
    note = "left out: adapter_model.safetensors, consolidated.safetensors"
    layout = layout_of(files)
    assert files_of(layout) == ["weights.safetensors"]
    assert layout.notes == (note,)
    assert layout_of(files | {"model.safetensors": weights("a")}).notes == (note,)
    assert layout_of(files | SHARDED).notes == (note,)


def test_consolidated_weights_alone_are_read():
    assert files_of(layout_of({"consolidated.safetensors": weights("a"), "params.json": b"{}"})) == [
        "consolidated.safetensors"
    ]


@pytest.mark.parametrize("name", ["weights", "blob.123", "folder/x.safetensors"])
def test_a_single_file_of_any_name_is_known_by_its_beginning(name):
    assert list(layout_of({name: weights("a")}).tensors) == ["a"]


@pytest.mark.parametrize(
    "name", ["model.Q4_K_M.gguf", "model.onnx", "tf_model.h5", "flax_model.msgpack", "x.nemo", "last.ckpt"]
)
def test_other_formats_alone_are_refused_by_name(name):
    for files in ({name: b"x" * 20}, {name: b"x" * 20, "config.json": b"{}"}):
        with pytest.raises(UnsupportedFormat, match=name):
            layout_of(files)


def test_an_adapter_alone_names_its_base():
    config = json.dumps({"base_model_name_or_path": "owner/base-7b", "r": 8}).encode()
    with pytest.raises(NothingComparable, match="its base is owner/base-7b") as caught:
        layout_of({"adapter_model.safetensors": weights("a"), "adapter_config.json": config})
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("config", [b"junk", b"[]", b'{"base_model_name_or_path": 3}', b"{}"])
def test_an_adapter_without_a_base_says_so(config):
    with pytest.raises(NothingComparable, match="does not say of which model"):
        layout_of({"adapter_model.bin": b"x", "adapter_config.json": config})
    with pytest.raises(NothingComparable, match="does not say of which model"):
        layout_of({"adapter_model.safetensors": weights("a")})


def test_no_weights_at_all_lists_what_is_there():
    with pytest.raises(NotFound, match=r"some/model: no weights; the files are: README\.md, config\.json"):
        layout_of({"README.md": b"", "config.json": b"{}"})
    with pytest.raises(NotFound, match="the files are: none"):
        layout_of({})


def test_weights_in_folders_are_pointed_at():
    with pytest.raises(NotFound, match=r"folders hold some \(unet/model\.safetensors\)") as caught:
        layout_of({"unet/model.safetensors": weights("a"), "config.json": b"{}"})
    assert "name one of these folders" in caught.value.hint


def test_training_leftovers_are_not_weights():
    with pytest.raises(NotFound, match="no weights"):
        layout_of({"training_args.bin": b"x", "optimizer.pt": b"x", "rng_state.pth": b"x", "config.json": b"{}"})
