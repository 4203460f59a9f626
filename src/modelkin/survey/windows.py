"""Matrices seen through a few windows, and models with other numbers of heads: how alike are facing layers?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from modelkin.metrics import Undefined, centred_cosine_similarity, cosine_similarity, rel_l2_to_a_distance
from modelkin.records import Role, Slot, Table
from modelkin.records.survey import Value
from modelkin.survey.reading import Collected
from modelkin.survey.renumbering import by_role, may_be_renumbered
from modelkin.survey.stored import (
    WINDOW_VALUES,
    WINDOWS,
    Beside,
    Numbers,
    beside,
    measurable,
    read_windows,
    same_bytes,
    window_rows,
)
from modelkin.survey.truncation import truncation

COLUMNS = (
    "a", "b", "role", "layer_a", "layer_b", "status", "windows", "n", "cosine", "rel_rmse", "z", "p", "bytes_equal",
    "pearson", "published_z",
)  # fmt: skip
STRANGERS = (
    "cosine and pearson near 0, within a few times 1/√n; rel_rmse √2 or more where both have one scale; z between −2 "
    "and 2 in 19 of 20 rows, p evenly spread; bytes_equal no; published_z, the centred cosine times √n, would be a "
    "standard score only if all n values were independent, and routers of strangers have been published with one of 9"
)

Row = tuple[Value, ...]


def tables(collected: Collected) -> list[Table]:
    """`windows` and `truncation`, for the matrix roles that were asked for."""
    roles = [role for role in collected.roles if _is_matrix(collected, role)]
    if not roles or len(collected.models) < 2:
        return []
    for model in collected.models:
        if packed := len(model.anatomy.checkpoint.layout.packed):
            collected.leave_out(f"{model.label}: {packed} tensors hold packed values and count as missing")
    rows: list[Row] = []
    for number, role in enumerate(roles):
        collected.progress("comparing windows", number, len(roles))
        pairs = beside(collected, role)
        arrays = read_windows(collected, pairs)
        rows += [_row(collected, pair, arrays) for pair in pairs]
    return [_windows_table(collected, rows), *truncation(collected, roles)]


def _is_matrix(collected: Collected, role: Role) -> bool:
    found = (model.anatomy.shape(slots[0]) for model in collected.models if (slots := model.anatomy.of(role)))
    return any(len(shape) == 2 for shape in found)


def _windows_table(collected: Collected, rows: Sequence[Row]) -> Table:
    measured = sum(row[8] is not None for row in rows)
    hidden = "" if may_be_renumbered(*collected.models) else (
        " p is left empty for models whose hidden axes have an order of their own (fixed positions)."
    )  # fmt: skip
    return Table(
        name="windows",
        title="Matrices in facing layers, seen through windows",
        caption=f"{measured} of {len(rows)} pairs of tensors measured: {WINDOWS} windows of whole rows, about "
        f"{WINDOW_VALUES:,} values each, at rows that the seed ({collected.seed}) and the role fix for all models and "
        "layers; a tensor no larger than its windows is read whole, once, and no value counts twice. Of experts one "
        "is taken, of the same number in both. z compares the sum of products with what it is when the axes of the "
        "residual stream of one model are renumbered: its mean and standard deviation are exact, p is a one-sided "
        f"normal tail and not shown below 1e-6.{hidden}",
        strangers=STRANGERS,
        columns=COLUMNS,
        rows=tuple(rows),
    )


def _row(collected: Collected, pair: Beside, arrays: Mapping[tuple[str, Slot], Numbers]) -> Row:
    head = (pair.a.label, pair.b.label, pair.role.value, pair.layer_a, pair.layer_b)
    if pair.slots is None:
        return (*head, "missing in one", *_empty())
    if not pair.alike:
        return (*head, "shapes differ", *_empty())
    x, y = arrays[pair.a.label, pair.slots[0]], arrays[pair.b.label, pair.slots[1]]
    windows = len(window_rows(pair.shapes[0], pair.role, collected.seed))
    if not measurable(x, y):
        collected.leave_out(f"{pair}: values that are not finite")
        return (*head, "not finite", windows, x.size, *_empty()[2:])
    status = "ok" if len(set(pair.dtypes)) == 1 else "dtypes differ"
    return (*head, status, windows, x.size, *_measures(collected, pair, x, y))


def _empty() -> Row:
    return (None,) * (len(COLUMNS) - 6)


def _measures(collected: Collected, pair: Beside, x: Numbers, y: Numbers) -> Row:
    """cosine, rel_rmse, z, p, bytes_equal, pearson, published_z."""
    equal = same_bytes(pair, x, y)
    shown = None if equal is None else "yes" if equal else "no"
    try:
        cosine, relative = cosine_similarity(x, y), rel_l2_to_a_distance(x, y)
        pearson = centred_cosine_similarity(x, y)
    except Undefined as reason:
        collected.leave_out(f"{pair}: {reason}")
        return (None, None, None, None, shown, None, None)
    if x.ndim < 2:
        return (cosine, relative, None, None, shown, pearson, None)
    found = by_role(pair.role, x, y)
    p = found.p if may_be_renumbered(pair.a, pair.b) else None
    return (cosine, relative, found.z, p, shown, pearson, pearson * math.sqrt(x.size))
