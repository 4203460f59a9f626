"""Fits and measures what `modelkin.relation` says, on folders of models whose truth is known.

    python -m benchmarks.relation fit MODELS [MORE …]        writes src/modelkin/relation/fitted.json
    python -m benchmarks.relation measure MODELS [MORE …]    kind and direction of children and parents, as a table
    python -m benchmarks.relation turned MODELS [MORE …]     hidden axes as they are and after random rotations

MODELS is a folder of model folders, each with its truth.json, as `zoo` writes them. Parents and children have to come
from one training run, which is one folder. Disguised models are left out: they need to be aligned first. What is fitted
is fitted on the half of the models that thresholds are set on; the other is left for scoring it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from zoo.checkpoints import load, save
from zoo.lineage import halves

from modelkin.architectures import Anatomy, identify
from modelkin.inspection import open_model
from modelkin.relation.direction import ORDINARY, SPECIAL, SURE
from modelkin.relation.learned import DEGREE, DIRECTION, Fitted, degree_features, direction_features
from modelkin.relation.reading import LayerMap, default_map, facing_slots
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.tensors import tensor_facts
from modelkin.relation.tokens import shared_tokens
from modelkin.relation.turned import axes_pvalue
from modelkin.sources import ReadOptions
from zoo import disguise

FITTED = Path(__file__).parent.parent / "src" / "modelkin" / "relation" / "fitted.json"
BY_DEGREE = {"fine-tune": 0.0, "continued-pretraining": 1.0}
ORDERED = (
    "fine-tune", "continued-pretraining", "merged-lora", "vocabulary-surgery", "depth-upscale", "depth-prune",
)  # fmt: skip
RIDGES = (0.3, 1.0, 3.0)  # none weaker: pairs with one answer are separable, and would be sure of anything
SIBLINGS = 60
ROTATIONS = 6
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """A pair with its truth. `kind` is empty for siblings, which have no order."""

    a: Path
    b: Path
    kind: str
    layers: LayerMap

    @property
    def base(self) -> str:
        return self.a.name.rpartition(".")[2]


def opened(folder: Path) -> Anatomy:
    return identify(open_model(str(folder), ReadOptions(), lambda *_: None))


def truths(folder: Path, half: str | None = None) -> dict[str, dict[str, Any]]:
    found = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*/truth.json"))}
    half_of = halves(found)
    return {name: truth for name, truth in found.items() if half in (None, half_of[name])}


def descents(folders: Sequence[Path], kinds: Sequence[str] | None = None, half: str | None = None) -> Iterator[Known]:
    for folder in folders:
        found = truths(folder, half)
        for name, truth in found.items():
            for parent in truth.get("parents", ()):
                kind = (truth.get("relations") or {}).get(parent, truth["kind"])
                if parent in found and kind != "obfuscated" and (kinds is None or kind in kinds):
                    yield Known(folder / parent, folder / name, kind, _layers(truth))


def siblings(folders: Sequence[Path], half: str | None = None) -> Iterator[Known]:
    """An even sample of them."""
    for folder in folders:
        plain = {
            name: truth["parents"][0]
            for name, truth in truths(folder, half).items()
            if truth["kind"] in BY_DEGREE and len(truth.get("parents", ())) == 1
        }
        pairs = [(one, other) for one, other in combinations(plain, 2) if plain[one] == plain[other]]
        for one, other in pairs[:: max(1, len(pairs) // SIBLINGS)]:
            yield Known(folder / one, folder / other, "", ())


def _layers(truth: dict[str, Any]) -> LayerMap:
    """The true map, so that what is fitted does not depend on how well maps are found."""
    details = truth.get("made_by", {}).get("details", {})
    return tuple((str(b), str(a)) for b, a in enumerate(details.get("layer_map", ())))


def features(pair: Known) -> tuple[Sequence[float] | None, Sequence[float] | None]:
    a, b = opened(pair.a), opened(pair.b)
    slots = facing_slots(a, b, pair.layers or default_map(a.layers, b.layers), shared_tokens(a, b))
    facts = tensor_facts(a, b, slots, np.random.default_rng(0), lambda *_: None)
    return degree_features(facts), direction_features(facts)


def logistic(x: Doubles, y: Doubles, ridge: float, constant: bool) -> tuple[Doubles, float]:
    """Weights and intercept by Newton's method, with a ridge on the weights. y may lie between 0 and 1."""
    design = np.hstack([x, np.ones((len(x), 1))]) if constant else x
    penalty = ridge * np.diag([*np.ones(x.shape[1]), *([1e-6] if constant else [])])
    beta = np.zeros(design.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-design @ beta))
        hessian = design.T @ (design * (p * (1 - p))[:, None]) + penalty
        step = np.linalg.solve(hessian, design.T @ (y - p) - penalty @ beta)
        beta = beta + step
        if float(np.abs(step).max()) < 1e-10:
            break
    return (beta[:-1], float(beta[-1])) if constant else (beta, 0.0)


def left_out_loss(x: Doubles, y: Doubles, groups: Sequence[str], ridge: float, constant: bool) -> float:
    """Mean log-loss of pairs whose group had no part in the fit: all children of a base, or each pair if one base."""
    names = np.array(groups if len(set(groups)) > 2 else [str(i) for i in range(len(y))])
    losses = []
    for name in dict.fromkeys(names):
        out = names == name
        beta, intercept = logistic(x[~out], y[~out], ridge, constant)
        p = np.clip(1 / (1 + np.exp(-(x[out] @ beta + intercept))), 1e-9, 1 - 1e-9)
        losses += list(-(y[out] * np.log(p) + (1 - y[out]) * np.log(1 - p)))
    return float(np.mean(losses))


def fit(names: Sequence[str], rows: Sequence[Sequence[float]], y: Sequence[float], groups: Sequence[str]) -> Fitted:
    """Degree is centred and has a constant; direction has neither, so that swapping the pair turns the answer."""
    constant = names == DEGREE
    x, target = np.array(rows, dtype=np.float64), np.array(y)
    centre = x.mean(axis=0) if constant else np.zeros(x.shape[1])
    scale = np.maximum(np.sqrt(np.mean((x - centre) ** 2, axis=0)), 1e-6)
    z = (x - centre) / scale
    losses = {ridge: left_out_loss(z, target, groups, ridge, constant) for ridge in RIDGES}
    ridge = min(losses, key=lambda value: losses[value])
    beta, intercept = logistic(z, target, ridge, constant)
    return Fitted(
        features=tuple(names),
        weights=tuple(map(float, beta)),
        centre=tuple(map(float, centre)),
        scale=tuple(map(float, scale)),
        intercept=intercept,
        provenance={
            "pairs": len(y),
            "bases": sorted(set(groups)),
            "ridge": ridge,
            "log-loss of pairs left out": round(losses[ridge], 4),
            "log-loss of a coin": round(math.log(2), 4),
        },
    )


def fit_all(folders: Sequence[Path]) -> dict[str, Fitted]:
    """Direction is fitted on descents alone: it is the order of two models, one of which descends from the other.

    How sure it would be of siblings, which have no order, is measured and kept with it.
    """
    degree: list[tuple[Sequence[float], float, str]] = []
    order: list[tuple[Sequence[float], float, str]] = []
    apart: list[Sequence[float]] = []
    for pair in (*descents(folders, ORDERED, "tune"), *siblings(folders, "tune")):
        moved, turned = features(pair)
        if moved is not None and pair.kind in BY_DEGREE:
            degree.append((moved, BY_DEGREE[pair.kind], pair.base))
        if turned is not None and pair.kind:
            order.append((turned, 1.0, pair.base))
        elif turned is not None:
            apart.append(turned)
        print(pair.a.name, pair.b.name, pair.kind or "siblings", _shown(moved), _shown(turned), file=sys.stderr)
    direction = fit(DIRECTION, *_columns(order))
    sure = sum(abs(direction.probability(row) - 0.5) >= SURE - 0.5 for row in apart)
    told = direction.provenance | {"siblings": len(apart), "siblings it would be sure of": sure}
    return {
        "degree": fit(DEGREE, *_columns(degree)),
        "direction": msgspec.structs.replace(direction, provenance=told),
    }


def _columns(rows: list[tuple[Sequence[float], float, str]]) -> tuple[list[Sequence[float]], list[float], list[str]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _shown(values: Sequence[float] | None) -> str:
    return "-" if values is None else " ".join(f"{value:+.3f}" for value in values)


def measure(folders: Sequence[Path]) -> None:
    """One line a pair: what it is, what is said of it; then how often that is right."""
    right = spoken = true_order = total = 0
    print("| child | kind | found | direction |\n| --- | --- | --- | --- |")
    for pair in descents(folders):
        a, b = opened(pair.a), opened(pair.b)
        found = relate(a, b, Inquiry(layers=pair.layers, tokens=shared_tokens(a, b)))
        kinds = " ".join(kind.kind for kind in found.kinds)
        print(f"| {pair.b.name} | {pair.kind} | {kinds} | {found.direction} |", flush=True)
        total += 1
        right += found.kinds[0].kind == pair.kind
        spoken += found.direction in ("a->b", "b->a")
        true_order += found.direction == "a->b"
    print(f"\nfirst kind right: {right} of {total}; direction spoken: {spoken}, right: {true_order}")


def turned(folders: Sequence[Path]) -> None:
    """How often a turned model's axes look like random directions, and how often those of one that nobody turned do."""
    plain, rotated = [], []
    for path in (path for folder in folders for path in sorted(folder.glob("*/truth.json"))):
        truth, found = json.loads(path.read_text("utf-8")), axes_pvalue(opened(path.parent))
        if found is None or truth["kind"] == "obfuscated":
            continue
        plain.append(found[0])
        for seed in range(ROTATIONS):
            turn = disguise.refactor_gains(disguise.rotate_hidden(load(path.parent), seed), seed)
            with TemporaryDirectory() as place:
                save(turn, Path(place) / "turned", torch.bfloat16)
                after = axes_pvalue(opened(Path(place) / "turned"))
            rotated += [after[0]] if after is not None else []
        print(f"{path.parent.name}: {plain[-1]:.1e}; turned: {min(rotated[-ROTATIONS:]):.2g} at least", flush=True)
    low, high = sum(p <= SPECIAL for p in plain), [sum(p < level for p in rotated) for level in (ORDINARY, SPECIAL)]
    print(f"\nas they are: {low} of {len(plain)} special (p ≤ {SPECIAL})")
    print(f"turned: {high[0]} of {len(rotated)} with p < {ORDINARY}, {high[1]} special")


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in ("fit", "measure", "turned"):
        print(__doc__, file=sys.stderr)
        return 2
    folders = [Path(argument) for argument in arguments[1:]]
    if arguments[0] != "fit":
        {"measure": measure, "turned": turned}[arguments[0]](folders)
        return 0
    FITTED.write_bytes(msgspec.json.format(msgspec.json.encode(fit_all(folders)), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
