"""Checkpoints from arrays, for tests of reading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint, open_checkpoint
from modelkin.formats import Layout
from modelkin.records import TensorRef
from modelkin.sources.memory import MemorySource

Arrays = Mapping[str, NDArray[Any]]


def anatomy_of(arrays: Arrays, config: Mapping[str, Any] | None = None) -> Anatomy:
    files = {"model.safetensors": save(dict(arrays))}
    if config is not None:
        files["config.json"] = json.dumps(config).encode()
    return identify(open_checkpoint(MemorySource(files)))


def named(shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any], dtype: str = "BF16") -> Checkpoint:
    """A tensor table without any bytes behind it."""
    tensors = {name: TensorRef(name, dtype, shape, "f", i, i + 1) for i, (name, shape) in enumerate(shapes.items())}
    return Checkpoint(MemorySource({}), config, Layout("safetensors", tensors))


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def tensor_bytes(anatomy: Anatomy) -> int:
    return anatomy.checkpoint.source.ledger.bytes(["tensor"])


LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 64,
}


def llama_shapes(layers: int = 2, head: bool = True) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (64, 32), "model.norm.weight": (32,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {f"{at}{norm}.weight": (32,) for norm in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{at}self_attn.{p}_proj.weight": (16 if p in "kv" else 32, 32) for p in "qkvo"}
        shapes |= {f"{at}mlp.{p}_proj.weight": (48, 32) for p in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (32, 48)
    return shapes | ({"lm_head.weight": (64, 32)} if head else {})
