"""Small models of every family in the zoo, as values, and what transformers computes from such a value.

Random, but scaled like trained ones: logits of order one, gains and biases that differ from place to place.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from zoo.checkpoints import Model, load, save

torch.set_num_threads(1)

VOCABULARY = 96
IDS = {"bos_token_id": 1, "eos_token_id": 2}
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4} | IDS
PLAIN = SHAPE | {"intermediate_size": 112, "max_position_embeddings": 64}
GROUPED = PLAIN | {"num_key_value_heads": 2, "pad_token_id": 0}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64} | IDS
GLM = {"moe_intermediate_size": 48, "n_routed_experts": 4, "num_experts_per_tok": 2, "attention_bias": True}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "mistral": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 24},
    "gemma": GROUPED | {"head_dim": 24},
    "phi3": GROUPED,
    "mixtral": GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": GROUPED | GLM | {"use_qk_norm": True, "first_k_dense_replace": 1},
    "olmo2": GROUPED,
    "gpt2": GPT2,
    "gpt_neox": PLAIN,
}


@cache
def tiny(family: str, seed: int = 0, **changes: Any) -> Model:
    """A model nobody may modify: it is shared between tests."""
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **CONFIGS[family] | changes))
    with torch.no_grad():
        for tensor in network.state_dict(keep_vars=True).values():
            noise = torch.randn_like(tensor)
            tensor.copy_(noise / tensor.shape[-1] ** 0.5 if tensor.dim() > 1 else tensor + 0.2 * noise)
    with TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        return load(Path(folder))


def logits(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """What transformers computes from the saved folder, in float32; it must find every tensor and no other."""
    with TemporaryDirectory() as folder:
        save(model, Path(folder), torch.float32)
        return folder_logits(Path(folder), ids)


def folder_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    network, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert {kind: names for kind, names in found.items() if names} == {}
    with torch.no_grad():
        return network.eval()(ids).logits
