"""What every derivation shares: its record of what was done, its source of chance, and the layers of a model by number.

The names of the parents are not known here; whoever derives adds them to the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import torch

from zoo.checkpoints import OTHER_KEYS, Model, Weights

KINDS = (
    "identical",
    "re-encoded",
    "fine-tune",
    "continued-pretraining",
    "merged-lora",
    "merge",
    "moe-upcycle",
    "depth-upscale",
    "depth-prune",
    "width-prune",
    "vocabulary-surgery",
    "component-reuse",
    "obfuscated",
    "shared-init",
    "distilled",
    "unrelated",
)
LINEAR = ("q", "k", "v", "o", "gate", "up", "down")
NEURON_AXIS = {"gate": 0, "gate_bias": 0, "up": 0, "up_bias": 0, "down": 1}
# Families whose config sets the size of a head and the number of KV heads freely, with norms a head or none.
FREE_HEADS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "mixtral", "glm4_moe")
PER_LAYER = ("layer_types",)


def derived(model: Model, kind: str, step: str, details: Mapping[str, Any], weights: Weights, **config: Any) -> Model:
    """`model` with all its weights replaced by `weights`, some of its config, and a record of the step."""
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}; known are {', '.join(KINDS)}")
    truth = {"kind": kind, "step": step, "details": dict(details)}
    changed = {_own_key(model, key): value for key, value in config.items()}
    return replace(model, weights=dict(weights), config={**model.config, **changed}, truth=truth)


def _own_key(model: Model, key: str) -> str:
    """GPT-2 says n_layer where others say num_hidden_layers."""
    other = OTHER_KEYS.get(key, key)
    return other if other in model.config else key


def chance(step: str, seed: int) -> torch.Generator:
    """A generator for one step: the same seed given to two different steps must not give the same numbers."""
    return torch.Generator().manual_seed(crc32(f"{step}:{seed}".encode()))


def normal(shape: Iterable[int], std: float, rng: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=rng) * std


def initial_std(model: Model) -> float:
    return float(model.config.get("initializer_range", 0.02))


def neutral(model: Model) -> float:
    """The stored value of a gain that changes nothing."""
    return 1.0 - model.gain_offset


def last(role: str) -> str:
    return role.rpartition(".")[2]


def is_norm(role: str) -> bool:
    """A gain, or the bias that a LayerNorm has beside it."""
    return last(role).endswith(("_norm", "_norm_bias"))


def is_bias(role: str) -> bool:
    return last(role).endswith("_bias")


def is_linear(role: str) -> bool:
    """The matrices inside the layers; neither embeddings nor head nor router."""
    return last(role) in LINEAR


def fresh(model: Model, rng: torch.Generator, roles: Iterable[str]) -> Weights:
    """These roles as a new model of the same shape begins."""
    return {role: _initial(model, role, rng) for role in sorted(roles)}


def _initial(model: Model, role: str, rng: torch.Generator) -> torch.Tensor:
    tensor = model.weights[role]
    if is_bias(role):
        return torch.zeros_like(tensor)
    return torch.full_like(tensor, neutral(model)) if is_norm(role) else normal(tensor.shape, initial_std(model), rng)


def layer_weights(model: Model, layer: int) -> Weights:
    """The tensors of one layer, by role without the layer's number."""
    prefix = f"{layer}."
    return {role.removeprefix(prefix): t for role, t in model.weights.items() if role.startswith(prefix)}


def top_weights(model: Model) -> Weights:
    return {role: tensor for role, tensor in model.weights.items() if "." not in role}


def assemble(top: Weights, layers: Sequence[Weights]) -> Weights:
    numbered = {f"{i}.{role}": tensor for i, layer in enumerate(layers) for role, tensor in layer.items()}
    return {**top, **numbered}


def depth_config(sources: Sequence[tuple[Model, int]]) -> dict[str, Any]:
    """The entries of a config that say something of every layer, for layers taken from these sources."""
    lists = {key: [model.config.get(key) for model, _ in sources] for key in PER_LAYER}
    taken = {
        key: [values[layer] for values, (_, layer) in zip(found, sources, strict=True)]
        for key, found in lists.items()
        if all(found)
    }
    return {"num_hidden_layers": len(sources), **taken, **_leading_dense(sources)}


def _leading_dense(sources: Sequence[tuple[Model, int]]) -> dict[str, int]:
    """GLM says only how many layers come before the first with experts, so that dense ones cannot follow."""
    if "first_k_dense_replace" not in sources[0][0].config:
        return {}
    dense = [f"{layer}.router" not in model.weights for model, layer in sources]
    if dense != sorted(dense, reverse=True):
        raise ValueError("a dense layer after one with experts: this family cannot say so in its config")
    return {"first_k_dense_replace": sum(dense)}


def check_layers(model: Model, layers: Iterable[int]) -> None:
    if wrong := [layer for layer in layers if not 0 <= layer < model.layers]:
        raise ValueError(f"layer {wrong[0]} of a model with layers 0 to {model.layers - 1}")


def check_free_heads(model: Model) -> None:
    if model.family not in FREE_HEADS:
        raise ValueError(f"the heads of a {model.family} cannot change; possible for {', '.join(FREE_HEADS)}")


def check_same_shapes(models: Sequence[Model]) -> None:
    """Every role in every model, with one shape, in one family."""
    first = models[0]
    for other in models[1:]:
        if other.family != first.family:
            raise ValueError(f"a {first.family} and a {other.family} have no weights in common")
        if other.weights.keys() != first.weights.keys():
            role = sorted(other.weights.keys() ^ first.weights.keys())[0]
            raise ValueError(f"only one of the models has {role}")
        for role, tensor in first.weights.items():
            if tensor.shape != other.weights[role].shape:
                raise ValueError(f"{role}: {tuple(tensor.shape)} in one, {tuple(other.weights[role].shape)} in another")


def check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} is {value}: expected above 0, at most 1")


def check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}: expected at least 1")


def check_factor(name: str, value: float) -> None:
    """A zero would leave nothing of what it multiplies, and a truth that claims something was done."""
    if not math.isfinite(value) or value == 0:
        raise ValueError(f"{name} is {value}: expected a finite number other than 0")


def largest(tensor: torch.Tensor, share: float) -> torch.Tensor:
    """A mask of exactly round(share · entries) entries, those of largest magnitude."""
    mask = torch.zeros(tensor.numel(), dtype=torch.bool)
    mask[tensor.abs().flatten().topk(round(share * tensor.numel())).indices] = True
    return mask.view(tensor.shape)
