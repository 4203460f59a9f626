"""Models with other numbers of heads: was a part of the heads kept?

Two guesses are tried: that the first heads were kept, and that some heads were, found by likeness. The second chooses,
and a choice makes strangers alike, so it stands beside what the same choice gives with the hidden axes renumbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.architectures import Anatomy
from modelkin.metrics import Undefined, cosine_similarity
from modelkin.records import Role, Slot, Table
from modelkin.records.survey import Value
from modelkin.sampling.offsets import offset
from modelkin.stats.montecarlo import stopped_pvalue
from modelkin.survey.reading import Collected
from modelkin.survey.renumbering import may_be_renumbered, renumbered
from modelkin.survey.stored import (
    Beside,
    Numbers,
    batches_of_layers,
    beside,
    measurable,
    read_stored,
    rows_of,
    window_rows,
)

BY_ROWS = (Role.Q, Role.K, Role.V, Role.CROSS_Q, Role.CROSS_K, Role.CROSS_V)  # heads are blocks of their rows
BY_COLUMNS = (Role.O, Role.CROSS_O)
ROWS_A_HEAD = 4  # of q, k and v: with 4,096 hidden axes a kept head has a cosine 128 standard deviations from 0
DRAWS, ENOUGH = 99, 10  # drawing ends when ten draws have reached the value, or at 99: p is never below 0.01
COLUMNS = (
    "a", "b", "role", "layer_a", "layer_b", "how", "rows", "cosine", "z", "p", "null_mean", "null_std", "heads_a",
    "heads_b",
)  # fmt: skip

Row = tuple[Value, ...]
Heads = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Facing:
    """What was read of one pair: (rows, hidden) of the leading rows, (heads, rows of a head, hidden) of all heads."""

    pair: Beside
    leading: tuple[Numbers, Numbers]
    heads: tuple[Heads, Heads] | None


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows to read of each side: those of the leading rows, then those of the heads; `size` None: heads not known."""

    pair: Beside
    slots: tuple[Slot, Slot]
    rows: tuple[list[list[int]], list[list[int]]]
    size: int | None
    shared: int


def truncation(collected: Collected, roles: Sequence[Role]) -> list[Table]:
    """A table where two models differ in the number of heads and in nothing else of the role; otherwise none."""
    rows: list[Row] = []
    for role in (role for role in roles if role in (*BY_ROWS, *BY_COLUMNS)):
        for group in batches_of_layers([pair for pair in beside(collected, role) if _cut_short(pair)]):
            rows += [row for found in _read(collected, group) for row in _rows(collected, found)]
    if not rows:
        return []
    return [
        Table(
            name="truncation",
            title="Other numbers of heads: the first ones, or any",
            caption=f"{len(rows)} comparisons of tensors whose heads differ in number. Leading rows: the rows (of o: "
            "the columns) of the model with fewer heads beside the first ones of the other; mean and standard "
            "deviation of its null are exact, p is a normal tail. Matched heads: one-to-one by greatest likeness, "
            f"{ROWS_A_HEAD} rows a head (of o: all its columns in the windows); its null is drawn by renumbering the "
            f"hidden axes of one model, {DRAWS} times at most, so p is valid and never below 0.01. Heads that were "
            "averaged, or whose rows were moved, are not looked for.",
            strangers="leading rows: cosine near 0, z between −2 and 2 in 19 of 20; matched heads: cosine near "
            "null_mean, which is above 0 because the best of many was chosen; p evenly spread",
            columns=COLUMNS,
            rows=tuple(rows),
        )
    ]


def _cut_short(pair: Beside) -> bool:
    shapes = pair.shapes
    if len(shapes) != 2 or any(len(shape) != 2 for shape in shapes):
        return False
    hidden, heads = (0, 1) if pair.role in BY_COLUMNS else (1, 0)
    return shapes[0][hidden] == shapes[1][hidden] and shapes[0][heads] != shapes[1][heads]


def _read(collected: Collected, group: Sequence[Beside]) -> list[Facing]:
    """Layers of two models whose values are finite, with the hidden axes as columns."""
    plans = [_plan(collected, pair) for pair in group]
    left = _side(group[0].a.anatomy, [(plan.slots[0], plan.rows[0]) for plan in plans])
    right = _side(group[0].b.anatomy, [(plan.slots[1], plan.rows[1]) for plan in plans])
    found = []
    for plan, x, y in zip(plans, left, right, strict=True):
        if measurable(*x, *y):
            found.append(_faced(plan, x, y))
        else:
            collected.leave_out(f"{plan.pair}: values that are not finite")
    return found


def _plan(collected: Collected, pair: Beside) -> Plan:
    """The windows for the leading rows; where heads are blocks of rows, a few rows of every head as well."""
    assert pair.slots is not None  # only pairs with two shapes come here
    size, by_columns = _head_size(collected, pair), pair.role in BY_COLUMNS
    shared = min(shape[by_columns] for shape in pair.shapes)
    height, width = pair.shapes[0]
    windows = rows_of(window_rows((height if by_columns else shared, width), pair.role, collected.seed))
    rows = []
    for shape in pair.shapes:
        rows.append([windows] if by_columns or not size else [windows, _head_rows(shape[0], size, collected.seed)])
    return Plan(pair, pair.slots, (rows[0], rows[1]), size, shared)


def _side(anatomy: Anatomy, wanted: Sequence[tuple[Slot, Sequence[list[int]]]]) -> list[list[Numbers]]:
    arrays = iter(read_stored(anatomy, [(slot, rows) for slot, some in wanted for rows in some]))
    return [[next(arrays) for _ in some] for _, some in wanted]


def _faced(plan: Plan, mine: Sequence[Numbers], theirs: Sequence[Numbers]) -> Facing:
    by_columns = plan.pair.role in BY_COLUMNS
    sides = [[array.T for array in side] if by_columns else side for side in (mine, theirs)]
    leading = sides[0][0][: plan.shared], sides[1][0][: plan.shared]
    size = plan.size
    heads = (_heads(sides[0][-1], size, by_columns), _heads(sides[1][-1], size, by_columns)) if size else None
    return Facing(plan.pair, leading, heads)


def _head_size(collected: Collected, pair: Beside) -> int | None:
    sizes = {pair.a.anatomy.facts.head_dim, pair.b.anatomy.facts.head_dim}
    size = next(iter(sizes))
    axis = int(pair.role in BY_COLUMNS)
    if len(sizes) == 1 and size and all(shape[axis] % size == 0 for shape in pair.shapes):
        return size
    collected.leave_out(f"{pair.role.value}, {pair.a.label} and {pair.b.label}: heads are not of one known size")
    return None


def _head_rows(rows: int, size: int, seed: int) -> list[int]:
    """The same few rows of every head."""
    count = min(size, ROWS_A_HEAD)
    start = offset(seed, "rows of a head", size, count)
    return [head + start + i for head in range(0, rows, size) for i in range(count)]


def _heads(array: Numbers, size: int, whole: bool) -> Heads:
    rows = size if whole else min(size, ROWS_A_HEAD)
    return np.asarray(array, np.float32).reshape(-1, rows, array.shape[1])


def _rows(collected: Collected, found: Facing) -> list[Row]:
    pair = found.pair
    head = (pair.a.label, pair.b.label, pair.role.value, pair.layer_a, pair.layer_b)
    counts: tuple[Value, Value] = (len(found.heads[0]), len(found.heads[1])) if found.heads else (None, None)
    rows: list[Row] = [(*head, "leading rows", len(found.leading[0]), *_leading(collected, found), *counts)]
    if found.heads is not None and min(len(side) for side in found.heads):
        compared = min(len(side) for side in found.heads) * found.heads[0].shape[1]
        purpose = f"truncation:{pair}"
        rows.append((*head, "matched heads", compared, *_matched(*found.heads, collected.rng(purpose)), *counts))
    return rows if may_be_renumbered(pair.a, pair.b) else [(*row[:9], None, *row[10:]) for row in rows]


def _leading(collected: Collected, found: Facing) -> Row:
    """cosine, z, p, null_mean, null_std."""
    x, y = found.leading
    try:
        cosine = cosine_similarity(x, y)
    except Undefined as reason:
        collected.leave_out(f"{found.pair}: {reason}")
        return (None,) * 5
    test = renumbered(x, y)
    scale = cosine / test.seen if test.seen else 0.0
    return (cosine, test.z, test.p, test.mean * scale, test.sd * scale)


def _matched(left: Heads, right: Heads, rng: np.random.Generator) -> Row:
    """The mean cosine of matched heads against the same with the hidden axes of one side renumbered."""
    mine, theirs = _directions(left), _directions(right)
    axes = mine.shape[2]
    seen = matched_cosine(_flat(mine), _flat(theirs))
    p, draws = stopped_pvalue(
        seen, lambda: matched_cosine(_flat(mine[:, :, rng.permutation(axes)]), _flat(theirs)), DRAWS, ENOUGH
    )
    mean, std = float(np.mean(draws)), float(np.std(draws))
    shown = min(1.0, max(-1.0, seen))  # heads are of length one to float32's last digit only
    return (shown, (seen - mean) / std if std > 0 else None, p, mean, std)


def _directions(heads: Heads) -> Heads:
    """Every row centred, every head of length one."""
    centred = heads - heads.mean(axis=2, keepdims=True)
    lengths = np.linalg.norm(centred, axis=(1, 2), keepdims=True)
    return np.asarray(np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0), np.float32)


def _flat(heads: Heads) -> Heads:
    return heads.reshape(len(heads), -1)


def matched_cosine(left: NDArray[np.floating], right: NDArray[np.floating]) -> float:
    """The mean cosine of rows of length one, matched one-to-one for the greatest sum.  (n, p), (m, p)."""
    likeness = left @ right.T
    rows, columns = linear_sum_assignment(likeness, maximize=True)
    return float(likeness[rows, columns].mean(dtype=np.float64))
