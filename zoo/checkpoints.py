"""A model as a value: its config, its weights by role, its tokenizer. Read from and written to Hugging Face folders.

Derivations and disguises are functions from such values to such values. Roles are the same for every family, so that
each is written once: `embed`, `final_norm`, `head` (absent where tied), and per layer `3.input_norm`, `3.q`, `3.gate`,
… or `3.router`, `3.experts.5.gate` and `3.shared.gate`. A bias is called after its matrix or norm: `3.q_bias`. An MLP
without a gate has `up` and `down`. A family may have roles that only some of its models store. Matrices are (out, in),
float32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Weights = dict[str, torch.Tensor]

LLAMA_TOP = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
TOP: dict[str, dict[str, str]] = {
    "gpt2": {
        "embed": "transformer.wte.weight",
        "positions": "transformer.wpe.weight",
        "final_norm": "transformer.ln_f.weight",
        "final_norm_bias": "transformer.ln_f.bias",
        "head": "lm_head.weight",
    },
    "gpt_neox": {
        "embed": "gpt_neox.embed_in.weight",
        "final_norm": "gpt_neox.final_layer_norm.weight",
        "final_norm_bias": "gpt_neox.final_layer_norm.bias",
        "head": "embed_out.weight",
    },
}
LAYERS_AT = {"gpt2": "transformer.h", "gpt_neox": "gpt_neox.layers"}
ATTENTION = {role: f"self_attn.{role}_proj.weight" for role in "qkvo"}
NORMS = {"input_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight"}
MLP = {role: f"mlp.{role}_proj.weight" for role in ("gate", "up", "down")}
LLAMA = NORMS | ATTENTION | MLP
BIASES = {f"{role}_bias": f"self_attn.{role}_proj.bias" for role in "qkv"}
ALL_BIASES = BIASES | {"o_bias": "self_attn.o_proj.bias"}  # where a config sets attention_bias
MLP_BIASES = {f"{role}_bias": f"mlp.{role}_proj.bias" for role in ("gate", "up", "down")}  # where it sets mlp_bias
HEAD_NORMS = {f"{role}_norm": f"self_attn.{role}_norm.weight" for role in "qk"}
MIXTRAL = {"router": "block_sparse_moe.gate.weight"} | {
    f"experts.{{expert}}.{role}": f"block_sparse_moe.experts.{{expert}}.{w}.weight"
    for role, w in (("gate", "w1"), ("down", "w2"), ("up", "w3"))
}
SHARED = {f"shared.{role}": f"mlp.shared_experts.{role}_proj.weight" for role in ("gate", "up", "down")}
GLM_EXPERTS = {"router": "mlp.gate.weight", "router_bias": "mlp.gate.e_score_correction_bias"} | {
    f"experts.{{expert}}.{role}": f"mlp.experts.{{expert}}.{role}_proj.weight" for role in ("gate", "up", "down")
}


def _with_biases(modules: Mapping[str, str]) -> dict[str, str]:
    kinds = {"": "weight", "_bias": "bias"}
    return {f"{role}{ending}": f"{name}.{kind}" for role, name in modules.items() for ending, kind in kinds.items()}


LAYER_NAMES: dict[str, dict[str, str]] = {
    "llama": LLAMA | ALL_BIASES | MLP_BIASES,
    "mistral": LLAMA,
    "gemma": LLAMA | ALL_BIASES,
    "qwen2": LLAMA | BIASES,
    "qwen3": LLAMA | HEAD_NORMS | ALL_BIASES,
    "mixtral": NORMS | ATTENTION | MIXTRAL,
    "glm4_moe": LLAMA | BIASES | HEAD_NORMS | GLM_EXPERTS | SHARED,
    "olmo2": ATTENTION
    | ALL_BIASES
    | MLP
    | HEAD_NORMS
    | {"attn_out_norm": "post_attention_layernorm.weight", "mlp_out_norm": "post_feedforward_layernorm.weight"},
    "phi3": NORMS
    | {"qkv": "self_attn.qkv_proj.weight", "o": "self_attn.o_proj.weight"}
    | {"gate_up": "mlp.gate_up_proj.weight", "down": "mlp.down_proj.weight"},
    "gpt2": _with_biases({"input_norm": "ln_1", "post_norm": "ln_2", "qkv": "attn.c_attn", "o": "attn.c_proj"})
    | _with_biases({"up": "mlp.c_fc", "down": "mlp.c_proj"}),
    "gpt_neox": _with_biases({"input_norm": "input_layernorm", "post_norm": "post_attention_layernorm"})
    | _with_biases({"qkv": "attention.query_key_value", "o": "attention.dense"})
    | _with_biases({"up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}),
}
OTHER_KEYS = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "num_local_experts": "n_routed_experts",
}
ROTARY_DEFAULT = {"gpt2": 0.0, "gpt_neox": 0.25, "glm4_moe": 0.5}


class UnknownLayout(ValueError):
    """A checkpoint whose tensors have no roles here."""


@dataclass(frozen=True)
class Model:
    """`tokenizer` is the parsed tokenizer.json, or None. Functions return new models and leave theirs alone."""

    config: dict[str, Any]
    weights: Weights
    tokenizer: dict[str, Any] | None = None
    truth: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return str(self.config["model_type"])

    @property
    def layers(self) -> int:
        return _size(self.config, "num_hidden_layers")

    @property
    def hidden(self) -> int:
        return _size(self.config, "hidden_size")

    @property
    def heads(self) -> int:
        return _size(self.config, "num_attention_heads")

    @property
    def kv_heads(self) -> int:
        return int(self.config.get("num_key_value_heads") or self.heads)

    @property
    def head_dim(self) -> int:
        return int(self.config.get("head_dim") or self.hidden // self.heads)

    @property
    def neurons(self) -> int:
        return _size(self.config, "intermediate_size") or 4 * self.hidden

    @property
    def experts(self) -> int:
        return _size(self.config, "num_local_experts") if self.family in ("mixtral", "glm4_moe") else 0

    @property
    def rotary_dim(self) -> int:
        """How many leading coordinates of a query or key head turn with the position; the others stand still."""
        scattered = (self.config.get(key) for key in ("partial_rotary_factor", "rotary_pct"))
        told = ((self.config.get("rope_parameters") or {}).get("partial_rotary_factor"), *scattered)
        share = next((value for value in told if value is not None), ROTARY_DEFAULT.get(self.family, 1.0))
        return int(self.head_dim * share)

    @property
    def gain_offset(self) -> float:
        return 1.0 if self.family == "gemma" else 0.0

    @property
    def tied(self) -> bool:
        return "head" not in self.weights

    def blocks(self, layer: int) -> list[str]:
        """Prefixes of the feed-forward blocks of a layer: one, or one an expert and those that all tokens share."""
        routed = [f"{layer}.experts.{e}." for e in range(self.experts)]
        return [block for block in (f"{layer}.", f"{layer}.shared.", *routed) if f"{block}up" in self.weights]

    def with_weights(self, changed: Mapping[str, torch.Tensor], **config: Any) -> Model:
        return replace(self, weights={**self.weights, **changed}, config={**self.config, **config})


def _size(config: Mapping[str, Any], key: str) -> int:
    return int(config.get(key) or config.get(OTHER_KEYS[key]) or 0)


def load(folder: Path) -> Model:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    stored: Weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        stored |= load_file(file)
    extra = {name: json.loads(path.read_text("utf-8")) if path.exists() else None for name, path in _sides(folder)}
    weights = by_role({name: tensor.float() for name, tensor in stored.items()}, config)
    return Model(config, weights, extra["tokenizer"], extra["truth"] or {})


def save(model: Model, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """As an ordinary Hugging Face folder, with truth.json where the model carries one."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", by_name(model), dtype)
    write_sides(folder, model, dtype)


def write_tensors(file: Path, tensors: Weights, dtype: torch.dtype) -> None:
    stored = {name: tensor.to(dtype).contiguous().clone() for name, tensor in tensors.items()}
    save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)


def write_sides(folder: Path, model: Model, dtype: torch.dtype) -> None:
    """Everything of a checkpoint that is not a tensor."""
    write_json(folder / "config.json", model.config | {"dtype": str(dtype).removeprefix("torch.")})
    for name, path in _sides(folder):
        if value := getattr(model, name):
            write_json(path, value)


def _sides(folder: Path) -> Iterator[tuple[str, Path]]:
    yield from (("tokenizer", folder / "tokenizer.json"), ("truth", folder / "truth.json"))


def write_json(path: Path, value: Any) -> None:
    indent = None if path.name == "tokenizer.json" else 2
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", "utf-8")


def by_role(stored: Weights, config: Mapping[str, Any]) -> Weights:
    """Stored names to roles, fused tensors split. A name without a role is an error."""
    names = {stored_name: role for role, stored_name in role_names(config).items()}
    if unknown := sorted(set(stored) - set(names)):
        raise UnknownLayout(f"{config['model_type']}: no role for {unknown[0]} and {len(unknown) - 1} more")
    return _split({names[name]: tensor for name, tensor in stored.items()}, Model(dict(config), {}))


def by_name(model: Model) -> Weights:
    names = role_names(model.config)
    return {names[role]: tensor for role, tensor in _fuse(model).items()}


def role_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Role -> the name that the family's files give it."""
    family = config["model_type"]
    if family not in LAYER_NAMES:
        raise UnknownLayout(f"{family}: known are {', '.join(LAYER_NAMES)}")
    names = dict(TOP.get(family, LLAMA_TOP))
    at = LAYERS_AT.get(family, "model.layers")
    for layer in range(_size(config, "num_hidden_layers")):
        for role, name in LAYER_NAMES[family].items():
            for expert in range(_size(config, "num_local_experts")) if "{expert}" in role else [0]:
                names[f"{layer}.{role.format(expert=expert)}"] = f"{at}.{layer}.{name.format(expert=expert)}"
    return names


def _split(weights: Weights, shape: Model) -> Weights:
    split: Weights = {}
    for role, tensor in weights.items():
        prefix, _, last = role.rpartition(".")
        tensor = _turned(role, tensor, shape)
        if last in ("qkv", "qkv_bias"):
            ending = last.removeprefix("qkv")
            split |= {f"{prefix}.{name}{ending}": part for name, part in zip("qkv", _apart(tensor, shape), strict=True)}
        elif last == "gate_up":
            split |= {f"{prefix}.{name}": part for name, part in zip(("gate", "up"), tensor.chunk(2), strict=True)}
        else:
            split[role] = tensor
    return split


def _fuse(model: Model) -> Weights:
    weights = dict(model.weights)
    fused = [role for role in LAYER_NAMES[model.family] if role in ("qkv", "qkv_bias", "gate_up")]
    for layer in range(model.layers):
        for role in fused:
            parts = ("gate", "up") if role == "gate_up" else [f"{name}{role.removeprefix('qkv')}" for name in "qkv"]
            tensors = [weights.pop(f"{layer}.{part}") for part in parts]
            weights[f"{layer}.{role}"] = torch.cat(tensors) if role == "gate_up" else _together(tensors, model)
    return {role: _turned(role, tensor, model) for role, tensor in weights.items()}


def _turned(role: str, tensor: torch.Tensor, shape: Model) -> torch.Tensor:
    """GPT-2 stores the matrices of its layers (in, out)."""
    return tensor.T if shape.family == "gpt2" and "." in role and tensor.dim() == 2 else tensor


def _apart(qkv: torch.Tensor, shape: Model) -> list[torch.Tensor]:
    if shape.family == "gpt_neox":  # head by head, each its own q, k and v
        return [part.flatten(0, 1) for part in qkv.unflatten(0, (shape.heads, 3, shape.head_dim)).unbind(1)]
    kv = shape.kv_heads * shape.head_dim
    return list(qkv.split([len(qkv) - 2 * kv, kv, kv]))


def _together(parts: list[torch.Tensor], shape: Model) -> torch.Tensor:
    if shape.family == "gpt_neox":
        heads = [part.unflatten(0, (shape.heads, shape.head_dim)) for part in parts]
        return torch.stack(heads, dim=1).flatten(0, 2)
    return torch.cat(parts)
