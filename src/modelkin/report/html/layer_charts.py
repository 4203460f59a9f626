"""Charts of what was found in each layer: curves, one strip a question, and the heat map."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelkin.records import Comparison, Evidence, LayerFinding
from modelkin.records.relation import TensorFact
from modelkin.report.comparison_text import COUNTS, ORDINARY, UNMASKED, pvalue_text
from modelkin.report.html.chart import ACCENT, MOST_LAYERS, QUIET, SHADES, WIDE, Chart, Spec, across, finished, hover
from modelkin.report.html.numbers import short
from modelkin.report.html.sections import (
    CORRELATED,
    COUNTED,
    correlated_tensors,
    layer_order,
    per_layer,
    stands_in_place,
    undisguised,
)
from modelkin.report.html.words import Language, Words, label, said, words
from modelkin.report.text import percent

Line = tuple[str, ...]
STRIP_HEIGHT, CELL_HEIGHT, CELL_WIDTH = 70, 22, 40
MOST_POINTS = 2_000  # of one question, more than a screen has places for


@dataclass(frozen=True, slots=True)
class Strip:
    """One question's curve: a line of the table for every point, its height, and what strangers show on average.

    `left_out`: how many findings are not drawn, as there are too many.
    """

    title: str
    columns: Line
    lines: tuple[Line, ...]
    layers: tuple[str, ...]
    heights: tuple[float, ...]
    domain: tuple[float, float]
    strangers: float | None
    form: str
    beneath: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A question's findings in the layers of b: those that are drawn, and the number of all."""

    answer: Evidence
    findings: list[LayerFinding]
    all: int


def curve_charts(comparison: Comparison, language: Language) -> list[Chart]:
    """Counts that found themselves, and correlations, each layer by layer."""
    text = words(language)["curves"]
    sets = {(layer.a, layer.b): layer.blocks for layer in undisguised(comparison).held_out.layers}
    counted = [_counted(found, sets, language) for found in _asked(comparison, COUNTED)]
    correlated = [_correlated(found, language) for found in _asked(comparison, CORRELATED)]
    charts = []
    if counted:
        each = [text["alt_each"].format(question=strip.title, chance=_average(strip)) for strip in counted]
        charts.append(_curves("curves", text["title"], text["alt"].format(each="; ".join(each)), counted, language))
    if correlated:
        alt = text["alt_correlation"].format(questions=", ".join(strip.title for strip in correlated))
        charts.append(_curves("correlations", text["title_correlation"], alt, correlated, language))
    return charts


def _average(strip: Strip) -> str:
    return "–" if strip.strangers is None else percent(strip.strangers)


def _asked(comparison: Comparison, questions: Sequence[str]) -> list[Found]:
    """Questions that were asked in more than one layer: one alone is no curve."""
    found: dict[str, tuple[Evidence, list[LayerFinding]]] = {}
    for answer, finding in per_layer(comparison, questions):
        found.setdefault(answer.question, (answer, []))[1].append(finding)
    several = [(answer, every) for answer, every in found.values() if len({one.b for one in every}) > 1]
    ordered = sorted(several, key=lambda one: questions.index(one[0].question))
    return [Found(answer, _some(every), len(every)) for answer, every in ordered]


def _some(every: list[LayerFinding]) -> list[LayerFinding]:
    """Of some layers, evenly chosen, where there are too many; and of them no more than fit."""
    names = list(dict.fromkeys(one.b for one in every))
    kept = set(names[:: -(-len(names) // MOST_LAYERS)])
    return [one for one in every if one.b in kept][:MOST_POINTS]


def _counted(found: Found, sets: Mapping[tuple[str, str], int], language: Language) -> Strip:
    text, of_map = words(language)["curves"], words(language)["layer_map"]
    answer, findings, title = found.answer, found.findings, label(found.answer.question, language)
    chances = [_chance(answer, one, sets) for one in findings]
    places = _places(answer, findings, text)
    return Strip(
        title=title,
        columns=(
            text["question"],
            of_map["b"],
            of_map["a"],
            text["part"],
            of_map["found"],
            of_map["of"],
            text["chance"],
            text["p"],
        ),
        lines=tuple(
            (
                title,
                one.b,
                one.a or of_map["no_match"],
                place,
                short(one.statistic),
                f"{one.n:,}",
                _of(chance, one.n, text),
                _shown_p(one.log10_pvalue, language),
            )
            for one, place, chance in zip(findings, places, chances, strict=True)
        ),
        layers=tuple(one.b for one in findings),
        heights=tuple(one.statistic / one.n for one in findings),
        domain=(0.0, 1.0),
        strangers=_strangers_share(findings, chances),
        form=".0%",
        beneath=said(answer.observed, language)[0] if answer.question == "attention" else "",
        left_out=found.all - len(findings),
    )


def _places(answer: Evidence, findings: Sequence[LayerFinding], text: Words) -> list[str]:
    """Which of several sets of one pair of layers a finding is of: of attention its head, in the order of reading."""
    of_all = Counter((one.a, one.b) for one in findings)
    passed: Counter[tuple[str, str]] = Counter()
    places, name = [], text["head"] if answer.question == "attention" else text["set"]
    for one in findings:
        pair = one.a, one.b
        passed[pair] += 1
        places.append(name.format(i=passed[pair], n=of_all[pair]) if of_all[pair] > 1 else "–")
    return places


def _chance(answer: Evidence, finding: LayerFinding, sets: Mapping[tuple[str, str], int]) -> float | None:
    """What strangers show in this layer: one a set. How many sets it holds, the law of the whole question tells."""
    if answer.question == UNMASKED:
        return sets.get((finding.a, finding.b))
    sample = answer.null.sample
    if answer.question == "layer-map" or not sample or not answer.n:
        return 1.0 if answer.question == "layer-map" else None
    return max(1.0, round(sum(sample) / len(sample) * finding.n / answer.n))


def _of(chance: float | None, n: int, text: Words) -> str:
    return "–" if chance is None else str(text["about"]).format(k=short(chance), n=f"{n:,}")


def _correlated(found: Found, language: Language) -> Strip:
    text, of_map = words(language)["curves"], words(language)["layer_map"]
    title, findings = label(found.answer.question, language), found.findings

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
        left_out=found.all - len(findings),
    )


def _strangers_share(findings: Sequence[LayerFinding], chances: Sequence[float | None]) -> float | None:
    known = [chance / one.n for one, chance in zip(findings, chances, strict=True) if chance is not None]
    return _mean(known) if known else None


def _shown_p(log10_pvalue: float | None, language: Language) -> str:
    """As for a whole question: every number, and a word beside one that is small and does not count."""
    if log10_pvalue is None:
        return "–"
    number = pvalue_text(log10_pvalue)
    between = math.log10(COUNTS["A"]) < log10_pvalue <= ORDINARY
    return f"{number} · {words(language)['questions']['chance']}" if between else number


def _curves(name: str, title: str, alt: str, strips: Sequence[Strip], language: Language) -> Chart:
    specs = [_strip(strip) for strip in strips]
    for layer in specs[-1]["layer"][:2]:  # the last says what the axis counts
        layer["encoding"]["x"]["title"] = words(language)["layer_map"]["b"]
    spec = finished({"vconcat": specs, "spacing": 16, "resolve": {"scale": {"x": "independent"}}})
    lines = tuple(line for strip in strips for line in strip.lines)
    return Chart(name, title, alt, spec, strips[0].columns, lines, note=_left_out(strips, language))


def _left_out(strips: Sequence[Strip], language: Language) -> str:
    text = words(language)["curves"]["some"]
    cut = [strip for strip in strips if strip.left_out]
    return " ".join(
        text.format(question=strip.title, shown=f"{len(strip.lines):,}", all=f"{len(strip.lines) + strip.left_out:,}")
        for strip in cut
    )


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
    title = {"text": strip.title, **({"subtitle": strip.beneath} if strip.beneath else {})}
    return {"title": title, **size, "data": {"values": values}, "layer": layers}


def heat_chart(comparison: Comparison, language: Language) -> Chart | None:
    """Tensors of a related pair by layer and role; of others what each question found in each layer."""
    return _tensor_heat(comparison, language) or _asked_heat(comparison, language)


def _tensor_heat(comparison: Comparison, language: Language) -> Chart | None:
    text = words(language)["heat"]
    cells: dict[tuple[str, str], list[TensorFact]] = defaultdict(list)
    layers = dict.fromkeys(tensor.layer for tensor in correlated_tensors(comparison))
    drawn = set(list(layers)[:MOST_LAYERS])
    for tensor in correlated_tensors(comparison):
        if tensor.layer in drawn:
            cells[tensor.layer, str(tensor.role)].append(tensor)
    columns = (text["layer"], text["role"], text["correlation"], text["strangers"], text["difference"], text["same"])
    lines: list[Line] = []
    likenesses: list[float | None] = []
    for layer in layer_order([layer for layer, _ in cells]):
        for role in dict.fromkeys(role for _, role in cells):
            if found := cells.get((layer, role)):
                known = [one for one in found if stands_in_place(one, comparison)]
                likeness = _mean([one.correlation or 0.0 for one in known]) if known else None
                lines.append((layer or text["outside"], role, *_tensor_cells(known, likeness, text)))
                likenesses.append(likeness)
    shown = [likeness for likeness in likenesses if likeness is not None]
    if not shown:
        return None
    alt = text["alt"].format(low=f"{min(shown):.2f}", high=f"{max(shown):.2f}")
    note = text["hatched"] if None in likenesses else ""
    return Chart("heat", text["title"], alt, _heat(columns, lines, likenesses), columns, tuple(lines), note=note)


def _tensor_cells(known: Sequence[TensorFact], likeness: float | None, text: Words) -> Line:
    if likeness is None:
        return text["not_compared"], text["about_zero"], "–", "–"
    change, same = _mean([one.difference for one in known]), _mean([one.same for one in known])
    return f"{likeness:.4f}", text["about_zero"], f"{change:.4f}", percent(same)


def _asked_heat(comparison: Comparison, language: Language) -> Chart | None:
    text, of_map = words(language)["heat"], words(language)["layer_map"]
    asked = _asked(comparison, COUNTED)
    if len(asked) < 2:
        return None
    columns = (of_map["b"], text["question"], of_map["share"], text["strangers"])
    sets = {(layer.a, layer.b): layer.blocks for layer in undisguised(comparison).held_out.layers}
    lines, shares = [], []
    for found in asked:
        by_layer: dict[str, list[LayerFinding]] = defaultdict(list)
        for finding in found.findings:
            by_layer[finding.b].append(finding)
        for layer in layer_order(list(by_layer)):
            here = by_layer[layer]
            share = _mean([one.statistic / one.n for one in here])
            chance = _strangers_share(here, [_chance(found.answer, one, sets) for one in here])
            told = "–" if chance is None else percent(chance)
            lines.append((layer, label(found.answer.question, language), percent(share), told))
            shares.append(share)
    alt = text["asked_alt"].format(low=percent(min(shares)), high=percent(max(shares)))
    return Chart("heat", text["asked_title"], alt, _heat(columns, lines, shares), columns, tuple(lines))


def _heat(columns: Line, lines: Sequence[Line], values: Sequence[float | None]) -> Spec:
    """Of each line the first cell goes across, the second down, and the value, named by the third, is the colour.

    What has no value is hatched.
    """
    data = [{"v": value, **dict(zip(columns, line, strict=True))} for line, value in zip(lines, values, strict=True)]
    layers = _outside_first([line[0] for line in lines])
    rows = list(dict.fromkeys(line[1] for line in lines))
    colour = {
        "field": "v",
        "type": "quantitative",
        "scale": {"type": "quantize", "domain": [0, 1], "range": SHADES},
        "legend": None,  # the page says what the shades are, with both ends
    }
    place = {
        "x": {**hover(columns[0]), "type": "ordinal", "sort": layers, "axis": across()},
        "y": {**hover(columns[1]), "type": "ordinal", "sort": rows, "title": None},
        "tooltip": [hover(name) for name in columns],
    }
    painted: Spec = {
        "transform": [{"filter": "isValid(datum.v)"}],
        "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
        "encoding": {**place, "color": colour},
    }
    hatch = {"type": "text", "text": "╱╱╱", "color": QUIET, "fontSize": 11}
    hatched: list[Spec] = [
        {"transform": [{"filter": "!isValid(datum.v)"}], "mark": hatch, "encoding": place},
    ]
    return finished(
        {
            "width": min(WIDE - 60, CELL_WIDTH * len(layers)),
            "height": CELL_HEIGHT * len(rows),
            "data": {"values": data},
            "layer": [painted, *(hatched if None in values else [])],
        }
    )


def _outside_first(names: Sequence[str]) -> list[str]:
    """What belongs to no layer has a word where the others have a number."""
    outside = [name for name in dict.fromkeys(names) if not name[-1:].isdecimal()]
    return [*outside, *layer_order([name for name in names if name[-1:].isdecimal()])]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
