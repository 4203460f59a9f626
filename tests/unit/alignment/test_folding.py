"""What meets the residual stream: gains folded in, heads added up, and nothing that moves may free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as with_facts
from planted import GROUPS, HEADS, SIZE, WIDTH, anatomy, drawn, mix_values, permute_heads, refactor_gains

from modelkin.alignment.folding import Block, Unfit, attention, blocks, heads, neurons, router

A = drawn(1)


def test_operators_of_attention_are_sums_over_heads() -> None:
    qk, ov = attention(anatomy(A), "1") or pytest.fail("no attention")
    at = "model.layers.1."
    gain = A[f"{at}input_layernorm.weight"]
    q, k, v = (A[f"{at}self_attn.{name}_proj.weight"] * gain for name in "qkv")
    o = A[f"{at}self_attn.o_proj.weight"]
    asked, written = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    for head in range(HEADS):
        own, group = slice(head * SIZE, (head + 1) * SIZE), head // (HEADS // GROUPS)
        shared = slice(group * SIZE, (group + 1) * SIZE)
        asked += q[own].T @ k[shared]
        written += o[:, own] @ v[shared]
    assert np.allclose(qk.left.T @ qk.right, asked, rtol=1e-4, atol=1e-2)
    assert np.allclose(ov.left.T @ ov.right, written, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("move", [permute_heads, mix_values, refactor_gains])
def test_what_may_move_leaves_the_operators(move) -> None:
    moved = anatomy(move(A, np.random.default_rng(3)))
    for mine, theirs in zip(attention(anatomy(A), "0"), attention(moved, "0"), strict=True):
        assert np.allclose(mine.left.T @ mine.right, theirs.left.T @ theirs.right, rtol=1e-3, atol=0.05)


def test_neurons_are_read_with_their_gains_whole_or_in_part() -> None:
    model, at = anatomy(A), "model.layers.2."
    whole, part = neurons(model, Block("2")), neurons(model, Block("2"), (5, 9))
    gain = A[f"{at}post_attention_layernorm.weight"]
    assert np.allclose(whole.up, A[f"{at}mlp.up_proj.weight"] * gain, atol=1e-5)
    assert np.allclose(whole.down, A[f"{at}mlp.down_proj.weight"].T, atol=1e-5)
    assert whole.gate is not None
    assert np.array_equal(part.gate, whole.gate[5:9])
    assert np.array_equal(part.down, whole.down[5:9])


def test_layer_norm_takes_the_mean_out() -> None:
    model = anatomy(A)
    layered = replace(model, facts=with_facts(model.facts, norm="layer"))
    found = neurons(layered, Block("0"))
    assert np.allclose(found.up.mean(axis=1), 0, atol=1e-6)
    assert np.allclose(found.down.mean(axis=1), 0, atol=1e-6)
    assert not np.allclose(neurons(model, Block("0")).up.mean(axis=1), 0, atol=1e-2)


def test_blocks_of_dense_and_of_routed_layers() -> None:
    assert blocks(anatomy(A), "0") == [Block("0")]
    assert blocks(anatomy(drawn(1, neurons=24, experts=3)), "1") == [Block("1", 0), Block("1", 1), Block("1", 2)]


def test_a_router_is_seen_as_a_softmax_sees_it() -> None:
    arrays = drawn(1, neurons=24, experts=3)
    shifted = {name: array + (7.0 if name.endswith("mlp.gate.weight") else 0.0) for name, array in arrays.items()}
    one, other = router(anatomy(arrays), "0"), router(anatomy(shifted), "0")
    assert one is not None
    assert np.allclose(one, other, atol=1e-4)
    assert np.allclose(one.sum(axis=0), 0, atol=1e-4)
    assert router(anatomy(A), "0") is None


def test_strange_numbers_are_named() -> None:
    broken = dict(A) | {"model.layers.0.mlp.up_proj.weight": A["model.layers.0.mlp.up_proj.weight"] * np.inf}
    with pytest.raises(Unfit, match=r"layer 0 of .* holds values that are not finite"):
        neurons(anatomy(broken), Block("0"))


def test_attention_of_another_kind_is_none() -> None:
    without = {name: array for name, array in A.items() if "k_proj" not in name}
    assert heads(anatomy(without), "0") is None
    assert attention(anatomy(A, head_dim=7), "0") is None
