from __future__ import annotations

import numpy as np
import pytest

from modelkin.architectures import identify
from modelkin.demo import bundled
from modelkin.inspection import open_model
from modelkin.records import Cut, Role, Slot
from modelkin.sampling import noting
from modelkin.sampling.noting import noted
from modelkin.sampling.readings import digests
from modelkin.sources.protocol import TENSOR_KINDS

UP = Slot(Role.UP, layer=1)


def test_reading_is_noted_and_of_a_small_model_done_once() -> None:
    plain = identify(open_model(str(bundled()["dune"])))
    model = noted(identify(open_model(str(bundled()["dune"]))))
    ledger = model.checkpoint.source.ledger
    first = model.read_many([(UP, None), (UP, slice(2, 5)), (UP, [7, 3], (0, 8))])
    spent = ledger.bytes(TENSOR_KINDS)
    again = model.read_many([(UP, None), (UP, slice(2, 5)), (UP, [7, 3], (0, 8))])
    assert ledger.bytes(TENSOR_KINDS) == spent
    for mine, twice, theirs in zip(
        first, again, plain.read_many([(UP, None), (UP, slice(2, 5)), (UP, [7, 3], (0, 8))]), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(twice, theirs)
    assert list(model.reads) == [Cut(UP), Cut(UP, 2, 5), Cut(UP, rows=(7, 3), columns=(0, 8))]
    assert model.reads[Cut(UP)] == digests({Cut(UP): plain.read(UP)})[0]


def test_what_is_changed_by_a_reader_is_not_changed_for_the_next() -> None:
    model = noted(identify(open_model(str(bundled()["dune"]))))
    model.read(UP)[:] = 0
    assert model.read(UP).any()
    model.read(UP)[:] = 0
    assert model.read(UP).any()


def test_of_a_large_model_digests_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noting, "STANDARD_BYTES", 1000)
    model = noted(identify(open_model(str(bundled()["dune"]))))
    ledger = model.checkpoint.source.ledger
    model.read(UP)
    spent = ledger.bytes(TENSOR_KINDS)
    model.read(UP)
    assert ledger.bytes(TENSOR_KINDS) == 2 * spent
    assert list(model.reads) == [Cut(UP)]
