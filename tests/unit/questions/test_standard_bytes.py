"""What `standard` reads: less than 64 MB of the weights of a model, whatever its shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_quick_bytes import Shapes, empty, gpt2_shapes

import modelkin
from modelkin.architectures import Anatomy
from modelkin.questions import QUESTIONS
from modelkin.questions.question import CannotAsk, Pair
from modelkin.records import Cut
from modelkin.sampling.readings import bytes_of

WORDS = "\n".join(f"word{i}" for i in range(2000))
MOST = 64_000_000
TOO_DEEP = ("405B", "405B, four bytes", "deep and wide")  # eight rows of every layer are more than 26 MB
EVERYWHERE = {"hidden-axes-by-gains", "neurons", "layer-map", "hidden-axes-by-embeddings", "pooled-rows", "attention"}


class Size(NamedTuple):
    layers: int
    hidden: int
    neurons: int
    heads: int
    kv: int
    experts: int = 0
    dtype: str = "BF16"


SIZES = {
    "7B": Size(32, 4096, 11008, 32, 32),
    "70B, four bytes": Size(80, 8192, 28672, 64, 8, dtype="F32"),
    "405B": Size(126, 16384, 53248, 128, 8),
    "405B, four bytes": Size(126, 16384, 53248, 128, 8, dtype="F32"),
    "mixture of 128": Size(94, 4096, 1536, 64, 4, 128),
    "mixture of 16, four bytes": Size(94, 4096, 1536, 64, 4, 16, "F32"),
    "wide mixture, four bytes": Size(60, 7168, 2048, 64, 8, 8, "F32"),
    "mixture of 512": Size(8, 8192, 512, 64, 8, 512, "F32"),
    "deep": Size(300, 2048, 4096, 16, 16, dtype="F32"),
    "deep and wide": Size(200, 6144, 16384, 48, 48, dtype="F32"),
}


def shapes(size: Size) -> Shapes:
    d, head = size.hidden, 128
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (32000, d), "lm_head.weight": (32000, d)}
    found["model.norm.weight"] = (d,)
    for i in range(size.layers):
        at = f"model.layers.{i}."
        found |= dict.fromkeys((f"{at}input_layernorm.weight", f"{at}post_attention_layernorm.weight"), (d,))
        heads = {"q": size.heads, "k": size.kv, "v": size.kv}
        found |= {f"{at}self_attn.{part}_proj.weight": (count * head, d) for part, count in heads.items()}
        found[f"{at}self_attn.o_proj.weight"] = (d, size.heads * head)
        if size.experts:
            found[f"{at}mlp.gate.weight"] = (size.experts, d)
        for mlp in [f"mlp.experts.{e}." for e in range(min(size.experts, 4))] or ["mlp."]:
            found |= dict.fromkeys((f"{at}{mlp}gate_proj.weight", f"{at}{mlp}up_proj.weight"), (size.neurons, d))
            found[f"{at}{mlp}down_proj.weight"] = (d, size.neurons)
    return found


def model(folder: Path, size: Size) -> Anatomy:
    config: dict[str, Any] = {"model_type": "qwen3_moe" if size.experts else "llama", "vocab_size": 32000}
    config |= {"hidden_size": size.hidden, "num_hidden_layers": size.layers, "intermediate_size": size.neurons}
    config |= {"num_attention_heads": size.heads, "num_key_value_heads": size.kv, "head_dim": 128}
    config |= {"num_experts": size.experts, "moe_intermediate_size": size.neurons} if size.experts else {}
    empty(folder, config | {"tie_word_embeddings": False}, shapes(size), size.dtype)
    return spoken(folder)


def spoken(folder: Path) -> Anatomy:
    (folder / "vocab.txt").write_text(WORDS)
    return modelkin.identify(modelkin.open(str(folder)))


def planned(pair: Pair) -> dict[str, tuple[list[Cut], list[Cut]]]:
    found = {}
    for question in QUESTIONS:
        try:
            mine, theirs = question.cuts(pair)
            found[question.id] = list(mine), list(theirs)
        except CannotAsk:
            continue
    return found


def read_of(anatomy: Anatomy, plans: dict[str, tuple[list[Cut], list[Cut]]], side: int) -> int:
    return bytes_of(anatomy, dict.fromkeys(cut for cuts in plans.values() for cut in cuts[side]))


@pytest.mark.parametrize("name", SIZES)
def test_no_shape_costs_64_megabytes(tmp_path: Path, name: str) -> None:
    one = model(tmp_path / "a", SIZES[name])
    plans = planned(Pair(one, one, 0, "standard"))
    assert EVERYWHERE - ({"layer-map"} if name in TOO_DEEP else set()) <= plans.keys()
    assert sum(bytes_of(one, cuts[0]) for cuts in plans.values()) < MOST


def test_models_of_one_width_that_are_stored_in_different_ways(tmp_path: Path) -> None:
    pair = Pair(
        model(tmp_path / "a", Size(48, 4096, 14336, 32, 8, 8)),
        model(tmp_path / "b", Size(32, 4096, 14336, 32, 8, dtype="F32")),
        0,
        "standard",
    )
    plans = planned(pair)
    assert max(read_of(pair.a, plans, 0), read_of(pair.b, plans, 1)) < MOST


def test_matrices_stored_transposed(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 8192, "n_layer": 40, "n_head": 64, "vocab_size": 50257}
    empty(tmp_path / "a", config, gpt2_shapes(8192, 40), "F32")
    one = spoken(tmp_path / "a")
    assert read_of(one, planned(Pair(one, one, 0, "standard")), 0) < MOST


def test_many_experts_are_asked_in_part_rather_than_not_at_all(tmp_path: Path) -> None:
    one = model(tmp_path / "a", SIZES["mixture of 512"])
    (mine, _) = planned(Pair(one, one, 0, "standard"))["experts"]
    assert len(mine) == 1
    assert 200 < (mine[0].stop or 0) < 512
    assert len(planned(Pair(one, one, 0, "full"))["experts"][0]) == 8
