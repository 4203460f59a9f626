"""Which pairs are scored: strangers and relatives of a zoo, each plainly and with one of the two disguised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import torch
from benchmarks.calibration.pairs import truths
from zoo.checkpoints import Model
from zoo.disguise import MOVES, NotLegal, add_noise, composed
from zoo.gauge import READERS
from zoo.lineage import PARTS, pairs_for_calibration

NONE, COMPOSED, NOISY, FREE = "none", "composed", "composed + noise", "composed + noise + free gains"
DISGUISES = (NONE, *MOVES, COMPOSED, NOISY, FREE)
NOISE = 0.01
SPREAD = 4.0
GROUPS = ("strangers", "relatives")
LEFT_OUT = frozenset({PARTS, "obfuscated"})  # parts of a model, and what wears a disguise already


@dataclass(frozen=True)
class Task:
    """Model b of a folder, in a disguise, beside several models: each with how b stands to it."""

    folder: Path
    b: str
    disguise: str
    others: tuple[tuple[str, str], ...]  # (a, relation)

    @property
    def keys(self) -> list[tuple[str, str, str, str]]:
        return [(self.folder.name, a, self.b, self.disguise) for a, _ in self.others]


def tasks(folders: Iterable[Path], groups: Collection[str], disguises: Sequence[str], limit: int | None) -> list[Task]:
    """`limit`: at most so many pairs of strangers a folder and disguise, drawn by name."""
    found = []
    for folder in folders:
        beside: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for a, b, relation in _pairs(folder, groups, limit):
            beside[b].append((a, relation))
        found += [Task(folder, b, how, tuple(others)) for how in disguises for b, others in beside.items()]
    return found


def _pairs(folder: Path, groups: Collection[str], limit: int | None) -> list[tuple[str, str, str]]:
    """(a, b, relation): strangers of one class; descendants as b, with what was done to them; copies of the others."""
    known = truths(folder)
    rows = pairs_for_calibration(known)
    apart = [row for row in rows if row["outcome"] == "unrelated" and "+" not in row["class"]]
    apart = sorted(apart, key=lambda row: crc32(f"{row['a']}|{row['b']}".encode()))[:limit]
    found = [(row["a"], row["b"], "strangers") for row in apart] if "strangers" in groups else []
    if "relatives" not in groups:
        return found
    found += [(name, name, "copy") for name, truth in known.items() if truth["kind"] == "unrelated"]
    for row in rows:
        if row["outcome"] == "descendant" and not LEFT_OUT & set(row["kinds"].split()):
            ends = (row["a"], row["b"]) if row["direction"] == "a->b" else (row["b"], row["a"])
            found.append((*ends, row["kinds"]))
    return found


def disguised(model: Model, disguise: str, seed: int) -> Model | None:
    """None where the family does not allow the move."""
    try:
        match disguise:
            case "composed":
                return composed(model, seed)
            case "composed + noise":
                return add_noise(composed(model, seed), NOISE, seed)
            case "composed + noise + free gains":
                return free_gains(add_noise(composed(model, seed), NOISE, seed), seed)
        return MOVES[disguise](model, seed)
    except NotLegal:
        return None


def free_gains(model: Model, seed: int) -> Model:
    """Gains of either sign, larger and smaller by up to SPREAD, and readers that make up for them; the outputs stay.

    As legal as the refactoring that `composed` holds, which keeps gains positive and within a factor of two.
    """
    rng = torch.Generator().manual_seed(seed)
    changed = {}
    for name, gain in model.weights.items():
        at, _, norm = name.rpartition(".")
        if norm not in READERS or not at:
            continue
        factor = _factors(gain.shape, rng)
        changed[name] = ((gain + model.gain_offset) * factor - model.gain_offset).float()
        if (bias := model.weights.get(f"{name}_bias")) is not None:
            changed[f"{name}_bias"] = (bias * factor).float()
        for reader, tensor in model.weights.items():
            if reader.startswith(f"{at}.") and reader.rpartition(".")[2] in READERS[norm]:
                changed[reader] = (tensor / factor).float()
    return model.with_weights(changed)


def _factors(shape: torch.Size, rng: torch.Generator) -> torch.Tensor:
    size = torch.rand(shape, generator=rng, dtype=torch.float64)
    return (2 * torch.randint(2, shape, generator=rng) - 1) * SPREAD ** (2 * size - 1)


def seed_of(task: Task) -> int:
    return crc32(f"{task.folder.name}|{task.b}|{task.disguise}".encode())
