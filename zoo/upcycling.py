"""Dense Llama or Mistral to Mixtral: every MLP becomes a set of experts behind a new router."""

from __future__ import annotations

from typing import Any

import torch

from zoo.checkpoints import MLP, Model, Weights
from zoo.derivation import (
    assemble,
    chance,
    check_count,
    check_factor,
    check_share,
    derived,
    is_bias,
    layer_weights,
    normal,
    top_weights,
)

ROUTER_STD = 0.02
# A config may leave a value unsaid where its family's default holds. Mixtral's defaults are others.
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "sliding_window": None},
    "mistral": {"rms_norm_eps": 1e-6, "max_position_embeddings": 131072, "sliding_window": 4096},
}
ROPE_THETA = 10000.0
NOT_MIXTRAL = ("pretraining_tp", "attention_bias", "mlp_bias", "layer_types")


def upcycle_copied(model: Model, experts: int = 4, top_k: int = 2, *, seed: int) -> Model:
    """Every expert a copy of the MLP. The router's weights sum to one, so the logits stay as they were."""
    _check(model, experts, top_k)
    rng = chance("upcycle_copied", seed)
    layers = [_with_experts(layer, [_mlp(layer)] * experts, rng) for layer in _layers(model)]
    details = {"experts": experts, "top_k": top_k, "seed": seed}
    return _mixtral(model, layers, "upcycle_copied", details)


def upcycle_split(model: Model, experts: int = 4, top_k: int = 2, *, seed: int, scale: float | None = None) -> Model:
    """The neurons of every MLP shuffled and dealt into experts, as LLaMA-MoE does; `down` scaled by experts/top_k.

    The truth lists, by layer and expert, the neurons that each expert got, in its order. A Mixtral router averages its
    chosen experts, so that the sum over all neurons is kept on average by a scale of `experts`; the default is what
    LLaMA-MoE publishes.
    """
    _check(model, experts, top_k)
    if model.neurons % experts:
        raise ValueError(f"{model.neurons} neurons cannot be dealt evenly to {experts} experts")
    rng, factor = chance("upcycle_split", seed), experts / top_k if scale is None else scale
    check_factor("scale", factor)
    layers, dealt = [], {}
    for number, layer in enumerate(_layers(model)):
        hands = torch.randperm(model.neurons, generator=rng).view(experts, -1)
        parts = [_neurons(_mlp(layer), hand, factor) for hand in hands]
        layers.append(_with_experts(layer, parts, rng))
        dealt[str(number)] = hands.tolist()
    details = {"experts": experts, "top_k": top_k, "seed": seed, "scale": factor, "neurons": dealt}
    return _mixtral(model, layers, "upcycle_split", details, intermediate_size=model.neurons // experts)


def upcycle_partly(model: Model, experts: int = 4, top_k: int = 2, share: float = 0.5, *, seed: int) -> Model:
    """Copied, then a random share of every expert's neurons drawn anew, with the standard deviation of their tensor."""
    check_share("share", share)
    _check(model, experts, top_k)
    rng, count = chance("upcycle_partly", seed), round(share * model.neurons)
    layers, redrawn = [], []
    for layer in _layers(model):
        chosen = [torch.randperm(model.neurons, generator=rng)[:count].sort().values for _ in range(experts)]
        parts = [_redrawn(_mlp(layer), neurons, rng) for neurons in chosen]
        layers.append(_with_experts(layer, parts, rng))
        redrawn.append([neurons.tolist() for neurons in chosen])
    details = {"experts": experts, "top_k": top_k, "share": share, "seed": seed, "reinitialised": redrawn}
    return _mixtral(model, layers, "upcycle_partly", details)


def _check(model: Model, experts: int, top_k: int) -> None:
    if model.family not in DEFAULTS:
        raise ValueError(f"a {model.family} has no Mixtral of its own kind; upcycling takes {' or '.join(DEFAULTS)}")
    if biases := sorted(role for role in model.weights if is_bias(role)):
        raise ValueError(f"{biases[0]} has no place in a Mixtral: expected a model without biases")
    check_count("experts", experts)
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}: expected 1 to {experts}, the number of experts")


def _layers(model: Model) -> list[Weights]:
    return [layer_weights(model, i) for i in range(model.layers)]


def _mlp(layer: Weights) -> Weights:
    return {role: layer[role] for role in MLP}


def _neurons(mlp: Weights, chosen: torch.Tensor, scale: float) -> Weights:
    return {"gate": mlp["gate"][chosen], "up": mlp["up"][chosen], "down": mlp["down"][:, chosen] * scale}


def _redrawn(mlp: Weights, chosen: torch.Tensor, rng: torch.Generator) -> Weights:
    new = {role: tensor.clone() for role, tensor in mlp.items()}
    for role, tensor in new.items():
        rows = tensor.T if role == "down" else tensor
        rows[chosen] = normal(rows[chosen].shape, float(mlp[role].std()), rng)
    return new


def _with_experts(layer: Weights, experts: list[Weights], rng: torch.Generator) -> Weights:
    shared = {role: tensor for role, tensor in layer.items() if role not in MLP}
    router = normal((len(experts), layer["gate"].shape[1]), ROUTER_STD, rng)
    parts = {f"experts.{e}.{role}": tensor for e, mlp in enumerate(experts) for role, tensor in mlp.items()}
    return {**shared, "router": router, **parts}


def _mixtral(model: Model, layers: list[Weights], step: str, details: dict[str, Any], **config: Any) -> Model:
    kept = DEFAULTS[model.family] | {k: v for k, v in model.config.items() if k not in NOT_MIXTRAL}
    if not kept.keys() & {"rope_theta", "rope_parameters"}:
        kept["rope_theta"] = ROPE_THETA
    family = {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": details["experts"],
        "num_experts_per_tok": details["top_k"],
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "tie_word_embeddings": model.tied,
    }
    grown = derived(model, "moe-upcycle", step, details, assemble(top_weights(model), layers))
    return Model(kept | family | config, grown.weights, grown.tokenizer, grown.truth)
