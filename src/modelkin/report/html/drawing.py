"""Charts as still pictures and as Vega specs, and the script that brings these to life.

All by `vl_convert`, which the extra `report` installs; without it the page has words and tables alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import Any

from markupsafe import Markup, escape

from modelkin.report.html.chart import Chart

OPENING = re.compile(r"<svg[^>]*>")
# What the drawing library says of its marks, in English: the whole picture has a name in the language of the page.
SPOKEN = re.compile(r' (?:aria-label|aria-roledescription|role)="[^"]*"')
NEEDED = "vl_convert"
PICTURE_FONT = "'Liberation Sans', 'Modelkin Hangul Sans', sans-serif"  # the first comes with the converter
HINT = "pip install 'modelkin[report]'"


@dataclass(frozen=True, slots=True)
class Drawing:
    """`svg` stands in the page as it is; `vega` is the same picture as data, for hover values."""

    svg: Markup
    vega: dict[str, Any]


def can_draw() -> bool:
    return find_spec(NEEDED) is not None


@cache
def _converter() -> Any:
    """With the page's own Hangul: names are as wide, and pictures have letters, on a machine without a Korean font."""
    import vl_convert

    with as_file(files("modelkin.report.html").joinpath("fonts")) as folder:
        vl_convert.register_font_directory(str(folder))
    return vl_convert


def picture(chart: Chart) -> bytes:
    """The chart as PNG, on white."""
    spec = {**chart.spec, "background": "#ffffff", "config": {**chart.spec["config"], "font": PICTURE_FONT}}
    return bytes(_converter().vegalite_to_png(spec, scale=2, allowed_base_urls=[]))


def drawn(chart: Chart) -> Drawing:
    vl_convert = _converter()
    vega = vl_convert.vegalite_to_vega(chart.spec)
    svg = SPOKEN.sub("", str(vl_convert.vega_to_svg(vega, allowed_base_urls=[])))
    words = Markup("<title>{}</title><desc>{}</desc>").format(chart.title, chart.alt)
    named = OPENING.sub(
        lambda found: f'{found[0][:-1]} role="img" aria-label="{escape(chart.alt)}">{words}', svg, count=1
    )
    return Drawing(Markup(named), vega)


@cache
def script() -> str:
    """Vega and the few lines that replace the still pictures; nothing in it is ever the end of a script element."""
    import vl_convert

    own = files("modelkin.report.html").joinpath("templates", "charts.js").read_text(encoding="utf-8")
    return str(vl_convert.javascript_bundle(own)).replace("</script", "<\\/script")
