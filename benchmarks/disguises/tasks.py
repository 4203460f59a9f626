"""Which models are disguised, how, and what they are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.calibration.pairs import true_map, truths
from benchmarks.disguises.rows import BASE, FREE, MOVES, NOISY, STRANGERS, UNDER
from zoo.lineage import halves, pairs_for_calibration

Known = Mapping[str, Mapping[str, Any]]
EXPERTS = "permute_experts"


@dataclass(frozen=True)
class Amounts:
    """Pairs of every kind below the disguise: in all moves with noise, with free gains too, in one move; strangers."""

    composed: int
    free: int
    alone: int
    strangers: int


@dataclass(frozen=True)
class Task:
    """b in a disguise beside a. `draw` numbers disguises of the same model, each by its own chance."""

    under: str
    disguise: str
    draw: int
    a: str
    b: str
    half: str
    true_map: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.disguise, str(self.draw), self.a, self.b

    @property
    def seed(self) -> int:
        return crc32("|".join(self.key).encode())


def tasks(folder: Path, half: str, amounts: Amounts) -> list[Task]:
    """In turns over what lies below and over disguises: a run that is stopped early leaves an even sample."""
    known = truths(folder)
    mine = [name for name, where in halves(known).items() if where == half]
    below = {under: _models(known, mine, step) for under, step in UNDER.items()}
    groups = [
        list(drawn(known, under, disguise, models, half, count))
        for disguise, count in {
            NOISY: amounts.composed,
            FREE: amounts.free,
            **dict.fromkeys(MOVES, amounts.alone),
        }.items()
        for under, models in below.items()
    ]
    groups.append(_strangers(known, half, amounts.strangers))
    return [task for turn in zip_longest(*groups) for task in turn if task is not None]


def _models(known: Known, mine: Sequence[str], step: str) -> list[tuple[str, str]]:
    """(parent, child) of this step; of the base beside itself where there is none."""
    bases = {name for name in mine if known[name]["kind"] == "unrelated"}
    if not step:
        return [(name, name) for name in sorted(bases)]
    return [(base, child) for base in sorted(bases) if (child := f"{step}.{base}") in known]


def drawn(
    known: Known, under: str, disguise: str, models: Sequence[tuple[str, str]], half: str, count: int
) -> Iterator[Task]:
    """As many as asked for: every model once, and then again by another chance."""
    fit = [pair for pair in models if disguise != EXPERTS or known[pair[1]]["shape"]["experts"]]
    order = sorted(fit, key=lambda pair: sha256(f"{disguise}|{pair[1]}".encode()).digest())
    for number in range(count if order else 0):
        a, b = order[number % len(order)]
        yield Task(under, disguise, number // len(order), a, b, half, _true_map(known, a, b))


def _true_map(known: Known, a: str, b: str) -> str:
    return true_map(known, {"a": a, "b": b, "outcome": "descendant", "direction": "a->b", "kinds": BASE})


def _strangers(known: Known, half: str, count: int) -> list[Task]:
    rows = [row for row in pairs_for_calibration(known) if (row["outcome"], row["half"]) == ("unrelated", half)]
    order = sorted(rows, key=lambda row: sha256(f"{STRANGERS}|{row['a']}|{row['b']}".encode()).digest())
    return [Task(STRANGERS, NOISY, 0, row["a"], row["b"], half, "") for row in islice(order, count)]
