"""What else is as alike: the six experiments on baselines, groups and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import NULL_COLOUR, Picture, colour, layer_ticks, line_style, names_room, page
from modelkin.report.figures.rows import distinct, grouped, has, mean, null_said, numbers, span, texts, values, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = (("cosine", "cosine"), ("pearson", "Pearson"), ("l2", "L2 distance"))


def first_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 1: the first layer against later ones, beside layers at the same distance elsewhere in the model."""
    for role, table in _by_role(survey):
        figure, panels = page(2, 1)
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, model in enumerate(_models(table)):
                for baseline, dash in (("layer-0", "-"), ("equal-distance", ":")):
                    _draw_distances(panel, where(table, model=model, baseline=baseline), metric, place, dash)
            _draw_null(panel, table, metric, survey)
            panel.set_xlabel("distance in layers")
            panel.set_title(f"{dict(METRICS)[metric]}: first layer (solid), any two layers (dotted)", loc="left")
        panels[0].legend()
        caption = (
            f"{role}: inside {len(_models(table))} models. Solid: the first layer with the one at this distance. "
            f"Dotted: mean over all pairs of layers at this distance. {_odd_one_out(table)} Grey: what means and "
            f"spreads alone give, and the Pearson of 95 of 100 strangers. {null_said(table)}"
        )
        yield Picture(
            f"experiment-1-first-layer.{role}", f"The first layer as a baseline: {role}", caption, figure, (table,)
        )


def _odd_one_out(table: Table) -> str:
    first, any_two = (
        mean(numbers(where(table, baseline=name), "cosine_mean")) for name in ("layer-0", "equal-distance")
    )
    found = f"The cosine of the first layer with others is {first:.3f} on average, that of any two layers {any_two:.3f}"
    return f"{found}: a baseline taken from the first layer alone is off by {any_two - first:+.3f}."


def equal_distance(survey: Survey) -> Iterator[Picture]:
    """Experiment 2: layers of one model at each distance, their spread, and what means and spreads alone give."""
    for role, table in _by_role(survey):
        figure, panels = page(2, 1)
        _draw_across(panels[0], survey, role)
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, model in enumerate(_models(table)):
                some = where(table, model=model, baseline="equal-distance")
                _draw_distances(panel, some, metric, place, "-", band=True)
            _draw_null(panel, table, metric, survey)
            panel.set_xlabel("distance in layers")
            panel.set_title(dict(METRICS)[metric], loc="left")
        panels[0].legend()
        caption = (
            f"{role}: all pairs of layers of one model at each distance, mean and one standard deviation. Grey: "
            "the cosine that means and spreads alone give, and where the Pearson of 95 of 100 strangers lies. Black "
            "dotted: the mean cosine over facing layers of different models, which means little where layers of one "
            f"model reach it too. {null_said(table)}"
        )
        yield Picture(f"experiment-2-equal-distance.{role}", f"Layers of one model: {role}", caption, figure, (table,))


def _draw_across(panel: Axes, survey: Survey, role: str) -> None:
    if has(survey, "curves"):
        found = where(survey.table("curves"), role=role)
        if found.rows:
            panel.axhline(mean(numbers(found, "cosine")), color="black", ls=":", lw=1.4)


def _draw_null(panel: Axes, table: Table, metric: str, survey: Survey) -> None:
    """The cosine of vectors with these means and spreads and no pattern; the Pearson of 95 of 100 strangers."""
    if metric == "cosine":
        without = numbers(where(table, baseline="means-only"), "cosine_mean")
        panel.axhline(mean(without), color=NULL_COLOUR, ls="--", lw=1.6)
    else:
        _draw_pearson_null(panel, survey)


def _draw_pearson_null(panel: Axes, survey: Survey) -> None:
    widths = [model.hidden for model in survey.models if model.hidden]
    half = 1.96 / np.sqrt(min(widths) - 1) if widths else 0.0
    panel.axhspan(-half, half, color=NULL_COLOUR, alpha=0.25, lw=0)
    panel.axhline(0, color=NULL_COLOUR, lw=0.8)


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
    if band:
        panel.fill_between(at, found - spread, found + spread, color=colour(place), alpha=0.12, lw=0)


def pairs_at_one_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 3: every pair of models at one layer, beside what means alone give."""
    curves = survey.table("curves")
    for (role,), table in grouped(curves, "role"):
        pairs = list(grouped(table, "a", "b"))
        middles = [one.rows[len(one.rows) // 2] for _, one in pairs]
        cell = [dict(zip(table.columns, row, strict=True)) for row in middles]
        names = [
            f"{a} · {b}\n{row['layer_a']} · {row['layer_b']}" for ((a, b), _), row in zip(pairs, cell, strict=True)
        ]
        figure, panels = page(2, 1, names_room(names, across=0.08), sharey=True)
        at = np.arange(len(pairs))
        for panel, metric, tint in ((panels[0], "cosine", colour(5)), (panels[1], "pearson", colour(0))):
            panel.barh(at, [_number(row[metric]) for row in cell], 0.6, color=tint)
            panel.set_xlabel(dict(METRICS)[metric])
        expected = [_number(row["expected_cosine"]) for row in cell]
        panels[0].plot(expected, at, "|", color="black", ms=16, mew=2, label="from means alone")
        half = [1.96 / np.sqrt(max(1.0, _number(row["n"]) - 1)) for row in cell]
        panels[1].errorbar(
            np.zeros(len(at)), at, xerr=half, fmt="none", color="black", capsize=4, label="strangers, 95 %"
        )
        panels[0].set_yticks(at, names, fontsize=8)
        panels[0].invert_yaxis()
        for panel in panels:
            panel.legend(loc="lower right")
        caption = (
            f"{role}: {len(pairs)} pairs of models, each at the middle of its facing layers (named on the left). "
            "Black: what means and "
            "standard deviations alone give for the cosine, and where the Pearson of 95 of 100 strangers lies."
        )
        yield Picture(f"experiment-3-pairs.{role}", f"All pairs at one layer: {role}", caption, figure, (table,))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def groups_by_layer(survey: Survey) -> Iterator[Picture]:
    """Experiment 4: groups of models layer by layer."""
    for (role,), table in grouped(survey.table("groups"), "role"):
        figure, panels = page(2, 1)
        layers = distinct(table, "layer")
        for panel, metric in zip(panels, ("cosine", "pearson"), strict=True):
            for place, ((one, other), some) in enumerate(grouped(table, "group_a", "group_b")):
                at = [layers.index(layer) for layer in texts(some, "layer")]
                found, spread = numbers(some, f"{metric}_mean"), numbers(some, f"{metric}_std")
                panel.plot(at, found, label=_group(one, other), **line_style(place))
                panel.fill_between(at, found - spread, found + spread, color=colour(place), alpha=0.12, lw=0)
            layer_ticks(panel, layers)
            panel.set_xlabel("layer")
            panel.set_title(dict(METRICS)[metric], loc="left")
        _draw_expected(panels[0], survey, role, layers)
        _draw_pearson_null(panels[1], survey)
        panels[0].legend()
        caption = (
            f"{role}: {span(layers)}, mean and one standard deviation over the pairs of models. {table.caption} "
            f"{null_said(table)}"
        )
        yield Picture(f"experiment-4-layers.{role}", f"Groups of models by layer: {role}", caption, figure, (table,))


def _draw_expected(panel: Axes, survey: Survey, role: str, layers: list[str]) -> None:
    """The cosine that means and spreads alone give, over all pairs whose facing layers have one name."""
    if not has(survey, "curves"):
        return
    by_layer = {
        layer: mean(numbers(some, "expected_cosine"))
        for (layer, other), some in grouped(where(survey.table("curves"), role=role), "layer_a", "layer_b")
        if layer == other
    }
    found = [by_layer.get(layer, float("nan")) for layer in layers]
    panel.plot(range(len(layers)), found, color=NULL_COLOUR, ls="--", lw=1.8, label="all, from means alone")


def _group(one: str, other: str) -> str:
    return f"among {one}" if one == other else f"{one} with {other}"


def groups_compared(survey: Survey) -> Iterator[Picture]:
    """Experiment 5: groups side by side, every layer a point, the mean over layers a bar."""
    for (role,), table in grouped(survey.table("groups"), "role"):
        figure, panels = page(3, 1)
        groups = list(grouped(table, "group_a", "group_b"))
        for panel, (metric, title) in zip(panels, METRICS, strict=True):
            for place, (_, some) in enumerate(groups):
                found = numbers(some, f"{metric}_mean")
                panel.bar(place, mean(found), 0.6, color=colour(place), alpha=0.5)
                panel.plot(place + np.linspace(-0.2, 0.2, found.size), found, ".", color="black", ms=4)
            names = [f"{_group(*key)}\n{int(np.nanmax(numbers(some, 'n')))} pairs" for key, some in groups]
            panel.set_xticks(range(len(groups)), names, fontsize=9)
            panel.set_title(title, loc="left")
        caption = (
            f"{role}: bars are means over {span(distinct(table, 'layer'))}, points are single layers. {table.caption} "
            f"{null_said(table)}"
        )
        yield Picture(f"experiment-5-groups.{role}", f"Groups of models: {role}", caption, figure, (table,))


BASELINES = ("equal-distance", "layer-0", "random-normal", "shuffled", "means-only")


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
                *(numbers(where(table, baseline=name), f"{metric}_mean") for name in BASELINES),
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
