"""A survey as files: JSON, the page, one CSV a table and one a matrix, and every caption in one place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modelkin.records import Matrix, Survey, Table
from modelkin.report.figures.rows import file_stem, null_said
from modelkin.report.files import table as csv_table
from modelkin.report.files import to_json
from modelkin.report.whole_files import write_whole

if TYPE_CHECKING:
    from modelkin.report.html.words import Language


def write_survey(
    survey: Survey, page: str, folder: Path, language: Language = "en", *, whole: bool = True
) -> list[Path]:
    """report.html, survey.json and .txt, captions.txt, tables/NAME.csv, matrices/NAME.csv: files, and the two folders.

    `language` is the one that the report opens in; it holds both. `whole` is whether the seal is.
    """
    from modelkin.report.html import survey_html

    write_whole(folder / "tables", {f"{table.name}.csv": table_csv(table) for table in survey.tables})
    squares = {f"{file_stem(matrix.name)}.csv": matrix_csv(matrix) for matrix in survey.matrices}
    write_whole(folder / "matrices", squares)
    bodies = {
        "report.html": survey_html(survey, language, whole=whole),
        "survey.json": to_json(survey),
        "survey.txt": page,
        "captions.txt": captions(survey),
    }
    return [*write_whole(folder, bodies), folder / "tables", folder / "matrices"]


def table_csv(table: Table) -> str:
    return csv_table((dict(zip(table.columns, row, strict=True)) for row in table.rows), table.columns)


def matrix_csv(matrix: Matrix) -> str:
    """The first cell says what is measured; then a line a row."""
    first = f"{matrix.metric} of"
    lines = (
        {first: name, **dict(zip(matrix.columns, values, strict=True))}
        for name, values in zip(matrix.rows, matrix.values, strict=True)
    )
    return csv_table(lines, (first, *matrix.columns))


def captions(survey: Survey) -> str:
    """What every file shows, and what it would show between strangers."""
    parts: list[Table | Matrix] = [*survey.tables, *survey.matrices]
    return "\n".join(f"{file_stem(it.name)}\n  {it.title}\n  {it.caption}\n  {null_said(it)}\n" for it in parts)
