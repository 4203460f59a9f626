"""A study as files: JSON, the page, one CSV a table, its pictures as PNG and SVG, and its animation."""

from __future__ import annotations

from pathlib import Path

from modelkin.records import Study
from modelkin.report.figures.rows import null_said
from modelkin.report.files import to_json
from modelkin.report.study_figures import ANIMATIONS, save_figures, write_animation
from modelkin.report.survey_files import table_csv
from modelkin.report.whole_files import write_whole


def write_study(study: Study, page: str, folder: Path, *, figures: bool = True) -> list[Path]:
    """study.json and .txt, captions.txt, NAME.csv a table, and unless told otherwise the pictures."""
    bodies = {
        "study.json": to_json(study),
        "study.txt": page,
        "captions.txt": captions(study),
        **{f"{table.name}.csv": table_csv(table) for table in study.tables},
    }
    written = write_whole(folder, bodies)
    if figures:
        written += save_figures(study, folder)
        written += [write_animation(study, folder / name) for name in ANIMATIONS.get(study.name, ())]
    return written


def captions(study: Study) -> str:
    """What every table shows, and what it would show between strangers."""
    return "\n".join(f"{it.name}\n  {it.title}\n  {it.caption}\n  {null_said(it)}\n" for it in study.tables)
