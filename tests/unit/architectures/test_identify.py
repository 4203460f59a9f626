"""Families, ties, towers, strangers: where tensors go, and what is said about the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architecture_builders import LLAMA, anatomy_of, llama_shapes, named, random

from modelkin.architectures import families, identify
from modelkin.records import Role, Slot


def llama_arrays() -> dict[str, np.ndarray[Any, Any]]:
    return {name: random(*shape, seed=i) for i, (name, shape) in enumerate(llama_shapes().items())}


def test_a_tied_head_is_no_second_slot() -> None:
    tied = LLAMA | {"tie_word_embeddings": True}
    arrays = llama_arrays()
    stored = anatomy_of(arrays | {"lm_head.weight": arrays["model.embed_tokens.weight"]}, tied)
    absent = identify(named(llama_shapes(head=False), tied))
    assert absent.facts.tied
    assert stored.facts.tied
    assert absent.of(Role.HEAD) == stored.of(Role.HEAD) == ()
    assert stored.apart.keys() == {"lm_head.weight"}


def test_a_head_with_other_values_is_its_own_whatever_the_config_says() -> None:
    anatomy = anatomy_of(llama_arrays(), LLAMA | {"tie_word_embeddings": True})
    assert not anatomy.facts.tied
    assert len(anatomy.of(Role.HEAD)) == 1
    assert any("lm_head.weight" in note for note in anatomy.notes)


def test_without_a_config_families_that_share_their_names_are_named() -> None:
    anatomy = identify(named(llama_shapes(head=False), {}))
    assert anatomy.facts.family == "llama"
    assert any("gemma" in note for note in anatomy.notes)


def test_a_head_of_another_size_is_not_tied_whatever_the_config_says() -> None:
    shapes = llama_shapes() | {"lm_head.weight": (60, 32)}
    anatomy = identify(named(shapes, LLAMA | {"tie_word_embeddings": True}))
    assert not anatomy.facts.tied
    assert len(anatomy.of(Role.HEAD)) == 1


def test_a_tied_pair_saved_under_the_heads_name_is_the_embedding() -> None:
    shapes = llama_shapes()
    del shapes["model.embed_tokens.weight"]
    anatomy = identify(named(shapes, LLAMA | {"tie_word_embeddings": True}))
    assert anatomy.facts.tied
    assert anatomy.slots[Slot(Role.EMBEDDING)].tensor == "lm_head.weight"


def test_encoder_and_decoder_may_have_embeddings_of_their_own() -> None:
    shapes = {f"model.{stack}.embed_tokens.weight": (64, 32) for stack in ("encoder", "decoder")}
    shapes |= {f"model.{stack}.layers.0.fc1.weight": (48, 32) for stack in ("encoder", "decoder")}
    config = {"model_type": "marian", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    shared = identify(named(shapes, config))
    apart = identify(named(shapes, config | {"share_encoder_decoder_embeddings": False}))
    assert shared.of(Role.EMBEDDING) == (Slot(Role.EMBEDDING),)
    assert shared.apart == {"model.decoder.embed_tokens.weight": "tied to model.encoder.embed_tokens.weight"}
    assert [slot.stack for slot in apart.of(Role.EMBEDDING)] == ["encoder", "decoder"]


def test_fixed_positions_pin_the_hidden_axes() -> None:
    shapes = {"embeddings.position_embeddings.weight": (16, 32), "transformer.layer.0.ffn.lin1.weight": (48, 32)}
    config = {"model_type": "distilbert", "dim": 32, "n_layers": 1, "n_heads": 4}
    learned = identify(named(shapes, config))
    fixed = identify(named(shapes, config | {"sinusoidal_pos_embds": True}))
    assert (learned.facts.positions, learned.facts.exchangeable_hidden) == ("learned", True)
    assert (fixed.facts.positions, fixed.facts.exchangeable_hidden) == ("fixed", False)
    assert fixed.of(Role.FIXED_POSITION)


def test_front_convolutions_are_matrices_numbered_in_order() -> None:
    conv = random(8, 4, 3)
    arrays = {"model.encoder.conv1.weight": conv, "model.encoder.layers.0.fc1.weight": random(16, 8)}
    anatomy = anatomy_of(arrays, {"model_type": "whisper", "d_model": 8, "encoder_layers": 1})
    slot = Slot(Role.FRONT_CONV, 0, None, "encoder")
    np.testing.assert_array_equal(anatomy.read(slot, [5, 1]), conv.reshape(8, 12)[[5, 1]])
    assert anatomy.facts.layers == {"encoder": 1}


def test_towers_adapters_and_scales_are_set_apart() -> None:
    extra: dict[str, tuple[int, ...]] = {
        "vision_tower.encoder.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.visual.blocks.0.norm1.weight": (8,),
        "multi_modal_projector.linear_1.weight": (8, 8),
        "mtp.layers.0.input_layernorm.weight": (32,),
        "score.weight": (2, 32),
        "model.layers.0.self_attn.q_proj.lora_A.default.weight": (4, 32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": (4,),
        "model.layers.0.mlp.up_proj.weight_scale_inv": (1, 1),
    }
    anatomy = identify(named(llama_shapes() | extra, LLAMA))
    assert list(anatomy.apart.values()) == [
        "vision tower",
        "vision tower",
        "projector between towers",
        "extra prediction layer",
        "task head",
        "adapter",
        "buffer determined by the config",
        "fp8 scale",
    ]
    assert anatomy.unmapped == ()
    assert len(anatomy.slots) == len(llama_shapes())


def test_an_adapted_layer_is_read_under_its_own_name() -> None:
    shapes = {name.replace("q_proj.weight", "q_proj.base_layer.weight"): s for name, s in llama_shapes().items()}
    assert identify(named(shapes, LLAMA)).unmapped == ()


def test_whole_numbers_and_empty_tensors_are_no_weights() -> None:
    packed = named({"model.layers.0.mlp.up_proj.weight": (48, 32)}, LLAMA, dtype="I8")
    assert list(identify(packed).apart.values()) == ["stored as I8, no form of weights"]
    empty = named({"model.layers.0.mlp.up_proj.weight": (0, 32)}, LLAMA)
    assert list(identify(empty).apart.values()) == ["empty tensor"]


def test_the_same_name_under_two_wrappers_is_left_over() -> None:
    shapes = llama_shapes() | {"module.model.norm.weight": (32,)}
    anatomy = identify(named(shapes, LLAMA))
    assert anatomy.unmapped == ("module.model.norm.weight",)
    assert any("same place" in note for note in anatomy.notes)


def test_what_is_missing_is_noted() -> None:
    shapes = llama_shapes(4)
    del shapes["model.layers.3.mlp.down_proj.weight"]
    shapes = {name: shape for name, shape in shapes.items() if ".layers.1." not in name}
    anatomy = identify(named(shapes, LLAMA | {"num_hidden_layers": 6}))
    assert anatomy.notes == (
        "the config says 6 layers, the tensors show 3",
        "no tensors for layers 1",
        "layer 3 without down",
    )
    assert (anatomy.facts.layers, anatomy.facts.configured_layers) == (3, 6)
    assert anatomy.layers == ("0", "2", "3")


def test_a_missing_expert_is_noted() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{i}.mlp.experts.{e}.{p}_proj.weight": (32, 24) if p == "down" else (24, 32)
        for i in range(2)
        for e in range(4)
        for p in ("gate", "up", "down")
    }
    del shapes["model.layers.1.mlp.experts.2.up_proj.weight"]
    config = LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 24}
    notes = identify(named(shapes, config)).notes
    assert "the config says 8 experts, the tensors show 4" in notes
    assert "layer 1 has up for 3 experts, others for 4" in notes


def test_a_known_class_under_an_unknown_model_type_is_enough() -> None:
    config = LLAMA | {"model_type": "renamed", "architectures": ["LlamaForCausalLM"]}
    anatomy = identify(named(llama_shapes(), config))
    assert (anatomy.facts.family, anatomy.facts.model_type, anatomy.notes) == ("llama", "renamed", ())


STRANGE = {"model_type": "nobody-knows", "hidden_size": 32, "num_hidden_layers": 2, "rope_theta": 1e4}


def test_an_unknown_architecture_gets_what_suffixes_tell() -> None:
    shapes = llama_shapes() | {f"model.layers.{i}.self_attn.secret.weight": (32, 32) for i in range(2)}
    shapes |= {"model.layers.0.attn.qkv_proj.weight": (96, 32)}
    anatomy = identify(named(shapes, STRANGE))
    assert anatomy.facts.family == "unknown"
    assert anatomy.facts.positions == "rotary"
    assert len(anatomy.slots) == len(llama_shapes())
    assert set(anatomy.unmapped) == set(shapes) - set(llama_shapes())
    assert "unknown architecture nobody-knows: placed by common suffixes" in anatomy.notes


def test_in_an_unknown_architecture_what_is_ambiguous_stays_unmapped() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.0.{part}.q_proj.weight": (32, 32) for part in ("self_attn", "linear_attn", "other_attn")
    }
    anatomy = identify(named(shapes, STRANGE))
    assert set(anatomy.unmapped) == set(shapes)
    assert not anatomy.slots


def test_an_unknown_architecture_without_known_positions_pins_its_hidden_axes() -> None:
    config = {key: value for key, value in STRANGE.items() if key != "rope_theta"}
    assert not identify(named(llama_shapes(), config)).facts.exchangeable_hidden


def test_towers_of_an_unknown_architecture_are_not_taken_for_text() -> None:
    shapes = llama_shapes() | {"model.vision_tower.layers.0.self_attn.q_proj.weight": (8, 8)}
    anatomy = identify(named(shapes, STRANGE))
    assert list(anatomy.apart.values()) == ["vision tower"]


def test_names_that_contradict_the_config_win() -> None:
    shapes = {"h.0.attn.c_attn.weight": (32, 96), "h.0.mlp.c_fc.weight": (32, 128), "wte.weight": (64, 32)}
    anatomy = identify(named(shapes, LLAMA))
    assert anatomy.facts.family == "gpt2"
    assert "the config says llama, but the names are those of gpt2" in anatomy.notes


def test_without_a_config_splits_that_need_one_are_not_made() -> None:
    shapes = {"gpt_neox.layers.0.attention.query_key_value.weight": (96, 32), "gpt_neox.embed_in.weight": (64, 32)}
    anatomy = identify(named(shapes, {}))
    assert anatomy.facts.family == "gpt_neox"
    assert anatomy.unmapped == ("gpt_neox.layers.0.attention.query_key_value.weight",)
    assert any("the number of heads" in note for note in anatomy.notes)
    assert anatomy.facts.heads is None


def test_nothing_at_all_is_an_anatomy_too() -> None:
    anatomy = identify(named({}, {}))
    assert not anatomy.slots
    assert anatomy.facts.family == "unknown"


def test_slots_are_in_order() -> None:
    shapes = dict(reversed(llama_shapes(12).items()))
    slots = [
        slot for slot in identify(named(shapes, LLAMA | {"num_hidden_layers": 12})).slots if slot.layer is not None
    ]
    assert [slot.layer for slot in slots] == sorted(slot.layer or 0 for slot in slots)


def test_families_are_listed_with_examples() -> None:
    found = families()
    assert len(found) >= 35
    assert [family.name for family in found] == sorted(family.name for family in found)


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_identifying_parses_only_the_families_that_may_fit(model_type: str) -> None:
    code = """
import json, sys
from architecture_builders import named
from modelkin.architectures import identify
from modelkin.architectures.family import load_family
shapes, config = json.loads(sys.argv[1])
identify(named({name: tuple(shape) for name, shape in shapes.items()}, config))
print(load_family.cache_info().currsize)
"""
    given: Any = json.dumps([llama_shapes(), LLAMA | {"model_type": model_type}])
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code, given], cwd=here, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 3
