"""Derivations with a known truth: functions from models to a model, which carries a record of exactly what was done.

Nothing is modified. Where chance enters there is a seed, and the same seed gives the same model; different steps draw
different numbers from it. This module has changes of depth and of single entries; the others live beside it, and all
are reached from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from zoo.checkpoints import Model, Weights
from zoo.derivation import (
    assemble,
    check_factor,
    check_layers,
    check_same_shapes,
    check_share,
    depth_config,
    derived,
    largest,
    last,
    layer_weights,
    top_weights,
)
from zoo.merges import dare, linear, passthrough, slerp, soup, ties
from zoo.narrowing import pool_kv, width_prune
from zoo.quantise import cast, pruned, quantised
from zoo.reuse import (
    graft_layers,
    graft_neurons,
    graft_norms,
    keep_embeddings,
    keep_norms,
    reinitialise,
    reinitialise_attention,
)
from zoo.upcycling import upcycle_copied, upcycle_partly, upcycle_split
from zoo.vocabularies import extend_vocabulary, replace_vocabulary

__all__ = [
    "cast",
    "dare",
    "depth_prune",
    "depth_upscale",
    "extend_vocabulary",
    "graft_layers",
    "graft_neurons",
    "graft_norms",
    "insert_identity_layers",
    "keep_embeddings",
    "keep_norms",
    "linear",
    "merged_lora",
    "overlap_map",
    "passthrough",
    "pool_kv",
    "pruned",
    "quantised",
    "reinitialise",
    "reinitialise_attention",
    "replace_vocabulary",
    "slerp",
    "soup",
    "sparse_update",
    "ties",
    "upcycle_copied",
    "upcycle_partly",
    "upcycle_split",
    "width_prune",
]

WRITERS = ("o", "down", "o_bias", "down_bias")


def overlap_map(layers: int, overlap: int) -> list[int]:
    """SOLAR's layer map: two copies, the first without its last layers, the second without its first.

    `overlap` is how many middle layers appear twice: 32 layers with 16 give 0…23, 8…31.
    """
    if not 0 < overlap <= layers or (layers - overlap) % 2:
        raise ValueError(f"{layers} layers cannot overlap evenly in {overlap}")
    dropped = (layers - overlap) // 2
    return [*range(layers - dropped), *range(dropped, layers)]


def depth_upscale(model: Model, layer_map: Sequence[int]) -> Model:
    """Layer i of the result is layer layer_map[i] of the model. The map that lists every layer once changes nothing."""
    identity = list(layer_map) == list(range(model.layers))
    if len(set(layer_map)) == len(layer_map) and not identity:
        raise ValueError(f"{list(layer_map)} repeats no layer: that is no upscaling")
    return _with_layers(model, layer_map, "identical" if identity else "depth-upscale", "depth_upscale")


def depth_prune(model: Model, kept: Sequence[int]) -> Model:
    """Only these layers, in ascending order."""
    if not kept or list(kept) != sorted(set(kept)) or len(kept) >= model.layers:
        raise ValueError(f"{list(kept)} of {model.layers} layers: expected some of them, ascending, each once")
    return _with_layers(model, kept, "depth-prune", "depth_prune")


def _with_layers(model: Model, layer_map: Sequence[int], kind: str, step: str) -> Model:
    check_layers(model, layer_map)
    weights = assemble(top_weights(model), [layer_weights(model, layer) for layer in layer_map])
    config = depth_config([(model, layer) for layer in layer_map])
    return derived(model, kind, step, {"layer_map": list(layer_map)}, weights, **config)


def insert_identity_layers(model: Model, after: Sequence[int]) -> Model:
    """LLaMA-Pro: a copy after each of these layers, writing nothing into the residual stream until it is trained."""
    if not after or list(after) != sorted(set(after)):
        raise ValueError(f"{list(after)}: expected layers in ascending order, each once")
    check_layers(model, after)
    layer_map, layers, inserted = [], [], []
    for layer in range(model.layers):
        weights = layer_weights(model, layer)
        copies = [weights, _silent(weights)] if layer in after else [weights]
        layers += copies
        layer_map += [layer] * len(copies)
        inserted += [len(layers) - 1] if layer in after else []
    details = {"after": list(after), "layer_map": layer_map, "inserted": inserted}
    config = depth_config([(model, layer) for layer in layer_map])
    weights = assemble(top_weights(model), layers)
    return derived(model, "depth-upscale", "insert_identity_layers", details, weights, **config)


def _silent(layer: Weights) -> Weights:
    return {role: torch.zeros_like(t) if last(role) in WRITERS else t for role, t in layer.items()}


def sparse_update(base: Model, tuned: Model, density: float) -> Model:
    """Of the change of every matrix only its largest share, as reinforcement learning leaves it; vectors stay."""
    check_share("density", density)
    check_same_shapes([base, tuned])
    matrices = {role: tensor for role, tensor in base.weights.items() if tensor.ndim == 2}
    changed = {
        # Chosen, not added up: what changes has the tuned model's bits, everything else the base's.
        role: torch.where(largest(tuned.weights[role] - old, density), tuned.weights[role], old)
        for role, old in matrices.items()
    }
    return derived(base, "fine-tune", "sparse_update", {"density": density}, {**base.weights, **changed})


def merged_lora(base: Model, factors: Mapping[str, tuple[torch.Tensor, torch.Tensor]], scale: float) -> Model:
    """scale · B @ A added to each of these roles.  B: (out, rank), A: (rank, in)."""
    check_factor("scale", scale)
    if not factors:
        raise ValueError("no factors: expected B and A for at least one matrix of the model")
    for role, (b, a) in factors.items():
        _check_lora(base, role, b, a)
    changed = {role: base.weights[role] + scale * (b.float() @ a.float()) for role, (b, a) in factors.items()}
    details = {"scale": scale, "ranks": {role: len(a) for role, (_, a) in sorted(factors.items())}}
    return derived(base, "merged-lora", "merged_lora", details, {**base.weights, **changed})


def _check_lora(base: Model, role: str, b: torch.Tensor, a: torch.Tensor) -> None:
    """Shapes that torch would broadcast, a gain into a matrix say, are no adapter."""
    if role not in base.weights:
        raise ValueError(f"no {role} in this model")
    shape, found = tuple(base.weights[role].shape), (tuple(b.shape), tuple(a.shape))
    if len(shape) != 2:
        raise ValueError(f"{role} has shape {shape}: expected a matrix, as only those take a LoRA")
    rank = found[1][0] if found[1] else 0
    if rank < 1 or found != ((shape[0], rank), (rank, shape[1])):
        raise ValueError(
            f"{role}: expected B of shape ({shape[0]}, rank) and A of shape (rank, {shape[1]}), found {found[0]} and "
            f"{found[1]}"
        )
