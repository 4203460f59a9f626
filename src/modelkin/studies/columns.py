"""Tables read back by name, so that a text is made from the same numbers as its table."""

from __future__ import annotations

from modelkin.records.survey import Table, Value


def numbers(table: Table, column: str, **where: Value) -> list[float]:
    """The numbers of a column, in order, of rows whose other columns have these values, but for None."""
    place = table.columns.index(column)
    wanted = [(table.columns.index(name), value) for name, value in where.items()]
    chosen = (row[place] for row in table.rows if all(row[at] == value for at, value in wanted))
    return [float(value) for value in chosen if value is not None]


def number(table: Table, column: str, **where: Value) -> float:
    """The one that there is."""
    (only,) = numbers(table, column, **where)
    return only
