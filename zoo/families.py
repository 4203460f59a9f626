"""One training run as a value, and the transformers config of each family at the size of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig, PretrainedConfig

Shape = dict[str, int]


@dataclass(frozen=True)
class Run:
    """Everything that decides the weights of one model, but for the text. `asdict` of it is JSON.

    `shape` has hidden, layers, heads, kv_heads, neurons and, with experts, experts, chosen and expert_neurons.
    `parent` names the run whose saved folder this one starts from; `kind` is the relation that this makes true.
    """

    name: str
    family: str = "llama"
    seed: int = 0
    shape: Shape = field(default_factory=dict)
    tokenizer: str = "first"
    domain: str = "mixed"
    steps: int = 700
    batch: int = 64
    length: int = 256
    rate: float = 3e-3
    warmup: int = 50
    decay: float = 0.1
    norm_decay: float = 0.0
    optimiser: str = "adamw"
    parent: str | None = None
    kind: str = "unrelated"
    draw: int = 0


def config_for(run: Run, vocabulary: int) -> PretrainedConfig:
    """Tied embeddings, no dropout, no padding token; the rest as the family's released models have it."""
    common = {
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "attn_implementation": "sdpa",
    }
    return AutoConfig.for_model(run.family, **common, **FAMILIES[run.family](run.shape, run.length))


def _common(shape: Shape, length: int) -> dict[str, Any]:
    return {
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["neurons"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "max_position_embeddings": length,
    }


def _llama(shape: Shape, length: int) -> dict[str, Any]:
    return _common(shape, length) | {"num_key_value_heads": shape["kv_heads"]}


def _with_head(shape: Shape, length: int) -> dict[str, Any]:
    return _llama(shape, length) | {"head_dim": shape["hidden"] // shape["heads"]}


def _phi3(shape: Shape, length: int) -> dict[str, Any]:
    return _llama(shape, length) | {"original_max_position_embeddings": length}


def _mixtral(shape: Shape, length: int) -> dict[str, Any]:
    experts = {"num_local_experts": shape["experts"], "num_experts_per_tok": shape["chosen"]}
    return _with_head(shape, length) | experts | {"router_aux_loss_coef": 0.01}


def _glm4_moe(shape: Shape, length: int) -> dict[str, Any]:
    """The first layer dense, then routed experts beside one that is always on; biases on q, k and v."""
    return _with_head(shape, length) | {
        "attention_bias": True,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": shape["expert_neurons"],
        "n_group": 1,
        "n_routed_experts": shape["experts"],
        "n_shared_experts": 1,
        "num_experts_per_tok": shape["chosen"],
        "num_nextn_predict_layers": 0,
        "topk_group": 1,
    }


def _gpt2(shape: Shape, length: int) -> dict[str, Any]:
    return {
        "n_embd": shape["hidden"],
        "n_inner": shape["neurons"],
        "n_layer": shape["layers"],
        "n_head": shape["heads"],
        "n_positions": length,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


FAMILIES: dict[str, Callable[[Shape, int], dict[str, Any]]] = {
    "llama": _llama,
    "qwen3": _with_head,
    "gpt2": _gpt2,
    "gpt_neox": _common,
    "phi3": _phi3,
    "mixtral": _mixtral,
    "glm4_moe": _glm4_moe,
    "gemma": _with_head,
    "olmo2": _llama,
}
