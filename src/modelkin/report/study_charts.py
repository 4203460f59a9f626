"""Pictures of the studies init-toy, gain-scale and precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from modelkin.records import Study, Table
from modelkin.report.figures.canvas import COLOURS, MARKERS, NULL_COLOUR, Picture, Room, line_style, null_band, page
from modelkin.report.figures.rows import distinct, grouped, null_said, numbers, texts, where
from modelkin.report.study_rows import about, named, plain_ticks

FORMAT_ORDER = ("F16", "BF16", "F8_E4M3", "F8_E5M2")


def initial_gains(study: Study) -> Iterator[Picture]:
    table = named(study, "layers")
    for norm in distinct(table, "norm"):
        figure, panels = page(2)
        rows = where(table, norm=norm)
        for panel, quantity in zip(panels, ("cosine", "pearson"), strict=True):
            _by_layer(panel, rows, quantity)
        panels[1].legend(loc="upper center", fontsize=11, title="data, start of the gains, weight decay")
        ones = numbers(where(rows, init="ones"), "cosine")
        alike = f"Cosines of gains that start at one: {ones.min():.5f} to {ones.max():.5f}."
        caption = f"Norm {norm}. {alike} {about(table)} {null_said(table)}"
        title = f"Gains of strangers ({norm}): the cosine tells where they started, Pearson that they are strangers"
        yield Picture(f"init-toy-{norm}", title, caption, figure, (rows,))


def _by_layer(panel: Any, table: Table, quantity: str) -> None:
    for place, ((stream, init, decay), rows) in enumerate(grouped(table, "stream", "init", "weight_decay")):
        style = line_style(place) | {"mfc": COLOURS[place] if init == "ones" else "white"}
        beside = numbers(rows, "layer") + 0.04 * (place - 2.5)  # lines that coincide stay visible
        panel.plot(beside, numbers(rows, quantity), label=f"{stream}, {init}, {decay}", **style)
    layers, half = sorted(set(numbers(table, "layer"))), 1.96 * numbers(table, "pearson_std")[0]
    label = "95 of 100 strangers without a common mean"
    null_band(panel, [layers[0] - 0.3, layers[-1] + 0.3], [half, half], label)
    panel.set(xlabel="layer", ylabel={"cosine": "cosine", "pearson": "Pearson's r"}[quantity], ylim=(-0.6, 1.1))
    panel.set_xticks(layers)
    panel.set_title({"cosine": "Cosine", "pearson": "Pearson's r: the mean taken away"}[quantity])


def gain_scale(study: Study) -> Iterator[Picture]:
    yield _scale_and_pattern(study, "layers", "gain-scale-depth", "depth", "depth (0 first layer, 1 last)")
    yield _scale_and_pattern(study, "published", "gain-scale-published", "layer", "layer")
    yield _slopes(study)


def _scale_and_pattern(study: Study, name: str, file: str, x: str, words: str) -> Picture:
    table = named(study, name)
    roles = distinct(table, "role")
    figure, panels = page(len(roles), 2, Room(down=0.15), sharex=True)
    models = distinct(table, "model")
    for down, (quantity, label) in enumerate(
        (("scale", "scale (root mean square)"), ("pattern", "pattern / scale (std)"))
    ):
        for across, role in enumerate(roles):
            panel = panels[down * len(roles) + across]
            for place, model in enumerate(models):
                rows = where(table, role=role, model=model)
                panel.plot(numbers(rows, x), numbers(rows, quantity), label=model, **line_style(place))
            panel.set(ylabel=label, xlabel=words if down else "", ylim=(0, _above(table, role, quantity)))
            panel.set_title(role if not down else "")
    for panel in panels[: len(roles)]:
        panel.axhline(1, color=NULL_COLOUR, lw=0.8)
    panels[0].legend(ncols=2)
    caption = (
        f"{about(table)} Grey: scale 1, where gains start. Between strangers: gains of models trained apart grow with "
        "depth too, so like curves are no evidence."
    )
    return Picture(file, f"{table.title} with depth", caption, figure, (table,))


def _above(table: Table, role: str, quantity: str) -> float:
    """The end of an axis on which the highest point is not cut in half."""
    return 1.08 * float(np.nanmax(numbers(where(table, role=role), quantity), initial=1e-9))


def _slopes(study: Study) -> Picture:
    whole = named(study, "slopes")
    table = msgspec.structs.replace(whole, rows=tuple(row for row in whole.rows if None not in row))
    figure, panels = page(3, room=Room(left=0.16, across=0.1), sharey=True)
    names = list(dict.fromkeys(_whose(table)))  # one line each, whichever of the three has a slope
    for place, (panel, quantity) in enumerate(zip(panels, distinct(whole, "quantity"), strict=True)):
        rows = where(table, quantity=quantity)
        lines = [names.index(name) for name in _whose(rows)]
        middle, low, high = (numbers(rows, column) for column in ("growth", "growth_low", "growth_high"))
        style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "ls": "", "capsize": 4}
        panel.errorbar(middle, lines, xerr=[middle - low, high - middle], **style)
        panel.axvline(1, color=NULL_COLOUR, lw=1.2)
        panel.set(xscale="log", xlabel="growth from first to last layer", title=quantity.replace("_", " "))
        reach = np.concatenate([low, high, [1.0]])
        plain_ticks(panel, reach)
        panel.set_xlim(reach.min() / 1.15, reach.max() * 1.15)
    panels[0].set_yticks(np.arange(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    caption = f"{table.caption.replace('`growth`', 'Growth')} Grey: no growth. {null_said(table)}"
    return Picture("gain-scale-slopes", table.title, caption, figure, (table,))


def _whose(table: Table) -> list[str]:
    return [f"{model}, {role}" for model, role in zip(texts(table, "model"), texts(table, "role"), strict=True)]


def precision(study: Study) -> Iterator[Picture]:
    yield _sweep(named(study, "sweep"))
    yield _ladder(named(study, "ladder"), named(study, "threshold"))
    yield _published(named(study, "published"))


def _sweep(table: Table) -> Picture:
    figure, panels = page(3, room=Room(across=0.08), sharey=True)
    for panel, ((stored,), rows) in zip(panels, grouped(table, "stored_as"), strict=True):
        for place, kind in enumerate(FORMAT_ORDER):
            of = where(rows, format=kind)
            scale = numbers(of, "scale")
            panel.plot(
                scale, numbers(of, "survived"), ls="", marker=MARKERS[place], ms=5, color=COLOURS[place], label=kind
            )
            panel.plot(scale, numbers(of, "expected"), color=COLOURS[place], lw=1.2)
        panel.set(xscale="log", xlabel="scale (mean of the gains)", title=f"stored as {stored}", ylim=(-0.03, 1.05))
        plain_ticks(panel, scale)
        panel.set_xlim(scale.min() / 1.3, scale.max() * 1.3)
    panels[0].set_ylabel("share of the pattern's variance that survives")
    panels[2].legend(loc="center", fontsize=13)
    caption = f"Points: measured; lines: closed form. {about(table)} {null_said(table)}"
    return Picture("precision-sweep", "A pattern beside a growing scale", caption, figure, (table,))


def _ladder(table: Table, threshold: Table) -> Picture:
    figure, (panel,) = page(1)
    for place, kind in enumerate(FORMAT_ORDER):
        rows = where(table, format=kind)
        x = numbers(rows, "std_in_ulps")
        panel.plot(
            x, numbers(rows, "survived"), ls="", marker=MARKERS[place], color=COLOURS[place], label=f"{kind}, measured"
        )
    panel.plot(x, numbers(rows, "expected"), color="black", lw=1.6, label="closed form")
    panel.plot(
        x,
        numbers(rows, "rule_of_thumb"),
        color=NULL_COLOUR,
        ls="--",
        lw=1.6,
        label="noise of ulp²/12, the rule of thumb",
    )
    panel.plot(
        x,
        numbers(rows, "beyond_half_a_step"),
        color=NULL_COLOUR,
        ls=":",
        lw=1.6,
        label="chance to be more than half a step off",
    )
    at = float(np.nanmean(numbers(threshold, "std_in_ulps_measured")))
    panel.axvline(at, color="black", lw=0.8)
    panel.axhline(0.5, color="black", lw=0.8)
    panel.annotate(f" half survives at {at:.2f} steps", (at, 0.03), fontsize=13)
    panel.set(xscale="log", xlabel="standard deviation of the pattern, in steps (ulp) of the format at the scale")
    panel.set(ylabel="share of the pattern's variance that survives", ylim=(0, 1))
    plain_ticks(panel, x)
    panel.set_xlim(x.min() / 1.1, x.max() * 1.1)
    panel.legend(loc="upper left", fontsize=12)
    caption = f"{about(table)} The closed form is drawn for {kind}. {null_said(table)}"
    return Picture("precision-threshold", "Where a pattern drowns", caption, figure, (table, threshold))


def _published(table: Table) -> Picture:
    models, roles = distinct(table, "model"), distinct(table, "role")
    figure, panels = page(len(roles), len(models), sharex=True, sharey=True)
    for place, (model, role) in enumerate((model, role) for model in models for role in roles):
        _fates(panels[place], where(table, model=model, role=role))
        panels[place].set_title(f"{model}, {role}")
    for panel in panels[:: len(roles)]:
        panel.set_ylabel("survives")
    for panel in panels[-len(roles) :]:
        panel.set_xlabel("layer")
    panels[0].legend(loc="lower left", ncols=2)
    caption = f"Filled: stored as gain; hollow, dashed: as gain minus one. {about(table)} {null_said(table)}"
    return Picture("precision-published", "At the scales of two large models", caption, figure, (table,))


def _fates(panel: Any, table: Table) -> None:
    for place, kind in enumerate(FORMAT_ORDER):
        for stored, line, fill in (("gain", "-", COLOURS[place]), ("gain minus one", "--", "white")):
            rows = where(table, format=kind, stored_as=stored)
            style: dict[str, Any] = {
                "color": COLOURS[place],
                "ls": line,
                "marker": MARKERS[place],
                "mfc": fill,
                "ms": 4,
                "lw": 1,
            }
            label = kind if stored == "gain" else None
            panel.plot(numbers(rows, "layer"), numbers(rows, "expected"), label=label, **style)
    panel.set(ylim=(0, 1.05))
