"""Models that begin anew, wholly or but for a part, and models that take in a part of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from zoo.checkpoints import Model, Weights
from zoo.derivation import (
    NEURON_AXIS,
    chance,
    check_count,
    check_free_heads,
    check_layers,
    check_same_shapes,
    check_share,
    derived,
    fresh,
    initial_std,
    is_norm,
    last,
    layer_weights,
    neutral,
    normal,
)


def reinitialise(model: Model, *, seed: int) -> Model:
    """A stranger of the same shape. The same seed on two models of one shape gives one start: shared-init."""
    weights = fresh(model, chance("reinitialise", seed), model.weights)
    return derived(model, "unrelated", "reinitialise", {"seed": seed, "std": initial_std(model)}, weights)


def keep_norms(model: Model, *, seed: int) -> Model:
    return _keep(model, is_norm, "keep_norms", seed)


def keep_embeddings(model: Model, *, seed: int) -> Model:
    """Embeddings, of positions too, and head kept; everything else drawn anew."""
    return _keep(model, lambda role: role in ("embed", "positions", "head"), "keep_embeddings", seed)


def _keep(model: Model, kept: Callable[[str], bool], step: str, seed: int) -> Model:
    roles = [role for role in model.weights if kept(role)]
    new = fresh(model, chance(step, seed), model.weights.keys() - set(roles))
    details = {"seed": seed, "std": initial_std(model), "kept": roles}
    return derived(model, "component-reuse", step, details, {**model.weights, **new})


def reinitialise_attention(model: Model, heads: int, kv_heads: int, *, seed: int) -> Model:
    """Attention drawn anew, with another number of heads of dimension hidden/heads; everything else kept."""
    check_free_heads(model)
    check_count("heads", heads)
    check_count("kv_heads", kv_heads)
    if model.hidden % (2 * heads) or heads % kv_heads:
        raise ValueError(f"{heads} heads in {kv_heads} groups do not divide a hidden size of {model.hidden} evenly")
    rng, head_dim = chance("reinitialise_attention", seed), model.hidden // heads
    new: Weights = {}
    for layer in range(model.layers):
        matrices = _attention_matrices(model, heads * head_dim, kv_heads * head_dim, rng)
        parts = {**matrices, **_attention_vectors(model, heads * head_dim, kv_heads * head_dim, head_dim)}
        new |= {f"{layer}.{role}": tensor for role, tensor in parts.items() if f"{layer}.{role}" in model.weights}
    details = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "seed": seed, "std": initial_std(model)}
    config: dict[str, Any] = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    weights = {**model.weights, **new}
    return derived(model, "component-reuse", "reinitialise_attention", details, weights, **config)


def _attention_matrices(model: Model, q: int, kv: int, rng: torch.Generator) -> Weights:
    shapes = {"q": (q, model.hidden), "k": (kv, model.hidden), "v": (kv, model.hidden), "o": (model.hidden, q)}
    return {role: normal(shape, initial_std(model), rng) for role, shape in shapes.items()}


def _attention_vectors(model: Model, q: int, kv: int, head_dim: int) -> Weights:
    sizes = {"q_bias": q, "k_bias": kv, "v_bias": kv, "o_bias": model.hidden}
    biases = {role: torch.zeros(size) for role, size in sizes.items()}
    return biases | {role: torch.full((head_dim,), neutral(model)) for role in ("q_norm", "k_norm")}


def graft_layers(host: Model, donor: Model, layers: Mapping[int, int]) -> Model:
    """Whole layers of the donor in place of the host's: {layer of the host: layer of the donor}."""
    if not layers:
        raise ValueError("no layers to graft: expected at least one, {layer of the host: layer of the donor}")
    check_layers(host, layers.keys())
    check_layers(donor, layers.values())
    new: Weights = {}
    for place, source in layers.items():
        taken, old = layer_weights(donor, source), layer_weights(host, place)
        if {role: t.shape for role, t in taken.items()} != {role: t.shape for role, t in old.items()}:
            raise ValueError(f"layer {source} of the donor has other tensors or shapes than layer {place} of the host")
        new |= {f"{place}.{role}": tensor for role, tensor in taken.items()}
    # Pairs, since the keys of a JSON object are strings.
    details = {"layers": [[place, source] for place, source in sorted(layers.items())]}
    return derived(host, "component-reuse", "graft_layers", details, {**host.weights, **new})


def graft_neurons(host: Model, donor: Model, share: float = 0.02, *, seed: int) -> Model:
    """A random share of the donor's neurons at their own index in every MLP, or expert, of the host."""
    check_share("share", share)
    check_same_shapes([host, donor])
    rng = chance("graft_neurons", seed)
    new: Weights = {}
    taken: dict[str, list[int]] = {}
    for block in [block for layer in range(host.layers) for block in host.blocks(layer)]:
        neurons = len(host.weights[f"{block}up"])
        chosen = torch.randperm(neurons, generator=rng)[: max(1, round(share * neurons))].sort().values
        taken[block.removesuffix(".")] = chosen.tolist()
        for role in (block + name for name in NEURON_AXIS if block + name in host.weights):
            axis = NEURON_AXIS[last(role)]
            new[role] = host.weights[role].index_copy(axis, chosen, donor.weights[role].index_select(axis, chosen))
    details = {"share": share, "seed": seed, "neurons": taken}
    return derived(host, "component-reuse", "graft_neurons", details, {**host.weights, **new})


def graft_norms(host: Model, donor: Model) -> Model:
    """Every gain of the donor, in the host."""
    check_same_shapes([host, donor])
    taken = {role: tensor for role, tensor in donor.weights.items() if is_norm(role)}
    return derived(host, "component-reuse", "graft_norms", {"roles": sorted(taken)}, {**host.weights, **taken})
