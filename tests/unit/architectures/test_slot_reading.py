"""Slots read out of fused, grouped, stacked and transposed tensors, against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from architecture_builders import LLAMA, anatomy_of, llama_shapes, random, tensor_bytes

from modelkin.errors import NothingComparable, UsageError
from modelkin.records import Role, Slot

ROWS: list[Any] = [None, slice(2, 9), slice(1, None, 3), [5, 0, 5, 7], np.array([3, 2], dtype=np.int32), []]


def taken(array: Any, rows: Any) -> Any:
    return array if rows is None else array[np.asarray(rows, dtype=int) if not isinstance(rows, slice) else rows]


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 6), (6, 3), (6, 2), (6, 1)])
def test_grouped_splits_against_a_reshape(heads: int, kv_heads: int, rows: Any) -> None:
    head_dim, per_group = 8, heads // kv_heads
    stored, bias = random((heads + 2 * kv_heads) * head_dim, 48), random((heads + 2 * kv_heads) * head_dim)
    config = {"model_type": "internlm2", "hidden_size": 48, "num_attention_heads": heads, "num_hidden_layers": 1}
    names = {"model.layers.0.attention.wqkv.weight": stored, "model.layers.0.attention.wqkv.bias": bias}
    anatomy = anatomy_of(names, config | {"num_key_value_heads": kv_heads})
    for array, roles in ((stored, "qkv"), (bias, ("q_bias", "k_bias", "v_bias"))):
        groups = array.reshape(kv_heads, per_group + 2, head_dim, *array.shape[1:])
        parts = groups[:, :per_group], groups[:, per_group], groups[:, per_group + 1]
        for role, part in zip(roles, parts, strict=True):
            expected = part.reshape(-1, *array.shape[1:])
            np.testing.assert_array_equal(anatomy.read(Slot(Role(role), 0), rows), taken(expected, rows))
            assert anatomy.shape(Slot(Role(role), 0)) == expected.shape


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_fused_rows_against_slices(rows: Any) -> None:
    qkv, gate_up = random(32, 16), random(40, 16)
    config = {"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"num_hidden_layers": 1, "intermediate_size": 20}
    names = {"model.layers.0.self_attn.qkv_proj.weight": qkv, "model.layers.0.mlp.gate_up_proj.weight": gate_up}
    anatomy = anatomy_of(names, config)
    rows = [0, 3] if rows is not None and not isinstance(rows, slice) and len(rows) else rows
    for role, expected in zip("qkv", np.split(qkv, [16, 24]), strict=True):
        np.testing.assert_array_equal(anatomy.read(Slot(Role(role), 0), rows), taken(expected, rows))
    for role, expected in zip(("gate", "up"), np.split(gate_up, 2), strict=True):
        np.testing.assert_array_equal(anatomy.read(Slot(Role(role), 0), rows), taken(expected, rows))


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_transposed_tensors_are_turned(rows: Any) -> None:
    weight, bias, down = random(12, 36), random(36), random(48, 12)
    config = {"model_type": "gpt2", "n_embd": 12, "n_head": 3, "n_layer": 1}
    names = {"h.0.attn.c_attn.weight": weight, "h.0.attn.c_attn.bias": bias, "h.0.mlp.c_proj.weight": down}
    anatomy = anatomy_of(names, config)
    for index, role in enumerate("qkv"):
        part = slice(12 * index, 12 * index + 12)
        np.testing.assert_array_equal(anatomy.read(Slot(Role(role), 0), rows), taken(weight[:, part].T, rows))
        np.testing.assert_array_equal(anatomy.read(Slot(Role(f"{role}_bias"), 0), rows), taken(bias[part], rows))
    np.testing.assert_array_equal(anatomy.read(Slot(Role.DOWN, 0), rows), taken(down.T, rows))


def experts(gate_up: Any, down: Any, **config: Any) -> Any:
    stacks = {"gate_up_proj": gate_up, "down_proj": down}
    names = {f"model.layers.0.mlp.experts.{name}": stack for name, stack in stacks.items() if stack is not None}
    known = {"model_type": "qwen3_moe", "hidden_size": 12, "num_hidden_layers": 1, "moe_intermediate_size": 10}
    return anatomy_of(names, known | {"num_experts": 3} | config)


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_stacked_experts_either_way(rows: Any, turned: bool) -> None:
    gate_up, down = random(3, 20, 12), random(3, 12, 10)
    stored = [np.ascontiguousarray(a.swapaxes(1, 2)) if turned else a for a in (gate_up, down)]
    anatomy = experts(*stored)
    assert anatomy.unmapped == ()
    for expert in range(3):
        for role, expected in (("gate", gate_up[expert, :10]), ("up", gate_up[expert, 10:]), ("down", down[expert])):
            np.testing.assert_array_equal(anatomy.read(Slot(Role(role), 0, expert), rows), taken(expected, rows))


@pytest.mark.parametrize("turned", [False, True])
def test_a_square_stack_stands_as_its_neighbour_does(turned: bool) -> None:
    gate_up, down = random(3, 12, 12), random(3, 12, 6)
    stored = [np.ascontiguousarray(a.swapaxes(1, 2)) if turned else a for a in (gate_up, down)]
    anatomy = experts(*stored, moe_intermediate_size=6)
    for expert in range(3):
        np.testing.assert_array_equal(anatomy.read(Slot(Role.GATE, 0, expert)), gate_up[expert, :6])
        np.testing.assert_array_equal(anatomy.read(Slot(Role.DOWN, 0, expert)), down[expert])


def test_a_square_stack_without_a_neighbour_is_left_over() -> None:
    anatomy = experts(random(3, 12, 12), None, moe_intermediate_size=6)
    assert anatomy.unmapped == ("model.layers.0.mlp.experts.gate_up_proj",)
    assert any("both axes" in note for note in anatomy.notes)


def test_a_turned_stack_reads_one_expert_only() -> None:
    anatomy = experts(random(3, 12, 20), random(3, 10, 12))
    anatomy.read(Slot(Role.UP, 0, 1), slice(0, 2))
    assert tensor_bytes(anatomy) == 12 * 20 * 4


def test_few_rows_cost_few_bytes() -> None:
    config = {"model_type": "internlm2", "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2}
    anatomy = anatomy_of({"model.layers.0.attention.wqkv.weight": random(40, 24)}, config)
    anatomy.read(Slot(Role.V, 0), slice(2, 6))
    assert tensor_bytes(anatomy) == 4 * 24 * 4
    stack = experts(random(3, 20, 12), random(3, 12, 10))
    stack.read_many([(Slot(Role.GATE, 0, 2), slice(0, 4)), (Slot(Role.UP, 0, 2), slice(0, 4))])
    assert tensor_bytes(stack) == 8 * 12 * 4


def test_one_tensor_needed_thrice_is_read_once() -> None:
    anatomy = anatomy_of({"h.0.attn.c_attn.weight": random(12, 36)}, {"model_type": "gpt2", "n_embd": 12, "n_head": 3})
    anatomy.read_many([(Slot(role, 0), None) for role in (Role.Q, Role.K, Role.V)])
    assert tensor_bytes(anatomy) == 12 * 36 * 4


def test_gains_are_read_as_the_model_applies_them() -> None:
    stored = {name: random(*shape) for name, shape in llama_shapes(1).items()}
    plain, minus_one = (anatomy_of(stored, LLAMA | {"model_type": kind}) for kind in ("llama", "gemma"))
    norm = stored["model.layers.0.input_layernorm.weight"]
    np.testing.assert_array_equal(plain.read(Slot(Role.INPUT_NORM, 0)), norm)
    np.testing.assert_array_equal(minus_one.read(Slot(Role.INPUT_NORM, 0), [3, 1]), norm[[3, 1]] + np.float32(1))
    up = Slot(Role.UP, 0)
    np.testing.assert_array_equal(minus_one.read(up), plain.read(up))


def test_wide_numbers_come_as_single_precision() -> None:
    anatomy = anatomy_of({"model.embed_tokens.weight": random(64, 32).astype(np.float64)}, LLAMA)
    assert anatomy.read(Slot(Role.EMBEDDING)).dtype == np.float32
    assert anatomy.dtype(Slot(Role.EMBEDDING)) == "F64"


def test_rows_that_are_not_there_are_refused() -> None:
    anatomy = anatomy_of({"model.embed_tokens.weight": random(64, 32)}, LLAMA)
    for rows in ([64], [-1], [0.5], [True]):
        with pytest.raises(UsageError):
            anatomy.read(Slot(Role.EMBEDDING), rows)
    with pytest.raises(NothingComparable):
        anatomy.read(Slot(Role.HEAD))
