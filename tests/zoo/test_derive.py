"""Derivations change what they say, keep the rest, and load in transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from models import VOCABULARY, logits, tiny  # noqa: E402
from zoo.checkpoints import Model  # noqa: E402
from zoo.derivation import KINDS  # noqa: E402

from zoo import derive, plan  # noqa: E402

IDS = torch.arange(2 * 12).view(2, 12) * 7 % 90 + 3
TOKENS = {f"t{i}": i for i in range(VOCABULARY - 4)}  # the last four rows of the embedding only pad it
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": TOKENS, "unk_token": "t0"}}
FREE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "mixtral")
ALL = (*FREE, "glm4_moe", "olmo2", "gpt2", "gpt_neox")


def worded(family: str = "llama", seed: int = 0) -> Model:
    return replace(tiny(family, seed), tokenizer=TOKENIZER)


def same(a: Model, b: Model) -> set[str]:
    """Roles in both with the same bits."""
    return {role for role in a.weights.keys() & b.weights.keys() if torch.equal(a.weights[role], b.weights[role])}


def random_lora(model: Model) -> Model:
    rng = torch.Generator().manual_seed(0)
    out, inside = model.weights["1.q"].shape
    factors = {"1.q": (torch.randn(out, 3, generator=rng), torch.randn(3, inside, generator=rng))}
    return derive.merged_lora(model, factors, 0.1)


STEPS: dict[str, tuple[str, Callable[[Model], Model]]] = {
    "upcycle_copied": ("moe-upcycle", lambda m: derive.upcycle_copied(m, seed=1)),
    "upcycle_split": ("moe-upcycle", lambda m: derive.upcycle_split(m, seed=1)),
    "upcycle_partly": ("moe-upcycle", lambda m: derive.upcycle_partly(m, seed=1)),
    "depth_upscale": ("depth-upscale", lambda m: derive.depth_upscale(m, [0, 1, 2, 1, 2, 3])),
    "insert_identity_layers": ("depth-upscale", lambda m: derive.insert_identity_layers(m, [1, 3])),
    "depth_prune": ("depth-prune", lambda m: derive.depth_prune(m, [0, 3])),
    "width_prune": ("width-prune", lambda m: derive.width_prune(m, 48, 80, 1)),
    "pool_kv": ("continued-pretraining", lambda m: derive.pool_kv(m, 1)),
    "reinitialise_attention": ("component-reuse", lambda m: derive.reinitialise_attention(m, 8, 4, seed=1)),
    "extend_vocabulary": ("vocabulary-surgery", lambda m: derive.extend_vocabulary(m, list("abcdef"), seed=1)),
    "replace_vocabulary": ("vocabulary-surgery", lambda m: derive.replace_vocabulary(m, TOKENIZER, 128, seed=1)),
    "reinitialise": ("unrelated", lambda m: derive.reinitialise(m, seed=1)),
    "keep_norms": ("component-reuse", lambda m: derive.keep_norms(m, seed=1)),
    "keep_embeddings": ("component-reuse", lambda m: derive.keep_embeddings(m, seed=1)),
    "graft_layers": ("component-reuse", lambda m: derive.graft_layers(m, worded(m.family, 5), {1: 2, 3: 3})),
    "graft_neurons": ("component-reuse", lambda m: derive.graft_neurons(m, worded(m.family, 5), seed=1)),
    "graft_norms": ("component-reuse", lambda m: derive.graft_norms(m, worded(m.family, 5))),
    "linear": ("merge", lambda m: derive.linear([m, worded(m.family, 5)], [0.7, 0.3])),
    "soup": ("merge", lambda m: derive.soup([m, worded(m.family, 5)])),
    "slerp": ("merge", lambda m: derive.slerp(m, worded(m.family, 5), 0.3)),
    "ties": ("merge", lambda m: derive.ties(m, [worded(m.family, 5), worded(m.family, 6)], [0.5, 0.5], 0.4)),
    "dare": ("merge", lambda m: derive.dare(m, [worded(m.family, 5)], [1.0], 0.4, seed=1)),
    "passthrough": ("merge", lambda m: derive.passthrough([(m, 0), (m, 1), (worded(m.family, 5), 3)])),
    "quantised": ("re-encoded", lambda m: derive.quantised(m, "nf4")),
    "cast": ("re-encoded", lambda m: derive.cast(m, torch.bfloat16)),
    "pruned": ("re-encoded", lambda m: derive.pruned(m, 0.5)),
    "sparse_update": ("fine-tune", lambda m: derive.sparse_update(m, worded(m.family, 5), 0.1)),
    "merged_lora": ("merged-lora", random_lora),
}
MOE = {"upcycle_copied", "upcycle_split", "upcycle_partly"}
HEADS = {"pool_kv", "reinitialise_attention", "width_prune"}
IMPOSSIBLE = [(family, step) for family in ALL if family not in ("llama", "mistral") for step in sorted(MOE)]
IMPOSSIBLE += [(family, step) for family in ("olmo2", "gpt2", "gpt_neox") for step in sorted(HEADS)]
IMPOSSIBLE += [("glm4_moe", "width_prune")]
POSSIBLE = [(family, step) for family in ALL for step in STEPS if (family, step) not in IMPOSSIBLE]


def test_every_public_derivation_is_tried_below():
    assert STEPS.keys() == set(derive.__all__) - {"overlap_map"}


@pytest.mark.parametrize(("family", "step"), POSSIBLE)
def test_a_derivation_loads_in_transformers_and_leaves_its_parent_alone(family: str, step: str):
    parent = worded(family)
    before = {role: tensor.clone() for role, tensor in parent.weights.items()}
    config, tokenizer = json.dumps(parent.config), json.dumps(parent.tokenizer)
    kind, make = STEPS[step]
    child = make(parent)
    assert (child.truth["kind"], child.truth["step"]) == (kind, step)
    assert json.loads(json.dumps(child.truth)) == child.truth
    found = logits(child, IDS)
    assert found.shape == (*IDS.shape, len(child.weights["embed"]))
    assert found.isfinite().all()
    assert parent.weights.keys() == before.keys()
    assert all(torch.equal(parent.weights[role], tensor) for role, tensor in before.items())
    assert (json.dumps(parent.config), json.dumps(parent.tokenizer)) == (config, tokenizer)
    again = make(parent)
    assert same(child, again) == child.weights.keys() == again.weights.keys()
    assert again.truth == child.truth


@pytest.mark.parametrize(("family", "step"), IMPOSSIBLE)
def test_a_derivation_that_a_family_cannot_have_is_refused(family: str, step: str):
    with pytest.raises(ValueError, match=family):
        STEPS[step][1](worded(family))


SEEDED = {
    "upcycle_copied": lambda m, seed: derive.upcycle_copied(m, seed=seed),
    "upcycle_split": lambda m, seed: derive.upcycle_split(m, seed=seed),
    "upcycle_partly": lambda m, seed: derive.upcycle_partly(m, seed=seed),
    "reinitialise": lambda m, seed: derive.reinitialise(m, seed=seed),
    "reinitialise_attention": lambda m, seed: derive.reinitialise_attention(m, 8, 4, seed=seed),
    "extend_vocabulary": lambda m, seed: derive.extend_vocabulary(m, ["a"], seed=seed),
    "replace_vocabulary": lambda m, seed: derive.replace_vocabulary(m, TOKENIZER, 128, seed=seed),
    "keep_norms": lambda m, seed: derive.keep_norms(m, seed=seed),
    "keep_embeddings": lambda m, seed: derive.keep_embeddings(m, seed=seed),
    "graft_neurons": lambda m, seed: derive.graft_neurons(m, worded(seed=5), seed=seed),
    "dare": lambda m, seed: derive.dare(m, [worded(seed=5)], [1.0], 0.4, seed=seed),
}


@pytest.mark.parametrize("step", SEEDED)
def test_another_seed_gives_another_model(step: str):
    first, second = (SEEDED[step](worded(), seed) for seed in (1, 2))
    assert len(same(first, second)) < len(first.weights)


def test_two_steps_with_one_seed_draw_different_numbers():
    fresh, kept = (make(worded(), seed=1) for make in (derive.reinitialise, derive.keep_norms))
    pair = torch.stack([fresh.weights["0.q"].flatten(), kept.weights["0.q"].flatten()])
    assert abs(torch.corrcoef(pair)[0, 1]) < 0.1


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_copied_experts_keep_the_logits(family: str):
    parent = worded(family)
    child = derive.upcycle_copied(parent, experts=4, top_k=2, seed=1)
    assert child.experts == 4
    torch.testing.assert_close(logits(child, IDS), logits(parent, IDS), atol=1e-4, rtol=1e-4)


def test_copied_experts_keep_the_logits_where_the_config_leaves_defaults_unsaid():
    parent, said = worded(), ("rms_norm_eps", "rope_parameters", "max_position_embeddings", "head_dim")
    terse = replace(parent, config={key: value for key, value in parent.config.items() if key not in said})
    child = derive.upcycle_copied(terse, seed=1)
    torch.testing.assert_close(logits(child, IDS), logits(terse, IDS), atol=1e-4, rtol=1e-4)


def test_split_experts_hold_every_neuron_once_and_together_compute_the_mlp():
    parent = worded()
    child = derive.upcycle_split(parent, experts=4, top_k=4, seed=1, scale=4.0)
    dealt = child.truth["details"]["neurons"]
    assert list(dealt) == ["0", "1", "2", "3"]
    for hands in dealt.values():
        assert sorted(neuron for hand in hands for neuron in hand) == list(range(parent.neurons))
    assert torch.equal(child.weights["2.experts.3.gate"], parent.weights["2.gate"][dealt["2"][3]])
    even = child.with_weights({f"{i}.router": torch.zeros(4, parent.hidden) for i in range(parent.layers)})
    torch.testing.assert_close(logits(even, IDS), logits(parent, IDS), atol=1e-4, rtol=1e-4)


def test_split_experts_are_scaled_by_their_number_over_those_chosen():
    parent = worded()
    child = derive.upcycle_split(parent, experts=4, top_k=2, seed=1)
    hand = child.truth["details"]["neurons"]["1"][0]
    assert torch.equal(child.weights["1.experts.0.down"], parent.weights["1.down"][:, hand] * 2)


def test_partly_copied_experts_differ_from_the_mlp_in_the_recorded_neurons_alone():
    parent = worded()
    child = derive.upcycle_partly(parent, experts=3, top_k=2, share=0.25, seed=1)
    for expert, redrawn in enumerate(child.truth["details"]["reinitialised"][2]):
        assert len(redrawn) == parent.neurons // 4
        for name, axis in (("gate", 1), ("up", 1), ("down", 0)):
            changed = (child.weights[f"2.experts.{expert}.{name}"] != parent.weights[f"2.{name}"]).all(axis)
            assert changed.nonzero().flatten().tolist() == redrawn
            kept = (child.weights[f"2.experts.{expert}.{name}"] == parent.weights[f"2.{name}"]).all(axis)
            assert (kept ^ changed).all()


def test_the_map_that_lists_every_layer_once_is_the_same_model():
    parent = worded()
    child = derive.depth_upscale(parent, [0, 1, 2, 3])
    assert child.truth["kind"] == "identical"
    assert torch.equal(logits(child, IDS), logits(parent, IDS))


def test_overlap_map_repeats_the_middle():
    assert derive.overlap_map(6, 2) == [0, 1, 2, 3, 2, 3, 4, 5]
    assert derive.overlap_map(32, 16) == [*range(24), *range(8, 32)]
    with pytest.raises(ValueError, match="evenly"):
        derive.overlap_map(6, 3)


@pytest.mark.parametrize(("step", "layer_map"), [("depth_upscale", [0, 1, 2, 1, 2, 3]), ("depth_prune", [0, 3])])
def test_layers_of_another_depth_are_those_of_the_map(step: str, layer_map: list[int]):
    parent = worded("qwen3")
    parent = replace(parent, config=parent.config | {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]})
    child = getattr(derive, step)(parent, layer_map)
    assert child.truth["details"] == {"layer_map": layer_map}
    assert child.config["layer_types"] == [parent.config["layer_types"][layer] for layer in layer_map]
    for place, layer in enumerate(layer_map):
        assert torch.equal(child.weights[f"{place}.q_norm"], parent.weights[f"{layer}.q_norm"])


@pytest.mark.parametrize("layer_map", [[0, 1], [3, 2, 1, 0], [0, 0, 4], [0, 0, -1]])
def test_a_map_that_is_no_upscaling_is_refused(layer_map: list[int]):
    with pytest.raises(ValueError, match="layer"):
        derive.depth_upscale(worded(), layer_map)


@pytest.mark.parametrize("kept", [[], [1, 0], [0, 0], [0, 1, 2, 3], [0, 4]])
def test_layers_that_cannot_be_what_pruning_left_are_refused(kept: list[int]):
    with pytest.raises(ValueError, match="layer"):
        derive.depth_prune(worded(), kept)


def test_dense_layers_of_glm_stay_in_front():
    assert derive.depth_prune(worded("glm4_moe"), [1, 2]).config["first_k_dense_replace"] == 0
    with pytest.raises(ValueError, match="dense"):
        derive.depth_upscale(worded("glm4_moe"), [0, 1, 0, 1])


@pytest.mark.parametrize("family", ALL)
def test_identity_layers_keep_the_logits(family: str):
    parent = worded(family)
    after = [1, 3]
    child = derive.insert_identity_layers(parent, after)
    assert child.layers == parent.layers + 2
    assert child.truth["details"]["inserted"] == [2, 5]
    assert torch.equal(child.weights["2.q"], parent.weights["1.q"])
    torch.testing.assert_close(logits(child, IDS), logits(parent, IDS), atol=1e-5, rtol=1e-5)


def test_every_kind_of_the_zoo_is_known():
    assert {step.kind for step in plan.STEPS} <= set(KINDS)
