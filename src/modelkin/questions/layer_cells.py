"""The table of the layer map: neurons of every layer of one model called against those of every layer of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.questions.question import CannotAsk
from modelkin.records import Role, Significance, Slot
from modelkin.sampling.readings import Readings
from modelkin.stats.arrays import unit_rows
from modelkin.stats.assignment import answerable
from modelkin.stats.roll_call import count_significance

PARTS = (Role.UP, Role.GATE, Role.SHARED_UP)
MOST_ROWS = 64

Block = tuple[int | None, int | None, tuple[int, ...]]
Rows = NDArray[Any]  # float32: the rows of all layers of both models lie in memory together
Raw = dict[str, dict[Role, Rows]]


@dataclass(frozen=True, eq=False)
class Layer:
    """Unit rows by role, the order they stand in, and which neurons can be told from the others, in the old order."""

    name: str
    rows: Mapping[Role, Rows]
    order: NDArray[np.intp]
    clear: Mapping[Role, NDArray[np.bool_]]


@dataclass(frozen=True)
class Cell:
    fixed: int
    effect: float
    significance: Significance


def expert_number(slot: Slot) -> int:
    """Dense comes before the first expert."""
    return -1 if slot.expert is None else slot.expert


def _raw(readings: Readings) -> dict[Block, Raw]:
    """Rows by block, layer and role. Questions may have read other rows of the same slots: blocks keep them apart."""
    found: dict[Block, Raw] = {}
    for cut, array in sorted(readings.arrays.items(), key=lambda item: expert_number(item[0].slot)):
        if cut.slot.role in PARTS and cut.slot.layer is not None and array.ndim == 2:
            layer = found.setdefault((cut.start, cut.stop, cut.rows), {}).setdefault(cut.slot.layer_name, {})
            layer.setdefault(cut.slot.role, array[:MOST_ROWS])
    return found


def common_rows(a: Readings, b: Readings) -> tuple[Raw, Raw]:
    """The block of rows that shows most layers of both, in the order of the models."""
    mine, theirs = _raw(a), _raw(b)
    blocks = sorted(mine.keys() & theirs.keys(), key=str)
    if not blocks:
        raise CannotAsk("no MLP rows of both models were read at one offset")
    best = max(blocks, key=lambda block: len(mine[block]) * len(theirs[block]))
    sides = [
        {name: side[best][name] for name in readings.portrait.layers if name in side[best]}
        for side, readings in ((mine, a), (theirs, b))
    ]
    sound = [{name: parts for name, parts in side.items() if _sound(parts)} for side in sides]
    if not sound[0] or not sound[1]:
        raise CannotAsk("a model has no layer whose MLP rows are all finite")
    shapes = {part.shape for side in sound for parts in side.values() for part in parts.values()}
    widths = sorted({width for _, width in shapes})
    if len(widths) > 1:
        raise CannotAsk(f"the rows of neurons have different widths: {', '.join(map(str, widths))}")
    rows = min(count for count, _ in shapes)
    cut = [{name: {r: part[:rows] for r, part in parts.items()} for name, parts in side.items()} for side in sound]
    return cut[0], cut[1]


def _sound(parts: Mapping[Role, Rows]) -> bool:
    return Role.UP in parts and all(bool(np.all(np.isfinite(part))) for part in parts.values())


def ready(raw: Raw, rng: np.random.Generator | None) -> list[Layer]:
    """Ready to be called. With `rng` the neurons of every layer are renumbered, before both sides meet."""
    layers = []
    for name, parts in raw.items():
        count = len(parts[Role.UP])
        order = np.arange(count) if rng is None else rng.permutation(count)
        units = {role: unit_rows(part.astype(np.float64)) for role, part in parts.items()}
        clear = {role: answerable(unit, unit, "inner") for role, unit in units.items()}
        rows = {role: unit[order].astype(np.float32) for role, unit in units.items()}
        layers.append(Layer(name, rows, order, clear))
    return layers


def call_all(mine: Sequence[Layer], theirs: Sequence[Layer]) -> list[list[Cell]]:
    """Every layer of a against every one of b: by the sum of the correlations of up, gate and shared rows.

    One choice, one count, one law. One product a layer of a and role: thousands of small ones take many times as long
    where the library of linear algebra wakes its threads for each.
    """
    stacks = {role: [j for j, b in enumerate(theirs) if role in b.rows] for role in PARTS}
    joined = {role: np.concatenate([theirs[j].rows[role] for j in have]) for role, have in stacks.items() if have}
    return [
        [_cell(a, b, tables) for b, tables in zip(theirs, _tables(a, stacks, joined, len(theirs)), strict=True)]
        for a in mine
    ]


def _tables(
    a: Layer, stacks: Mapping[Role, Sequence[int]], joined: Mapping[Role, Rows], count: int
) -> list[list[Rows]]:
    """The correlations of the rows of a with those of every layer of b, one table a role that both have."""
    tables: list[list[Rows]] = [[] for _ in range(count)]
    for role in (role for role in PARTS if role in a.rows and role in joined):
        for j, table in zip(
            stacks[role], np.split(a.rows[role] @ joined[role].T, len(stacks[role]), axis=1), strict=True
        ):
            tables[j].append(table)
    return tables


def _cell(a: Layer, b: Layer, tables: Sequence[Rows]) -> Cell:
    shared = [role for role in PARTS if role in a.rows and role in b.rows]
    clear = np.logical_or.reduce([a.clear[r] for r in shared]) & np.logical_or.reduce([b.clear[r] for r in shared])
    asked, hidden = np.flatnonzero(clear), np.flatnonzero(clear[b.order])
    if not asked.size:
        return Cell(0, 0.0, count_significance(0, 0))
    table: Rows = np.asarray(np.sum(tables, axis=0, dtype=np.float64))
    _, chosen = linear_sum_assignment(table[np.ix_(asked, hidden)], maximize=True)
    fixed = int(np.count_nonzero(b.order[hidden[chosen]] == asked))
    own = table[asked, np.argsort(b.order)[asked]] / len(shared)
    return Cell(fixed, float(np.median(own)), count_significance(fixed, asked.size))
