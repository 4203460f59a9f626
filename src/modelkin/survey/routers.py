"""Routers: how alike are their rows as they stand, how alike after matching, and who finds its own number?

Matching makes strangers alike: the best of many is never zero. So a matched cosine stands beside what matching makes
of rows without any connection, drawn twice: rows at random, and the rows themselves with the hidden axes of one model
renumbered, which keeps whatever the rows of one model have in common. How many experts choose their own number needs
neither: between strangers it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics import Unmeasurable, centred_cosine_similarity, cosine_similarity
from modelkin.records import Role, Table
from modelkin.records.survey import Value
from modelkin.stats import roll_call
from modelkin.survey.reading import Collected
from modelkin.survey.stored import Beside, Numbers, batches_of_layers, beside, measurable, read_stored
from modelkin.survey.truncation import matched_cosine

DRAWS = 200  # of rows at random: the standard deviation is then known to 5 %
RENUMBERINGS = 200  # likewise
FEWER = 50  # of large routers, where each takes several milliseconds: then to 10 %
LARGE = 1 << 24  # experts of one × experts of the other × width
COLUMNS = (
    "a", "b", "layer_a", "layer_b", "experts", "cosine", "pearson", "aligned_cosine", "aligned_null_mean",
    "aligned_null_std", "chose_their_own", "p", "asked", "renumbered_mean", "renumbered_std", "bias_pearson",
)  # fmt: skip

Row = tuple[Value, ...]
Floats = NDArray[np.float32]
Both = tuple[Numbers, Numbers]


def tables(collected: Collected) -> list[Table]:
    """`routers`, where routers were asked for and two models have some of one width."""
    if Role.ROUTER not in collected.roles or len(collected.models) < 2:
        return []
    pairs = [pair for pair in beside(collected, Role.ROUTER) if _comparable(collected, pair)]
    biases = {(it.a.label, it.b.label, it.layer_a, it.layer_b): it for it in beside(collected, Role.ROUTER_BIAS)}
    rows: list[Row] = []
    for group in batches_of_layers(pairs):
        collected.progress("matching experts", len(rows), len(pairs))
        others = [biases.get((pair.a.label, pair.b.label, pair.layer_a, pair.layer_b)) for pair in group]
        alike = [pair for pair in others if pair is not None and pair.alike]
        shifts = {pair.layer_a: _bias(read) for pair, read in zip(alike, _read(collected, alike), strict=True)}
        for pair, read in zip(group, _read(collected, group), strict=True):
            rows.append(_row(collected, pair, read, shifts.get(pair.layer_a)))
    return [_table(rows)] if rows else []


def _comparable(collected: Collected, pair: Beside) -> bool:
    who = f"{pair.a.label} and {pair.b.label}"
    if pair.slots is None:
        collected.leave_out(f"{who}: one of them has no router in some facing layers")
        return False
    if any(len(shape) != 2 for shape in pair.shapes) or pair.shapes[0][1] != pair.shapes[1][1]:
        collected.leave_out(f"{who}: router rows have other widths, {pair.shapes[0]} and {pair.shapes[1]}")
        return False
    return True


def _table(rows: list[Row]) -> Table:
    return Table(
        name="routers",
        title="Routers of facing layers",
        caption=f"{len(rows)} pairs of routers, read whole. Cosine and Pearson over all values of the experts that "
        "both have; aligned_cosine is the mean cosine of rows matched one-to-one for the greatest sum. Its null: rows "
        f"at random in as many dimensions, {DRAWS} draws (aligned_null), and the same rows with the hidden axes of "
        f"one model renumbered, {RENUMBERINGS} draws, {FEWER} of large routers (renumbered). chose_their_own: of "
        "`asked` experts, those that chose their own number by likeness; its p is exact.",
        strangers="cosine and pearson near 0, though rows of one router often share a direction; aligned_cosine near "
        "renumbered_mean and never 0; one expert chooses its own number, whatever their count; p evenly spread above; "
        "bias_pearson near 0 within 1/√experts",
        columns=COLUMNS,
        rows=tuple(rows),
    )


def _row(collected: Collected, pair: Beside, read: Both | None, bias: float | None) -> Row:
    head = (pair.a.label, pair.b.label, pair.layer_a, pair.layer_b)
    experts = min(shape[0] for shape in pair.shapes)
    empty: Row = (*head, experts, *(None,) * (len(COLUMNS) - 5))
    if read is None:
        return empty
    left, right = read
    first, second = left[:experts], right[:experts]
    try:
        cosine, pearson = cosine_similarity(first, second), centred_cosine_similarity(first, second)
    except Unmeasurable as reason:
        collected.leave_out(f"{pair}: {reason}")
        return empty
    rng = collected.rng(f"routers:{pair}")
    call = roll_call(first, second, rng)
    null = random_rows(len(left), len(right), left.shape[1], collected.seed)
    mine, theirs = _directions(left), _directions(right)
    count = RENUMBERINGS if len(mine) * theirs.size < LARGE else FEWER
    draws = [matched_cosine(mine[:, rng.permutation(mine.shape[1])], theirs) for _ in range(count)]
    own: Row = (call.fixed, call.significance.pvalue, call.n) if call.n else (None, None, 0)
    spread = (float(np.mean(draws)), float(np.std(draws, ddof=1)))
    aligned = matched_cosine(mine, theirs)
    return (*head, experts, cosine, pearson, aligned, *null, *own, *spread, bias)


def _read(collected: Collected, group: Sequence[Beside]) -> list[Both | None]:
    """Both whole, of layers of two models; None where a value is not finite."""
    slots = [pair.slots for pair in group if pair.slots is not None]
    if not slots:
        return []
    left = read_stored(group[0].a.anatomy, [(slot, None) for slot, _ in slots])
    right = read_stored(group[0].b.anatomy, [(slot, None) for _, slot in slots])
    return [_finite(collected, pair, x, y) for pair, x, y in zip(group, left, right, strict=True)]


def _finite(collected: Collected, pair: Beside, x: Numbers, y: Numbers) -> Both | None:
    if not measurable(x, y):
        collected.leave_out(f"{pair}: values that are not finite")
        return None
    return x, y


def _bias(read: Both | None) -> float | None:
    try:
        return None if read is None else centred_cosine_similarity(*read)
    except Unmeasurable:
        return None  # biases that were never trained are all zero


@lru_cache(maxsize=256)
def random_rows(left: int, right: int, width: int, seed: int) -> tuple[float, float]:
    """Mean and standard deviation of the matched cosine of rows at random: `left` and `right` many, `width` long.

    128 and 128 rows of 4,096 give 0.038: a published 0.029 lies below it.
    """
    rng = np.random.default_rng([seed, left, right, width])
    draws = [matched_cosine(*random_directions(left, right, width, rng)) for _ in range(DRAWS)]
    return float(np.mean(draws)), float(np.std(draws, ddof=1))


def random_directions(left: int, right: int, width: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Two sets of rows at random, of length one, as far as their inner products with each other go.

    Axes can be turned so that the left rows lie in the first `left` of them: those rows are then triangular, and of
    the right ones only these coordinates and the length of the rest matter. The law is that of whole rows, at a
    thirtieth of the work. [Bartlett 1933]
    """
    if left >= width:
        sides = (rng.standard_normal((rows, width)) for rows in (left, right))
        first, second = (_directions(side) for side in sides)
        return first, second
    triangle = np.tril(rng.standard_normal((left, left)), -1)
    triangle[np.diag_indices(left)] = np.sqrt(rng.chisquare(width - np.arange(left)))
    seen = rng.standard_normal((right, left))
    lengths = np.sqrt(np.sum(seen**2, axis=1) + rng.chisquare(width - left, right))
    return _directions(triangle), np.asarray(seen / lengths[:, None], dtype=np.float32)


def _directions(rows: Numbers) -> Floats:
    """Every row of length one; a row of zeros stays one."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0)
    return np.asarray(units, dtype=np.float32)
