"""Exact moves on the weights: a model of other numbers that computes the same logits.

Each takes a model and a seed, leaves the model alone and returns another whose truth names the step. Two moves draw
different numbers from one seed. An order in the truth says where each place came from: new[i] = old[order[i]]. Products
are taken in float64, so that only the rounding of the stored numbers differs. Where a family does not allow a move,
NotLegal says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from zoo.checkpoints import Model, Weights
from zoo.derivation import NEURON_AXIS, chance

# LayerNorm subtracts the mean, so it tells the all-ones direction of the residual stream from all others.
LAYER_NORM = frozenset({"gpt2", "gpt_neox"})
COLUMNS = ("embed", "positions", "head", "q", "k", "v", "gate", "up", "router")
ROWS = ("o", "o_bias", "down", "down_bias")
GAINS = ("input_norm", "post_norm", "final_norm", "attn_out_norm", "mlp_out_norm")
RESIDUAL_AXIS = dict.fromkeys(COLUMNS, 1) | dict.fromkeys((*ROWS, *GAINS), 0) | {f"{norm}_bias": 0 for norm in GAINS}
READERS = {"input_norm": ("q", "k", "v"), "post_norm": ("gate", "up", "router"), "final_norm": ("head",)}
SPREAD = math.log(2)  # factors between a half and two: no number grows out of the range of bfloat16 or float16


class NotLegal(ValueError):
    """A move that would change what this model computes."""


def permute_hidden(model: Model, seed: int) -> Model:
    order = torch.randperm(model.hidden, generator=chance("permute_hidden", seed))
    changed = {role: tensor.index_select(axis, order) for role, tensor, axis in _along_residual(model)}
    return recorded(model, "permute_hidden", seed, changed, order=order.tolist())


def flip_signs(model: Model, seed: int) -> Model:
    _refuse(model, LAYER_NORM, "LayerNorm subtracts the mean, which a sign flip changes")
    signs = _signs(model.hidden, chance("flip_signs", seed)).float()
    changed = {
        role: tensor * (signs if axis == tensor.dim() - 1 else signs[:, None])
        for role, tensor, axis in _along_residual(model)
        if _last(role) not in GAINS
    }
    return recorded(model, "flip_signs", seed, changed, signs=signs.int().tolist())


def rotate_hidden(model: Model, seed: int) -> Model:
    """By a dense orthogonal matrix, all gains folded into their readers first: only constant gains let a turn pass.

    Where the norm subtracts the mean the rotation leaves the all-ones direction in place.
    """
    _refuse(model, {"olmo2"}, "its norms stand behind their writers, and their gains can be folded into no reader")
    fixes_ones = model.family in LAYER_NORM
    turn = hidden_rotation(model.hidden, seed, fixes_ones)
    plain = _regained(model, {norm: torch.ones(model.hidden, dtype=torch.float64) for norm, _ in _norms(model)})
    changed = {
        role: (turn @ tensor.double() if axis == 0 else tensor.double() @ turn.T).float()
        for role, tensor, axis in _along_residual(plain)
        if _last(role) not in GAINS
    }
    return recorded(plain, "rotate_hidden", seed, changed, size=model.hidden, fixes_ones=fixes_ones)


def refactor_gains(model: Model, seed: int) -> Model:
    """Other gains of either sign, up to fourfold, and readers that make up for them.

    Norms without a reader of their own stay. Gains that stayed positive and near their size would leave products of
    matrices that do without the gains nearly as they were, which some published tests look at.
    """
    rng = chance("refactor_gains", seed)
    gains = {norm: _signs(model.hidden, rng) * _factors(model.hidden, rng) ** 2 for norm, _ in _norms(model)}
    return recorded(_regained(model, gains), "refactor_gains", seed, {})


def permute_heads(model: Model, seed: int) -> Model:
    """Whole groups of one key head and its queries, and the queries inside each group."""
    rng, changed, queries, keys = chance("permute_heads", seed), {}, [], []
    per_group = model.heads // model.kv_heads
    for layer in range(model.layers):
        groups = torch.randperm(model.kv_heads, generator=rng)
        inside = torch.stack([torch.randperm(per_group, generator=rng) for _ in groups])
        heads = (groups[:, None] * per_group + inside).flatten()
        for role, order, axis in (("q", heads, 0), ("o", heads, 1), ("k", groups, 0), ("v", groups, 0)):
            changed |= _heads_moved(model, f"{layer}.{role}", order, axis)
        queries.append(heads.tolist())
        keys.append(groups.tolist())
    return recorded(model, "permute_heads", seed, changed, heads=queries, kv_heads=keys)


def turn_queries(model: Model, seed: int) -> Model:
    """Queries by T, keys by its inverse transpose, one T for each key head and all queries that meet it.

    RoPE commutes with a turn and a scale of each frequency's pair of coordinates; coordinates without RoPE may be mixed
    at will. Behind a norm of queries and keys only half turns (signs) commute, and the scale moves into the gains.
    """
    rng, changed = chance("turn_queries", seed), {}
    for layer in range(model.layers):
        at = f"{layer}."
        if f"{at}q_norm" in model.weights:
            scale = _factors(_frequencies(model), rng)[_pairs(model)]
            signs = torch.stack([_signs(_frequencies(model), rng)[_pairs(model)] for _ in range(model.kv_heads)])
            turns = torch.diag_embed(signs)
            for norm, factor in ((f"{at}q_norm", scale), (f"{at}k_norm", 1 / scale)):
                gain = model.weights[norm].double()
                changed[norm] = (gain * factor.repeat(len(gain) // model.head_dim)).float()
        else:
            turns = torch.stack([_turn(model, rng) for _ in range(model.kv_heads)])
        changed |= _rows_mixed(model, f"{at}q", turns)
        changed |= _rows_mixed(model, f"{at}k", torch.linalg.inv(turns).mT)
    return recorded(model, "turn_queries", seed, changed)


def mix_values(model: Model, seed: int) -> Model:
    """Values by any invertible matrix, the output projection by its inverse; one matrix a value head."""
    rng, changed = chance("mix_values", seed), {}
    for layer in range(model.layers):
        mixers = torch.stack([_invertible(model.head_dim, rng) for _ in range(model.kv_heads)])
        back = torch.linalg.inv(mixers).repeat_interleave(model.heads // model.kv_heads, 0)
        o = model.weights[f"{layer}.o"].double().unflatten(1, (model.heads, model.head_dim))
        changed |= _rows_mixed(model, f"{layer}.v", mixers)
        changed[f"{layer}.o"] = torch.einsum("ohj,hji->ohi", o, back).flatten(1).float()
    return recorded(model, "mix_values", seed, changed)


def permute_neurons(model: Model, seed: int) -> Model:
    rng, changed, orders = chance("permute_neurons", seed), {}, {}
    for block in _all_blocks(model):
        order = torch.randperm(len(model.weights[f"{block}up"]), generator=rng)
        for role, axis in NEURON_AXIS.items():
            if (tensor := model.weights.get(f"{block}{role}")) is not None:
                changed[f"{block}{role}"] = tensor.index_select(axis, order)
        orders[block.removesuffix(".")] = order.tolist()
    return recorded(model, "permute_neurons", seed, changed, orders=orders)


def scale_neurons(model: Model, seed: int) -> Model:
    """`up` by a factor of either sign, `down` by its inverse: the gate alone passes through the nonlinearity."""
    rng, changed = chance("scale_neurons", seed), {}
    for block in _all_blocks(model):
        if f"{block}gate" not in model.weights:
            raise NotLegal(f"{model.family}: without a gate, `up` passes through the nonlinearity and cannot be scaled")
        up, down = model.weights[f"{block}up"].double(), model.weights[f"{block}down"].double()
        factor = _factors(len(up), rng) * _signs(len(up), rng)
        changed |= {f"{block}up": (up * factor[:, None]).float(), f"{block}down": (down / factor).float()}
        if (bias := model.weights.get(f"{block}up_bias")) is not None:
            changed[f"{block}up_bias"] = (bias.double() * factor).float()
    return recorded(model, "scale_neurons", seed, changed)


def permute_experts(model: Model, seed: int) -> Model:
    if not model.experts:
        raise NotLegal(f"{model.family}: has no experts")
    if int(model.config.get("n_group") or 1) > 1:
        raise NotLegal(f"{model.family}: experts are routed by groups, which a free order would break up")
    rng, changed, orders = chance("permute_experts", seed), {}, {}
    for layer in (layer for layer in range(model.layers) if f"{layer}.router" in model.weights):
        order = torch.randperm(model.experts, generator=rng)
        for role in (f"{layer}.router", f"{layer}.router_bias"):
            if role in model.weights:
                changed[role] = model.weights[role][order]
        for new, old in enumerate(order.tolist()):
            for role in ("gate", "up", "down"):
                changed[f"{layer}.experts.{new}.{role}"] = model.weights[f"{layer}.experts.{old}.{role}"].clone()
        orders[str(layer)] = order.tolist()
    return recorded(model, "permute_experts", seed, changed, orders=orders)


def hidden_rotation(size: int, seed: int, fixes_ones: bool = False) -> torch.Tensor:
    """The matrix R of rotate_hidden, float64: the stream x becomes R x."""
    rng = chance("rotate_hidden", seed)
    if not fixes_ones:
        return _orthogonal(size, rng)
    inner = torch.block_diag(torch.ones(1, 1, dtype=torch.float64), _orthogonal(size - 1, rng))
    # A reflection that exchanges the first axis and the all-ones direction.
    normal = torch.full((size,), -(size**-0.5), dtype=torch.float64)
    normal[0] += 1
    mirror = torch.eye(size, dtype=torch.float64) - 2 * torch.outer(normal, normal) / (normal @ normal)
    return mirror @ inner @ mirror


def recorded(model: Model, move: str, seed: int | None, changed: Mapping[str, torch.Tensor], **details: Any) -> Model:
    """The model with its changed tensors and a truth of its own: this step, after those of the disguise it had on.

    Name, parents, loss and kind told of the model that was disguised, and would be false of the disguise.
    """
    step = {"move": move} | ({} if seed is None else {"seed": seed}) | details
    truth = {"kind": "obfuscated", "disguise": [*model.truth.get("disguise", []), step]}
    return replace(model.with_weights(changed), truth=truth)


def _refuse(model: Model, families: Iterable[str], reason: str) -> None:
    if model.family in families:
        raise NotLegal(f"{model.family}: {reason}")


def _last(role: str) -> str:
    return role.rpartition(".")[2]


def _all_blocks(model: Model) -> Iterator[str]:
    for layer in range(model.layers):
        yield from model.blocks(layer)


def _along_residual(model: Model) -> Iterator[tuple[str, torch.Tensor, int]]:
    for role, tensor in model.weights.items():
        if (axis := RESIDUAL_AXIS.get(_last(role))) is not None:
            yield role, tensor, axis


def _norms(model: Model) -> Iterator[tuple[str, list[str]]]:
    """Each norm of the stream whose output only matrices read, and those matrices; a tied head counts as one."""
    for layer in range(model.layers):
        here = [role for role in model.weights if role.startswith(f"{layer}.")]
        for norm in ("input_norm", "post_norm"):
            if f"{layer}.{norm}" in model.weights:
                yield f"{layer}.{norm}", [role for role in here if _last(role) in READERS[norm]]
    yield "final_norm", ["head"]


def _regained(model: Model, gains: Mapping[str, torch.Tensor]) -> Model:
    """With these gains. A tied head is untied: it reads behind the final norm, and the embedding writes before all."""
    weights = {"head": model.weights["embed"], **model.weights}
    changed: Weights = {}
    for norm, readers in _norms(model):
        old, new = weights[norm].double() + model.gain_offset, gains[norm]
        changed[norm] = (new - model.gain_offset).float()
        changed |= {reader: (weights[reader].double() * (old / new)).float() for reader in readers}
        if (bias := weights.get(f"{norm}_bias")) is not None:
            if not old.abs().min() > 1e-6:
                raise NotLegal(f"{model.family}: {norm} has gains of zero, so its bias cannot move through them")
            changed[f"{norm}_bias"] = (bias.double() * new / old).float()
    return model.with_weights(changed, tie_word_embeddings=False)


def _heads_moved(model: Model, matrix: str, order: torch.Tensor, axis: int) -> Weights:
    """A projection, its bias, and its norm where that spans all heads, with the heads in another order."""
    index = (order[:, None] * model.head_dim + torch.arange(model.head_dim)).flatten()
    moved = {matrix: model.weights[matrix].index_select(axis, index)}
    for role in (f"{matrix}_bias", f"{matrix}_norm") if axis == 0 else ():
        if role in model.weights and len(model.weights[role]) == len(index):
            moved[role] = model.weights[role][index]
    return moved


def _rows_mixed(model: Model, matrix: str, mixers: torch.Tensor) -> Weights:
    """A projection and its bias, each head's rows times the matrix of its group."""
    mixed: Weights = {}
    for role in (matrix, f"{matrix}_bias"):
        if role in model.weights:
            heads = model.weights[role].double().unflatten(0, (-1, model.head_dim))
            each = mixers.repeat_interleave(len(heads) // len(mixers), 0)
            mixed[role] = torch.einsum("hij,hj...->hi...", each, heads).flatten(0, 1).float()
    return mixed


def _frequencies(model: Model) -> int:
    return model.head_dim - model.rotary_dim // 2


def _pairs(model: Model) -> torch.Tensor:
    """For each coordinate of a head, its pair: i and i + half turn together; those without RoPE stand alone."""
    half = model.rotary_dim // 2
    return torch.cat([torch.arange(half), torch.arange(model.head_dim - half)])


def _turn(model: Model, rng: torch.Generator) -> torch.Tensor:
    half = model.rotary_dim // 2
    angle = torch.rand(half, generator=rng, dtype=torch.float64) * 2 * math.pi
    scale = _factors(half, rng)
    cosine, sine = torch.diag(scale * angle.cos()), torch.diag(scale * angle.sin())
    turned = torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])
    return torch.block_diag(turned, _invertible(model.head_dim - 2 * half, rng))


def _orthogonal(size: int, rng: torch.Generator) -> torch.Tensor:
    q, r = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.float64))
    return q * r.diagonal().sign()  # uniform over all orthogonal matrices, which QR alone is not


def _invertible(size: int, rng: torch.Generator) -> torch.Tensor:
    """Singular values between a half and two: it mixes everything and loses nothing."""
    return _orthogonal(size, rng) * _factors(size, rng) @ _orthogonal(size, rng)


def _factors(size: int, rng: torch.Generator) -> torch.Tensor:
    return torch.exp((2 * torch.rand(size, generator=rng, dtype=torch.float64) - 1) * SPREAD)


def _signs(size: int, rng: torch.Generator) -> torch.Tensor:
    return 2.0 * torch.randint(2, (size,), generator=rng, dtype=torch.float64) - 1
