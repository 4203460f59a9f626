"""Small models as dictionaries of tensors, and what looking for equal tensors says of two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.compare import CompareOptions, compare
from modelkin.questions.whole_tensors import equal_tensors
from modelkin.records import Answer, Comparison, Evidence
from modelkin.sources.memory import MemorySource
from modelkin.sources.protocol import no_progress

HIDDEN, NEURONS, LAYERS, VOCABULARY, PLACES = 64, 96, 2, 80, 64
LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": NEURONS,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": HIDDEN,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_inner": NEURONS,
    "vocab_size": VOCABULARY,
    "n_positions": PLACES,
}
Tensors = dict[str, NDArray[Any]]


def llama(seed: int) -> Tensors:
    rng = np.random.default_rng([seed, 5])

    def matrix(*shape: int) -> NDArray[Any]:
        return rng.normal(0, 0.05, shape).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "lm_head.weight": matrix(VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        tensors |= {f"{at}self_attn.{p}_proj.weight": matrix(HIDDEN, HIDDEN) for p in "qkvo"}
        tensors |= {f"{at}mlp.{p}_proj.weight": matrix(NEURONS, HIDDEN) for p in ("gate", "up")}
        tensors[f"{at}mlp.down_proj.weight"] = matrix(HIDDEN, NEURONS)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = 1 + matrix(HIDDEN)
    return tensors | {"model.norm.weight": 1 + matrix(HIDDEN)}


def gpt2(seed: int) -> Tensors:
    rng = np.random.default_rng([seed, 6])

    def matrix(*shape: int) -> NDArray[Any]:
        return rng.normal(0, 0.05, shape).astype(np.float32)

    tensors = {"wte.weight": matrix(VOCABULARY, HIDDEN), "wpe.weight": sinusoids(PLACES, HIDDEN)}
    for i in range(LAYERS):
        at = f"h.{i}."
        sizes = {"attn.c_attn": (HIDDEN, 3 * HIDDEN), "attn.c_proj": (HIDDEN, HIDDEN)}
        sizes |= {"mlp.c_fc": (HIDDEN, NEURONS), "mlp.c_proj": (NEURONS, HIDDEN)}
        for name, (inside, out) in sizes.items():
            tensors |= {f"{at}{name}.weight": matrix(inside, out), f"{at}{name}.bias": np.zeros(out, np.float32)}
        for norm in ("ln_1", "ln_2"):
            tensors |= {f"{at}{norm}.weight": np.ones(HIDDEN, np.float32), f"{at}{norm}.bias": np.zeros(HIDDEN, "f4")}
        tensors[f"{at}attn.bias"] = np.tril(np.ones((1, 1, PLACES, PLACES), np.float32))
    return tensors | {"ln_f.weight": np.ones(HIDDEN, np.float32), "ln_f.bias": np.zeros(HIDDEN, np.float32)}


def sinusoids(places: int, width: int) -> NDArray[np.float32]:
    angles = np.arange(places)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def anatomy(tensors: Tensors, config: Mapping[str, Any] = LLAMA) -> Anatomy:
    files = {"model.safetensors": save(tensors), "config.json": json.dumps(config).encode()}
    return identify(open_checkpoint(MemorySource(files)))


def whole(a: Anatomy, b: Anatomy) -> Evidence:
    return evidence(equal_tensors(a, b, no_progress))


def evidence(answer: Answer) -> Evidence:
    assert isinstance(answer, Evidence)
    assert answer.pvalue is None
    return answer


def remarks(answer: Evidence) -> str:
    return "; ".join(assumption.text for assumption in answer.assumptions)


def compared(folder: Path, a: Tensors, b: Tensors, budget: Any, config: Mapping[str, Any] = LLAMA) -> Comparison:
    paths = []
    for name, tensors in (("a", a), ("b", b)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        (folder / name / "model.safetensors").write_bytes(save(tensors))
        paths.append(str(folder / name))
    return compare(paths[0], paths[1], CompareOptions(budget))


def kinds(comparison: Comparison) -> list[str]:
    return [share.kind for share in comparison.verdict.kinds]
