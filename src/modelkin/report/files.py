"""Records as files: JSON, CSV and the text page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modelkin.records import Comparison, Evidence, Inspection

if TYPE_CHECKING:
    from modelkin.report.html.words import Language


def to_json(record: Any) -> str:
    """Indented, in UTF-8; NaN and infinities, which JSON lacks, become null."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def write_inspection(inspection: Inspection, page: str, folder: Path) -> list[Path]:
    """inspection.json and .txt, gains.csv, anatomy.csv, files.csv, and left_out.csv: what has no role, and why."""
    tables = {
        "gains.csv": table(inspection.gains),
        "anatomy.csv": table(inspection.anatomy),
        "files.csv": table(inspection.model.files),
        "left_out.csv": table(
            [*inspection.apart, *({"name": name, "reason": "not mapped"} for name in inspection.unmapped)],
            columns=("name", "reason"),
        ),
    }
    return _write(folder, {"inspection.json": to_json(inspection), "inspection.txt": page, **tables})


def write_comparison(comparison: Comparison, page: str, folder: Path, language: Language = "en") -> list[Path]:
    """report.html; comparison.json, .txt and .md; for bills of materials .cdx.json (CycloneDX) and .spdx.json;
    answers.csv, and layers.csv: what each question found in which layers.

    `language` is the one that the report opens in; it holds both.
    """
    from modelkin.report.cyclonedx import cyclonedx
    from modelkin.report.html import comparison_html
    from modelkin.report.markdown import markdown
    from modelkin.report.spdx import spdx

    columns = ("question", "index_set", "grade", "statistic", "n", "pvalue", "log10_pvalue", "effect", "unanswered")
    layers = [
        {"question": answer.question, **msgspec.to_builtins(finding)}
        for answer in comparison.answers
        if isinstance(answer, Evidence)
        for finding in answer.per_layer
    ]
    bodies = {
        "report.html": comparison_html(comparison, language),
        "comparison.json": to_json(comparison),
        "comparison.txt": page,
        "comparison.md": markdown(comparison),
        "comparison.cdx.json": cyclonedx(comparison),
        "comparison.spdx.json": spdx(comparison),
        "answers.csv": table(comparison.answers, columns),
        "layers.csv": table(layers, ("question", "a", "b", "statistic", "n", "log10_pvalue", "effect")),
    }
    return _write(folder, bodies)


def write_comparisons(comparisons: Sequence[Comparison], page: str, folder: Path) -> list[Path]:
    """One comparison.json a pair, called after its models, and the page."""
    names = ["-".join(party.id.rpartition("/")[2] for party in (c.a, c.b)) for c in comparisons]
    records = {f"{name}.json": to_json(comparison) for name, comparison in zip(names, comparisons, strict=True)}
    return _write(folder, {"comparisons.txt": page, **records})


def _write(folder: Path, bodies: Mapping[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(body, encoding="utf-8", newline="")
    return [folder / name for name in bodies]


def table(records: Iterable[Any], columns: Sequence[str] | None = None) -> str:
    rows = [msgspec.to_builtins(record) for record in records]
    names = list(columns or (rows[0] if rows else ()))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return ";".join("x".join(map(str, v)) if isinstance(v, (list, tuple)) else str(v) for v in value)
    # A spreadsheet would run a name that starts like a formula.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return "'" + value
    return value
