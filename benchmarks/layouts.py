"""Two public models as they lie on the Hub, shard by shard, with made-up weights: what a range reader has to cope with.

Names, shapes, dtypes and the layers of each shard are those of the public checkpoints; only headers are held in memory.
Gains of norms are drawn around 1, each tensor from its own seed; all else is one block of small values over and over.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from zlib import crc32

import numpy as np

from modelkin.demo.hub import Content, Repository

Tensor = tuple[str, str, tuple[int, ...]]  # name, dtype, shape
WIDTH = {"BF16": 2, "F32": 4}
NORMS = ("norm.weight",)
FILLER = 2 * 524_287  # bytes; a prime number of elements, so that no two tensors begin at the same place of it
SHARD_LIMIT = 5 * 10**9  # what save_pretrained packs into one shard
HIDDEN = 4096


def solar_open_100b() -> Repository:
    """upstage/Solar-Open-100B: 48 layers in 42 shards, filled in order, so that a layer may straddle two of them."""
    tensors: list[Tensor] = [("model.embed_tokens.weight", "BF16", (196_608, HIDDEN))]
    for i in range(48):
        prefix = f"model.layers.{i}."
        tensors += [*attention(prefix, heads=64, bias=False), *experts(prefix, width=1280), *block_norms(prefix)]
    tensors += [("model.norm.weight", "BF16", (HIDDEN,)), ("lm_head.weight", "BF16", (196_608, HIDDEN))]
    config = {
        **common_config("solar_open", "SolarOpenForCausalLM"),
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "intermediate_size": 10_240,
        "moe_intermediate_size": 1280,
        "first_k_dense_replace": 0,
        "attention_bias": False,
        "partial_rotary_factor": 1.0,
        "vocab_size": 196_608,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    return repository("upstage/Solar-Open-100B", config, packed(tensors, SHARD_LIMIT))


def glm_45_air() -> Repository:
    """zai-org/GLM-4.5-Air: layer i in shard i + 1; layer 0 is dense, layer 46 predicts the token after the next."""
    shards: list[list[Tensor]] = [[] for _ in range(47)]
    shards[0].append(("model.embed_tokens.weight", "BF16", (151_552, HIDDEN)))
    for i, shard in enumerate(shards):
        prefix = f"model.layers.{i}."
        mlp = experts(prefix, width=1408) if i else dense(f"{prefix}mlp.", 10_944)
        shard += [*attention(prefix, heads=96, bias=True), *mlp, *block_norms(prefix)]
    shards[-1] += prediction_head("model.layers.46.", 151_552)
    shards[-1] += [("model.norm.weight", "BF16", (HIDDEN,)), ("lm_head.weight", "BF16", (151_552, HIDDEN))]
    config = {
        **common_config("glm4_moe", "Glm4MoeForCausalLM"),
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "intermediate_size": 10_944,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
        "attention_bias": True,
        "use_qk_norm": False,
        "partial_rotary_factor": 0.5,
        "vocab_size": 151_552,
        "eos_token_id": [151_329, 151_336, 151_338],
        "pad_token_id": 151_329,
    }
    return repository("zai-org/GLM-4.5-Air", config, shards)


def common_config(model_type: str, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "head_dim": 128,
        "num_key_value_heads": 8,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def attention(prefix: str, heads: int, bias: bool) -> Iterator[Tensor]:
    rows = {"q": 128 * heads, "k": 1024, "v": 1024}
    for name, count in rows.items():
        yield f"{prefix}self_attn.{name}_proj.weight", "BF16", (count, HIDDEN)
        if bias:
            yield f"{prefix}self_attn.{name}_proj.bias", "BF16", (count,)
    yield f"{prefix}self_attn.o_proj.weight", "BF16", (HIDDEN, 128 * heads)


def dense(prefix: str, width: int) -> Iterator[Tensor]:
    yield f"{prefix}gate_proj.weight", "BF16", (width, HIDDEN)
    yield f"{prefix}up_proj.weight", "BF16", (width, HIDDEN)
    yield f"{prefix}down_proj.weight", "BF16", (HIDDEN, width)


def experts(prefix: str, width: int) -> Iterator[Tensor]:
    for i in range(128):
        yield from dense(f"{prefix}mlp.experts.{i}.", width)
    yield f"{prefix}mlp.gate.weight", "BF16", (128, HIDDEN)
    yield f"{prefix}mlp.gate.e_score_correction_bias", "F32", (128,)
    yield from dense(f"{prefix}mlp.shared_experts.", width)


def block_norms(prefix: str) -> Iterator[Tensor]:
    yield f"{prefix}input_layernorm.weight", "BF16", (HIDDEN,)
    yield f"{prefix}post_attention_layernorm.weight", "BF16", (HIDDEN,)


def prediction_head(prefix: str, vocabulary: int) -> Iterator[Tensor]:
    yield f"{prefix}embed_tokens.weight", "BF16", (vocabulary, HIDDEN)
    yield f"{prefix}eh_proj.weight", "BF16", (HIDDEN, 2 * HIDDEN)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{prefix}{name}.weight", "BF16", (HIDDEN,)
    yield f"{prefix}shared_head.head.weight", "BF16", (vocabulary, HIDDEN)


def packed(tensors: Iterable[Tensor], limit: int) -> list[list[Tensor]]:
    """Tensors in order, a new shard where the next one would not fit."""
    shards: list[list[Tensor]] = [[]]
    room = limit
    for tensor in tensors:
        if stored(tensor) > room:
            shards.append([])
            room = limit
        shards[-1].append(tensor)
        room -= stored(tensor)
    return shards


def stored(tensor: Tensor) -> int:
    """Bytes of one tensor."""
    _, dtype, shape = tensor
    return math.prod(shape) * WIDTH[dtype]


def repository(name: str, config: Mapping[str, Any], shards: list[list[Tensor]]) -> Repository:
    names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    weight_map = {tensor: file for file, shard in zip(names, shards, strict=True) for tensor, _, _ in shard}
    total = sum(stored(tensor) for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    files: dict[str, Content] = {
        "config.json": json.dumps(config, indent=2).encode(),
        "tokenizer.json": small_tokenizer(),
        "model.safetensors.index.json": json.dumps(index, indent=2).encode(),
    }
    seed = crc32(name.encode())
    files |= {file: Shard.of(shard, seed) for file, shard in zip(names, shards, strict=True)}
    return Repository(files=files, info={"safetensors": parameter_counts(shards)})


def parameter_counts(shards: list[list[Tensor]]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for _, dtype, shape in (tensor for shard in shards for tensor in shard):
        counts[dtype] = counts.get(dtype, 0) + math.prod(shape)
    return {"parameters": counts, "total": sum(counts.values())}


def small_tokenizer() -> bytes:
    """Bytes alone, no merges: valid, and nothing to compare."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(rest))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {char: i for i, char in enumerate(alphabet)}, "merges": []}
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": byte_level, "decoder": byte_level, "model": model}
    ).encode()


@dataclass(frozen=True)
class Shard:
    """A safetensors file whose data is made when it is read."""

    header: bytes
    size: int
    norms: tuple[tuple[int, int, str], ...]  # start and stop in the file, name; in order
    seed: int

    @classmethod
    def of(cls, tensors: Iterable[Tensor], seed: int) -> Shard:
        """Laid out as the safetensors library does it: wider dtypes first, then by name; the header padded to 8."""
        entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, dtype, shape in sorted(tensors, key=lambda tensor: (-WIDTH[tensor[1]], tensor[0])):
            start, end = end, end + stored((name, dtype, shape))
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        header = len(text).to_bytes(8, "little") + text
        norms = tuple(
            (len(header) + entry["data_offsets"][0], len(header) + entry["data_offsets"][1], name)
            for name, entry in entries.items()
            if name.endswith(NORMS)
        )
        return cls(header, len(header) + end, norms, seed)

    @cached_property
    def sha256(self) -> str:
        """Made up, and stable."""
        return hashlib.sha256(b"%d %b" % (self.seed, self.header)).hexdigest()

    def read(self, start: int, stop: int) -> bytes:
        content = bytearray(filler(self.seed, start, stop))
        head = self.header[start:stop]
        content[: len(head)] = head
        for begin, end, name in self.norms[bisect_right(self.norms, start, key=lambda norm: norm[1]) :]:
            if begin >= stop:
                break
            low, high = max(begin, start), min(end, stop)
            content[low - start : high - start] = gains(self.seed, name)[low - begin : high - begin]
        return bytes(content)


def filler(seed: int, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of an endless repetition of one block."""
    first = start % FILLER
    block = filler_block(seed)
    if first + stop - start <= FILLER:
        return block[first : first + stop - start]
    return (block * ((first + stop - start) // FILLER + 1))[first : first + stop - start]


@cache
def filler_block(seed: int) -> bytes:
    values = np.random.default_rng(seed).normal(0.0, 0.02, FILLER // 2)
    return bfloat16(values)


@cache
def gains(seed: int, name: str) -> bytes:
    return bfloat16(np.random.default_rng([seed, crc32(name.encode())]).normal(1.0, 0.05, HIDDEN))


def bfloat16(values: np.ndarray[Any, np.dtype[np.float64]]) -> bytes:
    """The upper halves of float32, little-endian."""
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
