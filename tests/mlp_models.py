"""Small random models with nothing but what their neurons need, in any number of layers, neurons and experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from builders import CONFIG, write_files

WIDTH = 64
Arrays = dict[str, NDArray[Any]]


def layered(seed: int, layers: int, neurons: int, width: int = WIDTH, experts: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    found = {"model.embed_tokens.weight": rng.normal(0, 1, (16, width)), "model.norm.weight": rng.normal(1, 0.1, width)}
    for i in range(layers):
        at = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = rng.normal(1, 0.1, width)
        for name in ("q", "k", "v", "o"):
            found[f"{at}self_attn.{name}_proj.weight"] = rng.normal(0, 1, (width, width))
        mlps = [f"mlp.experts.{e}." for e in range(experts)] or ["mlp."]
        for mlp in mlps:
            found |= {f"{at}{mlp}{part}_proj.weight": rng.normal(0, 1, (neurons, width)) for part in ("gate", "up")}
            found[f"{at}{mlp}down_proj.weight"] = rng.normal(0, 1, (width, neurons))
        if experts:
            found[f"{at}mlp.gate.weight"] = rng.normal(0, 1, (experts, width))
    return {name: array.astype(np.float32) for name, array in found.items()}


def written(folder: Path, tensors: Arrays, experts: int = 0) -> Path:
    names = [name for name in tensors if ".gate_proj." in name]
    layers = len({name.split(".")[2] for name in names})
    neurons, width = tensors[names[0]].shape
    more = {"model_type": "qwen3_moe", "num_experts": experts, "moe_intermediate_size": neurons} if experts else {}
    if experts:
        more["architectures"] = ["Qwen3MoeForCausalLM"]
    config = CONFIG | more
    config |= {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": neurons, "vocab_size": 16}
    return write_files(folder, {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)})
