"""Windows of the matrices, other numbers of heads, and routers, each with what chance gives beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import (
    NULL_COLOUR,
    Picture,
    colour,
    empty_rest,
    in_words,
    layer_ticks,
    legend_over,
    line_style,
    names_room,
    null_band,
    page,
    shape_for,
)
from modelkin.report.figures.rows import distinct, grouped, listed, null_said, numbers, safe, span, texts, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_PAGE = 6


def windows(survey: Survey) -> Iterator[Picture]:
    """Sampled windows by kind of tensor, as standard scores against renumbered axes; six pairs to a page."""
    table = where(survey.table("windows"), status="ok")
    pairs = list(grouped(table, "a", "b"))
    for start in range(0, len(pairs), PER_PAGE):
        some = pairs[start : start + PER_PAGE]
        across, down = shape_for(len(some))
        figure, panels = page(across, down)
        for panel, ((a, b), one) in zip(panels, some, strict=False):
            _draw_windows(panel, one)
            panel.set_title(f"{a} · {b}", loc="left", fontsize=11)
        empty_rest(panels, len(some))
        panels[0].legend(loc="best", fontsize=8)
        skipped = len(survey.table("windows").rows) - len(table.rows)
        caption = (
            f"Every point is a layer: {listed(distinct(table, 'role'))}, {span(distinct(table, 'layer_a'))}; {skipped} "
            "pairs of tensors were not comparable "
            f"and are in the table. Grey: 95 of 100 strangers. {table.caption} {null_said(table)}"
        )
        yield Picture(
            f"windows.{start // PER_PAGE + 1}",
            "Windows of the matrices",
            caption,
            figure,
            tuple(one for _, one in some),
        )


def _draw_windows(panel: Axes, table: Table) -> None:
    roles = distinct(table, "role")
    for place, role in enumerate(roles):
        one = where(table, role=role)
        found = numbers(one, "z")
        panel.fill_between(
            [place - 0.4, place + 0.4],
            -1.96,
            1.96,
            color=NULL_COLOUR,
            alpha=0.3,
            lw=0,
            label="strangers, 95 %" if not place else None,
        )
        panel.plot(place + np.linspace(-0.3, 0.3, found.size), found, "o", color=colour(place), ms=4)
    panel.set_xticks(range(len(roles)), roles)
    panel.set_ylabel("z")
    _scale_of_z(panel, float(np.nanmax(np.abs(numbers(table, "z")), initial=3.0)))


def _scale_of_z(panel: Axes, most: float) -> None:
    """Linear where strangers are, logarithmic beyond if relatives are there."""
    if most < 8:
        panel.set_ylim(-1.15 * most, 1.15 * most)
        return
    panel.set_yscale("symlog", linthresh=4)
    lowest = min(-6.0, 1.6 * float(np.nanmin(panel.dataLim.intervaly)))
    panel.set_ylim(lowest, 1.6 * most)
    ticks = [tick for tick in (-2, 0, 2, 10, 100, 1000, 10_000, 100_000) if tick < 1.6 * most]
    panel.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    panel.minorticks_off()


def truncation(survey: Survey) -> Iterator[Picture]:
    """Models with other numbers of heads: the leading rows, and matched heads, each with its null."""
    table = survey.table("truncation")
    for (a, b), one in grouped(table, "a", "b"):
        ways = list(grouped(one, "role", "how"))
        figure, panels = page(2, 1)
        for place, ((role, how), some) in enumerate(ways):
            at = np.arange(len(some.rows))
            panels[0].plot(at, numbers(some, "cosine"), label=f"{role}, {how}", **line_style(place))
            panels[1].plot(at, numbers(some, "z"), label=f"{role}, {how}", **line_style(place))
            if "null_mean" in some.columns:
                middle, spread = numbers(some, "null_mean"), numbers(some, "null_std")
                panels[0].fill_between(
                    at, middle - 1.96 * spread, middle + 1.96 * spread, color=colour(place), alpha=0.2, lw=0
                )
        layers = distinct(one, "layer_a")
        null_band(panels[1], [0, max(1, len(layers) - 1)], [1.96, 1.96], "strangers, 95 %")
        for panel, title in zip(panels, ("cosine, and its null as a band", "z against its null"), strict=True):
            layer_ticks(panel, layers)
            panel.set_title(title, loc="left")
            panel.set_xlabel(f"layer of {a}")
        panels[1].legend()
        caption = f"{a} and {b}, {span(layers)}. {table.caption} {null_said(table)}"
        yield Picture(
            f"truncation.{safe(a)}.{safe(b)}", f"{a} and {b}: other numbers of heads", caption, figure, (one,)
        )


def routers(survey: Survey) -> Iterator[Picture]:
    """Routers as they are and after matching experts, beside what matching makes of strangers."""
    table = survey.table("routers")
    for (a, b), one in grouped(table, "a", "b"):
        figure, panels = page(2, 1)
        at, layers = np.arange(len(one.rows)), texts(one, "layer_a")
        middle, spread = numbers(one, "renumbered_mean"), numbers(one, "renumbered_std")
        panels[0].fill_between(
            at,
            middle - 1.96 * spread,
            middle + 1.96 * spread,
            color=NULL_COLOUR,
            alpha=0.3,
            lw=0,
            label="renumbered, after matching, 95 %",
        )
        panels[0].plot(at, middle, color=NULL_COLOUR, lw=1)
        panels[0].plot(at, numbers(one, "cosine"), label="same numbers", **line_style(0))
        panels[0].plot(at, numbers(one, "aligned_cosine"), label="after optimal matching", **line_style(1))
        panels[0].set_title("mean cosine of router rows", loc="left")
        panels[1].bar(at, numbers(one, "chose_their_own"), 0.7, color=colour(0))
        panels[1].plot(at, numbers(one, "experts"), "_", color="black", ms=12, label="experts there are")
        panels[1].axhline(1, color=NULL_COLOUR, ls="--", lw=1.4, label="strangers: one")
        panels[1].set_title("experts that chose their own number", loc="left")
        for panel in panels:
            layer_ticks(panel, layers)
            panel.set_xlabel(f"layer of {a}")
            panel.legend()
        caption = (
            f"{a} and {b}, {span(layers)}. Grey: the same rows with the hidden axes of one model renumbered, and "
            "matched likewise; matching rows at its best lifts the cosine of strangers too, and only what exceeds the "
            "band counts. "
            f"{null_said(table)}"
        )
        yield Picture(f"routers.{safe(a)}.{safe(b)}", f"{a} and {b}: routers and experts", caption, figure, (one,))


def byte_counts(survey: Survey) -> Iterator[Picture]:
    """Tensors that are equal byte for byte, and how many of them count."""
    table = survey.table("bytes")
    pairs = list(grouped(table, "a", "b"))
    roles = distinct(table, "role")
    names = [f"{a} · {b}" for (a, b), _ in pairs]
    figure, panels = page(1, 1, names_room(names))
    width = 0.8 / max(1, len(roles))
    for place, role in enumerate(roles):
        rows = dict(grouped(where(table, role=role), "a", "b"))
        at = [i for i, (key, _) in enumerate(pairs) if key in rows]
        share = [_share(rows[pairs[i][0]], "equal") for i in at]
        counted = [_share(rows[pairs[i][0]], "counted") for i in at]
        shift = np.array(at) + (place - (len(roles) - 1) / 2) * width
        panels[0].barh(shift, share, width, color=colour(place), alpha=0.35)
        panels[0].barh(shift, counted, width, color=colour(place), label=role)
    panels[0].set_yticks(range(len(pairs)), names, fontsize=9)
    panels[0].invert_yaxis()
    panels[0].set_xlabel("share of tensors")
    panels[0].set_xlim(0, 1)
    if np.nansum(numbers(table, "equal")) == 0:
        in_words(panels[0], f"none of {int(np.nansum(numbers(table, 'tensors'))):,} tensors is equal byte for byte")
    legend_over(figure, panels)
    caption = (
        "Pale: equal byte for byte; full: equal and counted, since neither constant nor fixed by the config. "
        f"{table.caption} {null_said(table)}"
    )
    yield Picture("bytes", "Tensors equal byte for byte", caption, figure, (table,))


def _share(table: Table, column: str) -> float:
    tensors, found = numbers(table, "tensors").sum(), numbers(table, column)
    return float(np.nansum(found) / tensors) if tensors else 0.0
