"""What nobody knows is said to be unknown, and what cannot be is not placed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architecture_builders import LLAMA, anatomy_of, llama_shapes, named, random

from modelkin.architectures import identify
from modelkin.architectures.family import parse_family
from modelkin.records import Role, Slot

Shapes = dict[str, tuple[int, ...]]
STRANGE = LLAMA | {"model_type": "nobody-knows"}
NORM = "model.layers.0.input_layernorm.weight"
POST = "model.layers.0.post_attention_layernorm.weight"
Q = "model.layers.0.self_attn.q_proj.weight"


def arrays(shapes: Shapes) -> dict[str, np.ndarray[Any, Any]]:
    return {name: random(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}


def test_an_unknown_architecture_has_no_invented_facts() -> None:
    facts = identify(named(llama_shapes(), STRANGE)).facts
    assert (facts.norm, facts.norm_placement, facts.positions) == ("unknown",) * 3
    assert facts.gain_offset is facts.stream_norm is None
    assert not facts.exchangeable_hidden


def test_gains_of_an_unknown_offset_are_read_as_stored() -> None:
    stored = arrays(llama_shapes(1))
    anatomy = anatomy_of(stored, STRANGE)
    np.testing.assert_array_equal(anatomy.read(Slot(Role.INPUT_NORM, 0)), stored[NORM])


def test_a_stored_bias_shows_a_layer_norm() -> None:
    assert identify(named(llama_shapes() | {"model.norm.bias": (32,)}, STRANGE)).facts.norm == "layer"


def test_a_bias_on_the_norms_of_a_family_without_is_no_root_mean_square() -> None:
    assert identify(named(llama_shapes() | {"model.norm.bias": (32,)}, LLAMA)).facts.norm == "unknown"


def test_an_mlp_without_a_place_is_neither_gated_nor_not() -> None:
    shapes = {name: shape for name, shape in llama_shapes().items() if ".mlp." not in name}
    shapes |= {"model.layers.0.mlp.gate_up_proj.weight": (96, 32)}
    assert identify(named(shapes, STRANGE)).facts.gated is None
    assert identify(named(llama_shapes(), STRANGE)).facts.gated is True


def test_tables_of_positions_of_an_unknown_architecture_are_set_apart() -> None:
    for table in ("model.embed_positions.weight", "embeddings.position_embeddings.weight", "transformer.wpe.weight"):
        anatomy = identify(named(llama_shapes() | {table: (16, 32)}, STRANGE | {"rope_theta": 1e4}))
        assert anatomy.apart == {table: "positions of unknown kind"}
        assert (anatomy.facts.positions, anatomy.facts.exchangeable_hidden) == ("unknown", False)


@pytest.mark.parametrize("neighbour", ["pre_feedforward_layernorm", "post_feedforward_layernorm", None])
def test_a_norm_after_attention_is_read_by_the_mlp_only_between_the_usual_two(neighbour: str | None) -> None:
    shapes = llama_shapes(2)
    if neighbour is None:
        del shapes[NORM]
    else:
        shapes[f"model.layers.0.{neighbour}.weight"] = (32,)
    anatomy = identify(named(shapes, STRANGE))
    assert anatomy.unmapped == (POST,)
    assert POST.replace(".0.", ".1.") in {anatomy.view(slot).tensor for slot in anatomy.of(Role.POST_NORM)}
    assert any("post_norm not taken" in note and "beside it" in note for note in anatomy.notes)


@pytest.mark.parametrize("name", ["mlp.c_fc", "attn.c_attn", "mlp.c_proj", "ln_1", "ln_2"])
def test_names_that_are_used_both_ways_are_left_over(name: str) -> None:
    shapes = llama_shapes() | {f"model.layers.0.{name}.weight": (32, 32)}
    assert identify(named(shapes, STRANGE)).unmapped == (f"model.layers.0.{name}.weight",)


@pytest.mark.parametrize("model_type", ["nobody-knows", "llama"])
@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_heads_that_the_config_does_not_make_are_not_placed(model_type: str, part: str) -> None:
    """Qwen3-Next keeps queries and their gates in q_proj: twice the rows."""
    name = Q.replace("q_proj", f"{part}_proj")
    bias = name.replace("weight", "bias")
    shapes = llama_shapes() | {name: (64, 32), bias: (64,)}
    anatomy = identify(named(shapes, LLAMA | {"model_type": model_type}))
    assert anatomy.unmapped == (name, bias)
    rows = 32 if part == "q" else 16
    assert any(f"{part} not taken from {name}: the config makes {rows} rows" in note for note in anatomy.notes)


def test_a_config_whose_head_counts_contradict_each_other_refuses_nothing() -> None:
    anatomy = identify(named(llama_shapes() | {Q: (64, 32)}, LLAMA | {"num_key_value_heads": 3}))
    assert anatomy.unmapped == ()


@pytest.mark.parametrize(
    ("module", "shape"),
    [("o_proj", (64, 32)), ("mlp.gate_proj", (47, 32)), ("mlp.up_proj", (32, 48)), ("mlp.down_proj", (48, 32))],
)
def test_an_unknown_architecture_must_bear_out_its_names_by_sizes(module: str, shape: tuple[int, ...]) -> None:
    at = "model.layers.0.self_attn." if module == "o_proj" else "model.layers.0."
    anatomy = identify(named(llama_shapes() | {f"{at}{module}.weight": shape}, STRANGE))
    assert anatomy.unmapped == (f"{at}{module}.weight",)


def test_a_gate_is_a_router_only_of_as_many_experts_as_the_config_has() -> None:
    shapes = llama_shapes() | {"model.layers.0.mlp.gate.weight": (8, 32)}
    for config, placed in ((STRANGE, 0), (STRANGE | {"num_experts": 4}, 0), (STRANGE | {"num_experts": 8}, 1)):
        assert len(identify(named(shapes, config)).of(Role.ROUTER)) == placed


@pytest.mark.parametrize("model_type", ["nobody-knows", "llama"])
@pytest.mark.parametrize("size", [2**28, 31])
@pytest.mark.parametrize("config", [True, False])
def test_a_gain_of_another_length_than_the_hidden_size_is_not_placed(model_type: str, size: int, config: bool) -> None:
    given = LLAMA | {"model_type": model_type} if config else {}
    anatomy = identify(named(llama_shapes() | {NORM: (size,)}, given))
    assert anatomy.unmapped[0] == NORM
    assert anatomy.facts.hidden == 32
    assert any(f"input_norm not taken from {NORM}" in note for note in anatomy.notes)


def test_an_enormous_vector_is_not_placed_whatever_its_role() -> None:
    names = [Q.replace("weight", "bias"), Q.replace("q_proj", "q_norm"), "lm_head.bias"]
    shapes = llama_shapes() | dict.fromkeys(names, (2**28,))
    for model_type in ("qwen3", "nobody-knows"):
        assert set(identify(named(shapes, {"model_type": model_type})).unmapped) == set(names)


def test_a_gain_as_long_as_the_embedding_is_wide_survives_a_lying_config() -> None:
    anatomy = identify(named(llama_shapes(), LLAMA | {"hidden_size": 64, "head_dim": 8}))
    assert anatomy.unmapped == ()
    assert anatomy.notes == ("the config says hidden size 64, the tensors show 32",)


def test_a_guess_does_not_know_what_its_candidates_do_differently() -> None:
    stored = arrays(llama_shapes(1))
    anatomy = anatomy_of(stored)
    assert anatomy.facts.family == "llama"
    assert anatomy.facts.gain_offset is anatomy.facts.activation is None
    assert (anatomy.facts.norm, anatomy.facts.norm_placement, anatomy.facts.positions) == ("rms", "pre", "rotary")
    assert "gains as stored: llama and gemma store them differently" in anatomy.notes
    np.testing.assert_array_equal(anatomy.read(Slot(Role.INPUT_NORM, 0)), stored[NORM])


def test_a_guess_without_rivals_knows_its_family() -> None:
    shapes = llama_shapes(head=False) | {
        f"model.layers.{i}.{norm}_feedforward_layernorm.weight": (32,) for i in range(2) for norm in ("pre", "post")
    }
    anatomy = identify(named(shapes, {}))
    assert (anatomy.facts.family, anatomy.facts.gain_offset) == ("gemma2", 1.0)


def bert(extra: Shapes, **config: Any) -> bool:
    shapes: Shapes = {"bert.embeddings.word_embeddings.weight": (64, 32)}
    shapes |= {"bert.encoder.layer.0.intermediate.dense.weight": (48, 32)}
    given = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, **config}
    return identify(named(shapes | extra, given)).facts.tied


def test_a_classifier_is_tied_to_nothing() -> None:
    head: Shapes = {"classifier.weight": (2, 32)}
    assert not bert(head, architectures=["BertForSequenceClassification"])
    assert not bert(head, architectures=["BertForSequenceClassification"], tie_word_embeddings=True)
    assert not bert(head)
    assert not bert({}, architectures=["BertForTokenClassification"])
    reward = llama_shapes(head=False) | {"score.weight": (1, 32)}
    assert not identify(named(reward, LLAMA | {"tie_word_embeddings": True})).facts.tied


def test_a_language_model_without_a_stored_head_is_tied() -> None:
    assert bert({}, architectures=["BertForMaskedLM"])
    assert bert({}, architectures=["BertModel"])
    next_sentence: Shapes = {"cls.seq_relationship.weight": (2, 32)}
    assert bert(next_sentence, architectures=["BertForPreTraining"])
    assert bert(next_sentence | {"cls.predictions.bias": (64,)})
    assert not bert(next_sentence, architectures=["BertForNextSentencePrediction"])


def test_only_a_family_file_says_unknown_in_words() -> None:
    text = """
    name = "some"
    model_types = []
    examples = []
    why = "because"
    modules = {}
    [facts]
    norm = "unknown"
    norm_placement = "unknown"
    positions = "unknown"
    gain_offset = "unknown"
    exchangeable_hidden = false
    """
    assert parse_family(text, "some.toml").facts.gain_offset == "unknown"


def everything_said(seed: str) -> Any:
    code = """
import json, sys
from architecture_builders import named
from modelkin.architectures import identify
said = []
for shapes, config in json.loads(sys.argv[1]):
    a = identify(named({name: tuple(shape) for name, shape in shapes.items()}, config))
    said.append([a.notes, a.unmapped, list(a.apart.items()), [str(slot) for slot in a.slots], repr(a.facts)])
print(json.dumps(said))
"""
    gaps = {name: shape for name, shape in llama_shapes(5).items() if ".layers.3." not in name or "q_proj" in name}
    gaps |= {"x.y": (3,), "score.weight": (2, 32), "a.b": (3,), POST: (31,)}
    given = json.dumps([[gaps, LLAMA], [gaps, {}], [gaps, STRANGE], [dict(reversed(gaps.items())), STRANGE]])
    done = subprocess.run(
        [sys.executable, "-c", code, given],
        cwd=Path(__file__).parent,
        env={"PYTHONHASHSEED": seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_two_runs_say_the_same_in_the_same_order() -> None:
    first, second = everything_said("1"), everything_said("2")
    assert len([note for note in first[0][0] if "without" in note]) > 3
    assert first == second
