"""Configs of the shapes that can be stacked, and new models of any of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from zoo.checkpoints import Model, Weights

VOCABULARY_ROLES = ("embed", "positions", "head")


def shape_config(**shape: Any) -> dict[str, Any]:
    """A config.json of the Llama or, with experts, the Mixtral family."""
    experts = shape.pop("experts", 0)
    family, name = ("mixtral", "MixtralForCausalLM") if experts else ("llama", "LlamaForCausalLM")
    config: dict[str, Any] = {
        "model_type": family,
        "architectures": [name],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "initializer_range": 0.02,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None}
    return config | shape


def plain_config(hidden: int, layers: int, heads: int, neurons: int, vocabulary: int) -> dict[str, Any]:
    """A config.json of the GPT-2 family: no gate, LayerNorm, learned positions."""
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        **{"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": neurons},
        **{"vocab_size": vocabulary, "n_positions": 256},
    }


def fresh(config: Mapping[str, Any], seed: int, tokenizer: dict[str, Any] | None = None) -> Model:
    """Matrices from N(0, initializer_range), gains at 1, biases at 0: as in transformers, from our own generator."""
    rng, model = torch.Generator().manual_seed(seed), Model(dict(config), {}, tokenizer)
    plain, std = model.family == "gpt2", model.config["initializer_range"]

    def drawn(role: str, *size: int) -> Weights:
        """GPT-2 makes what is written to the stream smaller the deeper the model is, and gives every matrix a bias."""
        scale = std / math.sqrt(2 * model.layers) if plain and role.endswith((".o", ".down")) else std
        return {role: torch.randn(size, generator=rng) * scale} | bias(role, size[0])

    def gain(role: str) -> Weights:
        return {role: torch.ones(model.hidden)} | bias(role, model.hidden)

    def bias(role: str, size: int) -> Weights:
        return {f"{role}_bias": torch.zeros(size)} if plain and role not in VOCABULARY_ROLES else {}

    weights = drawn("embed", config["vocab_size"], model.hidden) | gain("final_norm")
    if plain:
        weights |= drawn("positions", config["n_positions"], model.hidden)
    if not config["tie_word_embeddings"]:
        weights |= drawn("head", config["vocab_size"], model.hidden)
    for layer in range(model.layers):
        weights |= gain(f"{layer}.input_norm") | gain(f"{layer}.post_norm")
        for role, size in _sizes(model, layer).items():
            weights |= drawn(role, *size)
    return replace(model, weights=weights)


def _sizes(model: Model, layer: int) -> dict[str, tuple[int, int]]:
    """(out, in) of every matrix of a layer."""
    d, h, q, kv = model.hidden, model.neurons, model.heads * model.head_dim, model.kv_heads * model.head_dim
    at = f"{layer}."
    sizes = {f"{at}q": (q, d), f"{at}k": (kv, d), f"{at}v": (kv, d), f"{at}o": (d, q)}
    if model.experts:
        sizes[f"{at}router"] = (model.experts, d)
    for block in [f"{at}experts.{e}." for e in range(model.experts)] or [at]:
        gate = {} if model.family == "gpt2" else {f"{block}gate": (h, d)}
        sizes |= gate | {f"{block}up": (h, d), f"{block}down": (d, h)}
    return sizes
