"""Every output-preserving move is undone, alone and with all others; strangers are left in peace."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as with_facts
from planted import (
    LAYERS,
    MOVES,
    NEURONS,
    WIDTH,
    Arrays,
    along,
    anatomy,
    composed,
    drawn,
    flip_signs,
    noisy,
    permute_experts,
    permute_hidden,
    permute_neurons,
    regained,
    restacked,
    rotate_hidden,
)

from modelkin.alignment import Alignment, align, summary
from modelkin.alignment.folding import Block
from modelkin.alignment.judging import Judged, completed
from modelkin.alignment.sides import Side, Sides
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.records import Role
from modelkin.sources import LocalSource

HIDDEN = {"rotate_hidden": "rotation", "flip_signs": "signed permutation", "permute_hidden": "permutation"}


def aligned(a: Arrays, b: Arrays, seed: int = 0) -> Alignment:
    return align(anatomy(a), anatomy(b), np.random.default_rng(seed))


def all_found(found: Alignment) -> bool:
    return all(layer.two == layer.n == layer.three for layer in found.held_out) and len(found.held_out) > 0


@pytest.mark.parametrize("move", MOVES)
def test_each_move_alone_is_undone_and_named(move: str) -> None:
    a = drawn(1)
    found = aligned(a, noisy(MOVES[move](a, np.random.default_rng(2)), 0.01))
    told = summary(found)
    assert all_found(found)
    assert found.layers == tuple((str(i), str(i)) for i in range(LAYERS))
    assert found.hidden == HIDDEN.get(move, "identity")
    assert told["neurons"] == ("permutation" if move == "permute_neurons" else "identity")
    assert told["heads"] == ("permutation" if move == "permute_heads" else "identity")
    assert told["layers"] == "identity"
    json.dumps(told)


def test_all_moves_together_are_undone() -> None:
    a = drawn(1)
    found = aligned(a, noisy(composed(a, np.random.default_rng(2)), 0.1))
    told = summary(found)
    assert all_found(found)
    assert (told["hidden"], told["neurons"], told["heads"]) == ("rotation", "permutation", "permutation")


def test_recovered_maps_are_the_true_ones() -> None:
    a, rng = drawn(1), np.random.default_rng(2)
    moved = permute_neurons(a, rng)
    turned = rotate_hidden(moved, rng)
    found = aligned(a, turned)
    pair, choice = found.cells[0].blocks[0]
    gates = [arrays["model.layers.0.mlp.gate_proj.weight"] for arrays in (a, moved)]
    assert pair.a.layer == "0"
    assert np.array_equal(gates[0][choice.views[0]], gates[1])
    # Embeddings are written to the stream as they stand, so the rotation must take those of a to those of b.
    name = "model.embed_tokens.weight"
    assert found.rotation is not None
    assert np.allclose(a[name] @ found.rotation, turned[name], atol=1e-3)


def test_strangers_agree_on_one_neuron_a_block() -> None:
    counts, thrice = [], 0
    for seed in range(8):
        found = aligned(drawn(10 + seed), drawn(50 + seed))
        assert not found.found
        assert (found.hidden, found.rotation) == ("none", None)
        assert {layer.tried for layer in found.held_out} == {1}
        counts += [layer.two for layer in found.held_out]
        thrice += sum(layer.three for layer in found.held_out)
    # 32 counts, near Poisson of mean one: the mean has a standard error of 0.18.
    assert 0.4 < np.mean(counts) < 1.6
    assert max(counts) <= 6
    assert thrice <= 3


def test_same_seed_same_alignment() -> None:
    a, b = drawn(1), composed(drawn(1), np.random.default_rng(2))
    first, again = aligned(a, b, 5), aligned(a, b, 5)
    assert summary(first) == summary(again)
    assert first.rotation is not None
    assert again.rotation is not None
    assert np.array_equal(first.rotation, again.rotation)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 1, 2, 3, 1, 2, 3, 4, 5], ["0", "1", "2", "3", "1", "2", "3", "4", "5"]),
        ([0, 2, 3, 5], ["0", "2", "3", "5"]),
        ([1, 3, 5], ["1", "3", "5"]),
        ([0, 2, 1, 3, 4, 5], ["0", "2", "1", "3", "4", "5"]),
    ],
    ids=["repeated", "dropped", "every second one", "swapped"],
)
def test_layers_are_found_wherever_they_went(order: list[int], expected: list[str]) -> None:
    a = drawn(1, layers=6)
    found = aligned(a, noisy(composed(restacked(a, order), np.random.default_rng(2)), 0.01))
    assert [layer for _, layer in found.layers] == expected
    assert all_found(found)
    assert found.hidden == "rotation"
    assert summary(found)["layers"] == "moved"


@pytest.mark.parametrize("order", [[0, 1, 2, 1, 2, 3], [0, 2, 3]], ids=["repeated", "dropped"])
@pytest.mark.parametrize("turn", [False, True], ids=["whole first", "whole last"])
def test_renumbered_experts_are_found_in_models_of_other_depth(order: list[int], turn: bool) -> None:
    a = drawn(1, neurons=32, experts=3)
    b = permute_experts(composed(restacked(a, order), np.random.default_rng(2)), np.random.default_rng(3))
    found = aligned(b, a) if turn else aligned(a, b)
    true = {str(new): str(old) for new, old in enumerate(order)}
    if turn:
        assert all(there is None or true[there] == here for here, there in found.layers)
        assert {here for here, there in found.layers if there is not None} == set(true.values())
    else:
        assert dict(found.layers) == true
    assert all(layer.two == layer.n for layer in (cell.found for cell in found.cells))


def test_large_experts_are_looked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.sides.SMALL", 0)
    a = drawn(1, neurons=96, experts=2)
    found = aligned(a, composed(restacked(a, [0, 2, 3]), np.random.default_rng(2)))
    assert any("only the first expert" in reason for reason in found.reasons)
    assert [layer for _, layer in found.layers] == ["0", "2", "3"]


def test_copies_are_one_witness() -> None:
    """Experts that are one MLP four times over agree with a stranger's where that one does: not four times as often."""
    stranger, dense = drawn(3), drawn(1)
    b = drawn(2, experts=4) | {name: array for name, array in dense.items() if ".mlp." not in name}
    for name in [name for name in b if ".experts." in name]:
        head, _, tail = name.partition("experts.")
        b[name] = dense[head + tail.partition(".")[2]]
    found = aligned(stranger, b)
    assert {layer.sizes for layer in found.held_out} == {(NEURONS,)}
    assert max(layer.two for layer in found.held_out) <= 6
    assert all(sum(int(c.two.sum()) for _, c in cell.blocks) == 4 * NEURONS for cell in aligned(dense, b).cells)


def test_a_new_layer_among_inherited_ones_is_new() -> None:
    a, other = drawn(1, layers=5), drawn(2, layers=5)
    grown = restacked(a, [0, 1, 2, 3, 4, 2])
    grown |= {name.replace(".layers.4.", ".layers.5."): array for name, array in other.items() if ".layers.4." in name}
    found = aligned(a, composed(grown, np.random.default_rng(2)))
    assert [layer for _, layer in found.layers] == ["0", "1", "2", "3", "4", None]


def test_narrowed_model_is_found_and_its_axes_are_a_subset() -> None:
    a = drawn(1)
    axes, rows = np.setdiff1d(np.arange(WIDTH), np.arange(0, WIDTH, 8)), np.arange(NEURONS - 12)
    b = {}
    for name, array in a.items():
        if array.ndim == 1:
            b[name] = array[axes]
        elif "o_proj" in name or "down_proj" in name:
            b[name] = array[axes][:, rows] if "down" in name else array[axes]
        else:
            b[name] = array[rows][:, axes] if "gate_proj" in name or "up_proj" in name else array[:, axes]
    plain = aligned(a, b)
    assert all_found(plain)
    assert (plain.hidden, summary(plain)["neurons"]) == ("subset", "identity")
    hidden = aligned(a, composed(b, np.random.default_rng(2)))
    assert all_found(hidden)
    assert (hidden.hidden, summary(hidden)["neurons"]) == ("rectangular", "subset")
    back = aligned(composed(b, np.random.default_rng(2)), a)
    assert all_found(back)
    assert back.hidden == "rectangular"
    assert aligned(b, a).hidden == "subset"


def test_experts_are_found_by_their_routers() -> None:
    a = drawn(1, neurons=24, experts=6)
    b = permute_experts(a, np.random.default_rng(3))
    found = aligned(a, noisy(composed(b, np.random.default_rng(2)), 0.01))
    assert all_found(found)
    assert summary(found)["experts"] == "permutation"
    up = "model.layers.0.mlp.experts.{}.up_proj.weight"
    experts = found.cells[0].experts
    assert experts is not None
    assert len(experts) == 6
    assert all(np.array_equal(a[up.format(mine)], b[up.format(theirs)]) for mine, theirs in experts)


@pytest.mark.parametrize("how", ["copied", "split", "partly"])
@pytest.mark.parametrize("turn", [False, True], ids=["dense first", "experts first"])
def test_experts_made_of_one_mlp_are_found(how: str, turn: bool) -> None:
    rng, dense = np.random.default_rng(4), drawn(1)
    size = NEURONS // 3 if how == "split" else NEURONS
    b = drawn(2, neurons=size, experts=3)
    b |= {name: array for name, array in dense.items() if ".mlp." not in name}
    for layer in range(LAYERS):
        for expert in range(3):
            rows = slice(expert * size, (expert + 1) * size) if how == "split" else slice(None)
            new = rng.random(size) < 0.5 if how == "partly" else np.zeros(size, dtype=bool)
            for part in ("gate", "up", "down"):
                name = f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"
                old = dense[f"model.layers.{layer}.mlp.{part}_proj.weight"]
                old = old[:, rows].T if part == "down" else old[rows]
                mixed = np.where(new[:, None], b[name].T if part == "down" else b[name], old)
                b[name] = mixed.T if part == "down" else mixed
    masked = noisy(composed(permute_experts(b, rng), rng), 0.01)
    found = aligned(masked, dense) if turn else aligned(dense, masked)
    assert summary(found)["experts"] == "one MLP"
    assert [layer for _, layer in found.layers] == [str(i) for i in range(LAYERS)]
    shares = [layer.two / layer.n for layer in found.held_out]
    assert min(shares) > (0.35 if how == "partly" else 0.99)


def test_without_gates_up_and_down_do() -> None:
    a = {name: array for name, array in drawn(1).items() if "gate_proj" not in name}
    found = aligned(a, noisy(rotate_hidden(a, np.random.default_rng(2)), 0.01))
    assert found.hidden == "rotation"
    assert all(layer.two == layer.n and layer.three == 0 for layer in found.held_out)


def test_without_known_attention_the_mlps_give_the_operators() -> None:
    a = {name: array for name, array in drawn(1, layers=6).items() if "self_attn" not in name}
    moved = permute_neurons(a, np.random.default_rng(3))
    found = aligned(a, noisy(rotate_hidden(moved, np.random.default_rng(2)), 0.01))
    assert all_found(found)
    assert found.heads == ()
    assert summary(found)["heads"] == "none"


# What cannot be aligned says why.


def test_one_layer_can_not_both_teach_and_judge() -> None:
    a = drawn(1, layers=1, neurons=8)
    found = aligned(a, a)
    assert (found.route, found.held_out, found.found) == ("none", (), False)
    assert found.reasons[0] == "2 layers with MLP neurons are needed, one to teach and one to be judged"


def test_models_without_mlps_are_not_aligned() -> None:
    a = {name: array for name, array in drawn(1).items() if ".mlp." not in name}
    assert aligned(a, a).reasons[0].startswith("2 layers with MLP neurons are needed")


def test_experts_without_attention_have_no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all experts together there would be some, but that is too much to read where they are large."""
    a = {name: array for name, array in drawn(1, neurons=24, experts=3).items() if "self_attn" not in name}
    b = permute_experts(rotate_hidden(a, np.random.default_rng(2)), np.random.default_rng(3))
    assert all_found(aligned(a, b))
    monkeypatch.setattr("modelkin.alignment.sides.SMALL", 0)
    found = aligned(a, a)
    assert not found.found
    assert any("gives an operator" in reason for reason in found.reasons)


@pytest.mark.parametrize("part", ["mlp.up_proj", "self_attn.k_proj"])
def test_a_layer_with_strange_numbers_is_left_out(part: str) -> None:
    a = drawn(1, layers=6)
    b = composed(a, np.random.default_rng(2))
    b[f"model.layers.2.{part}.weight"][0, 0] = np.nan
    found = aligned(a, b)
    assert any("layer 2" in reason and "not finite" in reason for reason in found.reasons)
    judged = {layer.b: layer.two == layer.n for layer in found.held_out}
    assert all(judged.values())
    assert ("2" in judged) == (part == "self_attn.k_proj")


@pytest.mark.parametrize("fill", ["zero", "constant", "duplicated"])
def test_rows_that_can_not_be_told_apart_find_nobody(fill: str) -> None:
    """An assignment solver returns the identity on ties; relabelled first, both ways of looking guess apart."""
    a = drawn(1, layers=2)
    for name in [name for name in a if ".mlp." in name]:
        one = a[name][:, :1] if "down" in name else a[name][:1]
        same = {"zero": np.zeros_like(one), "constant": np.ones_like(one), "duplicated": one}[fill]
        a[name] = np.broadcast_to(same, a[name].shape).copy()
    counts = [layer.two for seed in range(10) for layer in aligned(a, a, seed).held_out]
    assert len(counts) == 20
    assert 0.3 < np.mean(counts) < 2.0
    assert max(counts) <= 7


def test_huge_and_tiny_numbers_do_not_matter() -> None:
    a = drawn(1)
    b = composed(a, np.random.default_rng(2))
    sizes = {"up_proj": 1e18, "down_proj": 1e-18}
    b = {name: array * sizes.get(name.split(".")[-2], 1.0) for name, array in b.items()}
    assert all_found(aligned(a, b))


def test_tiny_models_do_not_crash() -> None:
    a = drawn(1, layers=2, neurons=8)
    found = aligned(a, rotate_hidden(a, np.random.default_rng(2)))
    assert len(found.held_out) == 2
    assert {layer.n for layer in found.held_out} == {8}


# Real models.


def bundled_anatomy(name: str) -> Anatomy:
    return identify(open_checkpoint(LocalSource(bundled()[name])))


def test_the_disguised_copy_in_the_demo_is_seen_through() -> None:
    steps: list[str] = []
    rng = np.random.default_rng(0)
    found = align(bundled_anatomy("dune"), bundled_anatomy("fjord"), rng, lambda what, *_: steps.append(what))
    assert [layer for _, layer in found.layers] == ["0", "1", "2", "3", "4", "5"]
    assert all_found(found)
    told = summary(found)
    assert (told["hidden"], told["neurons"], told["heads"]) == ("rotation", "permutation", "permutation")
    assert min(layer.likeness for layer in found.held_out) > 0.99
    assert found.tokens is not None
    assert found.tokens.held_out > 0.99
    assert not found.tokens.renumbered
    assert steps


def test_the_stranger_in_the_demo_stays_one() -> None:
    found = align(bundled_anatomy("dune"), bundled_anatomy("grove"), np.random.default_rng(0))
    assert not found.found
    assert max(layer.two for layer in found.held_out) <= 8
    assert max(layer.three for layer in found.held_out) <= 2


def test_repeated_layers_in_the_demo_are_found() -> None:
    found = align(bundled_anatomy("dune"), bundled_anatomy("amber"), np.random.default_rng(0))
    assert [layer for _, layer in found.layers] == ["0", "1", "2", "3", "4", "1", "2", "3", "4", "5"]
    assert found.hidden == "identity"


def test_what_is_too_large_to_keep_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.sides.KEPT_BYTES", 0)
    a = drawn(1)
    found = aligned(a, composed(a, np.random.default_rng(2)))
    assert all_found(found)


def test_large_models_are_judged_by_some_neurons_of_some_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.sides.SMALL", 0)
    monkeypatch.setattr("modelkin.alignment.aligning.MOST_JUDGED", 4)
    monkeypatch.setattr("modelkin.alignment.sides.MOST_NEURONS", 64)
    a = drawn(1, layers=7, neurons=96)
    pair = anatomy(a), anatomy(composed(a, np.random.default_rng(2)))
    found = align(*pair, np.random.default_rng(0))
    assert [layer.b for layer in found.held_out] == ["0", "2", "4", "6"]
    assert found.continued() == {str(i): str(i) for i in range(7)}
    strangers = align(pair[0], anatomy(drawn(2, layers=7, neurons=96)), np.random.default_rng(0))
    assert not strangers.found
    assert any("was not looked at" in reason for reason in strangers.reasons)


def test_views_keep_both_models_as_they_are() -> None:
    model = anatomy(drawn(1))
    side = Side(model)
    before = model.read(next(slot for slot in model.slots if slot.role is Role.UP))
    side.views(Block("0"), None, True)
    assert np.array_equal(before, model.read(next(slot for slot in model.slots if slot.role is Role.UP)))


def test_layer_norms_are_blind_to_the_mean() -> None:
    """Rotations of such models leave the all-ones direction, and what rows say to it is void."""
    a, rng = drawn(1), np.random.default_rng(2)
    ones = np.full((WIDTH, 1), WIDTH**-0.5)
    basis = np.linalg.qr(np.hstack([ones, rng.normal(size=(WIDTH, WIDTH - 1))]))[0][:, 1:]
    inner = np.linalg.qr(rng.normal(size=(WIDTH - 1, WIDTH - 1)))[0]
    b = along(regained(a, np.ones), ones @ ones.T + basis @ inner @ basis.T)
    for name in [name for name in b if ".layers." in name and b[name].ndim == 2]:
        wide = b[name].shape
        b[name] = b[name] + (5.0 * rng.normal(size=(wide[0], 1)) if wide[1] == WIDTH else 0.0)
    models = [anatomy(arrays) for arrays in (a, b)]
    plain = align(*models, np.random.default_rng(0))
    layered = [replace(model, facts=with_facts(model.facts, norm="layer")) for model in models]
    found = align(*layered, np.random.default_rng(0))
    assert not all_found(plain)
    assert all_found(found)


def test_signs_alone_are_a_signed_permutation() -> None:
    a, rng = drawn(1), np.random.default_rng(2)
    assert aligned(a, permute_hidden(flip_signs(a, rng), rng)).hidden == "signed permutation"


def test_layers_that_nobody_could_judge_are_mapped_by_those_that_were_found() -> None:
    a, b = anatomy(drawn(1)), anatomy(composed(drawn(1), np.random.default_rng(2)))
    found = align(a, b, np.random.default_rng(0))
    sides = Sides(Side(a), Side(b), np.random.default_rng(0))
    first = found.cells[0]
    half = Judged(((first.found.b, first.found.a), *((b, None) for b, _ in found.layers[1:])), (), (first,))
    pairs = [(layer, layer) for layer in a.layers]
    whole = completed(sides, half, found.rotation, pairs, lambda _: None)
    assert whole.layers == tuple((layer, layer) for layer in a.layers)
    assert len(whole.cells) == len(a.layers)
    assert whole.held_out == ()  # what was not held out is no evidence


def test_of_strangers_nothing_is_completed() -> None:
    a, b = anatomy(drawn(1)), anatomy(drawn(2))
    none = Judged(tuple((layer, None) for layer in b.layers), (), ())
    sides = Sides(Side(a), Side(b), np.random.default_rng(0))
    assert completed(sides, none, np.eye(48, dtype=np.float32), [("0", "0")], lambda _: None) is none
