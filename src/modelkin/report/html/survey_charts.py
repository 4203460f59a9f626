"""The charts of a survey's page: small multiples, one a pair, a layer or a model, by the section that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from modelkin.records import Matrix, Survey
from modelkin.report.figures.rows import spread
from modelkin.report.html.chart import ACCENT, QUIET, SHADES, Chart, Spec, across, finished
from modelkin.report.html.survey_parts import (
    Curve,
    Row,
    curves,
    gain_curves,
    layer_maps,
    model_maps,
    number,
)
from modelkin.report.html.words import Language, Words, survey_words

ACROSS, TALL = 190, 90
LARGEST_MAP, LARGEST_CELL = 170, 16
LEAST_RULED = 6  # points; rules between smaller cells would be all that one sees
MOST_TICKS = 6
DASHES: list[list[int]] = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]  # so that roles differ without colour
Charts = dict[str, list[Chart]]


def survey_charts(survey: Survey, language: Language) -> Charts:
    """In the order of thought: what may tell models apart, then what cannot."""
    w = survey_words(language)
    found = {
        "facing": _facing(survey, w),
        "likeness": _models(survey, w, "centred_cosine", "likeness"),
        "maps": _maps(survey, w),
        "gain-curves": _gains(survey, w),
        "cosines": _models(survey, w, "cosine", "cosines"),
    }
    return {name: charts for name, charts in found.items() if charts}


def roles_drawn(survey: Survey) -> list[str]:
    """In the order of their dashes."""
    roles = [curve.role for curve in curves(survey)]
    roles += [str(row["role"]) for rows in gain_curves(survey).values() for row in rows]
    return list(dict.fromkeys(roles))


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


# Heat maps.


def _models(survey: Survey, w: Words, metric: str, section: str) -> list[Chart]:
    text = w[section]
    found = [matrix for matrix in model_maps(survey, metric) if len(matrix.rows) > 1]
    return [
        _heat(
            f"{section}-{place}", matrix, _place(matrix, w), text["alt"], (text["row"], text["column"], text["value"])
        )
        for place, matrix in enumerate(found)
    ]


def _place(matrix: Matrix, w: Words) -> str:
    parts = matrix.name.split(".")
    where = w["models_at"]["mixed"] if parts[0] == "mixed" else w["models_at"]["layer"].format(layer=parts[2])
    return f"{matrix.role}, {where}"


def _maps(survey: Survey, w: Words) -> list[Chart]:
    text = w["maps"]
    return [
        _heat(
            f"maps-{place}",
            matrix,
            f"{line.a} · {line.b}, {line.role}",
            text["alt"],
            (text["row"].format(model=line.a), text["column"].format(model=line.b), text["value"]),
        )
        for place, (line, matrix) in enumerate(layer_maps(survey))
    ]


def _heat(name: str, matrix: Matrix, title: str, alt: str, named: tuple[str, str, str]) -> Chart:
    """Rows downwards, columns to the right, the value as colour and on hovering; under the picture all of them."""
    values = [known for line in matrix.values for cell in line if (known := number(cell)) is not None]
    low, high = (shown(min(values)), shown(max(values))) if values else ("–", "–")
    return Chart(
        name=name,
        title=title,
        alt=alt.format(title=title, low=low, high=high),
        spec=finished(_heat_spec(matrix, title, named), framed=True),
        columns=(named[2], *matrix.columns),
        rows=tuple(
            (label, *(shown(number(cell)) for cell in line))
            for label, line in zip(matrix.rows, matrix.values, strict=True)
        ),
        narrow=True,
    )


def _heat_spec(matrix: Matrix, title: str, named: tuple[str, str, str]) -> Spec:
    row, column, value = named
    cells = [
        {"i": matrix.rows[i], "j": matrix.columns[j], "v": round(known, 4)}
        for i, line in enumerate(matrix.values)
        for j, cell in enumerate(line)
        if (known := number(cell)) is not None
    ]
    size = max(2, min(LARGEST_CELL, LARGEST_MAP // max(len(matrix.rows), len(matrix.columns), 1)))
    x: Spec = {"field": "j", "type": "ordinal", "scale": {"domain": list(matrix.columns)}, "title": column}
    y: Spec = {"field": "i", "type": "ordinal", "scale": {"domain": list(matrix.rows)}, "title": row}
    colour = {"type": "quantize", "domain": [0, 1], "range": SHADES}
    return {
        "title": title,
        "width": size * len(matrix.columns),
        "height": size * len(matrix.rows),
        "data": {"values": cells},
        "mark": {"type": "rect", **({"stroke": "#ffffff", "strokeWidth": 0.5} if size >= LEAST_RULED else {})},
        "encoding": {
            "x": {**x, "axis": _labels(matrix.columns)},
            "y": {**y, "axis": {"labelOverlap": True, "labelLimit": 90}},
            "color": {"field": "v", "type": "quantitative", "scale": colour, "legend": None},
            "tooltip": [
                {"field": "i", "type": "nominal", "title": row},
                {"field": "j", "type": "nominal", "title": column},
                {"field": "v", "type": "quantitative", "title": value, "format": ".4f"},
            ],
        },
    }


def _labels(names: Sequence[str]) -> Spec:
    """Numbers lie, names stand."""
    return across() if all(len(name) < 4 for name in names) else {"labelAngle": -60, "labelLimit": 90}


# Curves.


def _facing(survey: Survey, w: Words) -> list[Chart]:
    text, roles = w["facing"], roles_drawn(survey)
    columns = tuple(text[key] for key in ("role", "layer", "pearson", "strangers", "p", "cosine", "expected"))
    pairs = [list(of_pair) for _, of_pair in groupby(curves(survey), key=lambda curve: (curve.a, curve.b))]
    charts = []
    for place, of_pair in enumerate(pairs):
        title = f"{of_pair[0].a} · {of_pair[0].b}"
        lines = [(curve, row, _facing_line(curve, row)) for curve in of_pair for row in curve.rows]
        heights = [number(row["pearson"]) for _, row, _ in lines]
        spec = _view(title, columns, [line for _, _, line in lines], heights, roles)
        low = min([-0.2, *(height for height in heights if height is not None)])
        _set_axis(spec, {"domain": [low, 1]}, [0, 0.5, 1])
        spec["layer"].insert(0, _rule(0.0))
        alt = text["alt"].format(title=title)
        table = tuple(line for _, _, line in lines)
        charts.append(Chart(f"facing-{place}", title, alt, finished(spec), columns, table, narrow=True))
    return charts


def _facing_line(curve: Curve, row: Row) -> tuple[str, ...]:
    n, p = number(row["n"]), number(row["pearson_p"])
    chance = f"0 ± {n**-0.5:.2f}" if n and n > 0 else "0"
    layer = str(row["layer_a"]) if row["layer_a"] == row["layer_b"] else f"{row['layer_a']} – {row['layer_b']}"
    cosines = shown(number(row["cosine"])), shown(number(row["expected_cosine"]))
    return curve.role, layer, shown(number(row["pearson"])), chance, "–" if p is None else f"{p:.2g}", *cosines


def _gains(survey: Survey, w: Words) -> list[Chart]:
    text, roles = w["gain_curves"], roles_drawn(survey)
    columns = tuple(text[key] for key in ("role", "layer", "mean", "std", "low", "high"))
    charts = []
    for place, (model, rows) in enumerate(gain_curves(survey).items()):
        lines = [_gain_line(row) for row in rows]
        spec = _view(model, columns, lines, [number(row["mean"]) for row in rows], roles)
        _set_axis(spec, {"zero": False}, None)
        spec["layer"].insert(0, _band(spec, rows))
        alt = text["alt"].format(title=model)
        charts.append(Chart(f"gain-curves-{place}", model, alt, finished(spec), columns, tuple(lines), narrow=True))
    return charts


def _gain_line(row: Row) -> tuple[str, ...]:
    numbers = [shown(number(row[key])) for key in ("mean", "std", "min", "max")]
    return (str(row["role"]), str(row["layer"]), *numbers)


def _view(
    title: str,
    columns: Sequence[str],
    lines: Sequence[tuple[str, ...]],
    heights: Sequence[float | None],
    roles: Sequence[str],
) -> Spec:
    """A line and its points for every role, layer by layer; the first column names the role, the second the layer."""
    places: dict[str, int] = {}
    values = []
    for line, height in zip(lines, heights, strict=True):
        place = places[line[0]] = places.get(line[0], -1) + 1
        if height is not None:
            values.append({"x": place, "y": height, **{f"c{n}": cell for n, cell in enumerate(line)}})
    ticks = [int(tick) for tick in spread([str(n) for n in range(max(places.values(), default=0) + 1)], MOST_TICKS)]
    axis = {"values": ticks, "format": "d"}
    x: Spec = {"field": "x", "type": "quantitative", "title": columns[1], "axis": axis, "scale": {"nice": False}}
    y: Spec = {"field": "y", "type": "quantitative", "title": None}
    told = [{"field": f"c{n}", "type": "nominal", "title": name} for n, name in enumerate(columns)]
    dash = {"field": "c0", "type": "nominal", "scale": {"domain": list(roles), "range": DASHES}, "legend": None}
    point = {"type": "point", "filled": True, "size": 28, "color": ACCENT, "opacity": 1}
    return {
        "title": title,
        "width": ACROSS,
        "height": TALL,
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "line", "color": ACCENT, "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y, "strokeDash": dash},
            },
            {"mark": point, "encoding": {"x": x, "y": y, "tooltip": told}},
        ],
    }


def _set_axis(spec: Spec, scale: Spec, ticks: list[float] | None) -> None:
    axis: Spec = {"grid": True, **({"values": ticks} if ticks else {"tickCount": 3})}
    for layer in spec["layer"]:
        layer["encoding"]["y"] = {**layer["encoding"]["y"], "scale": scale, "axis": axis}


def _rule(height: float) -> Spec:
    """Where strangers lie."""
    rule = {"type": "rule", "color": QUIET, "strokeDash": [4, 3]}
    return {"mark": rule, "encoding": {"y": {"datum": height, "type": "quantitative"}}}


def _band(spec: Spec, rows: Sequence[Row]) -> Spec:
    """One standard deviation to either side of the mean."""
    line = spec["layer"][0]["encoding"]
    deviations = [number(row["std"]) or 0.0 for row in rows if number(row["mean"]) is not None]
    for value, deviation in zip(spec["data"]["values"], deviations, strict=True):
        value |= {"low": value["y"] - deviation, "high": value["y"] + deviation}
    role = {key: value for key, value in line["strokeDash"].items() if key in ("field", "type")}
    encoding = {"x": line["x"], "y": {**line["y"], "field": "low"}, "y2": {"field": "high"}, "detail": role}
    return {"mark": {"type": "area", "color": ACCENT, "opacity": 0.15}, "encoding": encoding}
