"""Children that are made while comparing, of kinds of which the zoo has too few that no threshold has seen.

All follow from their base without training, so nobody needs to keep them; `made-cut.twin-41` says how to make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from benchmarks.calibration.results import map_text
from zoo.checkpoints import Model, load, save
from zoo.disguise import reshard
from zoo.lineage import Row

from zoo import derive

FEW, MANY = 10, 24  # children of a kind; many where the zoo has none that is left for testing
RANK, SIZE = 4, 0.02  # of a made adapter: its change over the matrix that it is added to, by standard deviation
WORDS = 40
FAMILIES = ("llama", "mistral")  # every way of making knows them; not all have experts of their own kind


@dataclass(frozen=True)
class Making:
    """How a child is made and written; `layers` gives the layer of the base that each of its layers is."""

    kind: str
    count: int
    write: Callable[[Model, Path, int], None]
    layers: Callable[[int], list[int]] = lambda layers: list(range(layers))


def _saved(make: Callable[[Model, int], Model]) -> Callable[[Model, Path, int], None]:
    return lambda model, folder, seed: save(make(model, seed), folder)


def _twice(layers: int) -> list[int]:
    return derive.overlap_map(layers, 2 * (layers // 3))


def _fewer(layers: int) -> list[int]:
    return [layer for layer in range(layers) if layer not in (layers // 2 - 1, layers // 2)]


def _narrower(model: Model, _: int) -> Model:
    return derive.width_prune(model, model.hidden * 3 // 4, model.neurons * 3 // 4)


def _with_experts(model: Model, seed: int) -> Model:
    return derive.upcycle_copied(model, experts=4, top_k=2, seed=seed)


def _with_words(model: Model, seed: int) -> Model:
    return derive.extend_vocabulary(model, [f"madeword{number:02}" for number in range(WORDS)], seed=seed)


def _adapted(model: Model, seed: int) -> Model:
    """Factors drawn at random on queries and values: of the rank and about the size of a trained adapter."""
    rng = torch.Generator().manual_seed(seed)
    factors = {}
    for role, tensor in sorted(model.weights.items()):
        if role.rpartition(".")[2] in ("q", "v"):
            out, into = tensor.shape
            b, a = torch.randn((out, RANK), generator=rng), torch.randn((RANK, into), generator=rng)
            factors[role] = (b * (SIZE * float(tensor.std()) / RANK**0.5), a)
    return derive.merged_lora(model, factors, scale=1.0)


WAYS: Mapping[str, Making] = {
    "made-copy": Making("identical", MANY, reshard),
    "made-half": Making("re-encoded", FEW, lambda model, folder, _: save(model, folder, torch.float16)),
    "made-stacked": Making(
        "depth-upscale", FEW, _saved(lambda model, _: derive.depth_upscale(model, _twice(model.layers))), _twice
    ),
    "made-cut": Making(
        "depth-prune", FEW, _saved(lambda model, _: derive.depth_prune(model, _fewer(model.layers))), _fewer
    ),
    "made-squeezed": Making("width-prune", FEW, _saved(_narrower)),
    "made-experts": Making("moe-upcycle", FEW, _saved(_with_experts)),
    "made-words": Making("vocabulary-surgery", FEW, _saved(_with_words)),
    "made-lora": Making("merged-lora", FEW, _saved(_adapted)),
}


def made_pairs(known: Mapping[str, Mapping[str, Any]], half_of: Mapping[str, str]) -> list[Row]:
    """(base, child) for every way of making, of strangers of the test half that are llamas, drawn by their names."""
    bases = [
        name
        for name, truth in known.items()
        if truth["kind"] == "unrelated" and truth["family"] in FAMILIES and half_of[name] == "test"
    ]
    found = []
    for step, making in WAYS.items():
        drawn = sorted(bases, key=lambda name: sha256(f"{step}|{name}".encode()).digest())
        found += [_row(known[base], base, step, making) for base in drawn[: making.count]]
    return found


def _row(truth: Mapping[str, Any], base: str, step: str, making: Making) -> Row:
    layers = enumerate(making.layers(truth["shape"]["layers"]))
    return {
        "a": base,
        "b": f"{step}.{base}",
        "outcome": "descendant",
        "kinds": making.kind,
        "direction": "a->b",
        "class": "dense+moe" if making.kind == "moe-upcycle" else "dense",
        "half": "test",
        "true_map": map_text((str(layer), str(old)) for layer, old in layers),
    }


def make(name: str, models: Path, folder: Path) -> None:
    """The child of this name, from its base among the models."""
    step, _, base = name.partition(".")
    WAYS[step].write(load(models / base), folder, crc32(name.encode()))
