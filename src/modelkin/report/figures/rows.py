"""Parts of a table, and columns of it as numbers: what a picture is drawn from is what is written beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.records import Matrix, Survey, Table, Value

Numbers = NDArray[np.float64]
Item = TypeVar("Item")


def has(survey: Survey, *names: str) -> bool:
    """Whether all these tables are there, with rows."""
    there = {table.name for table in survey.tables if table.rows}
    return there.issuperset(names)


def where(table: Table, **values: Value) -> Table:
    """The rows whose columns have these values."""
    wanted = [(table.columns.index(column), value) for column, value in values.items()]
    kept = tuple(row for row in table.rows if all(row[place] == value for place, value in wanted))
    return msgspec.structs.replace(table, rows=kept)


def together(tables: Sequence[Table]) -> Table:
    """Rows of several tables with the same columns."""
    return msgspec.structs.replace(tables[0], rows=tuple(row for table in tables for row in table.rows))


def grouped(table: Table, *columns: str) -> Iterator[tuple[tuple[str, ...], Table]]:
    """Rows with equal values in these columns, in order of first appearance."""
    places = [table.columns.index(column) for column in columns]
    groups: dict[tuple[str, ...], list[tuple[Value, ...]]] = {}
    for row in table.rows:
        groups.setdefault(tuple(str(row[place]) for place in places), []).append(row)
    for key, rows in groups.items():
        yield key, msgspec.structs.replace(table, rows=tuple(rows))


def values(table: Table, column: str) -> list[Any]:
    place = table.columns.index(column)
    return [row[place] for row in table.rows]


def texts(table: Table, column: str) -> list[str]:
    return [str(value) for value in values(table, column)]


def numbers(table: Table, column: str) -> Numbers:
    """None, which is no number, becomes NaN, which is not drawn."""
    found = values(table, column)
    return np.array([value if isinstance(value, (int, float)) else np.nan for value in found], dtype=np.float64)


def distinct(table: Table, column: str) -> list[str]:
    return list(dict.fromkeys(texts(table, column)))


def mean(found: Numbers) -> float:
    """Of what exists; NaN if nothing does."""
    known = found[np.isfinite(found)]
    return float(known.mean()) if known.size else float("nan")


def cells(matrix: Matrix) -> Numbers:
    return np.array([[np.nan if v is None else v for v in row] for row in matrix.values], dtype=np.float64)


def named_parts(matrix: Matrix) -> list[str]:
    """What stands between the kind of a matrix and its metric: labels, layers, the role, spelt safely."""
    return matrix.name.split(".")[1:-1]


def labelled(survey: Survey, part: str) -> str:
    """The label that a safe spelling stands for."""
    return next((m.label for m in survey.models if _letters(m.label) == _letters(part)), part)


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text) or "none"


def file_stem(name: str, most: int = 200) -> str:
    """`name` if a folder can hold it with its ending; else its beginning, and a hash by which it stays its own."""
    encoded = name.encode()
    if len(encoded) <= most:
        return name
    return f"{encoded[: most - 13].decode(errors='ignore')}-{hashlib.sha256(encoded).hexdigest()[:12]}"


def decimals(found: Numbers, least: int = 3, most: int = 8) -> int:
    """After the point: so many that different numbers look different, and two digits of how far they differ."""
    known = found[np.isfinite(found)]
    reach = float(np.ptp(known)) if known.size else 0.0
    return least if reach == 0 else int(np.clip(1 - np.floor(np.log10(reach)), least, most))


def spread(found: Sequence[str], most: int) -> list[str]:
    """At most so many, evenly, the first and the last among them."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]


def null_said(part: Table | Matrix) -> str:
    """What the numbers would be between strangers, as a sentence."""
    return f"Between strangers: {part.strangers.rstrip('.')}."


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def pair_name(a: str, b: str, *notes: str) -> str:
    """Two models, and in a line each what is noted of them."""
    return "\n".join([f"{a} · {b}", *filter(None, notes)])


def known_note(known: object) -> str:
    """What is known of two models without measuring."""
    return f"known: {known}" if known else ""


def in_rows(names: Sequence[str], most: int = 12) -> list[str]:
    """Names of rows: where there are many, a line each."""
    return list(names) if len(names) <= most else [name.replace("\n", ", ") for name in names]


def paged(found: Sequence[Item], most: int) -> list[tuple[str, str, Sequence[Item]]]:
    """(end of the file's name, end of the title, a page of them): evenly, and without ends where one page will do."""
    pages = max(1, -(-len(found) // most))
    size = -(-len(found) // pages)
    if pages == 1:
        return [("", "", found)]
    parts = [found[start : start + size] for start in range(0, len(found), size)]
    return [(f".{n}", f", page {n} of {len(parts)}", part) for n, part in enumerate(parts, 1)]


def listed(names: Sequence[str], most: int = 8) -> str:
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def span(layers: Sequence[str]) -> str:
    """`48 layers from 0 to 47`, or their names if they are few. What stands outside all layers has no name."""
    outside = " and outside the layers" if "" in layers else ""
    return f"{_span([layer for layer in layers if layer])}{outside}"


def _span(layers: Sequence[str]) -> str:
    if len(layers) <= 6:
        return f"layer{'s' * (len(layers) != 1)} {listed(layers)}"
    return f"{len(layers)} layers from {layers[0]} to {layers[-1]}"
