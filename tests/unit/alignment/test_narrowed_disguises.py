"""A model cut narrower and disguised: what was cut is no training, and all that is left is the other's."""

from __future__ import annotations

import numpy as np
import pytest
from planted import WIDTH, Arrays, anatomy, composed, drawn, noisy

from modelkin.alignment import align, disguises, rewritten
from modelkin.alignment.matching import part_turned
from modelkin.records import Relation
from modelkin.relation.relating import Inquiry, relate

WIDE = drawn(1, layers=4, neurons=96)


def cut(arrays: Arrays, axes: int, neurons: int) -> Arrays:
    """The last so many axes, and the first so many neurons."""
    found, kept, rows = {}, slice(WIDTH - axes, None), slice(0, neurons)
    for name, array in arrays.items():
        if array.ndim == 1:
            found[name] = array[kept]
        elif "o_proj" in name or "down_proj" in name:
            found[name] = array[kept, rows] if "down" in name else array[kept]
        else:
            found[name] = array[rows, kept] if "gate_proj" in name or "up_proj" in name else array[:, kept]
    return found


def told(a: Arrays, b: Arrays) -> Relation:
    alignment = align(anatomy(a), anatomy(b), np.random.default_rng(0))
    inquiry = Inquiry(layers=alignment.layers, disguises=disguises(alignment))
    return relate(alignment.a, rewritten(alignment), inquiry)


@pytest.mark.parametrize("neurons", [96, 80])
def test_what_was_cut_is_no_training(neurons: int) -> None:
    small = composed(cut(WIDE, WIDTH - 8, neurons), np.random.default_rng(2))
    one, two = told(WIDE, small), told(small, WIDE)
    for found in (one, two):
        assert [kind.kind for kind in found.kinds] == ["obfuscated", "width-prune"]
    assert one.shared is not None
    assert two.shared is not None
    assert one.shared.high == 1
    assert two.shared.fraction < 1 - 8 / WIDTH + 0.01  # of the wider no more than the narrower has


def test_what_was_changed_of_the_rest_is_measured_on_the_rest() -> None:
    small = composed(noisy(cut(WIDE, WIDTH - 8, 80), 0.1), np.random.default_rng(2))
    for found in (told(WIDE, small), told(small, WIDE)):
        mlp = [fact.difference for fact in found.tensors if fact.role.value in ("gate", "up", "down")]
        assert float(np.median(mlp)) == pytest.approx(0.1, rel=0.25)


def test_the_part_is_found_although_what_was_cut_goes_along_with_it() -> None:
    rng = np.random.default_rng(3)
    wide = rng.normal(size=(4 * WIDTH, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH))
    turn = np.linalg.qr(rng.normal(size=(WIDTH - 8, WIDTH - 8)))[0]
    narrow = wide[:, 8:] @ turn
    units = [(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in (wide, narrow)]
    expected = np.vstack([np.zeros((8, WIDTH - 8)), turn])
    np.testing.assert_allclose(part_turned(units[0], units[1]), expected, atol=0.01)
    np.testing.assert_allclose(part_turned(units[1], units[0]), expected.T, atol=0.01)
