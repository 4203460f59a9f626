"""What the sections of a survey's page hold, taken from its tables and matrices; no words and no markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from modelkin.errors import UnreadableError
from modelkin.records import Matrix, Survey, Table, Value
from modelkin.report.figures.rows import safe
from modelkin.report.notable import MOST_PAIRS, notable_models, ranked_pairs

Row = Mapping[str, Value]
Item = TypeVar("Item")
# Columns that the page reads by name; every other table is shown as it is.
READ = {
    "curves": ("a", "b", "role", "layer_a", "layer_b", "n", "cosine", "expected_cosine", "pearson", "pearson_p"),
    "layer-pairs": ("a", "b", "known", "role", "metric", "diagonal_mean", "off_mean", "diagonal_p"),
    "gains": ("model", "role", "layer", "mean", "std", "min", "max"),
}
# What the page draws of each, so that it stays under 6 MB; the files have all.
MOST_POINTS = 600
MOST_CELLS = 6400
MOST_CELLS_OF_MODELS = 900


@dataclass(frozen=True, slots=True)
class PairLine:
    """Two models and a role: means over facing layers, over all other pairs of layers, and what means alone give.

    `scatter` is the standard deviation of the mean Pearson of facing layers when axes are renumbered; None where they
    may not be, or where the survey is of an earlier version.
    """

    a: str
    b: str
    known: str
    role: str
    cosine: float | None
    expected: float | None
    pearson: float | None
    pearson_off: float | None
    pvalue: float | None
    width: int | None
    scatter: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Facing layers of two models, one role."""

    a: str
    b: str
    role: str
    rows: tuple[Row, ...]


def checked_survey(survey: Survey) -> Survey:
    """The same, once its tables and matrices are seen to have the shape that `survey` writes."""
    for table in survey.tables:
        lacking = [name for name in READ.get(table.name, ()) if name not in table.columns]
        if lacking:
            raise UnreadableError(f"has no column {lacking[0]!r}", where=f"table {table.name}")
        if any(len(row) != len(table.columns) for row in table.rows):
            raise UnreadableError("has a row that is not as long as its heading", where=f"table {table.name}")
    for matrix in survey.matrices:
        wide = {len(row) for row in matrix.values}
        if len(matrix.values) != len(matrix.rows) or wide - {len(matrix.columns)}:
            raise UnreadableError("has not as many values as rows and columns", where=f"matrix {matrix.name}")
    return survey


def rows_of(survey: Survey, name: str) -> list[Row]:
    """None where the survey has no such table."""
    tables = [table for table in survey.tables if table.name == name]
    return [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]


def number(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def pair_lines(survey: Survey) -> list[PairLine]:
    """Every pair and role, the pairs that are most alike after each mean is taken away first."""
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows_of(survey, "layer-pairs"):
        key = str(row["a"]), str(row["b"]), str(row["role"])
        found.setdefault(key, {})[str(row["metric"])] = row
    facing = {(curve.a, curve.b, curve.role): curve for curve in _curves(survey)}
    lines = [
        _line(key, metrics["cosine"], metrics["pearson"], facing.get(key))
        for key, metrics in found.items()
        if {"cosine", "pearson"} <= metrics.keys()
    ]
    order = {pair: place for place, pair in enumerate(ranked_pairs(survey))}
    return sorted(lines, key=lambda line: order[line.a, line.b])


def _line(key: tuple[str, str, str], cosine: Row, pearson: Row, facing: Curve | None) -> PairLine:
    rows = () if facing is None else facing.rows
    expected = [value for row in rows if (value := number(row["expected_cosine"])) is not None]
    width = number(rows[0]["n"]) if rows else None
    return PairLine(
        a=key[0],
        b=key[1],
        known=str(cosine["known"] or ""),
        role=key[2],
        cosine=number(cosine["diagonal_mean"]),
        expected=sum(expected) / len(expected) if expected else None,
        pearson=number(pearson["diagonal_mean"]),
        pearson_off=number(pearson["off_mean"]),
        pvalue=number(pearson["diagonal_p"]),
        width=None if width is None else int(width),
        scatter=number(pearson.get("diagonal_null_std")),
    )


def curves(survey: Survey) -> list[Curve]:
    """Of the pairs that stand out most, in their order, as many as the page can hold."""
    order = {pair: place for place, pair in enumerate(ranked_pairs(survey)[:MOST_PAIRS])}
    found = [curve for curve in _curves(survey) if (curve.a, curve.b) in order]
    found.sort(key=lambda curve: order[curve.a, curve.b])
    return _until(found, [len(curve.rows) for curve in found], MOST_POINTS)


def _curves(survey: Survey) -> list[Curve]:
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows_of(survey, "curves"):
        found.setdefault((str(row["a"]), str(row["b"]), str(row["role"])), []).append(row)
    return [Curve(*key, tuple(rows)) for key, rows in found.items()]


def layer_maps(survey: Survey) -> list[tuple[PairLine, Matrix]]:
    """All layers of one model with all of another, Pearson, of the pairs that stand out most, in their order."""
    there, drawn = {matrix.name: matrix for matrix in survey.matrices}, set(ranked_pairs(survey)[:MOST_PAIRS])
    lines = [line for line in pair_lines(survey) if (line.a, line.b) in drawn]
    found = [(line, there[name]) for line in lines if (name := _map_name(line)) in there]
    return _until(found, [len(matrix.rows) * len(matrix.columns) for _, matrix in found], MOST_CELLS)


def _map_name(line: PairLine) -> str:
    return f"layers.{safe(line.a)}.{safe(line.b)}.{line.role}.pearson"


def model_maps(survey: Survey, metric: str) -> list[Matrix]:
    """Models by models, at one layer or at a layer of its own each."""
    found = [m for m in survey.matrices if m.metric == metric and m.name.split(".")[0] in ("models", "mixed")]
    return _until(found, [len(m.rows) * len(m.columns) for m in found], MOST_CELLS_OF_MODELS)


def models_with_gains(survey: Survey) -> list[str]:
    return list(dict.fromkeys(str(row["model"]) for row in rows_of(survey, "gains") if row["layer"] not in (None, "")))


def gain_curves(survey: Survey) -> dict[str, list[Row]]:
    """Layers by model, of those that stand out most, as many models as the page can hold."""
    found: dict[str, list[Row]] = {}
    drawn = set(notable_models(survey))
    for row in rows_of(survey, "gains"):
        if row["layer"] not in (None, "") and row["model"] in drawn:
            found.setdefault(str(row["model"]), []).append(row)
    kept = _until(list(found), [len(rows) for rows in found.values()], MOST_POINTS)
    return {model: found[model] for model in kept}


def _until(items: Sequence[Item], sizes: Sequence[int], most: int) -> list[Item]:
    """The first ones, up to so much in all; what is too large by itself is passed over."""
    left = most
    kept: list[Item] = []
    for item, size in zip(items, sizes, strict=True):
        if size > most:
            continue
        if size > left:
            break
        left -= size
        kept.append(item)
    return kept


def other_tables(survey: Survey) -> list[Table]:
    """Those that no section above shows whole."""
    return [table for table in survey.tables if table.name != "models"]
