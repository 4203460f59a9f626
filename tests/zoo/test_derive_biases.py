"""Families whose config may ask for biases: they load, and every derivation takes them along."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from models import logits, tiny  # noqa: E402
from zoo.derivation import layer_weights  # noqa: E402

from zoo import derive  # noqa: E402

IDS = torch.arange(2 * 12).view(2, 12) * 7 % 90 + 3
ATTENTION = {"q_bias", "k_bias", "v_bias", "o_bias"}
MLP = {"gate_bias", "up_bias", "down_bias"}
BOTH = {"attention_bias": True, "mlp_bias": True}
BIASED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "llama": (BOTH, ATTENTION | MLP),
    "gemma": ({"attention_bias": True}, ATTENTION),
    "qwen3": ({"attention_bias": True}, ATTENTION),
    "olmo2": ({"attention_bias": True}, ATTENTION),
}
FREE = ("llama", "gemma", "qwen3")


@pytest.mark.parametrize("family", BIASED)
def test_biases_are_read_where_they_are_stored_and_written_back(family: str):
    asked, biases = BIASED[family]
    model = tiny(family, **asked)
    assert {role for role in layer_weights(model, 2) if role.endswith("_bias")} == biases
    assert logits(model, IDS).isfinite().all()  # transformers finds each of them, and no other
    assert not [role for role in tiny(family).weights if role.endswith("_bias")]


@pytest.mark.parametrize("family", BIASED)
def test_identity_layers_add_no_bias_either(family: str):
    parent = tiny(family, **BIASED[family][0])
    child = derive.insert_identity_layers(parent, [1, 3])
    torch.testing.assert_close(logits(child, IDS), logits(parent, IDS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FREE)
def test_a_pruned_width_takes_its_biases_along(family: str):
    parent = tiny(family, **BIASED[family][0])
    child = derive.width_prune(parent, hidden=40, neurons=70, kv_heads=1)
    kept, d = child.truth["details"], parent.head_dim
    axes, neurons, (group,) = kept["hidden"], kept["neurons"]["2"], kept["kv_heads"][2]
    places = {"q": slice(2 * group * d, 2 * (group + 1) * d), "k": slice(group * d, (group + 1) * d), "o": axes}
    places |= {"v": places["k"], "gate": neurons, "up": neurons, "down": axes}
    for role in BIASED[family][1]:
        chosen = places[role.removesuffix("_bias")]
        assert torch.equal(child.weights[f"2.{role}"], parent.weights[f"2.{role}"][chosen])
    assert logits(child, IDS).isfinite().all()


def test_a_neuron_with_nothing_but_a_bias_is_not_silent():
    parent = tiny("llama", **BOTH)
    gate, bias = parent.weights["1.gate"].clone(), parent.weights["1.gate_bias"].clone()
    gate[5], bias[5], gate[9], bias[9] = 0, 100, 0, 0
    silenced = parent.with_weights({"1.gate": gate, "1.gate_bias": bias})
    kept = derive.width_prune(silenced, 64, parent.neurons - 1).truth["details"]["neurons"]["1"]
    assert {*range(parent.neurons)} - {*kept} == {9}


@pytest.mark.parametrize("family", FREE)
def test_new_attention_starts_without_bias(family: str):
    child = derive.reinitialise_attention(tiny(family, **BIASED[family][0]), 8, 4, seed=1)
    assert not any(child.weights[f"2.{role}"].any() for role in ATTENTION)
    assert logits(child, IDS).isfinite().all()


def test_grafted_neurons_bring_the_bias_of_their_gate():
    host, donor = tiny("llama", **BOTH), tiny("llama", 5, **BOTH)
    child = derive.graft_neurons(host, donor, seed=1)
    neurons = child.truth["details"]["neurons"]["1"]
    assert torch.equal(child.weights["1.gate_bias"][neurons], donor.weights["1.gate_bias"][neurons])


@pytest.mark.parametrize("upcycle", [derive.upcycle_copied, derive.upcycle_split, derive.upcycle_partly])
def test_a_mixtral_has_no_place_for_a_bias(upcycle: Any):
    with pytest.raises(ValueError, match=r"0\.down_bias has no place in a Mixtral: expected a model without biases"):
        upcycle(tiny("llama", **BOTH), seed=1)
