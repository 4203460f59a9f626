"""Of many pairs and models the ones to draw: those that stand out most. The tables have all.

Pairs grow with the square of the models: nobody looks at nine hundred pictures, and no page can hold them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import msgspec

from modelkin.records import Matrix, Survey, Table
from modelkin.report.figures.rows import safe

MOST_PAIRS = 20
MOST_MODELS = 20
UNKNOWN = -2.0  # below every correlation
Pair = tuple[str, str]


def ranked_pairs(survey: Survey) -> list[Pair]:
    """The pairs most alike after each mean is taken away first, by the mean over roles; then those without a number."""
    found: dict[Pair, list[float]] = {}
    for table in (table for table in survey.tables if _names_pairs(table)):
        for pair in _pairs(table):
            found.setdefault(pair, [])
    for pair, value in _likeness(survey):
        found[pair].append(value)
    return sorted(found, key=lambda pair: -_mean(found[pair]))


def _names_pairs(table: Table) -> bool:
    return {"a", "b"} <= set(table.columns)


def _pairs(table: Table) -> list[Pair]:
    a, b = table.columns.index("a"), table.columns.index("b")
    return [(str(first), str(second)) for first, second in dict.fromkeys((row[a], row[b]) for row in table.rows)]


def _likeness(survey: Survey) -> Iterator[tuple[Pair, float]]:
    for table in (table for table in survey.tables if table.name == "layer-pairs"):
        places = [table.columns.index(name) for name in ("a", "b", "metric", "diagonal_mean")]
        for a, b, metric, value in ([row[place] for place in places] for row in table.rows):
            if metric == "pearson":
                known = isinstance(value, (int, float)) and math.isfinite(value)
                yield (str(a), str(b)), float(value or 0.0) if known else UNKNOWN


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else UNKNOWN


def notable_models(survey: Survey) -> list[str]:
    """Those of the first pairs, then the first of the others; in the order of the survey."""
    ranked = [label for pair in ranked_pairs(survey)[:MOST_PAIRS] for label in pair]
    labels = [model.label for model in survey.models]
    kept = set(list(dict.fromkeys([*ranked, *labels]))[:MOST_MODELS])
    return [label for label in labels if label in kept]


def with_pairs(survey: Survey, pairs: Collection[Pair]) -> Survey:
    """The same with these pairs alone, in its tables of pairs and its matrices of layers."""
    names = {f"layers.{safe(a)}.{safe(b)}." for a, b in pairs}
    kept = set(pairs)
    return msgspec.structs.replace(
        survey,
        tables=tuple(_of_pairs(table, kept) if _names_pairs(table) else table for table in survey.tables),
        matrices=tuple(m for m in survey.matrices if not m.name.startswith("layers.") or _begins(m, names)),
    )


def _of_pairs(table: Table, pairs: Collection[Pair]) -> Table:
    a, b = table.columns.index("a"), table.columns.index("b")
    return msgspec.structs.replace(table, rows=tuple(row for row in table.rows if (row[a], row[b]) in pairs))


def _begins(matrix: Matrix, names: Collection[str]) -> bool:
    """By its first three parts, which no label can hold a dot in."""
    return ".".join(matrix.name.split(".")[:3]) + "." in names


def with_models(survey: Survey, labels: Collection[str]) -> Survey:
    """The same with the matrices within these models alone."""
    names = {f"within.{safe(label)}." for label in labels}
    kept = (
        matrix
        for matrix in survey.matrices
        if not matrix.name.startswith("within.") or ".".join(matrix.name.split(".")[:2]) + "." in names
    )
    return msgspec.structs.replace(survey, matrices=tuple(kept))
