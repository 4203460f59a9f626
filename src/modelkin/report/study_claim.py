"""Pictures of the study claim: its cosines with what means alone make of them, and pairs whose relation is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from modelkin.records import Study, Table
from modelkin.report.figures.canvas import COLOURS, MARKERS, NULL_COLOUR, Picture, Room, page
from modelkin.report.figures.rows import distinct, null_said, numbers, texts, where
from modelkin.report.study_rows import about, named, plain_ticks

GROUPS = {
    "within, layer 0": "within one model, layer 0\n(the claim's baseline)",
    "across": "across the two models\n(the claim)",
    "across, layer 0": "across, layer 0\n(left out)",
    "within, no layer 0": "within one model, other layers\n(the fair baseline)",
}
KNOWN = {
    "asked": "in question",
    "independent": "independent",
    "derived": "derived",
    "disguised": "derived, in disguise",
}


def pictures(study: Study) -> Iterator[Picture]:
    yield _cosines(study)
    yield _controls(named(study, "controls"))


def _cosines(study: Study) -> Picture:
    table = named(study, "cells")
    figure, panels = page(2, room=Room(left=0.2, right=0.97, across=0.06), sharey=True)
    for panel, which in zip(panels, ("published", "asked"), strict=True):
        rows = where(table, which=which)
        _dots(panel, rows)
        panel.set_title(f"{which}: {distinct(rows, 'pair')[0]}{_sigma(named(study, 'steps'), which)}")
    panels[0].set_yticks(range(len(GROUPS)), list(GROUPS.values()))
    panels[0].invert_yaxis()
    for panel in panels:
        panel.locator_params(axis="x", nbins=4)
    panels[0].legend(loc="center", fontsize=12)
    caption = f"{about(table)} {null_said(table)}"
    title = "The 182 sigma argument: the layer it compares with, and what means alone make of its cosines"
    return Picture("claim-cosines", title, caption, figure, (table,))


def _dots(panel: Any, table: Table) -> None:
    for place, group in enumerate(GROUPS):
        rows = where(table, group=group)
        cosines, expected = numbers(rows, "cosine"), numbers(rows, "expected_cosine")
        over = place + np.linspace(-0.25, 0.25, len(cosines)) if len(cosines) > 1 else np.array([float(place)])
        first = place == 0
        panel.plot(expected, over, "o", ms=13, mfc="none", mec=NULL_COLOUR, label="from means alone" if first else None)
        style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "ms": 7, "ls": ""}
        panel.plot(cosines, over, label="measured" if first else None, **style)
    panel.set_xlabel("cosine")


def _sigma(steps: Table, which: str) -> str:
    claimed = numbers(where(steps, which=which, step=0), "claimed")
    dropped = numbers(where(steps, which=which, name="the dropped layer"), "found")
    if not dropped.size or np.isnan(dropped[0]):
        return ""
    return f"\n{claimed[0]:.1f} sigma as claimed, {dropped[0]:.1f} with layer 0 put back"


def _controls(table: Table) -> Picture:
    figure, (left, right) = page(2, room=Room(left=0.12, across=0.06), sharey=True)
    order = np.argsort([list(KNOWN).index(known) for known in texts(table, "known")], kind="stable")
    names = [f"{a} × {b}" for a, b in zip(texts(table, "a"), texts(table, "b"), strict=True)]
    known, cosine, expected = texts(table, "known"), numbers(table, "cosine"), numbers(table, "expected_cosine")
    share = numbers(table, "chose_their_own")
    seen: set[str] = set()
    for down, place in enumerate(order):
        kind = list(KNOWN).index(known[place])
        label = KNOWN[known[place]] if known[place] not in seen else None
        seen.add(known[place])
        style: dict[str, Any] = {"color": COLOURS[kind], "marker": MARKERS[kind], "ms": 8, "ls": ""}
        left.plot(1 - expected[place], down, "o", ms=14, mfc="none", mec=NULL_COLOUR)
        left.plot(1 - cosine[place], down, label=label, **style)
        right.plot(share[place], down, **style)
    left.set(xscale="log", xlabel="1 − mean cosine of facing layers (grey rings: from means alone)")
    plain_ticks(left, 1 - np.concatenate([cosine, expected]))
    left.invert_xaxis()
    left.set_yticks(range(len(order)), [names[place] for place in order])
    left.invert_yaxis()
    left.set_title("What the argument looks at")
    left.legend(loc="lower right", fontsize=12)  # only the disguised stand there, at the other end
    most = int(np.nanmax(numbers(table, "of")))
    right.axvline(1, color=NULL_COLOUR, lw=1.5)
    right.set(xscale="symlog", xlabel=f"hidden axes that find themselves, of {most} (grey: strangers, 1 on average)")
    ticks = [0, 1, *(tick for tick in (3, 10, 30, 100, 300, 1000) if tick <= most)]
    right.set_xticks(ticks, [str(tick) for tick in ticks])
    right.set_xlim(-0.5, 1.5 * most)
    right.minorticks_off()
    right.set_title("What tells strangers from relatives: the roll call")
    caption = (
        f"{about(table)} Between strangers: the cosine that means and standard deviations alone give; one hidden axis "
        "finds itself."
    )
    return Picture("claim-controls", table.title, caption, figure, (table,))
