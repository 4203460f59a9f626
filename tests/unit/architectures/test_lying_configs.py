"""A config may say anything: the answer is a note or an error of ours, at once."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from architecture_builders import LLAMA, llama_shapes, named

from modelkin.architectures import identify
from modelkin.errors import ModelkinError

KEYS = [
    "model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "moe_intermediate_size", "num_experts", "vocab_size", "tie_word_embeddings",
    "text_config", "hidden_act",
]  # fmt: skip
LIES: list[Any] = [
    0, -1, 3, 10**9, 10**30, 1.5, float("nan"), float("inf"), True, "many", "", "../llama", None, [], [1], ["x"], {},
    {"a": 1}, [[]],
]  # fmt: skip
FUSED = {
    "internlm2": {"model.layers.0.attention.wqkv.weight": (64, 32)},
    "phi3": {"model.layers.0.self_attn.qkv_proj.weight": (64, 32), "model.layers.0.mlp.gate_up_proj.weight": (96, 32)},
    "falcon": {"transformer.h.0.self_attention.query_key_value.weight": (48, 32)},
    "qwen3_moe": {"model.layers.0.mlp.experts.gate_up_proj": (4, 48, 32)},
    "llama": llama_shapes(),
    "unknown-to-all": llama_shapes(),
}


@pytest.mark.parametrize("family", FUSED)
@pytest.mark.parametrize("key", KEYS)
def test_no_lie_crashes_or_hangs(family: str, key: str) -> None:
    for lie in LIES:
        checkpoint = named(FUSED[family], LLAMA | {"model_type": family, key: lie})
        start = time.process_time()
        try:
            anatomy = identify(checkpoint)
        except ModelkinError:
            continue
        finally:
            assert time.process_time() - start < 2
        placed = {view.tensor for view in anatomy.slots.values()}
        assert sorted([*placed, *anatomy.unmapped, *anatomy.apart]) == sorted(checkpoint.tensors)
        assert all(len(note) < 500 for note in anatomy.notes)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"num_attention_heads": 5}, "do not divide"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"num_attention_heads": -4}, "expected a whole number"),
        ({"num_attention_heads": "four"}, "expected a whole number"),
        ({"num_key_value_heads": 4}, "the tensor has 64"),
        ({"head_dim": 16}, "the tensor has 64"),
    ],
    ids=str,
)
def test_a_config_that_contradicts_the_shape_makes_no_split(lie: dict[str, Any], reason: str) -> None:
    honest = LLAMA | {"model_type": "internlm2"}
    assert len(identify(named(FUSED["internlm2"], honest)).slots) == 3
    anatomy = identify(named(FUSED["internlm2"], honest | lie))
    assert not anatomy.slots
    assert anatomy.unmapped == tuple(FUSED["internlm2"])
    assert any(reason in note for note in anatomy.notes)


def test_a_config_that_contradicts_whole_tensors_is_noted() -> None:
    lies = {"hidden_size": 64, "vocab_size": 65, "intermediate_size": 47, "num_hidden_layers": 10**9}
    notes = identify(named(llama_shapes(), LLAMA | lies)).notes
    assert "the config says 1000000000 layers, the tensors show 2" in notes
    assert "the config says hidden size 64, the tensors show 32" in notes
    assert any("65 rows for embedding" in note for note in notes)
    assert any("47 rows for up" in note for note in notes)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.99999999999999999999.mlp.up_proj.weight",
        f"model.layers.{'9' * 5000}.mlp.up_proj.weight",
        "model.layers.{}.mlp.up_proj.weight",
        "model.layers.-1.mlp.up_proj.weight",
        "model.layers.².mlp.up_proj.weight",
        "model.layers..mlp.up_proj.weight",
        "",
        ".",
        "model." * 2000 + "norm.weight.x",
    ],
    ids=lambda name: name[:30],
)
def test_names_that_are_no_names_are_left_over(name: str) -> None:
    anatomy = identify(named(llama_shapes() | {name: (48, 32)}, LLAMA))
    assert anatomy.unmapped == (name,)


def test_a_name_that_looks_like_a_pattern_is_no_extra_layer() -> None:
    shapes = dict.fromkeys(("model.layers.{}.eh_proj.weight", "model.layers.{}.x"), (4, 4))
    anatomy = identify(named(shapes, LLAMA | {"model_type": "glm4_moe"}))
    assert set(anatomy.unmapped) == set(shapes)


def test_many_strange_names_do_not_take_long() -> None:
    shapes = {f"{'model.' * 1000}x{i}.weight": (4, 4) for i in range(2000)}
    shapes |= {f"{'a.' * 200}x{i}.q_proj.weight": (4, 4) for i in range(4000)}
    for config in ({}, {"model_type": "nobody"}, LLAMA):
        start = time.process_time()
        identify(named(shapes, config))
        assert time.process_time() - start < 5


def test_absurd_layer_numbers_are_not_counted_up_to() -> None:
    shapes = llama_shapes() | {"model.layers.999999999.mlp.up_proj.weight": (48, 32)}
    anatomy = identify(named(shapes, LLAMA))
    assert anatomy.facts.layers == 3
    assert any("numbered up to 999999999" in note for note in anatomy.notes)


def test_an_absurd_stack_of_experts_is_left_over() -> None:
    for shape in ((10**9, 1, 32), (70_000, 48, 32), (48, 32), (4, 4, 48, 32)):
        anatomy = identify(
            named({"model.layers.0.mlp.experts.gate_up_proj": shape}, LLAMA | {"model_type": "qwen3_moe"})
        )
        assert not anatomy.slots


def test_nested_configs_are_followed_only_so_far() -> None:
    config: dict[str, Any] = dict(LLAMA)
    for key in itertools.islice(itertools.cycle(["text_config", "llm_config"]), 500):
        config = {key: config}
    identify(named(llama_shapes(), config))
