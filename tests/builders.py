"""Small checkpoints made in code. They are random, not trained: enough to read, not to judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

Tensors = dict[str, NDArray[Any]]
HIDDEN, LAYERS, HEADS, KV_HEADS, NEURONS, VOCABULARY = 32, 3, 4, 2, 48, 64
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": NEURONS,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}


def llama_tensors(seed: int = 0, dtype: Any = ml_dtypes.bfloat16) -> Tensors:
    rng = np.random.default_rng(seed)
    head = HIDDEN // HEADS

    def matrix(*shape: int) -> NDArray[Any]:
        return rng.normal(0, 0.05, shape).astype(dtype)

    def gain() -> NDArray[Any]:
        return rng.normal(1, 0.1, HIDDEN).astype(dtype)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "model.norm.weight": gain()}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        tensors |= {
            f"{at}self_attn.q_proj.weight": matrix(HEADS * head, HIDDEN),
            f"{at}self_attn.k_proj.weight": matrix(KV_HEADS * head, HIDDEN),
            f"{at}self_attn.v_proj.weight": matrix(KV_HEADS * head, HIDDEN),
            f"{at}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * head),
            f"{at}mlp.gate_proj.weight": matrix(NEURONS, HIDDEN),
            f"{at}mlp.up_proj.weight": matrix(NEURONS, HIDDEN),
            f"{at}mlp.down_proj.weight": matrix(HIDDEN, NEURONS),
            f"{at}input_layernorm.weight": gain(),
            f"{at}post_attention_layernorm.weight": gain(),
        }
    return tensors | {"lm_head.weight": matrix(VOCABULARY, HIDDEN)}


def llama_files(seed: int = 0, shards: int = 1, config: Mapping[str, Any] = CONFIG) -> dict[str, bytes]:
    tensors = llama_tensors(seed)
    files = {"config.json": json.dumps(config).encode()}
    if shards == 1:
        return files | {"model.safetensors": save(tensors)}
    names = list(tensors)
    weight_map = {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number::shards]
        weight_map |= dict.fromkeys(part, shard)
        files[shard] = save({name: tensors[name] for name in part})
    return files | {"model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return folder
