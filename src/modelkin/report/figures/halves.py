"""Early layers and late ones of every pair, and what their means alone make of the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import (
    BEYOND,
    NULL_COLOUR,
    Picture,
    colour,
    legend_over,
    names_room,
    page,
    row_letters,
)
from modelkin.report.figures.rows import (
    counted,
    distinct,
    grouped,
    in_rows,
    known_note,
    mean,
    numbers,
    paged,
    pair_name,
    together,
    values,
    where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 36  # pairs to a page, a line each
EARLY = 0.13  # of a line: halves that agree stay side by side
_HALVES: tuple[dict[str, Any], ...] = (
    {"marker": "o", "color": colour(0), "label": "early half"},
    {"marker": "D", "color": colour(1), "label": "late half"},
)


def decay(survey: Survey) -> Iterator[Picture]:
    """Early layers against late ones, with what the means alone give for the same layers."""
    curves = survey.table("curves")
    for role in distinct(curves, "role"):
        for end, of, pairs in paged(list(grouped(where(curves, role=role), "a", "b")), ROWS):
            yield _decay_page(role, pairs, end, of)


def _decay_page(role: str, pairs: Sequence[tuple[tuple[str, ...], Table]], end: str, of: str) -> Picture:
    names = in_rows([pair_name(a, b, known_note(values(one, "known")[0])) for (a, b), one in pairs])
    figure, panels = page(2, 1, names_room(names, across=0.08), sharey=True)
    for place, (_, table) in enumerate(pairs):
        _draw_halves(panels, table, place)
    panels[0].set_yticks(range(len(pairs)), names, fontsize=row_letters(len(pairs)))
    panels[0].invert_yaxis()
    panels[0].set_xlabel("mean cosine")
    panels[1].set_xlabel("mean Pearson")
    legend_over(figure, panels)
    caption = (
        f"{role}: means over the first and the second half of the facing layers of {counted(len(pairs), 'pair')}; "
        "the late half lies a little lower. Open marks: the cosine that means and standard deviations alone give "
        "for the same layers; a decay that they show too is one of scale. Grey bars: where the Pearson of one "
        "layer lies for 95 of 100 strangers."
    )
    data = together([one for _, one in pairs])
    return Picture(f"decay.{role}{end}", f"Early and late layers: {role}{of}", caption, figure, (data,))


def _draw_halves(panels: list[Axes], table: Table, place: int) -> None:
    """One pair on its line; the first one names the marks."""
    half = (len(table.rows) + 1) // 2  # as in the table of layer pairs
    lines = place - EARLY, place + EARLY
    for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
        found = numbers(table, metric)
        ends = mean(found[:half]), mean(found[half:])
        panel.plot(ends, lines, color=NULL_COLOUR, lw=1)
        for end, at, style in zip(ends, lines, _HALVES, strict=True):
            panel.plot(end, at, ls="", **style | {"label": None if place else style["label"]})
    expected = numbers(table, "expected_cosine")
    for part, at, style in zip((expected[:half], expected[half:]), lines, _HALVES, strict=True):
        name = None if place else f"{style['label']}, cosine from means alone"
        panels[0].plot(mean(part), at, marker=style["marker"], mfc="none", color="black", ms=10, ls="", label=name)
    spread_of = float(BEYOND / np.sqrt(numbers(table, "n")[0] - 1))
    name = None if place else "Pearson of strangers, 95 %"
    panels[1].barh(place, 2 * spread_of, 0.6, -spread_of, color=NULL_COLOUR, alpha=0.25, label=name)
    panels[1].update_datalim([(-1.2 * spread_of, place), (1.2 * spread_of, place)])
