from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from modelkin.alignment.folding import heads
from modelkin.alignment.invariants import Invariants, _centred, _seen, invariants
from modelkin.architectures import Anatomy, identify
from modelkin.demo import bundled
from modelkin.inspection import open_model

pytestmark = pytest.mark.xdist_group("invariants")


@cache
def model(name: str) -> Anatomy:
    return identify(open_model(str(bundled()[name])))


@cache
def found(a: str, b: str) -> Invariants:
    seen = invariants(model(a), model(b), np.random.default_rng(0))
    assert seen is not None
    return seen


def test_a_disguise_leaves_them_nearly_as_they_were() -> None:
    for layer in found("dune", "fjord").facing:
        assert layer.cka > 0.97  # pairs of coordinates of a head may be scaled, queries up and keys down
        assert layer.asked == pytest.approx(1, abs=2e-3)


def test_strangers_are_nearly_as_alike_as_layers_that_do_not_face_each_other() -> None:
    """Which is why none of this counts: trained on the same text, strangers reach 0.9."""
    strangers = found("dune", "grove")
    facing = float(np.median([layer.cka for layer in strangers.facing]))
    others = float(np.median([layer.cka for layer in strangers.others]))
    assert facing > 0.5
    assert abs(facing - others) < 0.2


def test_what_is_asked_is_the_sum_over_heads() -> None:
    rng = np.random.default_rng(1)
    tokens = rng.standard_normal((12, 128)).astype(np.float32)
    rows = heads(model("dune"), "2")
    assert rows is not None
    per_group = len(rows.q) // len(rows.k)
    by_hand = sum((tokens @ q.T) @ (tokens @ rows.k[i // per_group].T).T for i, q in enumerate(rows.q))
    np.testing.assert_allclose(_seen(model("dune"), "2", tokens).asked, by_hand, rtol=2e-4, atol=2e-3)


def test_centring_leaves_no_mean_of_any_token() -> None:
    table = _centred(np.random.default_rng(2).standard_normal((9, 9)).astype(np.float32))
    assert np.abs(table.mean(axis=0)).max() < 1e-12
    assert np.abs(table.mean(axis=1)).max() < 1e-12


def test_other_depths_have_none() -> None:
    assert invariants(model("dune"), model("amber"), np.random.default_rng(0)) is None
