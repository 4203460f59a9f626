"""What a chart of the page is made of, and how all of them look.

Colours are fixed marks, which the page's style sheet turns into those of light, dark and print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
INK, QUIET, RULE, ACCENT = "#1b1b1b", "#5f5f5f", "#c9c9c9", "#0b5cad"
SHADES = ["#eef2f7", "#c3d5e8", "#8fb3d6", "#4b86bd", "#0b4a8f"]
FONT = "'Helvetica Neue', Helvetica, Arial, 'Modelkin Hangul Sans', sans-serif"
WIDE, NARROW = 600, 300
MOST_LAYERS = 256  # in one picture: more have no room, and the drawing library fails at some thousands
CONFIG: Spec = {
    "background": None,
    "aria": False,  # the figure carries its own text alternative
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": QUIET,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 12,
        "domainColor": RULE,
        "tickColor": RULE,
        "gridColor": RULE,
        "grid": False,
    },
    "title": {
        "color": INK,
        "fontSize": 13,
        "anchor": "start",
        "fontWeight": "bold",
        "offset": 4,
        "subtitleColor": QUIET,
        "subtitleFontSize": 12,
    },
    "legend": {"labelColor": INK, "titleColor": QUIET, "labelFontSize": 12, "titleFontWeight": "normal"},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """`rows` are the numbers that the spec draws, as a reader sees them; `note` is said beneath the picture."""

    name: str
    title: str
    alt: str
    spec: Spec
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: bool = False
    note: str = ""


def hover(field: str) -> Spec:
    """Fields are called as readers read them; dots and brackets in a name would be taken for a path."""
    escaped = "".join(f"\\{c}" if c in ".[]\\'\"" else c for c in field)
    return {"field": escaped, "type": "nominal", "title": field}


def across() -> Spec:
    return {"labelAngle": 0, "labelOverlap": True}


def finished(spec: Spec, framed: bool = False) -> Spec:
    config = {**CONFIG, "view": {"stroke": RULE}} if framed else CONFIG
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "padding": 4, **spec, "config": config}
