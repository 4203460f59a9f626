"""Charts of what was found in each layer: curves, one strip a question, and the heat map."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from modelkin.records import Comparison, Evidence, LayerFinding
from modelkin.records.relation import TensorFact
from modelkin.report.comparison_text import COUNTS, ORDINARY, pvalue_text
from modelkin.report.html.chart import ACCENT, QUIET, SHADES, WIDE, Chart, Spec, across, finished, hover
from modelkin.report.html.numbers import percent, short
from modelkin.report.html.sections import CORRELATED, COUNTED, correlated_tensors, layer_order, per_layer
from modelkin.report.html.words import Language, label, said, words

Line = tuple[str, ...]
STRIP_HEIGHT, CELL_HEIGHT, CELL_WIDTH = 70, 22, 40


@dataclass(frozen=True, slots=True)
class Strip:
    """One question's curve: a line of the table for every point, its height, and what strangers show on average."""

    title: str
    columns: Line
    lines: tuple[Line, ...]
    layers: tuple[str, ...]
    heights: tuple[float, ...]
    domain: tuple[float, float]
    strangers: float | None
    form: str


def curve_charts(comparison: Comparison, language: Language) -> list[Chart]:
    """Counts that found themselves, and correlations, each layer by layer."""
    text = words(language)["curves"]
    counted = [_counted(*asked, language) for asked in _asked(comparison, COUNTED)]
    correlated = [_correlated(*asked, language) for asked in _asked(comparison, CORRELATED)]
    charts = []
    if counted:
        most = max((strip.strangers for strip in counted if strip.strangers is not None), default=0.0)
        alt = text["alt"].format(questions=_titles(counted), chance=percent(most))
        charts.append(_curves("curves", text["title"], alt, counted, language))
    if correlated:
        alt = text["alt_correlation"].format(questions=_titles(correlated))
        charts.append(_curves("correlations", text["title_correlation"], alt, correlated, language))
    return charts


def _asked(comparison: Comparison, questions: Sequence[str]) -> list[tuple[Evidence, list[LayerFinding]]]:
    """Questions that were asked in more than one layer: one alone is no curve."""
    found: dict[str, tuple[Evidence, list[LayerFinding]]] = {}
    for answer, finding in per_layer(comparison, questions):
        found.setdefault(answer.question, (answer, []))[1].append(finding)
    return [(answer, findings) for answer, findings in found.values() if len({one.b for one in findings}) > 1]


def _titles(strips: Sequence[Strip]) -> str:
    return ", ".join(strip.title for strip in strips)


def _counted(answer: Evidence, findings: Sequence[LayerFinding], language: Language) -> Strip:
    text, of_map = words(language)["curves"], words(language)["layer_map"]
    title, strangers = label(answer.question, language), said(answer.strangers, language)[0]
    return Strip(
        title=title,
        columns=(text["question"], of_map["b"], of_map["a"], of_map["found"], of_map["of"], text["chance"], text["p"]),
        lines=tuple(
            (title, one.b, one.a, short(one.statistic), f"{one.n:,}", strangers, _shown_p(one.log10_pvalue))
            for one in findings
        ),
        layers=tuple(one.b for one in findings),
        heights=tuple(one.statistic / one.n for one in findings),
        domain=(0.0, 1.0),
        strangers=_strangers_share(answer),
        form=".0%",
    )


def _correlated(answer: Evidence, findings: Sequence[LayerFinding], language: Language) -> Strip:
    text, of_map = words(language)["curves"], words(language)["layer_map"]
    title = label(answer.question, language)

    def scatter(one: LayerFinding) -> str:
        return str(text["about_zero"]).format(spread=f"{1 / math.sqrt(one.n):.2g}")

    return Strip(
        title=title,
        columns=(text["question"], of_map["b"], of_map["a"], text["correlation"], text["chance"]),
        lines=tuple((title, one.b, one.a, f"{one.statistic:.4f}", scatter(one)) for one in findings),
        layers=tuple(one.b for one in findings),
        heights=tuple(one.statistic for one in findings),
        domain=(min(-0.2, *(one.statistic for one in findings)), 1.0),
        strangers=0.0,
        form="~g",
    )


def _strangers_share(answer: Evidence) -> float | None:
    """By the sample of the law, for how many sets a layer holds no finding tells."""
    sample = answer.null.sample
    return sum(sample) / len(sample) / answer.n if sample and answer.n else None


def _shown_p(log10_pvalue: float | None) -> str:
    """As for a whole question: what neither convicts nor is plain chance is not shown as a number."""
    if log10_pvalue is None or math.log10(COUNTS["A"]) < log10_pvalue <= ORDINARY:
        return ""
    return pvalue_text(log10_pvalue)


def _curves(name: str, title: str, alt: str, strips: Sequence[Strip], language: Language) -> Chart:
    specs = [_strip(strip) for strip in strips]
    for layer in specs[-1]["layer"][:2]:  # the last says what the axis counts
        layer["encoding"]["x"]["title"] = words(language)["layer_map"]["b"]
    spec = finished({"vconcat": specs, "spacing": 16, "resolve": {"scale": {"x": "independent"}}})
    lines = tuple(line for strip in strips for line in strip.lines)
    return Chart(name, title, alt, spec, strips[0].columns, lines)


def _strip(strip: Strip) -> Spec:
    places = zip(strip.layers, strip.heights, strip.lines, strict=True)
    values = [{"layer": x, "y": y, **dict(zip(strip.columns, line, strict=True))} for x, y, line in places]
    x = {"field": "layer", "type": "ordinal", "sort": layer_order(strip.layers), "title": None, "axis": across()}
    y: Spec = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": list(strip.domain), "clamp": True},
        "axis": {"values": [0, 0.5, 1], "format": strip.form, "grid": True},
        "title": None,
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "color": ACCENT, "strokeWidth": 1.5},
            "encoding": {"x": dict(x), "y": {**y, "aggregate": "mean"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 48, "color": ACCENT, "opacity": 1},
            "encoding": {"x": dict(x), "y": y, "tooltip": [hover(name) for name in strip.columns[1:]]},
        },
    ]
    if strip.strangers is not None:
        rule = {"type": "rule", "color": QUIET, "strokeDash": [4, 3]}
        layers.append({"mark": rule, "encoding": {"y": {"datum": strip.strangers, "type": "quantitative"}}})
    size = {"width": WIDE, "height": STRIP_HEIGHT}
    return {"title": strip.title, **size, "data": {"values": values}, "layer": layers}


def heat_chart(comparison: Comparison, language: Language) -> Chart | None:
    """Tensors of a related pair by layer and role; of others what each question found in each layer."""
    return _tensor_heat(comparison, language) or _asked_heat(comparison, language)


def _tensor_heat(comparison: Comparison, language: Language) -> Chart | None:
    text = words(language)["heat"]
    cells: dict[tuple[str, str], list[TensorFact]] = defaultdict(list)
    for tensor in correlated_tensors(comparison):
        cells[tensor.layer, str(tensor.role)].append(tensor)
    if not cells:
        return None
    columns = (text["layer"], text["role"], text["correlation"], text["strangers"], text["difference"], text["same"])
    lines, likenesses = [], []
    for layer in layer_order([layer for layer, _ in cells]):
        for role in dict.fromkeys(role for _, role in cells):
            if found := cells.get((layer, role)):
                likeness = _mean([one.correlation or 0.0 for one in found])
                change = f"{_mean([one.difference for one in found]):.4f}"
                same = percent(_mean([one.same for one in found]))
                lines.append((layer or text["outside"], role, f"{likeness:.4f}", text["about_zero"], change, same))
                likenesses.append(likeness)
    alt = text["alt"].format(low=f"{min(likenesses):.2f}", high=f"{max(likenesses):.2f}")
    return Chart("heat", text["title"], alt, _heat(columns, lines, likenesses), columns, tuple(lines))


def _asked_heat(comparison: Comparison, language: Language) -> Chart | None:
    text, of_map = words(language)["heat"], words(language)["layer_map"]
    asked = _asked(comparison, COUNTED)
    if len(asked) < 2:
        return None
    columns = (of_map["b"], text["question"], of_map["share"], text["strangers"])
    lines, shares = [], []
    for answer, findings in asked:
        strangers = said(answer.strangers, language)[0]
        for layer in layer_order([finding.b for finding in findings]):
            share = _mean([one.statistic / one.n for one in findings if one.b == layer])
            lines.append((layer, label(answer.question, language), percent(share), strangers))
            shares.append(share)
    alt = text["asked_alt"].format(low=percent(min(shares)), high=percent(max(shares)))
    return Chart("heat", text["asked_title"], alt, _heat(columns, lines, shares), columns, tuple(lines))


def _heat(columns: Line, lines: Sequence[Line], values: Sequence[float]) -> Spec:
    """Of each line the first cell goes across, the second down, and the value, named by the third, is the colour."""
    data = [{"v": value, **dict(zip(columns, line, strict=True))} for line, value in zip(lines, values, strict=True)]
    layers = _outside_first([line[0] for line in lines])
    rows = list(dict.fromkeys(line[1] for line in lines))
    colour = {
        "field": "v",
        "type": "quantitative",
        "scale": {"type": "quantize", "domain": [0, 1], "range": SHADES},
        "legend": {"title": columns[2], "orient": "bottom", "direction": "horizontal", "format": ".1f"},
    }
    return finished(
        {
            "width": min(WIDE - 60, CELL_WIDTH * len(layers)),
            "height": CELL_HEIGHT * len(rows),
            "data": {"values": data},
            "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
            "encoding": {
                "x": {**hover(columns[0]), "type": "ordinal", "sort": layers, "axis": across()},
                "y": {**hover(columns[1]), "type": "ordinal", "sort": rows, "title": None},
                "color": colour,
                "tooltip": [hover(name) for name in columns],
            },
        }
    )


def _outside_first(names: Sequence[str]) -> list[str]:
    """What belongs to no layer has a word where the others have a number."""
    outside = [name for name in dict.fromkeys(names) if not name[-1:].isdecimal()]
    return [*outside, *layer_order([name for name in names if name[-1:].isdecimal()])]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
