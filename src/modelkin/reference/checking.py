"""A survey against what was published: agree, differ, the source contradicts itself, or not measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from modelkin.records import Survey, Table
from modelkin.reference.claims import Cell, Claim, Statistic, all_claims
from modelkin.reference.measured import Cells, measured_cells
from modelkin.reference.published import ORIGINS

VERDICTS = ("differ", "source contradicts itself", "agree", "not measured")  # what has to be looked at comes first
COLUMNS = ("source", "where", "quantity", "published", "measured", "difference", "verdict")


def check(survey: Survey) -> Table:
    """Every published number that speaks of weights, beside the same number of this survey."""
    cells = measured_cells(survey)
    claims = all_claims()
    disputed = disputed_claims(claims)
    found = (_row(claim, _measured(claim, cells), claim in disputed) for claim in claims)
    rows = tuple(sorted(found, key=lambda row: VERDICTS.index(str(row[-1]))))
    counts = Counter(str(row[-1]) for row in rows)
    return Table(
        name="reference",
        title="Published numbers, and this survey",
        caption=f"{len(rows)} published numbers: "
        + ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        + ".",
        strangers="these are the same weights measured twice, so chance has no part. A number agrees within half of "
        "its last printed digit, or within the rounding of float32; that says the arithmetic is the same, not that "
        "what was concluded from it was right",
        columns=COLUMNS,
        rows=rows,
    )


def disputed_claims(claims: Sequence[Claim]) -> set[Claim]:
    """Claims marked so, and those at odds with a more exact claim about the same thing."""
    same: dict[tuple[Statistic, frozenset[Cell]], list[Claim]] = defaultdict(list)
    for claim in claims:
        same[claim.statistic, frozenset(map(_unordered, claim.cells))].append(claim)
    marked = {claim for claim in claims if claim.disputed}
    for rivals in same.values():
        best = min(rivals, key=lambda claim: claim.tolerance)
        marked |= {c for c in rivals if abs(c.value - best.value) > c.tolerance + best.tolerance}
    return marked


def _unordered(cell: Cell) -> Cell:
    """Two models in either order: the same cell, except where the first one is the denominator."""
    if len(cell) != 6 or cell[0] == "rel_l2":
        return cell
    first, second = sorted((cell[2:4], cell[4:6]))
    return (*cell[:2], *first, *second)


def _measured(claim: Claim, cells: Cells) -> float | None:
    """None unless every cell was measured: a mean over fewer layers is another number."""
    found = [cells.get(cell) for cell in claim.cells]
    values = np.array([value for value in found if value is not None])
    if values.size < len(found):
        return None
    match claim.statistic:
        case "std":
            return float(values.std())
        case "mean_abs":
            return float(np.abs(values).mean())
        case _:
            return float(values.mean())


def _row(claim: Claim, measured: float | None, disputed: bool) -> tuple[str | float | None, ...]:
    difference = None if measured is None else measured - claim.value
    source = f"{ORIGINS[claim.file]}, {claim.file}"
    return (
        source,
        claim.where,
        claim.quantity,
        claim.value,
        measured,
        difference,
        _verdict(claim, difference, disputed),
    )


def _verdict(claim: Claim, difference: float | None, disputed: bool) -> str:
    if difference is not None and abs(difference) <= claim.tolerance:
        return "agree"
    if disputed:
        return "source contradicts itself"
    return "not measured" if difference is None else "differ"
