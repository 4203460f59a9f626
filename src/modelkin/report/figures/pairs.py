"""Two models at a time: bars and curves (figures 1, 3, 4), matrices of layers (figures 2, 5), changes (figure 3-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Matrix, Survey, Table
from modelkin.report.figures.canvas import (
    ACROSS,
    ALONG,
    BEYOND,
    NULL_COLOUR,
    Picture,
    Room,
    colour,
    empty_rest,
    heat,
    in_words,
    layer_ticks,
    legend_over,
    norm_across,
    norm_along,
    null_band,
    page,
    shape_for,
    shared_bar,
    side_bar,
    whole_steps,
)
from modelkin.report.figures.rows import (
    cells,
    counted,
    distinct,
    grouped,
    has,
    labelled,
    listed,
    named_parts,
    null_said,
    numbers,
    safe,
    span,
    texts,
    together,
    values,
    where,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_PAGE = 6


def bars(survey: Survey) -> Iterator[Picture]:
    """Figures 1, 3 and 4: gains by quartile, the same without their means, and likeness layer by layer."""
    curves = survey.table("curves")
    for (a, b), sampled in grouped(survey.table("quartiles"), "a", "b"):
        roles = distinct(sampled, "role")
        figure, panels = page(3, len(roles), Room(across=0.28, down=0.35), width_ratios=(1, 1, 1.15))
        shown = [where(curves, a=a, b=b, role=role) for role in roles]
        notes = []
        for row, (role, curve) in enumerate(zip(roles, shown, strict=True)):
            some = where(sampled, role=role)
            notes.append(_draw_bars(panels[3 * row : 3 * row + 2], some, curve, role))
            _draw_curve(panels[3 * row + 2], curve, values(some, "layer_a")[0])
        legend_over(figure, [panels[0], panels[2]])
        caption = (
            f"{_known(sampled)}{' '.join(notes)} The layers were chosen by {values(sampled, 'chosen_by')[0]}: the most "
            "favourable ones, not typical ones. Cosine and Pearson are of all dimensions. Grey: the cosine that means "
            "and "
            "standard deviations alone give, and where the Pearson of 95 of 100 strangers lies; layers share their "
            "axes, "
            "so neighbouring points move together."
        )
        data = (sampled, together(shown))
        yield Picture(
            f"figure-01-bars.{safe(a)}.{safe(b)}", f"{a} and {b}: gains and their pattern", caption, figure, data
        )


def _known(table: Table) -> str:
    known = next((value for value in values(table, "known") if value), None)
    return f"Known to be {known}. " if known else ""


def _draw_bars(panels: list[Axes], some: Table, curve: Table, role: str) -> str:
    a, b = values(some, "a")[0], values(some, "b")[0]
    layers = values(some, "layer_a")[0], values(some, "layer_b")[0]
    places = np.arange(len(some.rows))
    for panel, prefix, what in ((panels[0], "value", "gain"), (panels[1], "minus_mean", "gain − mean of its model")):
        for side, name, shift, tint in (("a", a, -0.21, colour(0)), ("b", b, 0.21, colour(1))):
            panel.vlines(places + shift, 0, numbers(some, f"{prefix}_{side}"), color=tint, lw=2.4, label=name)
        panel.set_ylabel(what)
        _mark_quartiles(panel, texts(some, "quartile"))
    panels[0].axhline(1, color=NULL_COLOUR, ls="--", lw=1)  # where gains start
    at = where(curve, layer_a=layers[0], layer_b=layers[1])
    found = (f"{numbers(at, column)[0]:.4f}" if at.rows else "–" for column in ("cosine", "pearson"))
    panels[0].set_title(f"{role}, layers {layers[0]} and {layers[1]}", loc="left")
    panels[1].set_title("cosine {}, Pearson {}".format(*found), loc="left")
    n = int(numbers(at, "n")[0]) if at.rows else 0
    return f"{role}: {len(some.rows)} of {n or 'the'} dimensions, sampled by quartile of the two models' mean."


def _mark_quartiles(panel: Axes, quartiles: list[str]) -> None:
    edges = [i for i in range(1, len(quartiles)) if quartiles[i] != quartiles[i - 1]]
    panel.vlines(np.array(edges) - 0.5, 0, 1, color=NULL_COLOUR, lw=0.6, ls=":", transform=panel.get_xaxis_transform())
    starts, ends = [0, *edges], [*edges, len(quartiles)]
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    panel.set_xticks(middles, [f"quarter {quartiles[start]}" for start in starts], fontsize=8)


def _draw_curve(panel: Axes, curve: Table, chosen: str) -> None:
    layers, places = texts(curve, "layer_a"), np.arange(len(curve.rows))
    null_band(panel, places, BEYOND / np.sqrt(numbers(curve, "n") - 1), "Pearson of strangers, 95 %")
    panel.plot(
        places, numbers(curve, "expected_cosine"), color=NULL_COLOUR, ls="--", lw=2.2, label="cosine from means alone"
    )
    panel.plot(places, numbers(curve, "cosine"), color=colour(4), marker="o", ms=3, lw=1, label="cosine")
    panel.plot(places, numbers(curve, "pearson"), color=colour(0), marker="s", ms=3, lw=1.4, label="Pearson")
    if chosen in layers:
        panel.axvline(layers.index(chosen), color=colour(1), ls=":", lw=1.2)
    layer_ticks(panel, layers)
    panel.set_xlabel(f"layer of {values(curve, 'a')[0]}")
    panel.set_title("facing layers", loc="left")


def layer_matrices(survey: Survey) -> Iterator[Picture]:
    """Figure 2: cosine and Pearson of every layer of one model with every layer of the other."""
    groups: dict[tuple[str, str], list[Matrix]] = {}
    for matrix in _of_kind(survey, "layers"):
        a, b, *_ = named_parts(matrix)
        groups.setdefault((labelled(survey, a), labelled(survey, b)), []).append(matrix)
    for (a, b), matrices in groups.items():
        across, down = shape_for(len(matrices))
        figure, panels = page(across, down, Room(across=0.2))
        for panel, matrix in zip(panels, matrices, strict=False):
            _draw_layers(panel, matrix, _strangers_reach(survey, a, b, matrix.role))
            panel.set_title(f"{matrix.role}: {matrix.metric}", loc="left")
            panel.set_ylabel(f"layer of {a}")
        for panel in panels[max(0, len(matrices) - across) : len(matrices)]:
            panel.set_xlabel(f"layer of {b}")
        empty_rest(panels, len(matrices))
        summary, said = _layer_summary(survey, a, b)
        nulls = " ".join(f"{matrix.role} {matrix.metric}: {matrix.strangers.rstrip('.')}." for matrix in matrices)
        caption = f"{said}{_SCALES} Between strangers, {nulls}"
        name = f"figure-02-layers.{safe(a)}.{safe(b)}"
        yield Picture(name, f"{a} and {b}: every pair of layers", caption, figure, (*matrices, *summary))


_SCALES = (
    "Colours of cosine run from the least to the greatest cell; those of Pearson to the greatest of either sign, "
    "linear "
    "within what 95 of 100 strangers reach and logarithmic beyond: nothing is cut off."
)


def _of_kind(survey: Survey, kind: str) -> list[Matrix]:
    return [matrix for matrix in survey.matrices if matrix.name.startswith(f"{kind}.")]


def _strangers_reach(survey: Survey, a: str, b: str, role: str) -> float | None:
    """How far from zero the Pearson of 95 of 100 strangers lies."""
    if not has(survey, "curves"):
        return None
    n = numbers(where(survey.table("curves"), a=a, b=b, role=role), "n")
    return float(BEYOND / np.sqrt(n[0] - 1)) if n.size and n[0] > 1 else None


def _draw_layers(panel: Axes, matrix: Matrix, reach: float | None) -> None:
    found = cells(matrix)
    pattern = matrix.metric != "cosine"
    norm = norm_across(found, reach) if pattern else norm_along(found)
    image = heat(panel, found, norm, ACROSS if pattern else ALONG)
    layer_ticks(panel, matrix.columns)
    layer_ticks(panel, matrix.rows, "y")
    bar = side_bar(panel, image)
    if reach is not None and pattern and norm.vmax is not None and norm.vmax >= 3 * reach:
        ticks = [-norm.vmax, -reach, 0, reach, norm.vmax]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
        bar.ax.minorticks_off()


def _layer_summary(survey: Survey, a: str, b: str) -> tuple[tuple[Table, ...], str]:
    if not has(survey, "layer-pairs"):
        return (), ""
    table = where(survey.table("layer-pairs"), a=a, b=b)
    said = _known(table) if table.rows else ""
    for row in table.rows:
        cell = dict(zip(table.columns, row, strict=True))
        said += (
            f"{cell['role']} {cell['metric']}: facing layers {_near(cell['diagonal_mean'])}, "
            f"others {_near(cell['off_mean'])}"
        )
        if cell["off_expected"] is not None:
            said += f" (from means alone {_near(cell['off_expected'])})"
        said += f", difference {_g(cell['dominance'])}, p {_g(cell['dominance_p'])}. "
    said += "p: hidden axes renumbered at random, once for all layers. "
    return (table,), said


def _g(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else "–"


def _near(value: object) -> str:
    """Cosines differ behind the third nine."""
    return f"{value:.5g}" if isinstance(value, (int, float)) and abs(value) > 0.9 else _g(value)


def many_pairs(survey: Survey) -> Iterator[Picture]:
    """Figure 5: the Pearson matrices of all pairs, six to a page, one scale on each page."""
    by_role: dict[str, list[Matrix]] = {}
    for matrix in _of_kind(survey, "layers"):
        if matrix.metric == "pearson":
            by_role.setdefault(matrix.role, []).append(matrix)
    for role, matrices in by_role.items():
        for start in range(0, len(matrices), PER_PAGE):
            some = matrices[start : start + PER_PAGE]
            number = start // PER_PAGE + 1
            of = f", page {number} of {-(-len(matrices) // PER_PAGE)}" if len(matrices) > PER_PAGE else ""
            yield _page_of_pairs(survey, role, some, f"figure-05-pairs.{role}.{number}", of)


def _page_of_pairs(survey: Survey, role: str, matrices: list[Matrix], name: str, of: str) -> Picture:
    pairs = [tuple(labelled(survey, part) for part in named_parts(matrix)[:2]) for matrix in matrices]
    reaches = [_strangers_reach(survey, a, b, role) for a, b in pairs]
    reach = max((r for r in reaches if r is not None), default=None)
    norm = norm_across(np.concatenate([cells(matrix).ravel() for matrix in matrices]), reach)
    across, down = shape_for(len(matrices))
    figure, panels = page(across, down)
    image = None
    for panel, matrix, (a, b) in zip(panels, matrices, pairs, strict=False):
        image = heat(panel, cells(matrix), norm, ACROSS)
        layer_ticks(panel, matrix.columns, most=6)
        layer_ticks(panel, matrix.rows, "y", most=6)
        panel.set_ylabel(a)
        panel.set_xlabel(b)
        panel.set_title(_facing_mean(survey, a, b, role), loc="left", fontsize=10)
    empty_rest(panels, len(matrices))
    bar = shared_bar(figure, image, "Pearson")
    if reach is not None and norm.vmax is not None and norm.vmax >= 3 * reach:
        ticks = [-norm.vmax, -reach, 0, reach, norm.vmax]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
        bar.ax.minorticks_off()
    caption = (
        f"{role}: {counted(len(matrices), 'pair')} of models, every layer of one against every layer of the other; "
        "above each the means over facing layers and over all others. One "
        "colour scale that covers all "
        f"cells{'' if reach is None else f', linear within ±{reach:.3g} (95 of 100 strangers), logarithmic beyond'}. "
        f"{null_said(matrices[0])}"
    )
    return Picture(name, f"Pearson of {role} between layers{of}", caption, figure, tuple(matrices))


def _facing_mean(survey: Survey, a: str, b: str, role: str) -> str:
    if not has(survey, "layer-pairs"):
        return ""
    row = where(survey.table("layer-pairs"), a=a, b=b, role=role, metric="pearson")
    if not row.rows:
        return ""
    known = values(row, "known")[0]
    found = f"facing {_g(values(row, 'diagonal_mean')[0])}, others {_g(values(row, 'off_mean')[0])}"
    return f"{found} ({known})" if known else found


def changes(survey: Survey) -> Iterator[Picture]:
    """Figure 3-1: what moved between two models with equal values, in units of what the stored type can show."""
    for (a, b), table in grouped(survey.table("changes"), "a", "b"):
        roles = [
            role for role in distinct(table, "role") if set(texts(where(table, role=role), "answer")) != {"unlike"}
        ]
        if not roles:
            continue
        figure, panels = page(3, 1)
        for place, role in enumerate(roles):
            _draw_changes(panels, where(table, role=role), role, distinct(table, "layer_a"), (place, len(roles)))
        for panel, title in zip(
            panels, ("share of values that differ", "mean |difference|", "steps of the stored type"), strict=True
        ):
            panel.set_title(title, loc="left")
            panel.set_xlabel(f"layer of {a}")
        panels[0].set_ylim(0, None if np.nansum(numbers(table, "changed")) else 1)
        _draw_line_kinds(panels, table)
        legend_over(figure, panels)
        answers = ", ".join(f"{role} {listed(distinct(where(table, role=role), 'answer'))}" for role in roles)
        caption = (
            f"Over {span(distinct(table, 'layer_a'))}; answers: {answers}. Solid on the right: mean over the values "
            "that differ. Dashed: the least mean difference that shows, "
            "one value moved by one step at the median size. A step doubles where gains cross a power of two, so fewer "
            "values seem to change in layers with larger gains. Layers without any difference are left out of "
            f"the logarithmic panels. {null_said(table)}"
        )
        shown = together([where(table, role=role) for role in roles])
        yield Picture(
            f"figure-03-1-changes.{safe(a)}.{safe(b)}", f"{a} and {b}: what changed", caption, figure, (shown,)
        )


def _draw_changes(panels: list[Axes], table: Table, role: str, layers: list[str], of: tuple[int, int]) -> None:
    """`of` is the place of the role, and how many roles there are."""
    place, count = of
    tint = colour(place)
    at, n = np.array([layers.index(layer) for layer in texts(table, "layer_a")]), numbers(table, "n")
    shift = (place - (count - 1) / 2) * 0.8 / count
    panels[0].bar(at + shift, numbers(table, "changed"), 0.8 / count, color=tint, label=role)
    style: dict[str, Any] = {"color": tint, "marker": "o", "ms": 4, "lw": 1.4}
    panels[1].plot(at, _positive(numbers(table, "mean_abs")), **style)
    panels[1].plot(at, 2 * numbers(table, "smallest_update") / n, color=tint, ls="--", lw=1)  # which is half a step
    panels[2].plot(at, _positive(numbers(table, "mean_ulps")), **style)
    panels[2].plot(at, _positive(numbers(table, "largest_ulps")), color=tint, ls=":", lw=1.4)
    for panel in panels:
        layer_ticks(panel, [layer or "outside" for layer in layers])


def _draw_line_kinds(panels: list[Axes], table: Table) -> None:
    """A logarithmic scale where there is something above zero; what the lines are, whatever their colour."""
    for panel, dash, name in ((panels[1], "--", "one value moved by one step"), (panels[2], ":", "largest of a layer")):
        drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in panel.get_lines()]
        if any(np.isfinite(found).any() for found in drawn):
            panel.set_yscale("log")
            panel.plot([], [], color=NULL_COLOUR, ls=dash, label=name)
            if panel is panels[2]:
                whole_steps(panel)
        else:
            some = np.nansum(numbers(table, "changed")) > 0
            in_words(panel, "no steps to count between\nthese number formats" if some else "no value differs")


def _positive(found: np.ndarray) -> np.ndarray:
    """What a logarithmic scale can show."""
    return np.where(found > 0, found, np.nan)
