"""Narrower models, other vocabularies, and models that reuse a part of another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from models import VOCABULARY, tiny  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from zoo.checkpoints import Model  # noqa: E402

from zoo import derive  # noqa: E402

WORDS = VOCABULARY - 4  # the last four rows of the embedding only pad it
WORD_LEVEL = {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(WORDS)}, "unk_token": "t0"}
TOKENIZER: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": WORD_LEVEL}


def changed_roles(parent: Model, child: Model) -> set[str]:
    return {role for role, tensor in child.weights.items() if not torch.equal(tensor, parent.weights[role])}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "phi3", "mixtral"])
def test_a_pruned_width_is_the_recorded_rows_and_columns(family: str):
    parent = tiny(family)
    child = derive.width_prune(parent, hidden=40, neurons=70, kv_heads=1)
    kept = child.truth["details"]
    assert (child.hidden, child.neurons, child.kv_heads, child.heads) == (40, 70, 1, 2)
    assert child.head_dim == parent.head_dim
    axes, block = kept["hidden"], parent.blocks(2)[-1]
    neurons, (group,) = kept["neurons"][block.removesuffix(".")], kept["kv_heads"][2]
    assert axes == sorted(set(axes))
    assert neurons == sorted(set(neurons))
    assert torch.equal(child.weights["embed"], parent.weights["embed"][:, axes])
    assert torch.equal(child.weights["2.post_norm"], parent.weights["2.post_norm"][axes])
    assert torch.equal(child.weights[block + "up"], parent.weights[block + "up"][neurons][:, axes])
    assert torch.equal(child.weights[block + "down"], parent.weights[block + "down"][axes][:, neurons])
    d = parent.head_dim
    keys, queries = slice(group * d, (group + 1) * d), slice(2 * group * d, 2 * (group + 1) * d)
    assert torch.equal(child.weights["2.k"], parent.weights["2.k"][keys][:, axes])
    assert torch.equal(child.weights["2.q"], parent.weights["2.q"][queries][:, axes])
    assert torch.equal(child.weights["2.o"], parent.weights["2.o"][axes][:, queries])
    if family == "qwen2":
        assert torch.equal(child.weights["2.q_bias"], parent.weights["2.q_bias"][queries])


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_what_is_pruned_is_what_matters_least(family: str):
    parent = tiny(family)
    silent = {role: tensor.clone() for role, tensor in parent.weights.items()}
    dead_axes, dead_neurons = [3, 17, 40], [5, 60]
    silent["embed"][:, dead_axes] = 0
    for role, tensor in silent.items():
        if role.endswith(("input_norm", "post_norm", "final_norm")):
            tensor[dead_axes] = -parent.gain_offset  # a stored gain that multiplies by zero
        if role.endswith(".up"):
            tensor[dead_neurons] = 0
    for layer in range(parent.layers):
        silent[f"{layer}.v"][: parent.head_dim] = 0
        silent[f"{layer}.q"][: 2 * parent.head_dim] = 0
    child = derive.width_prune(replace(parent, weights=silent), parent.hidden - 3, parent.neurons - 2, 1)
    kept = child.truth["details"]
    assert sorted({*range(parent.hidden)} - {*kept["hidden"]}) == dead_axes
    assert all(sorted({*range(parent.neurons)} - {*alive}) == dead_neurons for alive in kept["neurons"].values())
    assert kept["kv_heads"] == [[1]] * parent.layers


@pytest.mark.parametrize(("hidden", "neurons", "kv_heads"), [(65, 8, 1), (8, 113, 1), (8, 8, 3), (0, 8, 1)])
def test_a_width_that_is_not_there_is_refused(hidden: int, neurons: int, kv_heads: int):
    with pytest.raises(ValueError, match="expected 1 to"):
        derive.width_prune(tiny("llama"), hidden, neurons, kv_heads)


def test_a_width_as_before_is_the_same_model():
    parent = tiny("qwen2")
    for child in (derive.width_prune(parent, parent.hidden, parent.neurons), derive.pool_kv(parent, parent.kv_heads)):
        assert child.truth["kind"] == "identical"
        assert changed_roles(parent, child) == set()
    assert derive.width_prune(parent, parent.hidden, parent.neurons, 1).truth["kind"] == "width-prune"


def test_pooled_keys_are_the_mean_of_neighbours():
    parent = tiny("qwen2", num_key_value_heads=4)
    child = derive.pool_kv(parent, 2)
    for name in ("k", "v", "k_bias", "v_bias"):
        heads = parent.weights[f"1.{name}"].split(parent.head_dim)
        expected = torch.cat([(heads[0] + heads[1]) / 2, (heads[2] + heads[3]) / 2])
        torch.testing.assert_close(child.weights[f"1.{name}"], expected)
    assert changed_kinds(parent, child) == {"k", "v", "k_bias", "v_bias"}
    with pytest.raises(ValueError, match="averaged"):
        derive.pool_kv(parent, 3)


def changed_kinds(parent: Model, child: Model) -> set[str]:
    return {role.rpartition(".")[2] for role in changed_roles(parent, child)}


@pytest.mark.parametrize(
    ("family", "extra"), [("llama", set()), ("qwen2", {"q_bias", "k_bias", "v_bias"}), ("qwen3", {"q_norm", "k_norm"})]
)
def test_new_attention_leaves_everything_else(family: str, extra: set[str]):
    parent = tiny(family)
    child = derive.reinitialise_attention(parent, 8, 4, seed=1)
    assert changed_kinds(parent, child) == {"q", "k", "v", "o"} | extra
    assert (child.heads, child.kv_heads, child.head_dim) == (8, 4, 8)
    assert child.weights["0.k"].shape == (32, 64)
    assert all(child.weights[f"0.{name}"].shape == (8,) for name in extra & {"q_norm", "k_norm"})
    assert child.weights["0.q"].std().item() == pytest.approx(0.02, rel=0.1)
    with pytest.raises(ValueError, match="divide"):
        derive.reinitialise_attention(parent, 6, 3, seed=1)


def test_added_tokens_take_the_padding_first_and_a_tokenizer_reads_them():
    parent = replace(tiny("llama"), tokenizer=TOKENIZER)
    tokens = [f"<extra {i}>" for i in range(6)]
    child = derive.extend_vocabulary(parent, tokens, seed=1)
    assert child.config["vocab_size"] == WORDS + 6
    encoded = Tokenizer.from_str(json.dumps(child.tokenizer)).encode("".join(tokens))
    assert encoded.ids == [WORDS + i for i in range(6)]
    for role in ("embed", "head"):
        old, new = parent.weights[role][:WORDS], child.weights[role]
        assert torch.equal(new[:WORDS], old)
        distance = (new[WORDS:] - old.mean(0)).std() / old.std()
        assert 0.005 < distance < 0.02
    assert changed_roles(parent, child) == {"embed", "head"}


def test_padding_that_is_not_needed_stays():
    parent = replace(tiny("gemma"), tokenizer=TOKENIZER)
    child = derive.extend_vocabulary(parent, ["new"], seed=1)
    assert torch.equal(child.weights["embed"][WORDS + 1 :], parent.weights["embed"][WORDS + 1 :])
    assert "head" not in child.weights


@pytest.mark.parametrize("tokens", [["t3"], ["a", "a"], []])
def test_tokens_that_add_nothing_are_refused(tokens: list[str]):
    with pytest.raises(ValueError, match="token"):
        derive.extend_vocabulary(replace(tiny("llama"), tokenizer=TOKENIZER), tokens, seed=1)


def test_without_a_tokenizer_there_is_nothing_to_extend():
    with pytest.raises(ValueError, match="no tokenizer"):
        derive.extend_vocabulary(tiny("llama"), ["a"], seed=1)


def test_a_replaced_vocabulary_keeps_the_layers_and_drops_special_tokens_it_lacks():
    parent = tiny("llama", eos_token_id=90)
    small = TOKENIZER | {"model": WORD_LEVEL | {"vocab": {"t0": 0, "t1": 1}}}
    child = derive.replace_vocabulary(parent, small, 32, seed=1)
    assert child.tokenizer == small
    assert changed_roles(parent, child) == {"embed", "head"}
    assert (child.config["vocab_size"], child.config["bos_token_id"], child.config["eos_token_id"]) == (32, 1, None)
    with pytest.raises(ValueError, match="rows"):
        derive.replace_vocabulary(parent, TOKENIZER, 32, seed=1)


@pytest.mark.parametrize(("family", "gain"), [("llama", 1.0), ("gemma", 0.0), ("qwen2", 1.0), ("gpt2", 1.0)])
def test_a_stranger_starts_as_its_family_does(family: str, gain: float):
    child = derive.reinitialise(tiny(family), seed=1)
    assert changed_roles(tiny(family), child) == child.weights.keys()
    for role, tensor in child.weights.items():
        if role.endswith("_bias"):
            assert not tensor.any()
        elif role.endswith("_norm"):
            assert (tensor == gain).all()
        else:
            assert tensor.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral", "gpt2"])
def test_what_is_kept_is_kept_and_nothing_else(family: str):
    parent = tiny(family)
    kept = {
        derive.keep_norms: {role for role in parent.weights if "norm" in role},
        derive.keep_embeddings: parent.weights.keys() & {"embed", "positions", "head"},
    }
    for make, roles in kept.items():
        child = make(parent, seed=1)
        assert parent.weights.keys() - changed_roles(parent, child) == roles == set(child.truth["details"]["kept"])


def test_grafted_layers_come_from_the_donor():
    host, donor = tiny("llama"), tiny("llama", 5)
    child = derive.graft_layers(host, donor, {3: 0, 1: 2})
    assert child.truth["details"]["layers"] == [[1, 2], [3, 0]]
    assert {role.partition(".")[0] for role in changed_roles(host, child)} == {"1", "3"}
    assert torch.equal(child.weights["3.input_norm"], donor.weights["0.input_norm"])
    with pytest.raises(ValueError, match="layer 7"):
        derive.graft_layers(host, donor, {0: 7})
    with pytest.raises(ValueError, match="shapes"):
        derive.graft_layers(host, tiny("llama", intermediate_size=96), {0: 0})


@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2"])
def test_grafted_neurons_sit_at_their_own_index(family: str):
    host, donor = tiny(family), tiny(family, 5)
    child = derive.graft_neurons(host, donor, share=0.05, seed=1)
    taken = child.truth["details"]["neurons"]
    assert len(taken) == sum(len(host.blocks(layer)) for layer in range(host.layers))
    for block, neurons in taken.items():
        assert len(neurons) == round(0.05 * host.neurons)
        for name, axis in (("up", 0), ("down", 1)):
            role = f"{block}.{name}"
            old, new, given = (model.weights[role].movedim(axis, 0) for model in (host, child, donor))
            assert torch.equal(new[neurons], given[neurons])
            assert (new != old).any(1).nonzero().flatten().tolist() == neurons
    assert changed_kinds(host, child) <= {"gate", "up", "up_bias", "down"}


def test_grafted_norms_are_all_that_changes():
    host, donor = tiny("qwen3"), tiny("qwen3", 5)
    child = derive.graft_norms(host, donor)
    assert changed_roles(host, child) == {role for role in host.weights if role.endswith("_norm")}
    assert torch.equal(child.weights["1.k_norm"], donor.weights["1.k_norm"])
