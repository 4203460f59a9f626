"""Records as files: JSON, CSV and the text page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modelkin.records import Comparison, Evidence, Inspection
from modelkin.report.extrapolation import is_extrapolated
from modelkin.report.whole_files import write_whole

if TYPE_CHECKING:
    from modelkin.report.html.words import Language

Progress = Callable[[int, int], None]
ANSWERS = (
    *("question", "index_set", "grade", "extrapolated", "statistic", "n", "pvalue", "log10_pvalue", "effect"),
    "unanswered",
)


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
    return write_whole(folder, {"inspection.json": to_json(inspection), "inspection.txt": page, **tables})


def write_comparison(
    comparison: Comparison,
    page: str,
    folder: Path,
    language: Language = "en",
    *,
    whole: bool = True,
    figures: bool = True,
    progress: Progress | None = None,
) -> list[Path]:
    """report.html; comparison.json, .txt and .md; for bills of materials .cdx.json (CycloneDX) and .spdx.json;
    answers.csv, and layers.csv: what each question found in which layers; figures/, the charts of the page.

    `language` is the one that the report opens in, and that of the figures; the report holds both. `whole` is whether
    the seal is: from a record that was changed no document for other programs is made, for these heed no warning.
    """
    from modelkin.report.comparison_figures import write_figures
    from modelkin.report.html import comparison_html
    from modelkin.report.markdown import markdown
    from modelkin.report.trust import BROKEN

    words = markdown(comparison)
    bodies = {
        "report.html": comparison_html(comparison, language, whole=whole),
        "comparison.json": to_json(comparison),
        "comparison.txt": page,
        "comparison.md": words if whole else f"> **{BROKEN['en']}**\n\n{words}",
        **(_bills(comparison) if whole else {}),
        "answers.csv": answers_csv(comparison),
        "layers.csv": layers_csv(comparison),
    }
    written = write_whole(folder, bodies)
    drawn = write_figures(comparison, folder / "figures", language, progress) if figures and whole else []
    return [*written, *([folder / "figures"] if drawn else [])]


def _bills(comparison: Comparison) -> dict[str, str]:
    from modelkin.report.cyclonedx import cyclonedx
    from modelkin.report.spdx import spdx

    return {"comparison.cdx.json": cyclonedx(comparison), "comparison.spdx.json": spdx(comparison)}


def answers_csv(comparison: Comparison) -> str:
    """`extrapolated` is true where a p of grade B goes beyond what was measured."""
    beyond = ["true" if isinstance(one, Evidence) and is_extrapolated(one) else "" for one in comparison.answers]
    rows = [
        {**msgspec.to_builtins(answer), "extrapolated": said}
        for answer, said in zip(comparison.answers, beyond, strict=True)
    ]
    return table(rows, ANSWERS)


def layers_csv(comparison: Comparison) -> str:
    layers = [
        {"question": answer.question, **msgspec.to_builtins(finding)}
        for answer in comparison.answers
        if isinstance(answer, Evidence)
        for finding in answer.per_layer
    ]
    return table(layers, ("question", "a", "b", "statistic", "n", "log10_pvalue", "effect"))


def write_comparisons(comparisons: Sequence[Comparison], page: str, folder: Path) -> list[Path]:
    """One comparison.json a pair, called after its models, and the page."""
    names = ["-".join(party.id.rpartition("/")[2] for party in (c.a, c.b)) for c in comparisons]
    records = {f"{name}.json": to_json(comparison) for name, comparison in zip(names, comparisons, strict=True)}
    return write_whole(folder, {"comparisons.txt": page, **records})


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
