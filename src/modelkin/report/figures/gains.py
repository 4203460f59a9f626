"""The gains of each model: surface, principal components, statistics, ridges, input minus post (figures 6 to 10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import (
    ALONG,
    NULL_COLOUR,
    Picture,
    Room,
    colour,
    empty_rest,
    fitted_title,
    layer_ticks,
    legend_over,
    line_style,
    nested_style,
    norm_along,
    page,
    pearson_bands,
    shape_for,
    shared_bar,
)
from modelkin.report.figures.rows import (
    counted,
    distinct,
    grouped,
    has,
    listed,
    mean,
    null_said,
    numbers,
    span,
    spread,
    texts,
    where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIRS = 20  # told apart by colour, dash and mark at most
RIDGES = 16  # layers drawn at most; the table has all
ACROSS_RIDGES = 8
STATISTICS = (("mean", "mean"), ("std", "standard deviation"), ("min", "least"), ("max", "greatest"), ("l2", "L2 norm"))


def surface(survey: Survey) -> Iterator[Picture]:
    """Figure 6: gains over layers and the first dimensions, one height scale for all models."""
    for (role,), table in grouped(survey.table("surface"), "role"):
        models = distinct(table, "model")
        across, down = shape_for(len(models))
        figure, panels = page(
            across, down, Room(left=0.015, below=0.03, across=0.14, down=0.3), subplot_kw={"projection": "3d"}
        )
        norm = norm_along(numbers(table, "value"))
        drawn = None
        for panel, model in zip(panels, models, strict=False):
            drawn = _draw_surface(panel, where(table, model=model), model, norm)
        empty_rest(panels, len(models))
        shared_bar(figure, drawn, "gain")
        count = len(distinct(table, "dimension"))
        caption = (
            f"{role}: the first {count} dimensions of each model and {span(distinct(table, 'layer'))}; heights and "
            "colours have one "
            f"range for all models, {norm.vmin:.3g} to {norm.vmax:.3g}, which covers every value. {null_said(table)}"
        )
        yield Picture(f"figure-06-surface.{role}", f"Gains as a surface: {role}", caption, figure, (table,))


def _draw_surface(panel: Any, table: Table, model: str, norm: Any) -> Any:
    layers, dimensions = distinct(table, "layer"), distinct(table, "dimension")
    heights = numbers(table, "value").reshape(len(layers), len(dimensions))
    x, y = np.meshgrid(np.arange(len(dimensions)), np.arange(len(layers)))
    drawn = panel.plot_surface(
        x, y, heights, cmap=ALONG, norm=norm, rstride=1, cstride=1, lw=0, antialiased=False, rasterized=True
    )
    panel.set_zlim(norm.vmin, norm.vmax)
    fitted_title(panel, model)
    panel.set_xlabel("dimension")
    panel.set_ylabel("layer")
    layer_ticks(panel, layers, "y", most=5)
    panel.view_init(elev=28, azim=-60)
    return drawn


def components(survey: Survey) -> Iterator[Picture]:
    """Figure 7: layers as points, as they are and with each layer's mean taken off, where scale no longer rules."""
    explained = survey.table("pca-explained") if has(survey, "pca-explained") else None
    models = [model.label for model in survey.models]
    roles = distinct(survey.table("pca"), "role")
    of = f"all surveyed norms ({listed(roles)})" if len(roles) > 1 else f"{roles[0]} of all models"
    for (role,), table in grouped(survey.table("pca"), "role"):
        kinds = [kind for kind in ("no", "yes") if kind in distinct(table, "centred")]
        figure, panels = page(
            len(kinds), 1, Room(left=0.01, right=0.94, below=0.04, across=0.1), subplot_kw={"projection": "3d"}
        )
        said = []
        for panel, kind in zip(panels, kinds, strict=True):
            shares = _explained(explained, kind, role)
            said.append(_draw_components(panel, where(table, centred=kind), models, kind, shares))
        legend_over(figure, panels)
        caption = (
            f"{role}: every point is a layer, {span(distinct(table, 'layer'))}; large marks: the first layer full, the "
            "last one open. "
            f"The components are those of {of} together, of which {role} is drawn here. "
            f"{' '.join(said)} "
            f"{null_said(table)}"
        )
        data = (table,) if explained is None else (table, explained)
        yield Picture(
            f"figure-07-components.{role}", f"Layers by principal components of {of}: {role}", caption, figure, data
        )


def _explained(table: Table | None, kind: str, role: str) -> dict[str, tuple[float, float]]:
    """Component -> share of variance, correlation with the scale of the layer."""
    if table is None:
        return {}
    some = where(table, centred=kind)
    if "role" in table.columns:
        some = where(some, role=role)
    shares, likeness = numbers(some, "share"), numbers(some, "correlation_with_layer_scale")
    names = [component.lower().removeprefix("pc") for component in texts(some, "component")]
    return dict(zip(names, zip(shares.tolist(), likeness.tolist(), strict=True), strict=True))


def _draw_components(
    panel: Any, table: Table, models: list[str], kind: str, shares: dict[str, tuple[float, float]]
) -> str:
    for model in distinct(table, "model"):
        points = np.array([numbers(where(table, model=model), f"pc{i}") for i in (1, 2, 3)])
        style = nested_style(models.index(model) if model in models else 0, len(models))
        panel.plot(*points, label=model, **style | {"linewidth": style["linewidth"] / 2})
        ends = {"marker": style["marker"], "s": 12 * style["markersize"] ** 1.3, "depthshade": False}
        panel.scatter(*points[:, :1], color=style["color"], **ends)
        panel.scatter(*points[:, -1:], facecolors="white", edgecolors=style["color"], linewidths=2, **ends)
    labels = [f"PC{i}" + (f" ({shares[str(i)][0]:.1%})" if str(i) in shares else "") for i in (1, 2, 3)]
    panel.set_xlabel(labels[0], labelpad=8)
    panel.set_ylabel(labels[1], labelpad=10)
    panel.set_zlabel(labels[2], labelpad=8)
    panel.tick_params(labelsize=9)
    panel.locator_params(nbins=4)
    what = "each layer's mean taken off" if kind == "yes" else "gains as they are"
    panel.set_title(what, loc="left")
    likeness = shares.get("1", (0.0, float("nan")))[1]
    return f"PC1 with {what} correlates {likeness:+.2f} with the scale of the layer." if np.isfinite(likeness) else ""


def statistics(survey: Survey) -> Iterator[Picture]:
    """Figure 8 and the scale section: mean, spread, extremes, norm and coefficient of variation by layer."""
    models = distinct(survey.table("gains"), "model")
    for (role,), table in grouped(survey.table("gains"), "role"):
        figure, panels = page(3, 2)
        for panel, (column, title) in zip(panels, (*STATISTICS, ("cv", "std / |mean|")), strict=True):
            for place, model in enumerate(models):
                one = where(table, model=model)
                if one.rows:
                    style = nested_style(place, len(models))
                    panel.plot(np.arange(len(one.rows)), numbers(one, column), label=model, **style)
                if column == "l2" and one.rows:
                    panel.plot(np.arange(len(one.rows)), numbers(one, "l2_of_ones"), color=NULL_COLOUR, ls="--", lw=1.2)
            longest = max((distinct(one, "layer") for _, one in grouped(table, "model")), key=len)
            layer_ticks(panel, longest)
            panel.set_title(title, loc="left")
        panels[0].axhline(1, color=NULL_COLOUR, ls="--", lw=1.2, label="where training starts")
        legend_over(figure, panels)
        for panel in panels[3:]:
            panel.set_xlabel("layer")
        n = listed([f"{int(count):,}" for count in sorted(set(numbers(table, "n")))])
        caption = (
            f"{role}: all {n} gains of each layer, {span(distinct(table, 'layer'))}. Dashed: where training starts, "
            "gains of one and their L2 norm, the square root of their number. Lines of models named first are the "
            f"broader, so that copies show. {null_said(table)}"
        )
        yield Picture(f"figure-08-gains.{role}", f"Gains by layer: {role}", caption, figure, (table,))


def ridges(survey: Survey) -> Iterator[Picture]:
    """Figure 9: the distribution of gains in each layer, over the full range of the data."""
    models = [model.label for model in survey.models]
    for (role,), table in grouped(survey.table("ridges"), "role"):
        shown = distinct(table, "model")
        across = min(len(shown), ACROSS_RIDGES)
        figure, panels = page(across, -(-len(shown) // across), Room(down=0.2), sharex=True)
        most = 0
        for panel, model in zip(panels, shown, strict=False):
            one = where(table, model=model)
            layers = spread(distinct(one, "layer"), RIDGES)
            most = max(most, len(distinct(one, "layer")))
            _draw_ridges(panel, one, layers, colour(models.index(model) if model in models else 0))
            fitted_title(panel, model, 11)
        empty_rest(panels, len(shown))
        for place, panel in enumerate(panels[: len(shown)]):
            panel.set_ylabel("" if place % across else "layer")
            lowest = place + across >= len(shown)
            panel.set_xlabel("gain" if lowest else "")
            panel.tick_params(labelbottom=lowest)
        drawn = f"at most {RIDGES} of {most} layers, evenly" if most > RIDGES else "every layer"
        low, high = np.nanmin(numbers(table, "left")), np.nanmax(numbers(table, "right"))
        caption = (
            f"{role}: histograms of all gains of a layer, {drawn}, each scaled to its own height; the common axis runs "
            "over the full range "
            f"of the data, {low:.3g} to {high:.3g}, and no value is left out. {null_said(table)}"
        )
        yield Picture(f"figure-09-ridges.{role}", f"Distribution of gains: {role}", caption, figure, (table,))


def _draw_ridges(panel: Axes, table: Table, layers: list[str], tint: str) -> None:
    rows = {layer: one for (layer,), one in grouped(table, "layer")}
    for place, layer in enumerate(layers):
        one = rows[layer]
        edges = np.append(numbers(one, "left"), numbers(one, "right")[-1:])
        heights = numbers(one, "density")
        top = np.nanmax(heights) if heights.size and np.nanmax(heights) > 0 else 1.0
        scaled = place + 0.95 * heights / top
        panel.stairs(scaled, edges, baseline=place, fill=True, color=tint, alpha=0.55)
        panel.stairs(scaled, edges, baseline=place, color=tint, lw=0.8)
    panel.set_yticks(range(len(layers)), layers, fontsize=9)


def input_minus_post(survey: Survey) -> Iterator[Picture]:
    """Figure 10: the difference of the two norms inside a layer, and whether two models share its pattern."""
    table, pairs = survey.table("input-minus-post"), survey.table("input-minus-post-pairs")
    longest = max((len(f"{a} · {b}") for (a, b), _ in grouped(pairs, "a", "b")), default=0)
    beside = min(0.4, 0.05 + 0.0052 * longest)  # of the page, for names at 8 points
    figure, panels = page(3, 1, Room(across=0.18), width_ratios=(1, 1, 2 * beside / (0.78 - beside)))
    layers = distinct(table, "layer")
    for place, ((model,), one) in enumerate(grouped(table, "model")):
        at, middle, spread_of = _at(one, layers), numbers(one, "mean"), numbers(one, "std")
        panels[0].plot(at, middle, label=model, **nested_style(place, len(distinct(table, "model"))))
        panels[0].fill_between(at, middle - spread_of, middle + spread_of, color=colour(place), alpha=0.12, lw=0)
    said = _draw_pairs(panels[1], pairs, layers)
    hidden = {model.label: model.hidden or 0 for model in survey.models}
    pearson_bands(panels[1], [hidden.get(a, 0) for a in distinct(pairs, "a")])
    for panel, title in zip(
        panels, ("input − post: mean, and one standard deviation", "Pearson of input − post"), strict=False
    ):
        layer_ticks(panel, layers)
        panel.set_title(title, loc="left")
        panel.set_xlabel("layer")
    panels[1].set_xlabel("layer of the first model")
    _legends_beside(panels)
    count = len(list(grouped(pairs, "a", "b")))
    caption = (
        f"All dimensions, {span(layers)}, {count} pair{'s' * (count != 1)} of models{said}. Grey: where the "
        f"Pearson of one layer lies for 95 of 100 strangers. {null_said(pairs)}"
    )
    yield Picture("figure-10-input-minus-post", "Input norm minus post norm", caption, figure, (table, pairs))


def _at(table: Table, layers: list[str]) -> list[int]:
    """The place of every row on an axis of layers."""
    return [layers.index(layer) for layer in texts(table, "layer")]


def _draw_pairs(panel: Axes, pairs: Table, layers: list[str]) -> str:
    """Every pair at its layers. Of many, those farthest from zero have names; what the caption says of the others."""
    every = list(grouped(pairs, "a", "b"))
    far = sorted(range(len(every)), key=lambda n: -mean(np.nan_to_num(np.abs(numbers(every[n][1], "pearson")))))
    named = sorted(far[:PAIRS])
    for n in sorted(far[PAIRS:]):
        panel.plot(_at(every[n][1], layers), numbers(every[n][1], "pearson"), color="#bbbbbb", lw=0.8)
    for place, n in enumerate(named):
        (a, b), one = every[n]
        panel.plot(_at(one, layers), numbers(one, "pearson"), label=f"{a} · {b}", **line_style(place))
    left = len(every) - len(named)
    return f", the {PAIRS} farthest from zero by name, {counted(left, 'other')} pale" if left else ""


def _legends_beside(panels: list[Axes]) -> None:
    """Models above and pairs below, in the third panel, which holds nothing else."""
    from matplotlib.legend import Legend

    side = panels[2]
    side.axis("off")
    for panel, title in zip(panels, ("models", "pairs"), strict=False):
        marks, names = panel.get_legend_handles_labels()
        legend = Legend(side, marks, names, title=title, fontsize=8, frameon=False, borderaxespad=0, labelspacing=0.35)
        legend.set_loc("upper left" if title == "models" else "lower left")
        side.add_artist(legend)
