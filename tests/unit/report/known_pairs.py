"""Comparisons of bundled models for the views, each made once a run; and the same under names of a Hub."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.records import Beside, BudgetName, Comparison, Direction, Kind, KindShare, Party
from modelkin.records.relation import Merge

COMMIT = "3f2c1a0d9e8b7c6a5f4e3d2c1b0a998877665544"
OUTCOMES = {
    "related": ("dune", "heath"),
    "related, and in which order": ("dune", "fjord"),
    "in part": ("ember", "cobalt"),
    "unrelated": ("dune", "grove"),
}


@cache
def compared(a: str, b: str) -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]))


@cache
def at_budget(a: str, b: str, budget: BudgetName) -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]), CompareOptions(budget=budget))


def of_outcome(name: str) -> Comparison:
    return compared(*OUTCOMES[name])


def on_a_hub(comparison: Comparison, a: str = "example/base-7b", b: str = "acme/orca-7b") -> Comparison:
    return msgspec.structs.replace(comparison, a=_named(comparison.a, a), b=_named(comparison.b, b))


def _named(party: Party, name: str) -> Party:
    address = f"https://huggingface.co/{name}/tree/{COMMIT}"
    return msgspec.structs.replace(party, id=name, revision=COMMIT, address=address)


def told(comparison: Comparison, direction: Direction, *kinds: Kind) -> Comparison:
    """The same with other kinds and another order."""
    shares = tuple(KindShare(kind, None) for kind in kinds)
    verdict = msgspec.structs.replace(comparison.verdict, outcome="related", direction=direction, kinds=shares)
    return msgspec.structs.replace(comparison, verdict=verdict)


def merged(comparison: Comparison, *sources: str, missing: bool = False, base: str | None = None) -> Comparison:
    """The same with b a mixture of these, of which zoo/other was given as a candidate."""
    assert comparison.relation is not None
    merge = Merge(
        merged=comparison.b.id,
        sources=sources,
        method="linear",
        weights=(0.5,) * len(sources),
        layers=(),
        gain=0.5,
        unexplained=0.0,
        missing_parent=missing,
        marks=(),
        base=base,
        last=None if missing else comparison.b.id,
    )
    other = Beside(
        id="zoo/other", revision=COMMIT, side="b", budget="standard", outcome="related", sentence="They are related."
    )
    relation = msgspec.structs.replace(comparison.relation, merge=merge)
    return msgspec.structs.replace(comparison, relation=relation, candidates=(other,))


def with_parts_of(folder: Path, model: str, other: str, is_taken: Callable[[str, NDArray[Any]], bool]) -> Comparison:
    """A bundled model beside another that took some of its tensors, those that this says."""
    models = bundled()
    copy = Path(copytree(models[other], folder / "copy"))
    mine, theirs = (load_file(models[name] / "model.safetensors") for name in (model, other))
    taken = {name: mine[name] if is_taken(name, tensor) else tensor for name, tensor in theirs.items()}
    assert not all(np.array_equal(taken[name], theirs[name]) for name in theirs)
    save_file(taken, copy / "model.safetensors", metadata={"format": "pt"})
    return compare(str(models[model]), str(copy))


def changed_copy(folder: Path, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Comparison:
    """dune beside itself with every matrix changed."""
    dune = bundled()["dune"]
    copy = Path(copytree(dune, folder / "copy"))
    tensors = load_file(dune / "model.safetensors")
    save_file(
        {name: change(tensor) if tensor.ndim > 1 else tensor for name, tensor in tensors.items()},
        copy / "model.safetensors",
        metadata={"format": "pt"},
    )
    return compare(str(dune), str(copy))


def int8(matrix: NDArray[Any]) -> NDArray[Any]:
    """Rounded to 255 steps a row, and stored as before."""
    values = matrix.astype(np.float32)
    step = np.abs(values).max(axis=1, keepdims=True) / 127
    return (np.round(values / step) * step).astype(matrix.dtype)


def half_empty(matrix: NDArray[Any]) -> NDArray[Any]:
    """The smaller half of the values set to zero."""
    size = np.abs(matrix.astype(np.float32))
    return np.where(size < np.median(size), np.zeros_like(matrix), matrix)
