"""The page of a study: what it found in words a newcomer understands, then the tables worth a look."""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from modelkin.records import Study, Table
from modelkin.report.study_rows import named
from modelkin.report.survey_text import table_page
from modelkin.report.text import plain, render

MOST_ROWS = 18
# Of each study the tables that fit a page, and the columns of them that do; the files have everything.
SHOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "cosine-bias": {
        "angles": ("when", "cosine", "angle_degrees", "expected_cosine"),
        "synthetic": ("dimension", "mean_a", "mean_b", "std", "cosine_mean", "cosine_std", "expected_cosine"),
    },
    "init-toy": {
        "ranges": ("source", "stream", "init", "weight_decay", "quantity", "least", "mean", "most"),
        "losses": ("stream", "init", "weight_decay", "seed", "first_loss", "last_loss"),
    },
    "gain-scale": {"slopes": ("model", "role", "quantity", "layers", "growth", "growth_low", "growth_high")},
    "precision": {
        "threshold": (
            "format",
            "significand_bits",
            "std_in_ulps_measured",
            "std_in_ulps_expected",
            "scale_over_std_from",
            "scale_over_std_to",
        )
    },
    "claim": {
        "steps": ("which", "step", "name", "claimed", "found", "stands"),
        "controls": ("a", "b", "known", "cosine", "expected_cosine", "sigma", "chose_their_own", "of"),
    },
}


def study_page(study: Study) -> str:
    parts: list[RenderableType] = [Text(plain(study.title), style="bold")]
    parts += [Padding(Text(plain(part)), (1, 0, 0, 0)) for part in study.text.split("\n\n")]
    shown = SHOWN[study.name]
    parts += [table_page(_narrowed(named(study, name), columns), MOST_ROWS) for name, columns in shown.items()]
    files = ", ".join(f"{table.name} ({len(table.rows):,} rows)" for table in study.tables)
    parts.append(Padding(Text(f"tables: {files}; --out DIR writes them, with figures; {study.seconds:.1f} s"), (1, 0)))
    return render(Group(*parts))


def _narrowed(table: Table, columns: tuple[str, ...]) -> Table:
    places = [table.columns.index(column) for column in columns]
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return msgspec.structs.replace(table, columns=columns, rows=rows)
