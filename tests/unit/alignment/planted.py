"""Small models with enough structure to be recognised by, and every output-preserving move on them, in plain numpy.

The names are those of a llama, or of a Qwen3-MoE where there are experts. Attention has a few strong directions, as it
has in trained models; rows of neurons are drawn apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.sources.memory import MemorySource

Arrays = dict[str, NDArray[np.float64]]
Move = Callable[[Arrays, np.random.Generator], Arrays]
WIDTH, LAYERS, NEURONS, HEADS, GROUPS, SIZE, TOKENS = 48, 4, 72, 4, 2, 12, 160
READERS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "mlp.gate.", "lm_head")
WRITERS = ("o_proj", "down_proj")


def drawn(seed: int, layers: int = LAYERS, neurons: int = NEURONS, width: int = WIDTH, experts: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    found = {"model.embed_tokens.weight": rng.normal(size=(TOKENS, width)), "model.norm.weight": _gain(rng, width)}
    found["lm_head.weight"] = rng.normal(size=(TOKENS, width))
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = _gain(rng, width)
        for name, rows in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)):
            found[f"{at}self_attn.{name}_proj.weight"] = _strong(rng, rows * SIZE, width)
        found[f"{at}self_attn.o_proj.weight"] = _strong(rng, width, HEADS * SIZE)
        for mlp in [f"{at}mlp.experts.{e}." for e in range(experts)] or [f"{at}mlp."]:
            found |= {f"{mlp}{name}_proj.weight": rng.normal(size=(neurons, width)) for name in ("gate", "up")}
            found[f"{mlp}down_proj.weight"] = rng.normal(size=(width, neurons))
        if experts:
            found[f"{at}mlp.gate.weight"] = rng.normal(size=(experts, width))
    return found


def _gain(rng: np.random.Generator, width: int) -> NDArray[np.float64]:
    return np.exp(0.2 * rng.normal(size=width))


def _strong(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    return rng.normal(size=(rows, columns)) + 3 * rng.normal(size=(rows, 4)) @ rng.normal(size=(4, columns))


def anatomy(arrays: Arrays, tokenizer: bool = True, **config: Any) -> Anatomy:
    """As it would be read from files."""
    layers = len({name.split(".")[2] for name in arrays if ".layers." in name})
    experts = len({name.split(".")[5] for name in arrays if ".0.mlp.experts." in name})
    up = next((array for name, array in arrays.items() if name.endswith("up_proj.weight")), np.zeros((1, 1)))
    told = {
        "model_type": "qwen3_moe" if experts else "llama",
        "architectures": ["Qwen3MoeForCausalLM" if experts else "LlamaForCausalLM"],
        "hidden_size": len(arrays["model.norm.weight"]),
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "head_dim": SIZE,
        "intermediate_size": len(up),
        "vocab_size": TOKENS,
    }
    told |= {"num_experts": experts, "moe_intermediate_size": len(up)} if experts else {}
    files = {"config.json": json.dumps(told | config).encode()}
    files["model.safetensors"] = save({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()})
    if tokenizer:
        words = {f"word{i}": i for i in range(TOKENS)}
        files["tokenizer.json"] = json.dumps(
            {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": words, "merges": []}}
        ).encode()
    return identify(open_checkpoint(MemorySource(files)))


def along(arrays: Arrays, turn: NDArray[np.float64]) -> Arrays:
    """The stream x as turn·x: readers and tokens by columns, writers by rows. Gains must be ones, or follow alone."""
    found = dict(arrays)
    for name, array in arrays.items():
        if any(part in name for part in (*READERS, "embed_tokens")):
            found[name] = array @ turn.T
        elif any(part in name for part in WRITERS):
            found[name] = turn @ array
        elif "norm" in name:
            found[name] = np.abs(turn) @ array if set(np.unique(turn)) <= {-1.0, 0.0, 1.0} else array
    return found


def regained(arrays: Arrays, draw: Callable[[int], NDArray[np.float64]]) -> Arrays:
    """Other gains, and readers that make up for them."""
    found = dict(arrays)
    for norm in [name for name in arrays if "norm" in name]:
        at = norm.rpartition(".weight")[0].rpartition(".")[0]
        readers = ("q_proj", "k_proj", "v_proj") if "input" in norm else ("gate_proj", "up_proj", "mlp.gate.")
        gain = draw(len(arrays[norm]))
        for name in arrays:
            mine = name.startswith(f"{at}.") and any(part in name for part in readers) and ".layers." in norm
            if mine or (norm == "model.norm.weight" and "lm_head" in name):
                found[name] = found[name] * (arrays[norm] / gain)
        found[norm] = gain
    return found


def permute_hidden(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    width = len(arrays["model.norm.weight"])
    return along(arrays, np.eye(width)[rng.permutation(width)])


def flip_signs(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    return along(arrays, np.diag(rng.choice([-1.0, 1.0], len(arrays["model.norm.weight"]))))


def rotate_hidden(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    width = len(arrays["model.norm.weight"])
    return along(regained(arrays, np.ones), np.linalg.qr(rng.normal(size=(width, width)))[0])


def refactor_gains(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    return regained(arrays, lambda width: np.exp(rng.uniform(-0.7, 0.7, width)))


def permute_neurons(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    found = dict(arrays)
    for up in [name for name in arrays if name.endswith("up_proj.weight")]:
        order = rng.permutation(len(arrays[up]))
        for part in ("gate_proj", "up_proj"):
            found[up.replace("up_proj", part)] = arrays[up.replace("up_proj", part)][order]
        found[up.replace("up_proj", "down_proj")] = arrays[up.replace("up_proj", "down_proj")][:, order]
    return found


def scale_neurons(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    found = dict(arrays)
    for up in [name for name in arrays if name.endswith("up_proj.weight")]:
        factor = np.exp(rng.uniform(-0.7, 0.7, len(arrays[up]))) * rng.choice([-1.0, 1.0], len(arrays[up]))
        found[up] = arrays[up] * factor[:, None]
        found[up.replace("up_proj", "down_proj")] = arrays[up.replace("up_proj", "down_proj")] / factor
    return found


def permute_heads(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    found = dict(arrays)
    for q in [name for name in arrays if "q_proj" in name]:
        groups = rng.permutation(GROUPS)
        inside = np.concatenate([g * (HEADS // GROUPS) + rng.permutation(HEADS // GROUPS) for g in groups])
        for part, order in (("q_proj", inside), ("k_proj", groups), ("v_proj", groups)):
            heads = arrays[q.replace("q_proj", part)].reshape(len(order), SIZE, -1)
            found[q.replace("q_proj", part)] = heads[order].reshape(len(order) * SIZE, -1)
        o = arrays[q.replace("q_proj", "o_proj")]
        found[q.replace("q_proj", "o_proj")] = o.reshape(len(o), HEADS, SIZE)[:, inside].reshape(o.shape)
    return found


def mix_values(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    found = dict(arrays)
    for v in [name for name in arrays if "v_proj" in name]:
        scales = np.exp(rng.uniform(-0.5, 0.5, (GROUPS, 1, SIZE)))
        mixers = np.linalg.qr(rng.normal(size=(GROUPS, SIZE, SIZE)))[0] * scales
        found[v] = (mixers @ arrays[v].reshape(GROUPS, SIZE, -1)).reshape(arrays[v].shape)
        o = arrays[v.replace("v_proj", "o_proj")]
        back = np.repeat(np.linalg.inv(mixers), HEADS // GROUPS, axis=0)
        parts = np.einsum("ohj,hji->ohi", o.reshape(len(o), HEADS, SIZE), back)
        found[v.replace("v_proj", "o_proj")] = parts.reshape(o.shape)
    return found


def permute_experts(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    found = dict(arrays)
    for router in [name for name in arrays if name.endswith("mlp.gate.weight")]:
        order = rng.permutation(len(arrays[router]))
        found[router] = arrays[router][order] + rng.normal(size=arrays[router].shape[1])  # a softmax does not see it
        at = router.removesuffix("gate.weight")
        for new, old in enumerate(order):
            for part in ("gate", "up", "down"):
                found[f"{at}experts.{new}.{part}_proj.weight"] = arrays[f"{at}experts.{old}.{part}_proj.weight"]
    return found


MOVES: dict[str, Move] = {
    "permute_heads": permute_heads,
    "mix_values": mix_values,
    "permute_neurons": permute_neurons,
    "scale_neurons": scale_neurons,
    "rotate_hidden": rotate_hidden,
    "refactor_gains": refactor_gains,
    "flip_signs": flip_signs,
    "permute_hidden": permute_hidden,
}


def composed(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    for move in MOVES.values():
        arrays = move(arrays, rng)
    return arrays


def noisy(arrays: Arrays, share: float, seed: int = 9) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        name: array + share * array.std() * rng.normal(size=array.shape) if array.ndim == 2 else array
        for name, array in arrays.items()
    }


def restacked(arrays: Arrays, order: list[int]) -> Arrays:
    """Layers of a model in another order, some of them twice or not at all."""
    found = {name: array for name, array in arrays.items() if ".layers." not in name}
    for new, old in enumerate(order):
        for name, array in arrays.items():
            if name.startswith(f"model.layers.{old}."):
                found[name.replace(f".layers.{old}.", f".layers.{new}.")] = array
    return found
