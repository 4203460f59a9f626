"""The layouts that the benchmark reads are those of the public checkpoints."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
import pytest

from modelkin.demo.listing import safetensors_header
from modelkin.demo.repository import Blob, Repository

PLACE = Path(__file__).parents[3] / "benchmarks" / "layouts.py"


@pytest.fixture(scope="module")
def layouts() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("benchmark_layouts", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def solar(layouts: ModuleType) -> dict[str, Blob]:
    return files(layouts.solar_open_100b())


@pytest.fixture(scope="module")
def glm(layouts: ModuleType) -> dict[str, Blob]:
    return files(layouts.glm_45_air())


def files(repository: Repository) -> dict[str, Blob]:
    return repository.commits[repository.refs["main"]]


def weight_map(model: dict[str, Blob]) -> dict[str, str]:
    index = model["model.safetensors.index.json"]
    found: dict[str, str] = json.loads(index.read(0, index.size))["weight_map"]
    return found


def shards(model: dict[str, Blob]) -> list[Blob]:
    return [blob for name, blob in sorted(model.items()) if name.endswith(".safetensors")]


def parameters(model: dict[str, Blob], ending: str = "") -> int:
    headers = (safetensors_header(blob) for blob in shards(model))
    entries = (entry for header in headers for name, entry in header.items() if name != "__metadata__")
    return sum(int(np.prod(entry["shape"], dtype=object)) for entry in entries if entry["dtype"].endswith(ending))


def test_shard_counts_and_header_sizes(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    for model, count, typical in ((solar, 42, 57_000), (glm, 47, 49_000)):
        sizes = [int.from_bytes(blob.read(0, 8), "little") for blob in shards(model)]
        assert len(sizes) == count
        assert abs(median(sizes) - typical) < 3000
        assert max(sizes) < 100_000


def test_parameter_counts_are_the_published_ones(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    head = 196_608 * 4096
    assert parameters(solar) == 101_846_493_184 + head
    prediction = sum(
        int(np.prod(entry["shape"], dtype=object))
        for name, entry in safetensors_header(shards(glm)[-1]).items()
        if name.startswith("model.layers.46.")
    )
    routers = 45 * 128  # their correction biases were counted in one published figure and not in the other
    assert parameters(glm) - prediction - routers == 106_231_488_512 + 151_552 * 4096


def test_layers_lie_in_the_shards_where_they_were_found(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    places = weight_map(solar)
    for layer, shard in ((0, 2), (1, 3), (2, 3), (8, 8), (14, 13), (21, 19), (33, 29), (40, 35), (45, 40)):
        for name in ("input_layernorm", "post_attention_layernorm", "mlp.gate"):
            assert places[f"model.layers.{layer}.{name}.weight"] == f"model-{shard:05}-of-00042.safetensors"
    assert places["model.embed_tokens.weight"] == "model-00001-of-00042.safetensors"
    assert places["lm_head.weight"] == "model-00042-of-00042.safetensors"
    places = weight_map(glm)
    for layer in range(47):
        assert places[f"model.layers.{layer}.input_layernorm.weight"] == f"model-{layer + 1:05}-of-00047.safetensors"
    assert "model.layers.0.mlp.gate.weight" not in places
    assert "model.layers.46.eh_proj.weight" in places


def test_index_names_every_tensor_of_every_header(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    for model in (solar, glm):
        found = {name: blob.name for blob in shards(model) for name in safetensors_header(blob)}
        del found["__metadata__"]
        assert found == weight_map(model)


def test_headers_cover_their_files_exactly(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    for blob in (*shards(solar), *shards(glm)):
        header = safetensors_header(blob)
        spans = sorted(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__")
        assert spans[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(spans))
        assert spans[-1][1] == blob.size - 8 - int.from_bytes(blob.read(0, 8), "little")


def test_bytes_do_not_depend_on_how_they_are_read(solar: dict[str, Blob]) -> None:
    name = "model.layers.4.input_layernorm.weight"
    blob = solar[weight_map(solar)[name]]
    entry = safetensors_header(blob)[name]
    base = 8 + int.from_bytes(blob.read(0, 8), "little")
    start, stop = (base + offset for offset in entry["data_offsets"])
    around = blob.read(start - 5000, stop + 5000)
    assert around[5000:-5000] == blob.read(start, stop)
    assert around == b"".join(blob.read(at, min(at + 777, stop + 5000)) for at in range(start - 5000, stop + 5000, 777))


def test_gains_lie_around_one_and_differ_between_models(solar: dict[str, Blob], glm: dict[str, Blob]) -> None:
    first, second = (gain(model, "model.layers.3.input_layernorm.weight") for model in (solar, glm))
    assert abs(first.mean() - 1) < 0.01
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert abs(np.corrcoef(first, gain(solar, "model.layers.4.input_layernorm.weight"))[0, 1]) < 0.1


def gain(model: dict[str, Blob], name: str) -> np.ndarray:
    blob = model[weight_map(model)[name]]
    base = 8 + int.from_bytes(blob.read(0, 8), "little")
    start, stop = safetensors_header(blob)[name]["data_offsets"]
    return (np.frombuffer(blob.read(base + start, base + stop), "<u2").astype("<u4") << 16).view("<f4")
