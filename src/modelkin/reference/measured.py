"""A survey as cells that claims can be looked up in: models under their published short names, either order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from modelkin.records import Matrix, Survey, Table
from modelkin.reference.claims import Cell
from modelkin.reference.published import REPOSITORIES

Cells = dict[Cell, float]
Names = dict[str, str]  # label -> published short name

_MATRIX_METRICS = {"centred_cosine": "pearson"}


def measured_cells(survey: Survey) -> Cells:
    names = _short_names(survey)
    cells: Cells = {}
    for table in survey.tables:
        cells.update(_TABLES.get(table.name, _nothing)(table, names))
    for matrix in survey.matrices:
        cells.update(_of_matrix(matrix, names))
    return cells


def _short_names(survey: Survey) -> Names:
    """A model is known by the last part of its id, so a downloaded folder of the same name counts too."""
    known = {repository.rpartition("/")[2].lower(): short for short, repository in REPOSITORIES.items()}
    ids = {model.label: model.id.partition("@")[0].rstrip("/").rpartition("/")[2].lower() for model in survey.models}
    return {label: known[name] for label, name in ids.items() if name in known}


def _nothing(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:  # noqa: ARG001
    return iter(())


def _each(table: Table) -> Iterator[dict[str, object]]:
    for row in table.rows:
        yield dict(zip(table.columns, row, strict=True))


def _both_ways(metric: str, role: object, a: str, layer_a: object, b: str, layer_b: object) -> tuple[Cell, Cell]:
    first, second = (a, str(layer_a)), (b, str(layer_b))
    return (metric, str(role), *first, *second), (metric, str(role), *second, *first)


def _pairs(
    table: Table, names: Names, columns: dict[str, str], role: str | None = None
) -> Iterator[tuple[Cell, float]]:
    """Columns of a table with one row a pair of layers, under the names that claims use; the same in both orders."""
    for row in _each(table):
        a, b = names.get(str(row["a"])), names.get(str(row["b"]))
        for column, metric in columns.items():
            value = row[column]
            if a and b and isinstance(value, (int, float)):
                for cell in _both_ways(metric, role or row["role"], a, row["layer_a"], b, row["layer_b"]):
                    yield cell, float(value)


def _of_curves(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    symmetric = {name: name for name in ("cosine", "pearson", "mean_abs", "l2", "p99_abs", "cv")}
    yield from _pairs(table, names, symmetric)
    for row in _each(table):
        a, b = names.get(str(row["a"])), names.get(str(row["b"]))
        if a and b:
            there, back = _both_ways("rel_l2", row["role"], a, row["layer_a"], b, row["layer_b"])
            for cell, value in ((there, row["rel_l2_to_a"]), (back, row["rel_l2_to_b"])):
                if isinstance(value, (int, float)):
                    yield cell, float(value)


def _of_gains(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    for row in _each(table):
        model = names.get(str(row["model"]))
        for statistic in ("mean", "std"):
            value = row[statistic]
            if model and isinstance(value, (int, float)):
                yield (f"gain {statistic}", str(row["role"]), model, str(row["layer"])), float(value)


def _of_routers(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    columns = {"cosine": "cosine", "pearson": "pearson", "aligned_cosine": "aligned"}
    return _pairs(table, names, columns, role="router")


def _of_windows(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    return _pairs(table, names, {"cosine": "window cosine"})


def _of_changes(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    """`changed` is a share, or a count that `n` turns into one."""
    for cell, value in _pairs(table, names, {"mean_abs": "change mean_abs"}):
        yield cell, value
    for row in _each(table):
        a, b, n, changed = names.get(str(row["a"])), names.get(str(row["b"])), row["n"], row["changed"]
        if a and b and isinstance(n, int) and isinstance(changed, (int, float)):
            share = changed / n if isinstance(changed, int) else changed
            for cell in _both_ways("changed", row["role"], a, row["layer_a"], b, row["layer_b"]):
                yield cell, float(share)


def _of_tokens(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    for row in _each(table):
        if {names.get(str(row["a"])), names.get(str(row["b"]))} == {"solar", "glm"}:
            value = row["cosine"]
            if isinstance(value, (int, float)):
                yield ("token", str(row["token"]).replace("Ġ", " ").replace("▁", " ")), float(value)


def _of_vocabulary(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    for row in _each(table):
        value = row["value"]
        if {names.get(str(row["a"])), names.get(str(row["b"]))} == {"solar", "glm"} and isinstance(value, (int, float)):
            yield ("vocabulary", str(row["fact"])), float(value)


def _of_models(table: Table, names: Names) -> Iterator[tuple[Cell, float]]:
    for row in _each(table):
        model = names.get(str(row["model"]))
        for fact in ("layers", "hidden"):
            value = row[fact]
            if model and isinstance(value, (int, float)):
                yield ("model", model, fact), float(value)


_TABLES: dict[str, Callable[[Table, Names], Iterator[tuple[Cell, float]]]] = {
    "curves": _of_curves,
    "gains": _of_gains,
    "routers": _of_routers,
    "windows": _of_windows,
    "changes": _of_changes,
    "tokens": _of_tokens,
    "vocabulary": _of_vocabulary,
    "models": _of_models,
}


def _of_matrix(matrix: Matrix, names: Names) -> Iterator[tuple[Cell, float]]:
    """Each row and column is a model at a layer; a matrix of two models or of one says which in its name."""
    sides = _models_of(matrix, names)
    metric = _MATRIX_METRICS.get(matrix.metric, matrix.metric)
    for row, values in zip(matrix.rows, matrix.values, strict=True):
        for column, value in zip(matrix.columns, values, strict=True):
            ends = _ends(matrix, names, row, column) if sides is None else ((sides[0], row), (sides[1], column))
            if value is not None and ends is not None:
                yield (metric, matrix.role, *ends[0], *ends[1]), float(value)
                if metric != "rel_l2":
                    yield (metric, matrix.role, *ends[1], *ends[0]), float(value)


def _ends(matrix: Matrix, names: Names, row: str, column: str) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Of a matrix over models: the layer stands in its name, or behind each label in a mixed one."""
    kind, _, rest = matrix.name.partition(".")
    layer = rest.removeprefix(f"{matrix.role}.").removesuffix(f".{matrix.metric}")
    if kind == "models":
        found = [(row, layer), (column, layer)]
    elif kind == "mixed":
        found = [(label, at) for label, _, at in (name.rpartition("@") for name in (row, column))]
    else:
        return None
    if not all(label in names for label, _ in found):
        return None
    return (names[found[0][0]], found[0][1]), (names[found[1][0]], found[1][1])


def _models_of(matrix: Matrix, names: Names) -> tuple[str, str] | None:
    """Labels are spelt safely in names, so only their letters and digits are compared."""
    kind, _, rest = matrix.name.partition(".")
    middle = _letters(rest.removesuffix(f".{matrix.role}.{matrix.metric}"))
    if kind == "within":
        return next(((short, short) for label, short in names.items() if _letters(label) == middle), None)
    if kind == "layers":
        pairs = ((a, b) for a in names for b in names)
        return next(((names[a], names[b]) for a, b in pairs if _letters(a) + _letters(b) == middle), None)
    return None


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum()).lower()
