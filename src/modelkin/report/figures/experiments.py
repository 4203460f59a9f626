"""What else is as alike: the six experiments on baselines, groups and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import (
    BEYOND,
    NULL_COLOUR,
    ROWS_HEIGHT,
    Picture,
    colour,
    layer_ticks,
    legend_over,
    line_style,
    names_room,
    page,
    pearson_bands,
    row_letters,
    without_pattern,
)
from modelkin.report.figures.rows import (
    Numbers,
    counted,
    decimals,
    distinct,
    grouped,
    has,
    in_rows,
    known_note,
    mean,
    null_said,
    numbers,
    paged,
    pair_name,
    span,
    texts,
    values,
    where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 30  # pairs to a page, a line each
METRICS = (("cosine", "cosine"), ("pearson", "Pearson"), ("l2", "L2 distance"))


def first_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 1: the first layer against later ones, beside layers at the same distance elsewhere in the model."""
    for role, table in _by_role(survey):
        figure, panels = page(2, 1)
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, model in enumerate(_models(table)):
                for baseline, dash in (("layer-0", "-"), ("equal-distance", ":")):
                    _draw_distances(panel, where(table, model=model, baseline=baseline), metric, place, dash)
            panel.set_xlabel("distance in layers")
            panel.set_title(f"{dict(METRICS)[metric]}: first layer (solid), any two layers (dotted)", loc="left")
        pearson_bands(panels[1], numbers(table, "width").tolist())
        legend_over(figure, panels)
        caption = (
            f"{role}: inside {counted(len(_models(table)), 'model')}. Solid: the first layer with the one at this "
            f"distance. Dotted: mean over all pairs of layers at this distance. {_odd_one_out(table)} Broad grey: "
            "what means and spreads alone give for the same pairs of layers; grey band: the Pearson of one pair of "
            f"layers for 95 of 100 strangers. {null_said(table)}"
        )
        yield Picture(
            f"experiment-1-first-layer.{role}", f"The first layer as a baseline: {role}", caption, figure, (table,)
        )


def _odd_one_out(table: Table) -> str:
    kinds = [where(table, baseline=name) for name in ("layer-0", "equal-distance")]
    first, any_two = (_over_pairs(some, "cosine_mean") for some in kinds)
    alone = [_over_pairs(some, "expected_cosine") for some in kinds]
    digits = decimals(np.array([first, any_two]))
    return (
        f"Over all pairs, the cosine of the first layer with others is {first:.{digits}f} (from means alone "
        f"{alone[0]:.{digits}f}), that of any two layers {any_two:.{digits}f} ({alone[1]:.{digits}f}): a baseline "
        f"taken from the first layer alone is off by {any_two - first:+.{digits}f}."
    )


def _over_pairs(table: Table, column: str) -> float:
    """The mean over all pairs of layers, each counted once: rows at one distance weigh as many as they hold."""
    found, weight = numbers(table, column), numbers(table, "n")
    known = np.isfinite(found) & np.isfinite(numbers(table, "distance")) & (weight > 0)
    return float(np.average(found[known], weights=weight[known])) if known.any() else float("nan")


def equal_distance(survey: Survey) -> Iterator[Picture]:
    """Experiment 2: layers of one model at each distance, their spread, and what means and spreads alone give."""
    for role, table in _by_role(survey):
        figure, panels = page(2, 1)
        _draw_across(panels[0], survey, role)
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, model in enumerate(_models(table)):
                some = where(table, model=model, baseline="equal-distance")
                _draw_distances(panel, some, metric, place, "-", band=True)
            panel.set_xlabel("distance in layers")
            panel.set_title(dict(METRICS)[metric], loc="left")
        pearson_bands(panels[1], numbers(table, "width").tolist())
        legend_over(figure, panels)
        caption = (
            f"{role}: all pairs of layers of one model at each distance, mean and one standard deviation. Broad "
            "grey: the cosine that means and spreads alone give for the same pairs of layers; grey band: where the "
            "Pearson of one pair of layers lies for 95 of 100 strangers. Black "
            "dotted: the mean cosine over facing layers of different models, which means little where layers of one "
            f"model reach it too. {null_said(table)}"
        )
        yield Picture(f"experiment-2-equal-distance.{role}", f"Layers of one model: {role}", caption, figure, (table,))


def _draw_across(panel: Axes, survey: Survey, role: str) -> None:
    if has(survey, "curves"):
        found = where(survey.table("curves"), role=role)
        if found.rows:
            level = mean(numbers(found, "cosine"))
            panel.axhline(level, color="black", ls=":", lw=1.4, label="facing layers of different models")


def _by_role(survey: Survey) -> Iterator[tuple[str, Table]]:
    table = survey.table("baselines")
    for (role,), some in grouped(table, "role"):
        if "equal-distance" in texts(some, "baseline"):
            yield role, some


def _models(table: Table) -> list[str]:
    return distinct(table, "model")


def _draw_distances(panel: Axes, table: Table, metric: str, place: int, dash: str, band: bool = False) -> None:
    distance = numbers(table, "distance")
    known = np.isfinite(distance)
    if not known.any():
        return
    at, found, spread = distance[known], numbers(table, f"{metric}_mean")[known], numbers(table, f"{metric}_std")[known]
    style = {**line_style(place), "linestyle": dash, "markersize": 3}
    label = values(table, "model")[0] if dash == "-" else None
    panel.plot(at, found, label=label, **style)
    if metric == "cosine":
        without_pattern(panel, at, numbers(table, "expected_cosine")[known])
    if band:
        panel.fill_between(at, found - spread, found + spread, color=colour(place), alpha=0.12, lw=0)


def pairs_at_one_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 3: every pair of models at one layer, beside what means alone give."""
    for (role,), table in grouped(survey.table("curves"), "role"):
        for end, of, pairs in paged(list(grouped(table, "a", "b")), ROWS):
            yield _pairs_page(role, pairs, end, of)


def _pairs_page(role: str, pairs: Sequence[tuple[tuple[str, ...], Table]], end: str, of: str) -> Picture:
    rows = tuple(one.rows[len(one.rows) // 2] for _, one in pairs)
    shown = msgspec.structs.replace(pairs[0][1], rows=rows)
    names = in_rows(
        [
            pair_name(a, b, known_note(known), f"layers {layer_a} · {layer_b}")
            for a, b, layer_a, layer_b, known in zip(
                *(values(shown, column) for column in ("a", "b", "layer_a", "layer_b", "known")), strict=True
            )
        ]
    )
    figure, panels = page(2, 1, names_room(names, across=0.08), sharey=True)
    at = np.arange(len(pairs))
    # Near 1 everywhere: bars from zero would hide how near.
    panels[0].plot(numbers(shown, "cosine"), at, "D", color=colour(1), ms=8, label="cosine")
    panels[1].barh(at, numbers(shown, "pearson"), 0.6, color=colour(0))
    for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
        panel.set_xlabel(dict(METRICS)[metric])
    tall: dict[str, Any] = {"ms": min(18.0, 0.9 * ROWS_HEIGHT / len(pairs)), "mew": 2}
    expected = numbers(shown, "expected_cosine")
    panels[0].plot(expected, at, "|", color="black", label="cosine from means alone", **tall)
    half = BEYOND / np.sqrt(np.maximum(1.0, numbers(shown, "n") - 1))
    name = "Pearson of strangers, 95 %"
    panels[1].errorbar(np.zeros(len(at)), at, xerr=half, fmt="none", color="black", capsize=4, label=name)
    panels[0].set_yticks(at, names, fontsize=row_letters(len(pairs), 8))
    panels[0].invert_yaxis()
    legend_over(figure, panels)
    caption = (
        f"{role}: {counted(len(pairs), 'pair')} of models, each at the middle of its facing layers (named on the "
        "left). Black: what means and standard deviations alone give for the cosine, and where the Pearson of 95 "
        "of 100 strangers lies."
    )
    return Picture(f"experiment-3-pairs.{role}{end}", f"All pairs at one layer: {role}{of}", caption, figure, (shown,))


def groups_by_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 4: groups of models layer by layer."""
    for (role,), table in grouped(survey.table("groups"), "role"):
        figure, panels = page(2, 1)
        layers = distinct(table, "layer")
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, (name, some) in enumerate(_groups(table)):
                at = [layers.index(layer) for layer in texts(some, "layer")]
                found, spread = numbers(some, f"{metric}_mean"), numbers(some, f"{metric}_std")
                panel.plot(at, found, label=name, **line_style(place))
                if metric == "cosine":
                    without_pattern(panel, at, numbers(some, "expected_cosine"))
                panel.fill_between(at, found - spread, found + spread, color=colour(place), alpha=0.12, lw=0)
            layer_ticks(panel, layers)
            panel.set_xlabel("layer")
            panel.set_title(dict(METRICS)[metric], loc="left")
        pearson_bands(panels[1], numbers(table, "width").tolist())
        legend_over(figure, panels)
        caption = (
            f"{role}: {span(layers)}, mean and one standard deviation over the pairs of models. Broad grey: what means "
            "and spreads alone give for the same pairs; grey band: where the Pearson of one pair lies for 95 of 100 "
            f"strangers. {table.caption} {null_said(table)}"
        )
        yield Picture(f"experiment-4-layers.{role}", f"Groups of models by layer: {role}", caption, figure, (table,))


def _groups(table: Table) -> list[tuple[str, Table]]:
    """Every two groups by name; models of another width are another group, for no pair has one of each."""
    several = len(distinct(table, "width")) > 1
    found = []
    for (one, other, width), some in grouped(table, "group_a", "group_b", "width"):
        name = f"among {one}" if one == other else f"{one} with {other}"
        found.append((f"{name}, width {width}" if several else name, some))
    return found


def groups_compared(survey: Survey) -> Iterator[Picture]:
    """Experiment 5: groups side by side, every layer a point, the mean over layers a bar."""
    for (role,), table in grouped(survey.table("groups"), "role"):
        groups = _groups(table)
        names = [f"{name}\n{_pairs(some)}" for name, some in groups]
        figure, panels = page(3, 1, names_room(names, across=0.12), sharey=True)
        for panel, (metric, title) in zip(panels, METRICS, strict=True):
            panel.locator_params(axis="x", nbins=4)
            for place, (_, some) in enumerate(groups):
                found = numbers(some, f"{metric}_mean")
                if metric == "cosine":  # near 1 everywhere: bars from zero would hide how near
                    panel.plot(mean(found), place, "D", color=colour(place), ms=11)
                else:
                    panel.barh(place, mean(found), 0.6, color=colour(place), alpha=0.5)
                panel.plot(found, place + np.linspace(-0.2, 0.2, found.size), ".", color="black", ms=4)
            panel.set_title(title, loc="left")
        _draw_group_nulls(panels, [some for _, some in groups])
        panels[0].set_yticks(range(len(groups)), names, fontsize=9)
        panels[0].invert_yaxis()
        legend_over(figure, panels)
        caption = (
            f"{role}: bars and diamonds are means over {span(distinct(table, 'layer'))}, points are single layers. "
            "Grey: the mean cosine that means and spreads alone give for the same pairs, and where the Pearson of one "
            f"pair at one layer lies for 95 of 100 strangers; L2 follows the scale. {table.caption} {null_said(table)}"
        )
        yield Picture(f"experiment-5-groups.{role}", f"Groups of models: {role}", caption, figure, (table,))


def _pairs(table: Table) -> str:
    most = int(np.nanmax(numbers(table, "n")))
    return f"{most} pair{'s' * (most != 1)}"


def _draw_group_nulls(panels: list[Axes], groups: list[Table]) -> None:
    at = np.arange(len(groups))
    expected = [mean(numbers(some, "expected_cosine")) for some in groups]
    style: dict[str, Any] = {"color": NULL_COLOUR, "ls": "", "ms": 20, "mew": 3}
    panels[0].plot(expected, at, marker="|", label="cosine from means and spreads alone", **style)
    half = [BEYOND / np.sqrt(max(1.0, numbers(some, "width")[0] - 1)) for some in groups]
    name = "Pearson of strangers, 95 %"
    panels[1].errorbar(np.zeros(at.size), at, xerr=half, fmt="none", color=NULL_COLOUR, lw=3, capsize=8, label=name)


BASELINES = ("equal-distance", "layer-0", "random-normal", "shuffled", "means-only")


def _each_distance(table: Table, column: str) -> Numbers:
    """Without the row that sums up the others."""
    return numbers(table, column)[np.isfinite(numbers(table, "distance"))]


def metrics_compared(survey: Survey) -> Iterator[Picture]:
    """Experiment 6: three metrics of different models, of layers of one model, and of vectors without a pattern."""
    curves = survey.table("curves")
    for role, table in _by_role(survey):
        across = where(curves, role=role)
        names = ["different models", *BASELINES]
        figure, panels = page(3, 1, names_room(names, across=0.08), sharey=True)
        for panel, (metric, title) in zip(panels, METRICS, strict=True):
            found = [
                numbers(across, metric),
                *(_each_distance(where(table, baseline=name), f"{metric}_mean") for name in BASELINES),
            ]
            for place, some in enumerate(found):
                known = some[np.isfinite(some)]
                if known.size:
                    tint = colour(0 if not place else 5 if place < 3 else 6)
                    panel.boxplot(
                        known,
                        positions=[place],
                        orientation="horizontal",
                        widths=0.6,
                        whis=(0, 100),
                        patch_artist=True,
                        boxprops={"facecolor": tint, "alpha": 0.5},
                        medianprops={"color": "black"},
                        manage_ticks=False,
                    )
            panel.set_title(title, loc="left")
        panels[0].set_yticks(range(len(names)), names)
        panels[0].invert_yaxis()
        caption = (
            f"{role}: boxes from quartile to quartile, whiskers to the extremes. Different models: {len(across.rows)} "
            "facing layers. equal-distance and "
            "layer-0: layers of one model, by distance. random-normal, shuffled and means-only have the means and "
            "spreads of real gains and no "
            "common pattern: a high cosine says no more than they do; L2 follows the scale."
        )
        yield Picture(
            f"experiment-6-metrics.{role}",
            f"Three metrics and their baselines: {role}",
            caption,
            figure,
            (across, table),
        )
