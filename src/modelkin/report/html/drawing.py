"""Charts as still pictures and as Vega specs, and the script that brings these to life.

All by `vl_convert`, which the extra `report` installs; without it the page has words and tables alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from markupsafe import Markup, escape

from modelkin.report.html.chart import Chart

OPENING = re.compile(r"<svg[^>]*>")
NEEDED = "vl_convert"
HINT = "pip install 'modelkin[report]'"


@dataclass(frozen=True, slots=True)
class Drawing:
    """`svg` stands in the page as it is; `vega` is the same picture as data, for hover values."""

    svg: Markup
    vega: dict[str, Any]


def can_draw() -> bool:
    return find_spec(NEEDED) is not None


def drawn(chart: Chart) -> Drawing:
    import vl_convert

    vega = vl_convert.vegalite_to_vega(chart.spec)
    svg = str(vl_convert.vega_to_svg(vega, allowed_base_urls=[]))
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
