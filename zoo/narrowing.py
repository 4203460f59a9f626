"""Models made narrower: a subset of the hidden axes, neurons and KV groups, or KV heads averaged."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from zoo.checkpoints import Model, Weights
from zoo.derivation import FREE_HEADS, NEURON_AXIS, check_free_heads, derived, last

HIDDEN_AXIS = {"embed": 1, "head": 1, "router": 1, "q": 1, "k": 1, "v": 1, "gate": 1, "up": 1, "o": 0, "down": 0}
HIDDEN_AXIS |= {"input_norm": 0, "post_norm": 0, "final_norm": 0, "o_bias": 0, "down_bias": 0}
GAIN_READ = {"q": "input_norm", "k": "input_norm", "v": "input_norm", "gate": "post_norm", "up": "post_norm"}
NOT_ONE_WIDTH = ("glm4_moe",)  # its dense and its routed blocks count their neurons apart


def width_prune(model: Model, hidden: int, neurons: int, kv_heads: int | None = None) -> Model:
    """The most important hidden axes, one set for the whole model; per layer the largest neurons and whole KV groups.

    Heads keep their size. Indices stay in ascending order, as pruning by importance leaves them. Where nothing gets
    narrower the result is the same model.
    """
    groups = model.kv_heads if kv_heads is None else kv_heads
    _check_width(model, hidden, neurons, groups)
    axes = _best(_axis_importance(model), hidden)
    chosen = {block: _best(_neuron_importance(model, block), neurons) for block in _blocks(model)}
    kept = [_best(_group_importance(model, layer), groups) for layer in range(model.layers)]
    weights = _some_heads(_some_neurons(_some_axes(model.weights, axes), chosen), model, kept)
    details = {
        "hidden": axes.tolist(),
        "neurons": {block.removesuffix("."): indices.tolist() for block, indices in chosen.items()},
        "kv_heads": [indices.tolist() for indices in kept],
    }
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": neurons,
        "head_dim": model.head_dim,
        "num_attention_heads": groups * model.heads // model.kv_heads,
        "num_key_value_heads": groups,
    }
    same = (hidden, neurons, groups) == (model.hidden, model.neurons, model.kv_heads)
    return derived(model, "identical" if same else "width-prune", "width_prune", details, weights, **sizes)


def pool_kv(model: Model, kv_heads: int) -> Model:
    """Grouped-query attention with fewer KV heads: neighbouring keys and values, and their biases, averaged.

    As many as there are give the same model.
    """
    check_free_heads(model)
    if kv_heads < 1 or model.kv_heads % kv_heads:
        raise ValueError(f"{model.kv_heads} KV heads cannot be averaged into {kv_heads}: expected a divisor")
    pooled = {role: _pooled(t, kv_heads, model.head_dim) for role, t in model.weights.items() if _is_kv(role)}
    details = {"from": model.kv_heads, "to": kv_heads}
    weights = {**model.weights, **pooled}
    sizes = {"num_key_value_heads": kv_heads, "head_dim": model.head_dim}
    # All else is as it was, and pooled models are trained on: no kind of its own.
    kind = "identical" if kv_heads == model.kv_heads else "continued-pretraining"
    return derived(model, kind, "pool_kv", details, weights, **sizes)


def _is_kv(role: str) -> bool:
    return last(role) in ("k", "v", "k_bias", "v_bias")


def _pooled(tensor: torch.Tensor, kv_heads: int, head_dim: int) -> torch.Tensor:
    return tensor.unflatten(0, (kv_heads, -1, head_dim)).mean(1).flatten(0, 1)


def _check_width(model: Model, hidden: int, neurons: int, groups: int) -> None:
    check_free_heads(model)
    if model.family in NOT_ONE_WIDTH:
        possible = ", ".join(sorted(set(FREE_HEADS) - set(NOT_ONE_WIDTH)))
        raise ValueError(f"a {model.family} has blocks of several widths; possible for {possible}")
    for name, asked, there in (
        ("hidden", hidden, model.hidden),
        ("neurons", neurons, model.neurons),
        ("kv_heads", groups, model.kv_heads),
    ):
        if not 1 <= asked <= there:
            raise ValueError(f"{name} is {asked}: expected 1 to {there}")


def _blocks(model: Model) -> list[str]:
    return [block for layer in range(model.layers) for block in model.blocks(layer)]


def _best(importance: torch.Tensor, count: int) -> torch.Tensor:
    return importance.topk(count).indices.sort().values


def _axis_importance(model: Model) -> torch.Tensor:
    """Sum of squares of every weight that reads the axis, its norm's gain folded in, and of the embedding's column."""
    total = model.weights["embed"].square().sum(0)
    for role, tensor in model.weights.items():
        if (gain := _gain_before(model, role)) is not None:
            total = total + (tensor * gain).square().sum(0)
    return total


def _gain_before(model: Model, role: str) -> torch.Tensor | None:
    name = last(role)
    if name == "head":
        return model.weights["final_norm"] + model.gain_offset
    if name == "router" or name in GAIN_READ:
        norm = GAIN_READ.get(name, "post_norm")
        return model.weights[f"{role.partition('.')[0]}.{norm}"] + model.gain_offset
    return None


def _neuron_importance(model: Model, block: str) -> torch.Tensor:
    """Product of the three norms: a neuron that any of them silences is silent."""
    gate, up = (_with_bias(model.weights, f"{block}{name}") for name in ("gate", "up"))
    return gate.norm(dim=1) * up.norm(dim=1) * model.weights[f"{block}down"].norm(dim=0)


def _with_bias(weights: Weights, role: str) -> torch.Tensor:
    """The bias as one more column: a neuron that reads nothing may still be on."""
    bias = weights.get(f"{role}_bias")
    return weights[role] if bias is None else torch.cat([weights[role], bias[:, None]], dim=1)


def _group_importance(model: Model, layer: int) -> torch.Tensor:
    parts = [model.weights[f"{layer}.{name}"] for name in "qkv"] + [model.weights[f"{layer}.o"].T]
    return sum(part.reshape(model.kv_heads, -1).square().sum(1) for part in parts)


def _some_axes(weights: Weights, axes: torch.Tensor) -> Weights:
    places = {role: HIDDEN_AXIS.get(last(role)) for role in weights}
    return {role: t if places[role] is None else t.index_select(places[role], axes) for role, t in weights.items()}


def _some_neurons(weights: Weights, chosen: Mapping[str, torch.Tensor]) -> Weights:
    some = dict(weights)
    for block, neurons in chosen.items():
        for name, axis in NEURON_AXIS.items():
            if block + name in weights:
                some[block + name] = weights[block + name].index_select(axis, neurons)
    return some


def _some_heads(weights: Weights, model: Model, kept: list[torch.Tensor]) -> Weights:
    """Rows of q, k and v and of their biases, columns of o, whose bias is added behind the heads."""
    some, keys = dict(weights), model.head_dim
    queries = model.heads // model.kv_heads * keys
    sizes = {"q": queries, "q_bias": queries, "k": keys, "k_bias": keys, "v": keys, "v_bias": keys, "o": queries}
    for layer, groups in enumerate(kept):
        for role, size in ((f"{layer}.{name}", size) for name, size in sizes.items()):
            if role in weights:
                axis = 1 if last(role) == "o" else 0
                some[role] = weights[role].index_select(axis, _rows(groups, size))
    return some


def _rows(groups: torch.Tensor, size: int) -> torch.Tensor:
    return (groups[:, None] * size + torch.arange(size)).flatten()
