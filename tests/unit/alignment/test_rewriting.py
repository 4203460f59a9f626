"""b in the coordinates of a is a again, role by role, and every question may be asked of it."""

from __future__ import annotations

import numpy as np
import pytest
from planted import (
    Arrays,
    anatomy,
    composed,
    drawn,
    flip_signs,
    noisy,
    permute_experts,
    permute_heads,
    permute_hidden,
    permute_neurons,
    refactor_gains,
    restacked,
)

from modelkin.alignment import Rewritten, align, bytes_needed, rewritten
from modelkin.alignment.kinds import keeping_the_mean
from modelkin.architectures import Anatomy
from modelkin.errors import NothingComparable
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.question import Pair
from modelkin.records import Cut, Role, Slot
from modelkin.sampling.readings import Readings, portrait, read

A = drawn(1)
GAINS = {Role.INPUT_NORM, Role.POST_NORM, Role.FINAL_NORM}
MATRICES = {Role.EMBEDDING, Role.HEAD, Role.V, Role.O, Role.GATE, Role.UP, Role.DOWN}


def rewrite(a: Arrays, b: Arrays) -> Rewritten:
    return rewritten(align(anatomy(a), anatomy(b), np.random.default_rng(0)))


def cosines(a: Arrays, found: Rewritten, roles: set[Role]) -> dict[str, float]:
    """The worst of every role."""
    model, worst = anatomy(a), {}
    for slot in (slot for slot in found.slots if slot.role in roles):
        x, y = model.read(slot), found.read(slot)
        cosine = float(np.sum(x * y) / (np.linalg.norm(x) * np.linalg.norm(y)))
        worst[slot.role.value] = min(cosine, worst.get(slot.role.value, 1.0))
    return worst


def test_a_rotated_copy_is_a_again_but_for_its_gains() -> None:
    found = rewrite(A, composed(A, np.random.default_rng(2)))
    worst = cosines(A, found, MATRICES)
    assert worst.keys() == {role.value for role in MATRICES}
    assert min(worst.values()) > 0.999
    assert {slot.role for slot in found.left_out} == GAINS
    assert "folded into what reads behind it" in next(iter(found.left_out.values()))
    with pytest.raises(NothingComparable, match="there is no 0 input_norm"):
        found.read(Slot(Role.INPUT_NORM, layer=0))


def test_values_are_the_same_not_only_their_direction() -> None:
    """Factors between up and down, and between values and outputs, are given back as well."""
    found, model = rewrite(A, composed(A, np.random.default_rng(2))), anatomy(A)
    for role in (Role.UP, Role.DOWN, Role.V, Role.O):
        slot = Slot(role, layer=1)
        assert np.allclose(found.read(slot), model.read(slot), atol=0.02 * float(np.std(model.read(slot))))


def test_renumbered_axes_keep_their_gains() -> None:
    rng = np.random.default_rng(2)
    found = rewrite(A, permute_hidden(flip_signs(permute_neurons(permute_heads(A, rng), rng), rng), rng))
    worst = cosines(A, found, MATRICES | GAINS | {Role.Q, Role.K})
    assert min(worst.values()) > 0.9999
    assert not found.left_out


def test_renumbered_axes_with_new_gains_are_folded() -> None:
    rng = np.random.default_rng(2)
    found = rewrite(A, permute_hidden(refactor_gains(A, rng), rng))
    assert {slot.role for slot in found.left_out} == GAINS
    assert min(cosines(A, found, MATRICES).values()) > 0.9999


def test_a_plain_relative_is_left_alone() -> None:
    b = noisy(A, 0.2)
    found, model = rewrite(A, b), anatomy(b)
    assert not found.left_out
    assert all(np.array_equal(found.read(slot), model.read(slot)) for slot in model.slots)


def test_rows_and_columns_are_parts_of_the_whole() -> None:
    found = rewrite(A, composed(A, np.random.default_rng(2)))
    for role in (Role.UP, Role.DOWN, Role.V, Role.EMBEDDING):
        slot = Slot(role, layer=None if role is Role.EMBEDDING else 2)
        whole = found.read(slot)
        assert whole.shape == found.shape(slot)
        assert np.allclose(found.read(slot, [3, 1]), whole[[3, 1]], atol=1e-5)
        assert np.allclose(found.read_many([(slot, slice(2, 5), (1, 4))])[0], whole[2:5, 1:4], atol=1e-5)


def test_experts_stand_where_a_has_them() -> None:
    a = drawn(1, neurons=24, experts=4)
    found = rewrite(a, composed(permute_experts(a, np.random.default_rng(3)), np.random.default_rng(2)))
    worst = cosines(a, found, {Role.GATE, Role.UP, Role.DOWN})
    assert min(worst.values()) > 0.999
    mine, theirs = (model.read(Slot(Role.ROUTER, layer=0)) for model in (anatomy(a), found))
    assert np.corrcoef((mine - mine.mean(0)).ravel(), (theirs - theirs.mean(0)).ravel())[0, 1] > 0.95


def with_experts(arrays: Arrays, kept: list[int]) -> Arrays:
    found = {name: array for name, array in arrays.items() if ".experts." not in name}
    for name, array in arrays.items():
        if name.endswith("mlp.gate.weight"):
            found[name] = array[kept]
        at, _, rest = name.partition(".experts.")
        old, _, part = rest.partition(".")
        if rest and int(old) in kept:
            found[f"{at}.experts.{kept.index(int(old))}.{part}"] = array
    return found


def test_of_fewer_experts_each_is_read_once_under_its_own_number() -> None:
    a, kept = drawn(1, neurons=24, experts=4), [3, 0, 2]
    found = rewrite(a, composed(with_experts(a, kept), np.random.default_rng(2)))
    whole = anatomy(a)
    for expert, old in enumerate(kept):
        mine, theirs = whole.read(Slot(Role.GATE, 0, old)), found.read(Slot(Role.GATE, 0, expert))
        assert np.corrcoef(mine.ravel(), theirs.ravel())[0, 1] > 0.999
    router = Slot(Role.ROUTER, layer=0)
    assert np.corrcoef(whole.read(router)[kept].ravel(), found.read(router).ravel())[0, 1] > 0.95


def test_layers_of_other_depths_are_written_with_the_gains_of_theirs() -> None:
    order = [0, 2, 3]
    found = rewrite(A, composed(restacked(A, order), np.random.default_rng(2)))
    model = anatomy(A)
    for layer, old in enumerate(order):
        mine, theirs = model.read(Slot(Role.GATE, layer=old)), found.read(Slot(Role.GATE, layer=layer))
        assert np.corrcoef(mine.ravel(), theirs.ravel())[0, 1] > 0.999


def test_a_question_asked_of_the_rewritten_model() -> None:
    """Disguised, no layer is found by its neurons; rewritten, all are."""
    wide = drawn(1, neurons=96)
    masked = composed(wide, np.random.default_rng(2))
    a, b = anatomy(wide), anatomy(masked)
    again = rewritten(align(a, b, np.random.default_rng(0)))
    found = []
    for other in (b, again):
        cuts: tuple[list[Cut], list[Cut]] = tuple(map(list, LAYER_MAP.cuts(Pair(a, other, 0, "standard"))))
        sides = [Readings(portrait(side), read(side, part)) for side, part in zip((a, other), cuts, strict=True)]
        found.append(LAYER_MAP.answer(*sides, np.random.default_rng(0)))
    assert [sum(bool(layer.a) for layer in answer.per_layer) for answer in found] == [0, 4]


def test_strangers_have_no_coordinates_to_rewrite_in() -> None:
    with pytest.raises(NothingComparable, match="no layer was found"):
        rewrite(A, drawn(2))


def test_bytes_are_known_before_anything_is_read() -> None:
    a, b = anatomy(A, tokenizer=False), anatomy(drawn(2, layers=3), tokenizer=False)
    needed = bytes_needed(a, b)
    skipped = ("norm", "lm_head")
    stored = [
        sum(4 * array.size for name, array in arrays.items() if not any(part in name for part in skipped))
        for arrays in (A, drawn(2, layers=3))
    ]
    assert list(needed) == stored
    assert a.checkpoint.source.ledger.bytes({"tensor"}) == 0
    align(a, b, np.random.default_rng(0))
    gains = sum(4 * array.size for name, array in A.items() if "layernorm" in name)
    asked = {(e.file, e.start, e.stop) for e in a.checkpoint.source.ledger.exchanges if e.kind == "tensor"}
    read_once = sum(stop - start for _, start, stop in asked)
    assert read_once <= needed[0] + gains


def read_of(model: Anatomy) -> int:
    """Bytes of weights that were read, those read twice counted once."""
    total, end = 0, -1
    for start, stop in sorted(
        {(e.start, e.stop) for e in model.checkpoint.source.ledger.exchanges if e.kind == "tensor"}
    ):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("layers", [12, 10], ids=["equal depths", "other depths"])
@pytest.mark.parametrize("experts", [0, 12], ids=["dense", "experts"])
def test_no_more_is_read_than_was_said(small: bool, layers: int, experts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.sides.SMALL", 1 << 28 if small else 0)
    whole = drawn(1, layers=12, neurons=16, experts=experts)
    moved = composed(restacked(whole, list(range(layers))), np.random.default_rng(2))
    a, b = anatomy(whole), anatomy(moved)
    needed = bytes_needed(a, b)
    align(a, b, np.random.default_rng(0))
    for model, arrays, said in zip((a, b), (whole, moved), needed, strict=True):
        gains = sum(4 * array.size for name, array in arrays.items() if "norm" in name)
        assert 0.5 * said < read_of(model) <= said + gains


@pytest.mark.parametrize("part", ["self_attn.v_proj", "mlp.up_proj", "input_layernorm", "mlp.gate."])
def test_a_layer_that_is_not_finite_leaves_the_others(part: str) -> None:
    a = drawn(1, neurons=24, experts=3) if part == "mlp.gate." else A
    b = composed(a, np.random.default_rng(2))
    for name in [name for name in b if f"layers.1.{part}" in name]:
        b[name] = np.full_like(b[name], np.inf)
    found = rewrite(a, b)
    model = anatomy(a)
    for slot in (slot for slot in found.slots if slot.role in MATRICES and slot.layer != 1):
        x, y = model.read(slot), found.read(slot)
        assert float(np.sum(x * y) / (np.linalg.norm(x) * np.linalg.norm(y))) > 0.99
    for slot in (slot for slot in found.slots if slot.layer == 1):
        found.read(slot)


def test_values_that_are_all_alike_have_no_other_basis() -> None:
    a = {name: np.ones_like(array) if "v_proj" in name else array for name, array in A.items()}
    found = rewrite(a, composed(A, np.random.default_rng(2)))
    assert all(np.isfinite(found.read(slot)).all() for slot in found.slots)


def test_a_rotation_for_layer_norms_keeps_the_mean() -> None:
    rng = np.random.default_rng(5)
    width = 24
    rest = np.eye(width) - 1 / width
    basis = np.linalg.qr(rest @ rng.standard_normal((width, width - 1)))[0]
    turn = np.linalg.qr(rng.standard_normal((width - 1, width - 1)))[0]
    true = basis @ turn @ basis.T + 1 / width
    blind = true @ rest + np.outer(rng.standard_normal(width), np.ones(width)) / width  # nothing shows the mean
    found = keeping_the_mean(blind.astype(np.float32))
    np.testing.assert_allclose(found, true, atol=1e-5)
    np.testing.assert_allclose(found @ np.ones(width), 1, atol=1e-5)
    np.testing.assert_allclose(found.T @ found, np.eye(width), atol=1e-5)
