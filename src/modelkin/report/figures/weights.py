"""Windows of the matrices, other numbers of heads, and routers, each with what chance gives beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import (
    NULL_COLOUR,
    Picture,
    colour,
    empty_rest,
    heat,
    ink_on,
    layer_ticks,
    legend_over,
    line_style,
    names_room,
    null_band,
    page,
    shape_for,
)
from modelkin.report.figures.rows import (
    counted,
    distinct,
    grouped,
    listed,
    null_said,
    numbers,
    safe,
    span,
    texts,
    where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_PAGE = 6
WRITTEN = 16  # a number on each bar up to so many
LINEAR = 4  # standard deviations: strangers lie within


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
        caption = _said_of_windows(survey.table("windows"), [pair for pair, _ in some])
        yield Picture(
            f"windows.{start // PER_PAGE + 1}",
            "Windows of the matrices",
            caption,
            figure,
            tuple(one for _, one in some),
        )


def _said_of_windows(table: Table, pairs: Sequence[tuple[str, ...]]) -> str:
    """Of the pairs of models on one page, and of what is drawn of them."""
    here = [one for pair, one in grouped(table, "a", "b") if pair in pairs]
    ok = [where(one, status="ok") for one in here]
    roles = list(dict.fromkeys(role for one in ok for role in distinct(one, "role")))
    layers = list(dict.fromkeys(layer for one in ok for layer in distinct(one, "layer_a")))
    drawn, every = sum(len(one.rows) for one in ok), sum(len(one.rows) for one in here)
    rest = f"; {every - drawn} more could not be compared, and the table says why" if every > drawn else ""
    beyond = any(_beyond(one) for one in ok)
    scale = f" Where relatives go beyond {LINEAR}, the axis is logarithmic from there on." if beyond else ""
    return (
        f"{counted(drawn, 'pair')} of tensors, a point each: {listed(roles)}, {span(layers)}{rest}. z: the sum of "
        "products in windows of whole rows, against what it is when the axes of one model's residual stream are "
        f"renumbered.{scale} Grey: 95 of 100 strangers. Between strangers: z between −2 and 2 in 19 of 20, in every "
        "role alike."
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
    _scale_of_z(panel, table)


def _most(table: Table) -> float:
    return float(np.nanmax(np.abs(numbers(table, "z")), initial=3.0))


def _beyond(table: Table) -> bool:
    return _most(table) >= 2 * LINEAR


def _scale_of_z(panel: Axes, table: Table) -> None:
    """Linear where strangers are, logarithmic beyond if relatives are there."""
    most = _most(table)
    if not _beyond(table):
        panel.set_ylim(-1.15 * most, 1.15 * most)
        return
    panel.set_yscale("symlog", linthresh=LINEAR)
    lowest = min(-6.0, 1.6 * float(np.nanmin(panel.dataLim.intervaly)))
    panel.set_ylim(lowest, 1.6 * most)
    ticks = [tick for tick in (-2, 0, 2, 10, 100, 1000, 10_000, 100_000) if tick < 1.6 * most]
    panel.set_yticks(ticks, [f"{tick:,}".replace("-", "−") for tick in ticks])
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
        caption = (
            f"{a} and {b}, {span(layers)}: {counted(len(one.rows), 'comparison')} of tensors whose heads differ in "
            "number. Leading rows: those of the model with fewer heads beside the first ones of the other; matched "
            "heads: one to one by greatest likeness. Bands: 95 of 100 renumberings of one model's hidden axes. Between "
            "strangers: leading rows have a cosine near 0, matched heads one inside their band, which lies above 0 "
            "because the best of many was chosen; z is between −2 and 2 in 19 of 20."
        )
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
        _draw_choices(panels[1], at, numbers(one, "chose_their_own"), numbers(one, "experts"))
        for panel in panels:
            layer_ticks(panel, layers)
            panel.set_xlim(-0.6, len(layers) - 0.4)
            panel.set_xlabel(f"layer of {a}")
        legend_over(figure, panels)
        caption = (
            f"{a} and {b}, {span(layers)}. Grey: the same rows with the hidden axes of one model renumbered, and "
            "matched likewise; matching rows at its best lifts the cosine of strangers too, and only what exceeds the "
            "band counts. Between strangers: as they are near 0, though rows of one router often share a direction; "
            "matched inside the band and never 0; one expert chooses its own number, whatever their count."
        )
        yield Picture(f"routers.{safe(a)}.{safe(b)}", f"{a} and {b}: routers and experts", caption, figure, (one,))


def _draw_choices(panel: Axes, at: np.ndarray, chose: np.ndarray, experts: np.ndarray) -> None:
    panel.bar(at, chose, 0.5, color=colour(0), label="experts that chose their own number")
    panel.plot(at, experts, "_", color="black", ms=14, mew=2, label="experts there are")
    panel.axhline(1, color=NULL_COLOUR, ls="--", lw=1.4, label="experts of strangers: one")
    for place, count in zip(at, chose, strict=True) if at.size <= WRITTEN else ():
        if np.isfinite(count):
            panel.text(place, count, f"{count:.0f}", ha="center", va="bottom", fontsize=11)
    panel.set_ylim(0, 1.12 * float(np.nanmax(experts, initial=1.0)))
    panel.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    panel.set_title("experts that chose their own number", loc="left")


def byte_counts(survey: Survey) -> Iterator[Picture]:
    """Tensors that are equal byte for byte, and how many of them count."""
    from matplotlib.colors import Normalize

    table = survey.table("bytes")
    pairs = list(grouped(table, "a", "b"))
    roles = distinct(table, "role")
    names = [f"{a} · {b}" for (a, b), _ in pairs]
    figure, (panel,) = page(1, 1, names_room(names))
    shares = np.full((len(pairs), len(roles)), np.nan)
    written: dict[tuple[int, int], str] = {}
    for i, (_, one) in enumerate(pairs):
        for (role,), some in grouped(one, "role"):
            at = i, roles.index(role)
            tensors, equal, count = (int(np.nansum(numbers(some, name))) for name in ("tensors", "equal", "counted"))
            shares[at] = equal / tensors if tensors else np.nan
            written[at] = f"{equal} of {tensors}" + (f", {count} count" if equal else "")
    image = heat(panel, shares, Normalize(0, 1), "Blues")
    for (i, j), text in written.items():
        panel.text(j, i, text, ha="center", va="center", fontsize=9, color=ink_on(image, shares[i, j]))
    panel.set_yticks(range(len(pairs)), names, fontsize=9)
    panel.set_xticks(range(len(roles)), roles)
    panel.set_title(_in_all(table), loc="left")
    caption = (
        "Tensors equal byte for byte, of all that could be compared, and how many of these count, since they are "
        f"neither constant nor fixed by the config. Grey: nothing to compare. {table.caption} {null_said(table)}"
    )
    yield Picture("bytes", "Tensors equal byte for byte", caption, figure, (table,))


def _in_all(table: Table) -> str:
    tensors, equal, count = (int(np.nansum(numbers(table, name))) for name in ("tensors", "equal", "counted"))
    if not equal:
        return f"none of {tensors:,} tensors is equal byte for byte"
    return f"{equal:,} of {tensors:,} tensors are equal byte for byte, {count:,} of them count"
