"""The terminal page of a survey: the models, every pair with its null beside it, and what is no evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from modelkin.records import Survey, Table, Value
from modelkin.report.figures.rows import null_said
from modelkin.report.text import plain, size

SHOWN_PAIRS = 20
SHOWN_MODELS = 12
SHOWN_LINES = 6
BESIDE = "beside this page"  # in a file, which stays the same wherever it is written
NOT_EVIDENCE = (
    "Not evidence: a cosine of gains near 1, and any distance. Strangers have cosines near `expected`, which follows "
    "from means and spreads alone; only what is left after the mean is taken away (Pearson) can tell models apart, "
    "and its p says how often renumbered axes do as well. A survey describes and does not judge: `modelkin compare A "
    "B` does."
)

Row = Mapping[str, Value]


def survey_page(survey: Survey, written: str | None = None) -> RenderableType:
    """`written` is the folder where the files lie, or None."""
    parts: list[RenderableType] = [_models(survey), *_pairs(survey), Text(NOT_EVIDENCE, style="dim")]
    parts += [table_page(table) for table in survey.tables if table.name == "reference"]
    parts += _lines("Left out", survey.left_out)
    cost = survey.cost
    where = f"files: {plain(written)}" if written else "--out DIR writes every table, matrix and figure"
    counts = f"{len(survey.tables)} tables, {len(survey.matrices)} matrices; {where}"
    read = f"read {size(cost.bytes)} ({size(cost.tensor_bytes)} of it tensors), {cost.requests} network requests"
    parts.append(Padding(Text(f"{counts}\n{read}; {cost.seconds:.1f} s", style="dim"), (1, 0, 1, 0)))
    return Group(*parts)


def table_page(table: Table, shown: int = SHOWN_PAIRS) -> RenderableType:
    """Any table as it is: its first rows, its caption, and what strangers would show."""
    grid = _grid(table.title, [(name, "left") for name in table.columns])
    for row in table.rows[:shown]:
        grid.add_row(*(Text(plain(_word(value))) for value in row))
    rest = len(table.rows) - shown
    more = f" {rest:,} more rows are in the files." if rest > 0 else ""
    words = f"{table.caption}{more} {null_said(table)}"
    return Padding(Group(grid, Text(plain(words), style="dim")), (1, 0, 0, 0))


def _models(survey: Survey) -> RenderableType:
    names = ("model", "family", "parameters", "layers", "width", "groups", "id")
    right = {"parameters", "layers", "width"}
    grid = _grid("Models", [(name, "right" if name in right else "left") for name in names])
    for model in survey.models[:SHOWN_MODELS]:
        groups = " ".join(model.groups) or "–"
        cells = (
            model.label,
            model.family,
            f"{model.parameters:,}",
            model.layers,
            model.hidden or "–",
            groups,
            model.id,
        )
        grid.add_row(*(Text(plain(cell)) for cell in cells))
    rest = len(survey.models) - SHOWN_MODELS
    more = [Text(f"… and {rest} more models")] if rest > 0 else []
    ids = [model.id for model in survey.models]
    twice = [name for name in dict.fromkeys(ids) if ids.count(name) > 1]
    said = [Text(plain(f"given more than once: {', '.join(twice)}"))] if twice else []
    return Padding(Group(grid, *more, *said), (1, 0, 1, 0))


def _pairs(survey: Survey) -> Iterable[RenderableType]:
    found = {table.name: table for table in survey.tables}
    if "layer-pairs" not in found or not found["layer-pairs"].rows:
        yield Text(plain(f"Pairs: {_why_no_pairs(survey)}.\n"))
        return
    columns = ("pair", "role", "cosine", "off", "expected", "Pearson", "off", "p", "best shift", "known")
    right = columns[2:-1]
    title = "Facing layers (mean over layers), other layers (off), and what means alone make of a cosine (expected)"
    grid = _grid(title, [(name, "right" if name in right else "left") for name in columns])
    rows = _records(found["layer-pairs"])
    pearson = {(row["a"], row["b"], row["role"]): row for row in rows if row["metric"] == "pearson"}
    cosines = _by_pair([row for row in rows if row["metric"] == "cosine"])
    for row in cosines[:SHOWN_PAIRS]:
        grid.add_row(*_pair_cells(row, pearson[row["a"], row["b"], row["role"]], _expected(found["curves"], row)))
    rest = len(cosines) - SHOWN_PAIRS
    more = [Text(f"… and {rest} more, in layer-pairs.csv")] if rest > 0 else []  # no cell: its column is narrow
    strangers = "Between strangers: cosine = expected, Pearson 0, p anywhere between 0 and 1. p is of the mean Pearson."
    yield Padding(Group(grid, *more, Text(strangers, style="dim")), (0, 0, 1, 0))


def _why_no_pairs(survey: Survey) -> str:
    if len(survey.models) < 2:
        return "one model alone: what it is like inside is in the tables"
    if any(table.name == "gains" for table in survey.tables):
        return "none of one width"
    tables = ", ".join(table.name for table in survey.tables if table.name not in ("models", "reference"))
    found = f"; what was measured is in the tables {tables}" if tables else ""
    return f"none of the roles asked for ({', '.join(survey.roles)}) is one vector a layer{found}"


def _by_pair(rows: Sequence[Row]) -> list[Row]:
    """All roles of a pair together, pairs in the order of their first role."""
    pairs = list(dict.fromkeys((row["a"], row["b"]) for row in rows))
    return sorted(rows, key=lambda row: pairs.index((row["a"], row["b"])))


def _pair_cells(cosine: Row, pearson: Row, expected: float | None) -> list[Text]:
    """`expected` is the mean over facing layers, to be read beside their cosine."""
    numbers = (cosine["diagonal_mean"], cosine["off_mean"], expected, pearson["diagonal_mean"], pearson["off_mean"])
    pvalue = pearson["diagonal_p"]
    shift = pearson["best_offset"]
    cells = [
        f"{cosine['a']} · {cosine['b']}",
        str(cosine["role"]),
        *(_number(number) for number in numbers),
        "–" if pvalue is None else f"{pvalue:.2g}",
        "–"
        if shift is None
        else f"{shift:+d} (p {pearson['best_offset_p']:.2g})"
        if pearson["best_offset_p"]
        else str(shift),
        str(cosine["known"] or "–"),
    ]
    return [Text(plain(cell)) for cell in cells]


def _expected(curves: Table, pair: Row) -> float | None:
    keys = ("a", "b", "role")
    found = [row["expected_cosine"] for row in _records(curves) if all(row[key] == pair[key] for key in keys)]
    known = [value for value in found if isinstance(value, float)]
    return sum(known) / len(known) if known else None


def _records(table: Table) -> list[Row]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _lines(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    rest = len(lines) - SHOWN_LINES
    shown = [*lines[:SHOWN_LINES], *([f"… and {rest} more (--json has all)"] if rest > 0 else [])]
    return [Padding(Group(Text(title, style="bold"), *(Text("  " + plain(line)) for line in shown)), (1, 0, 0, 0))]


def _grid(title: str, columns: Sequence[tuple[str, str]]) -> Grid:
    grid = Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in columns:
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")  # type: ignore[arg-type]
    return grid


def _number(value: Value) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else "–"


def _word(value: Value) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
