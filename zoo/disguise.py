"""Evasions: what one may do to a copied model so that it does not look like one.

MOVES are exact, the logits stay; `composed` does them all. The lossy ones cost a little quality. The last two write
folders, for they change files and no weights. Chance enters by the seed, and the truth of the result tells every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zoo.checkpoints import Model, Weights, by_name, role_names, write_json, write_sides, write_tensors
from zoo.derivation import chance, check_count
from zoo.gauge import (
    NotLegal,
    flip_signs,
    hidden_rotation,
    mix_values,
    permute_experts,
    permute_heads,
    permute_hidden,
    permute_neurons,
    recorded,
    refactor_gains,
    rotate_hidden,
    scale_neurons,
    turn_queries,
)

__all__ = [
    "MOVES",
    "NotLegal",
    "add_noise",
    "composed",
    "decoy_merge",
    "flip_signs",
    "hidden_rotation",
    "mix_values",
    "permute_experts",
    "permute_heads",
    "permute_hidden",
    "permute_neurons",
    "permute_vocabulary",
    "refactor_gains",
    "rename_and_reshard",
    "reshard",
    "rotate_hidden",
    "scale_neurons",
    "shuffle_layers",
    "turn_queries",
]

STEMS = ("net.blocks", "core.units", "trunk.stages")
FOREIGN = {
    "embed": "tokens",
    "positions": "places",
    "head": "out",
    "final_norm": "scale_out",
    "input_norm": "scale_a",
    "post_norm": "scale_f",
    "attn_out_norm": "attn.scale_o",
    "mlp_out_norm": "ffn.scale_o",
    "q_norm": "attn.scale_q",
    "k_norm": "attn.scale_k",
    "router": "ffn.route",
    "gate": "ffn.w1",
    "down": "ffn.w2",
    "up": "ffn.w3",
    "gate_up": "ffn.w13",
} | {role: f"attn.w{role}" for role in ("q", "k", "v", "o", "qkv")}


def permute_vocabulary(model: Model, seed: int) -> Model:
    """Rows of the embedding and the head, and with them every id in the tokenizer and the config.

    Ids outside the tokenizer's own vocabulary stay: `tokenizers` numbers added tokens after it, in their order.
    """
    rows = len(model.weights["embed"])
    vocabulary = model.tokenizer["model"]["vocab"] if model.tokenizer else range(rows)
    ids = torch.tensor(sorted(vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))))
    order = torch.arange(rows)
    order[ids] = ids[torch.randperm(len(ids), generator=chance("permute_vocabulary", seed))]
    new_ids = order.argsort().tolist()
    changed = {role: model.weights[role][order] for role in ("embed", "head") if role in model.weights}
    config = {key: _renumbered(value, new_ids) for key, value in model.config.items() if "_token_id" in key}
    tokenizer = model.tokenizer and _renumbered_tokenizer(model.tokenizer, new_ids)
    renumbered = replace(model, config=model.config | config, tokenizer=tokenizer)
    return recorded(renumbered, "permute_vocabulary", seed, changed, order=order.tolist())


# In the order in which `composed` does them: gains are drawn anew after the rotation has folded the old ones.
MOVES: dict[str, Callable[[Model, int], Model]] = {
    "permute_heads": permute_heads,
    "turn_queries": turn_queries,
    "mix_values": mix_values,
    "permute_neurons": permute_neurons,
    "scale_neurons": scale_neurons,
    "permute_experts": permute_experts,
    "rotate_hidden": rotate_hidden,
    "refactor_gains": refactor_gains,
    "flip_signs": flip_signs,
    "permute_hidden": permute_hidden,
    "permute_vocabulary": permute_vocabulary,
}


def composed(model: Model, seed: int, without: Collection[str] = ()) -> Model:
    """Every move that the family allows, but for those `without`."""
    if unknown := sorted(set(without) - set(MOVES)):
        raise ValueError(f"no move {unknown[0]!r}; known are {', '.join(MOVES)}")
    for name, move in MOVES.items():
        if name not in without:
            try:
                model = move(model, seed)
            except NotLegal:
                continue
    return model


def add_noise(model: Model, share: float, seed: int) -> Model:
    """Gaussian noise on every matrix, `share` of the matrix's own standard deviation."""
    if not 0 < share < math.inf:
        raise ValueError(f"share is {share}: expected a finite number above 0")
    rng, changed = chance("add_noise", seed), {}
    for role in sorted(role for role, tensor in model.weights.items() if tensor.dim() == 2):
        tensor = model.weights[role]
        changed[role] = tensor + share * tensor.std() * torch.randn(tensor.shape, generator=rng)
    return recorded(model, "add_noise", seed, changed, share=share)


def shuffle_layers(model: Model, seed: int, swaps: int = 1) -> Model:
    """Neighbours change places, each layer at most once; the first and the last stay."""
    check_count("swaps", swaps)
    order = list(range(model.layers))
    candidates = [layer for layer in range(1, model.layers - 2) if _roles(model, layer) == _roles(model, layer + 1)]
    done = 0
    for pick in torch.randperm(len(candidates), generator=chance("shuffle_layers", seed)).tolist():
        layer = candidates[pick]
        if done < swaps and order[layer : layer + 2] == [layer, layer + 1]:
            order[layer : layer + 2] = [layer + 1, layer]
            done += 1
    if done < swaps:
        raise NotLegal(f"{model.layers} layers leave room for {done} swaps of neighbours, not {swaps}")
    changed = {
        f"{new}.{role}": model.weights[f"{old}.{role}"].clone()
        for new, old in enumerate(order)
        if new != old
        for role in _roles(model, old)
    }
    return recorded(model, "shuffle_layers", seed, changed, layers=order)


def decoy_merge(model: Model, decoy: Model, share: float) -> Model:
    """The weighted mean with a stranger of the same shape, `share` of it the stranger's."""
    if not 0 < share < 1:
        raise ValueError(f"share is {share}: expected above 0 and below 1")
    shapes, others = ({role: tensor.shape for role, tensor in m.weights.items()} for m in (model, decoy))
    if shapes != others:
        raise NotLegal("a decoy needs the same tensors in the same shapes")
    changed = {role: torch.lerp(tensor, decoy.weights[role], share) for role, tensor in model.weights.items()}
    return recorded(model, "decoy_merge", None, changed, share=share, decoy=decoy.truth)


def reshard(model: Model, folder: Path, seed: int, shards: int = 3, dtype: torch.dtype = torch.bfloat16) -> None:
    """A folder that transformers still loads, its tensors dealt at random to several files."""
    _write_shards(folder, recorded(model, "reshard", seed, {}, shards=shards), by_name(model), seed, shards, dtype)


def rename_and_reshard(
    model: Model, folder: Path, seed: int, shards: int = 3, dtype: torch.dtype = torch.bfloat16
) -> dict[str, str]:
    """As `reshard`, with names of no known library. Returns the family's name -> the name in the files."""
    stem = STEMS[int(torch.randint(len(STEMS), (), generator=chance("rename_and_reshard", seed)))]
    tensors = by_name(model)
    names = {name: _foreign(role, stem) for role, name in role_names(model.config).items() if name in tensors}
    renamed = {names[name]: tensor for name, tensor in tensors.items()}
    told = recorded(model, "rename_and_reshard", seed, {}, shards=shards, names=names)
    _write_shards(folder, told, renamed, seed, shards, dtype)
    return names


def _write_shards(folder: Path, model: Model, tensors: Weights, seed: int, shards: int, dtype: torch.dtype) -> None:
    if not 1 <= shards <= len(tensors):
        raise ValueError(f"shards is {shards}: expected 1 to {len(tensors)}, the number of tensors")
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(tensors)
    dealt = [names[i] for i in torch.randperm(len(names), generator=chance("reshard", seed)).tolist()]
    where: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        where |= dict.fromkeys(dealt[shard::shards], file)
        write_tensors(folder / file, {name: tensors[name] for name in dealt[shard::shards]}, dtype)
    size = sum(tensor.numel() for tensor in tensors.values()) * dtype.itemsize
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
    write_json(folder / "model.safetensors.index.json", index)
    write_sides(folder, model, dtype)


def _foreign(role: str, stem: str) -> str:
    *place, last = role.split(".")
    name = FOREIGN[last.removesuffix("_bias")] + (".b" if last.endswith("_bias") else "")
    if not place:
        return f"{stem.partition('.')[0]}.{name}"
    layer, *branch = place
    return ".".join([stem, layer, *("part" + part if part.isdigit() else part[:2] for part in branch), name])


def _roles(model: Model, layer: int) -> list[str]:
    at = f"{layer}."
    return sorted(role.removeprefix(at) for role in model.weights if role.startswith(at))


def _renumbered(ids: Any, new_ids: list[int]) -> Any:
    """An id, a list of ids, or None. Some configs name ids beyond their vocabulary: those mean nothing, and stay."""
    if isinstance(ids, list):
        return [_renumbered(value, new_ids) for value in ids]
    return new_ids[ids] if isinstance(ids, int) and 0 <= ids < len(new_ids) else ids


def _renumbered_tokenizer(tokenizer: dict[str, Any], new_ids: list[int]) -> dict[str, Any]:
    changed = deepcopy(tokenizer)
    model = changed["model"]
    if isinstance(model["vocab"], dict):
        moved = {token: new_ids[old] for token, old in model["vocab"].items()}
        model["vocab"] = dict(sorted(moved.items(), key=lambda entry: entry[1]))
    else:  # Unigram: a token's id is its place
        model["vocab"] = [piece for _, piece in sorted(zip(new_ids, model["vocab"], strict=False))]
        model["unk_id"] = _renumbered(model.get("unk_id"), new_ids)
    added = changed.get("added_tokens") or []
    for token in added:
        token["id"] = _renumbered(token["id"], new_ids)
    added.sort(key=lambda token: token["id"])
    if padding := changed.get("padding"):
        padding["pad_id"] = _renumbered(padding["pad_id"], new_ids)
    _renumber_processor(changed.get("post_processor") or {}, new_ids)
    return changed


def _renumber_processor(processor: dict[str, Any], new_ids: list[int]) -> None:
    for inner in processor.get("processors", []):
        _renumber_processor(inner, new_ids)
    for special in (processor.get("special_tokens") or {}).values():
        special["ids"] = _renumbered(special["ids"], new_ids)
    for end in ("sep", "cls"):
        if end in processor:
            token, old = processor[end]
            processor[end] = [token, _renumbered(old, new_ids)]
