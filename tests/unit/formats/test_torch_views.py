"""Views that show more items than are stored: read from the little there is, up to a measure."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from modelkin.errors import NothingComparable
from modelkin.formats import read_layout
from modelkin.formats.reading import iter_blocks, read_rows
from modelkin.sources.memory import MemorySource

torch = pytest.importorskip("torch")


def saved(value):
    body = io.BytesIO()
    torch.save(value, body)
    return body.getvalue()


def opened(value):
    source = MemorySource({"pytorch_model.bin": saved(value)})
    return source, read_layout(source, {})


def test_views_that_repeat_their_storage_are_read_from_the_little_there_is():
    base = torch.randn(3, 1)
    tensors = {
        "zeros": torch.zeros(1).expand(10),
        "mask": torch.tril(torch.ones(4, 4)).expand(2, 5, 4, 4),
        "columns": base.expand(3, 7),
        "windows": torch.arange(9.0).unfold(0, 4, 1),
        "number": torch.tensor(2.5).expand(3, 3),
    }
    source, layout = opened(tensors)
    assert (layout.tensors["zeros"].strides, layout.notes) == ((0,), ())
    arrays = read_rows(source, layout, [(layout.tensors[name], None) for name in tensors])
    for expected, read in zip(tensors.values(), arrays, strict=True):
        np.testing.assert_array_equal(read, expected.numpy())
    assert source.ledger.bytes(["tensor"]) == 4 * (1 + 16 + 3 + 9 + 1)
    (rows,) = read_rows(source, layout, [(layout.tensors["columns"], [2, 0])])
    np.testing.assert_array_equal(rows, tensors["columns"][[2, 0]].numpy())
    blocks = list(iter_blocks(source, layout, layout.tensors["windows"], rows_per_block=4))
    np.testing.assert_array_equal(np.concatenate(blocks), tensors["windows"].numpy())


def test_a_view_repeated_beyond_measure_is_passed_over_with_a_note():
    tensors = {"huge": torch.zeros(1).expand(1 << 20, 1 << 20), "x": torch.ones(2)}
    _, layout = opened(tensors)
    assert list(layout.tensors) == ["x"]
    assert layout.notes == (
        "pytorch_model.bin: 1 tensors that repeat their storage into more than 268435456 items were passed over "
        "('huge')",
    )
    name = "pytorch_model-00001-of-00001.bin"
    index = json.dumps({"weight_map": {"huge": name, "x": name}}).encode()
    sharded = MemorySource({name: saved(tensors), "pytorch_model.bin.index.json": index})
    assert list(read_layout(sharded, {}).tensors) == ["x"]


@pytest.mark.parametrize("value", [{}, [], {"epoch": 3}, {"huge": torch.zeros(1).expand(1 << 20, 1 << 20)}])
def test_a_file_without_a_tensor_to_read_has_nothing_to_compare(value):
    with pytest.raises(NothingComparable, match="holds no tensors") as caught:
        opened(value)
    assert bool(caught.value.hint) == bool(value)
