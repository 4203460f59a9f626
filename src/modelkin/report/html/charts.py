"""The charts of the page, one function each: a Vega-Lite spec, what it shows in a sentence, and its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from modelkin.records import Comparison, Evidence
from modelkin.report.comparison_text import UNMASKED, pvalue_text
from modelkin.report.html.chart import ACCENT, MOST_LAYERS, NARROW, QUIET, WIDE, Chart, Spec, across, finished, hover
from modelkin.report.html.numbers import short
from modelkin.report.html.sections import COUNTED, LayerMap, layer_order, standing_of, undisguised
from modelkin.report.html.words import Language, Words, label, words
from modelkin.report.text import interval, percent

MOST_BARS = 40
PLAINLY_LARGER = 1.5  # a p beside the share of draws that reach as much: a reader sees the difference and asks
LAYERS = "layer-map"
COUNTS_OF_N = (*COUNTED, "hidden-axes-by-gains", "hidden-axes-by-embeddings")


def null_charts(comparison: Comparison, language: Language) -> list[Chart]:
    """For every answer with a sample of what strangers give: that, and the observed value. What was undone first."""
    answers = [one for one in comparison.answers if isinstance(one, Evidence) and standing_of(one) != "fails"]
    ordered = sorted(answers, key=lambda one: one.question != UNMASKED)
    seen = [(answer, _observed(answer, comparison)) for answer in ordered if answer.null.sample]
    drawn = [(answer, observed) for answer, observed in seen if observed is not None]
    return [_null_chart(f"null-{place}", *one, language) for place, one in enumerate(drawn)]


def _observed(answer: Evidence, comparison: Comparison) -> float | None:
    """On the scale of the sample: controls are counted by agreements a set, of which the record keeps the parts."""
    return undisguised(comparison).score if answer.question == UNMASKED else answer.statistic


def _null_chart(name: str, answer: Evidence, seen: float, language: Language) -> Chart:
    text, title = words(language)["null_chart"], label(answer.question, language)
    sample, observed = answer.null.sample, short(seen)
    bars = _bars(sample)
    alt = text["alt"].format(
        question=title, observed=observed, draws=f"{len(sample):,}", low=short(min(sample)), high=short(max(sample))
    )
    x = _null_axis(answer, seen, text)
    layers = [_strangers_bars(bars, x, text), *_observed_line(seen, x, text)]
    rows = [(short(value), f"{draws:,}", "") for value, draws in bars]
    return Chart(
        name=name,
        title=title,
        alt=alt,
        spec=finished({"width": NARROW, "height": 84, "title": {"text": title, "offset": 22}, "layer": layers}),
        columns=(text["value"], text["draws"], text["observed"]),
        rows=(*rows, (observed, "", "●")),
        narrow=True,
        note=" ".join(note for note in (_by_neurons(answer, text), _beside_p(answer, seen, text)) if note),
    )


def _beside_p(answer: Evidence, seen: float, text: Words) -> str:
    """Where the picture says more than the p: draws are of one count, and p is a bound for the best of several."""
    if standing_of(answer) == "counts" or answer.log10_pvalue is None:
        return ""
    sample, p = answer.null.sample, pvalue_text(answer.log10_pvalue)
    if seen > max(sample):
        return str(text["of_many"]).format(p=p)
    reached = sum(draw >= seen for draw in sample)
    if 10.0**answer.log10_pvalue < PLAINLY_LARGER * reached / len(sample):
        return ""
    return str(text["bound"]).format(reached=f"{reached:,}", draws=f"{len(sample):,}", p=p)


def _by_neurons(answer: Evidence, text: Words) -> str:
    """The question counts layers; what it has a law for, and what is drawn, are the neurons of some of them."""
    if answer.question != LAYERS:
        return ""
    where = "best_two" if answer.n <= max((finding.n for finding in answer.per_layer), default=0) else "all_facing"
    return str(text["by_neurons"]).format(where=text[where])


def _null_axis(answer: Evidence, seen: float, text: Words) -> Spec:
    shown = (0.0, seen, *answer.null.sample)
    whole = all(value == int(value) for value in shown) and seen <= answer.n and answer.question in COUNTS_OF_N
    counted = text["x_count"][answer.question].format(n=f"{answer.n:,}") if whole else ""
    title = counted or text["axis"].get(answer.question, text["x"])
    margin = 0.04 * (max(shown) - min(shown)) or 1.0
    return {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": [min(shown) - margin, max(shown) + margin], "nice": False, "zero": False},
        "axis": {"tickCount": 5, "format": "~s" if whole else ",.4~f"},
        "title": title,
    }


def _strangers_bars(bars: Sequence[tuple[float, int]], x: Spec, text: Words) -> Spec:
    low, high = x["scale"]["domain"]
    size = max(1.5, min(12.0, 0.8 * NARROW * _step(bars) / (high - low)))
    values = [{"value": v, "draws": d, text["value"]: short(v), text["draws"]: d} for v, d in bars]
    return {
        "data": {"values": values},
        "mark": {"type": "bar", "size": size, "color": QUIET},
        "encoding": {
            "x": x,
            "y": {"field": "draws", "type": "quantitative", "title": text["y"], "axis": {"tickCount": 3}},
            "tooltip": [hover(text["value"]), hover(text["draws"])],
        },
    }


def _observed_line(observed: float, x: Spec, text: Words) -> list[Spec]:
    """A rule, and above it what it marks."""
    low, high = x["scale"]["domain"]
    right = observed > (low + high) / 2
    data = {"values": [{"value": observed, text["observed"]: short(observed)}]}
    side = {"align": "right", "dx": 3} if right else {"align": "left", "dx": -3}
    look = {"fontSize": 12, "fontWeight": "bold", "color": ACCENT}
    said = {"type": "text", "text": f"{text['observed']}: {short(observed)}", **side, **look}
    rule = {"type": "rule", "color": ACCENT, "size": 3}
    return [
        {"data": data, "mark": rule, "encoding": {"x": x, "tooltip": [hover(text["observed"])]}},
        {"data": data, "mark": said, "encoding": {"x": x, "y": {"value": -9}}},
    ]


def _bars(sample: Sequence[float]) -> list[tuple[float, int]]:
    """Every value with its number, or, of many different ones, the middles of equal bins."""
    counted = Counter(sample)
    if len(counted) <= MOST_BARS:
        return sorted(counted.items())
    low, step = min(sample), (max(sample) - min(sample)) / MOST_BARS
    bins = Counter(min(MOST_BARS - 1, int((value - low) / step)) for value in sample)
    return [(low + (place + 0.5) * step, number) for place, number in sorted(bins.items())]


def _step(bars: Sequence[tuple[float, int]]) -> float:
    """The least distance of two bars; of a single one its own size will do."""
    return min((b[0] - a[0] for a, b in pairwise(bars)), default=1.0)


def map_chart(found: LayerMap, language: Language) -> Chart:
    text = words(language)["layer_map"]
    columns = (text["b"], text["a"], text["neurons"], text["of"])
    rows = []
    for b, a in found.pairs:
        finding = found.findings.get((b, a or ""))
        counts = ("", "") if finding is None else (short(finding.statistic), f"{finding.n:,}")
        rows.append((b, a or text["no_match"], *counts))
    across_a, down_b = _layers_of_a(found), [b for b, _ in found.pairs]
    cell = max(4, min(22, 420 // max(len(across_a), len(down_b), 1)))
    matched = [row for row, (_, a) in zip(rows, found.pairs, strict=True) if a is not None]
    spec = {
        "width": cell * len(across_a),
        "height": cell * len(down_b),
        "data": {"values": [dict(zip(columns, row, strict=True)) for row in matched]},
        "mark": {"type": "rect", "color": ACCENT, "stroke": "#ffffff", "strokeWidth": 1},
        "encoding": {
            "x": {**hover(text["a"]), "type": "ordinal", "scale": {"domain": across_a}, "axis": across()},
            "y": {**hover(text["b"]), "type": "ordinal", "scale": {"domain": down_b}, "axis": {"labelOverlap": True}},
            "tooltip": [hover(name) for name in columns],
        },
    }
    alt = text["alt"].format(matched=found.matched, layers=len(found.pairs))
    return Chart("map", text["title"], alt, finished(spec, framed=True), columns, tuple(rows))


def _layers_of_a(found: LayerMap) -> list[str]:
    """Those that are matched, and where layers are numbered from 0 also those that are not."""
    return layer_order([*(a for _, a in found.pairs if a is not None), *found.left_over])


def share_chart(comparison: Comparison, language: Language) -> Chart | None:
    """What each layer of the child inherited, with its interval."""
    text = words(language)["relation"]
    parts = comparison.relation.by_layer if comparison.relation else ()
    shared = comparison.relation.shared if comparison.relation else None
    if shared is None or len(parts) < 3:
        return None
    columns = (text["by_layer"], text["parameters"], text["inherited"], text["interval"])
    named = {part.part: part for part in parts}
    every = len(parts)
    parts = tuple(named[name] for name in layer_order(list(named))[:: -(-len(named) // MOST_LAYERS)])
    note = text["share_some"].format(shown=f"{len(parts):,}", all=f"{every:,}") if len(parts) < every else ""
    rows = [
        (
            part.part or text["no_layer"],
            f"{part.parameters:,}",
            percent(part.fraction),
            interval(part.low, part.high),
        )
        for part in parts
    ]
    values = [
        {"y": part.fraction, "low": part.low, "high": part.high, **dict(zip(columns, row, strict=True))}
        for part, row in zip(parts, rows, strict=True)
    ]
    alt = text["share_alt"].format(low=percent(min(part.fraction for part in parts)))
    of = words(language)["layer_map"][shared.side(comparison.verdict.direction)]
    return Chart("shares", text["share_chart"], alt, _shares(columns, values, of), columns, tuple(rows), note=note)


def _shares(columns: Sequence[str], values: list[Spec], of: str) -> Spec:
    order = [value[columns[0]] for value in values]
    x = {**hover(columns[0]), "type": "ordinal", "sort": order, "title": of, "axis": across()}
    axis = {"format": ".0%", "values": [0, 0.5, 1], "grid": True}
    y: Spec = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": axis, "title": columns[2]}
    interval = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    point = {"x": x, "y": {**y, "field": "y"}, "tooltip": [hover(name) for name in columns]}
    marks: list[tuple[Spec, Spec]] = [
        ({"type": "rule", "color": QUIET, "size": 2}, interval),
        ({"type": "point", "filled": True, "size": 60, "color": ACCENT, "opacity": 1}, point),
    ]
    layers = [{"mark": mark, "encoding": encoding} for mark, encoding in marks]
    return finished({"width": WIDE, "height": 120, "data": {"values": values}, "layer": layers})
