"""Rows, runs, strides, scales and blocks: the right numbers, from exactly the bytes that hold them."""

from __future__ import annotations

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from modelkin.errors import PackedTensor, UsageError
from modelkin.formats import Layout, read_layout
from modelkin.formats.reading import iter_blocks, read_rows
from modelkin.records import TensorRef
from modelkin.sources.memory import MemorySource

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((10, 6)).astype(np.float32)


def opened(arrays, config=None):
    source = MemorySource({"model.safetensors": save(arrays)})
    return source, read_layout(source, config or {})


def opened_fp8(weight, scale, config=None):
    """The library cannot write FP8 from numpy, so the file is put together here."""
    header = {
        "w.weight": {"dtype": "F8_E4M3", "shape": list(weight.shape), "data_offsets": [0, weight.nbytes]},
        "w.weight_scale_inv": {
            "dtype": "F32", "shape": list(scale.shape), "data_offsets": [weight.nbytes, weight.nbytes + scale.nbytes]
        },
    }  # fmt: skip
    text = json.dumps(header).encode()
    body = struct.pack("<Q", len(text)) + text + weight.tobytes() + scale.tobytes()
    source = MemorySource({"model.safetensors": body})
    return source, read_layout(source, config or {})


def spans_of(source, ref):
    """What was read of a tensor, as offsets from its start."""
    inside = [e for e in source.ledger.exchanges if e.kind == "tensor"]
    return [(e.start - ref.start, e.stop - ref.start) for e in inside]


@pytest.mark.parametrize(
    ("rows", "runs"),
    [
        (None, [(0, 10)]),
        (slice(2, 5), [(2, 5)]),
        (slice(8, 99), [(8, 10)]),
        (slice(0, 10, 4), [(0, 1), (4, 5), (8, 9)]),
        (slice(5, 2, -1), [(3, 6)]),
        (slice(5, 5), []),
        ([3, 4, 5, 9], [(3, 6), (9, 10)]),
        ([9, 3, 4, 3], [(3, 5), (9, 10)]),
        (np.array([7, 1], np.uint8), [(1, 2), (7, 8)]),
        (range(4, 6), [(4, 6)]),
        ([], []),
    ],
)
def test_rows_are_read_as_runs_and_nothing_more(rows, runs):
    source, layout = opened({"x": MATRIX})
    ref = layout.tensors["x"]
    (read,) = read_rows(source, layout, [(ref, rows)])
    expected = MATRIX if rows is None else MATRIX[rows if isinstance(rows, slice) else np.array(rows, dtype=int)]
    np.testing.assert_array_equal(read, expected)
    assert spans_of(source, ref) == [(24 * first, 24 * last) for first, last in runs]


@given(st.lists(st.integers(0, 9), max_size=30))
def test_any_list_of_rows_comes_in_its_own_order(rows):
    source, layout = opened({"x": MATRIX})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], rows)])
    np.testing.assert_array_equal(read, MATRIX[np.array(rows, dtype=int)])
    assert source.ledger.bytes(["tensor"]) == 24 * len(set(rows))


def test_rows_of_a_stack_count_through_it():
    stack = RNG.standard_normal((3, 4, 5)).astype(np.float16)
    source, layout = opened({"x": stack})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], [0, 5, 11])])
    np.testing.assert_array_equal(read, stack.reshape(12, 5)[[0, 5, 11]])


def test_vectors_and_single_numbers_keep_their_shape_or_are_one_row():
    source, layout = opened({"v": MATRIX[0], "s": np.array(3, np.float32)})
    vector, scalar = layout.tensors["v"], layout.tensors["s"]
    whole, row, number, as_row = read_rows(
        source, layout, [(vector, None), (vector, [0]), (scalar, None), (scalar, slice(None))]
    )
    assert (whole.shape, row.shape, number.shape, as_row.shape) == ((6,), (1, 6), (), (1, 1))
    assert number == as_row[0, 0] == 3


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_tensors_without_values_are_read_without_reading(shape):
    source, layout = opened({"x": np.zeros(shape, np.float32)})
    whole, rows = read_rows(source, layout, [(layout.tensors["x"], None), (layout.tensors["x"], slice(None))])
    assert whole.shape == shape
    assert rows.shape == (int(np.prod(shape[:-1])), shape[-1])
    assert source.ledger.bytes(["tensor"]) == 0


def test_float64_stays_float64():
    source, layout = opened({"x": np.array([[0.1]])})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], None)])
    assert read.dtype == np.float64
    assert read[0, 0] == 0.1


@pytest.mark.parametrize(
    "rows", [[10], [-1], [0.5], [True], [[1]], ["a"], np.array([2**40]), slice(None, None, 0), slice("a")]
)
def test_rows_that_are_not_there_are_refused(rows):
    source, layout = opened({"x": MATRIX})
    with pytest.raises(UsageError, match="rows of 'x'"):
        read_rows(source, layout, [(layout.tensors["x"], rows)])
    assert source.ledger.bytes(["tensor"]) == 0


class CountingSource(MemorySource):
    calls = 0

    def read(self, extents, kind="file"):
        self.calls += kind == "tensor"
        return super().read(extents, kind)


def test_several_tensors_come_in_one_read():
    source = CountingSource({"model.safetensors": save({"x": MATRIX, "y": MATRIX * 2, "z": MATRIX[0]})})
    layout = read_layout(source, {})
    x, y, z = (layout.tensors[name] for name in "xyz")
    read = read_rows(source, layout, [(x, [1]), (z, None), (y, slice(3))])
    np.testing.assert_array_equal(read[2], MATRIX[:3] * 2)
    assert source.calls == 1
    assert read_rows(source, layout, []) == []


def test_packed_tensors_are_refused_by_name_scheme_and_advice():
    source, layout = opened({"q.qweight": np.zeros((4, 4), np.int32), "q.bias": np.ones(4, np.float16)})
    with pytest.raises(PackedTensor, match=r"'q\.qweight' does not hold plain numbers: GPTQ or AWQ") as caught:
        read_rows(source, layout, [(layout.tensors["q.qweight"], None)])
    assert "quantised from" in caught.value.hint
    assert read_rows(source, layout, [(layout.tensors["q.bias"], None)])[0].tolist() == [1, 1, 1, 1]


# FP8 with block scales


def fp8(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)


def scaled(weight, scale, block):
    """Slow and plain: every element by its own block's scale."""
    numbers = weight.astype(np.float32)
    for index in np.ndindex(*numbers.shape):
        *stack, row, column = index
        numbers[index] *= scale[(*stack, row // block[0], column // block[1])]
    return numbers


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((10, 7), (4, 3)),
        ((5, 3), (2**31 - 1, 2**31 - 1)),
        ((8, 8), (4, 4)),
        ((3, 5, 6), (2, 4)),
        ((1, 130), (128, 128)),
        ((2, 3), (9, 9)),
    ],
)
def test_fp8_is_multiplied_with_the_scale_of_each_block(shape, block):
    grid = (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))
    scale = np.random.default_rng(2).uniform(0.5, 2, grid).astype(np.float32)
    weight = fp8(shape)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": list(block)}}
    source, layout = opened_fp8(weight, scale, config)
    ref, expected = layout.tensors["w.weight"], scaled(weight, scale, block)
    np.testing.assert_array_equal(read_rows(source, layout, [(ref, None)])[0], expected)
    rows = np.arange(int(np.prod(shape[:-1])))[::-2]
    matrix = expected.reshape(-1, shape[-1])
    np.testing.assert_array_equal(read_rows(source, layout, [(ref, rows)])[0], matrix[rows])
    blocks = [block.copy() for block in iter_blocks(source, layout, ref, rows_per_block=3)]
    np.testing.assert_array_equal(np.concatenate(blocks), matrix)


def test_fp8_rows_read_only_the_scale_rows_they_need():
    weight, scale = fp8((512, 256)), np.ones((4, 2), np.float32)
    source, layout = opened_fp8(weight, scale)
    read_rows(source, layout, [(layout.tensors["w.weight"], slice(130, 140))])
    weights, scales = layout.tensors["w.weight"], layout.tensors["w.weight_scale_inv"]
    assert [(e.start, e.stop) for e in source.ledger.exchanges if e.kind == "tensor"] == [
        (weights.start + 130 * 256, weights.start + 140 * 256),
        (scales.start + 8, scales.start + 16),
    ]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_fp8_may_have_one_scale_for_all(shape):
    weight = fp8((5, 3))
    source, layout = opened_fp8(weight, np.full(shape, 0.25, np.float32))
    (read,) = read_rows(source, layout, [(layout.tensors["w.weight"], None)])
    np.testing.assert_array_equal(read, weight.astype(np.float32) / 4)


@pytest.mark.parametrize("shape", [(4, 3), (3, 2), (2,), (2, 2, 1)])
def test_a_weight_with_scales_of_another_shape_is_refused_when_it_is_read(shape):
    source, layout = opened_fp8(fp8((512, 256)), np.ones(shape, np.float32))
    with pytest.raises(PackedTensor, match=r"expected the shape \[4, 2\] for blocks of 128 x 128"):
        read_rows(source, layout, [(layout.tensors["w.weight"], None)])
    (scales,) = read_rows(source, layout, [(layout.tensors["w.weight_scale_inv"], None)])
    assert scales.shape == shape


def test_fp8_alone_is_plain_numbers():
    weight = fp8((4, 4))
    text = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [4, 4], "data_offsets": [0, 16]}}).encode()
    source = MemorySource({"model.safetensors": struct.pack("<Q", len(text)) + text + weight.tobytes()})
    layout = read_layout(source, {})
    (read,) = read_rows(source, layout, [(layout.tensors["x"], None)])
    np.testing.assert_array_equal(read, weight.astype(np.float32))
    assert layout.notes == ("1 FP8 tensor has no scales; read as stored",)


# Strides


@pytest.mark.parametrize("rows", [None, [4, 1, 1], slice(1, 3), slice(0, 0)])
def test_strided_tensors_are_read_by_their_covering_extent(rows):
    stored = np.arange(40, dtype=np.float32)
    source = MemorySource({"x.bin": stored.tobytes()})
    view = stored[3:].reshape(-1)[: 5 * 6].reshape(6, 5).T[:, ::2]  # shape (5, 3), strides (1, 10)
    reach = 1 + 4 * 1 + 2 * 10
    ref = TensorRef("x", "F32", (5, 3), "x.bin", 12, 12 + 4 * reach, (1, 10))
    layout = Layout("torch", {"x": ref})
    (read,) = read_rows(source, layout, [(ref, rows)])
    np.testing.assert_array_equal(read, view if rows is None else view[rows])
    assert source.ledger.bytes() == (0 if rows == slice(0, 0) else 4 * reach)
    blocks = list(iter_blocks(source, layout, ref, rows_per_block=2))
    np.testing.assert_array_equal(np.concatenate(blocks), view)


# Blocks


@pytest.mark.parametrize("rows_per_block", [1, 3, 10, 99, None])
def test_blocks_cover_the_tensor_in_one_buffer(rows_per_block):
    source, layout = opened({"x": MATRIX})
    seen, buffers = [], set()
    for block in iter_blocks(source, layout, layout.tensors["x"], rows_per_block=rows_per_block):
        seen.append(block.copy())
        buffers.add(block.__array_interface__["data"][0])
    np.testing.assert_array_equal(np.concatenate(seen), MATRIX)
    assert len(buffers) == 1
    assert source.ledger.bytes(["stream"]) == MATRIX.nbytes


def test_blocks_are_about_four_mebibytes():
    source, layout = opened({"x": np.zeros((5000, 1024), np.float16)})
    sizes = [len(block) for block in iter_blocks(source, layout, layout.tensors["x"])]
    assert sizes == [2048, 2048, 904]


def test_blocks_of_nothing_are_no_blocks():
    source, layout = opened({"x": np.zeros((0, 4), np.float32), "y": np.zeros((3, 0), np.float32)})
    assert list(iter_blocks(source, layout, layout.tensors["x"])) == []
    assert list(iter_blocks(source, layout, layout.tensors["y"])) == []


def test_endless_rows_of_nothing_cost_nothing():
    ref = TensorRef("x", "F8_E4M3", (2**47, 0), "x", 0, 0)
    scale = TensorRef("x_scale_inv", "F32", (2**40, 0), "x", 0, 0)
    layout = Layout("safetensors", {"x": ref, "x_scale_inv": scale}, scales={"x": "x_scale_inv"})
    source = MemorySource({"x": b""})
    whole, rows = read_rows(source, layout, [(ref, None), (ref, slice(5, None))])
    assert (whole.shape, rows.shape) == ((2**47, 0), (2**47 - 5, 0))
    assert list(iter_blocks(source, layout, ref)) == []
    with pytest.raises(UsageError, match="ask for a range"):
        read_rows(source, layout, [(ref, slice(0, None, 2))])


def test_a_block_of_no_rows_is_refused():
    source, layout = opened({"x": MATRIX})
    with pytest.raises(UsageError, match="at least one row"):
        next(iter_blocks(source, layout, layout.tensors["x"], rows_per_block=0))
