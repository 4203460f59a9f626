"""The charts of a comparison's page as files of their own, SVG and PNG, in one language."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from modelkin.records import Comparison
from modelkin.report.html.chart import FONT as PAGE_FONT
from modelkin.report.html.chart import Chart
from modelkin.report.html.drawing import can_draw, drawn, picture
from modelkin.report.html.sheet import Sheet
from modelkin.report.html.words import Language
from modelkin.report.whole_files import write_whole

FAMILY, FONT = "Modelkin Hangul Sans", "hangul-sans.woff2"


def write_figures(
    comparison: Comparison, folder: Path, language: Language, progress: Callable[[int, int], None] | None = None
) -> list[Path]:
    """NAME.svg and NAME.png a chart, and captions.txt, which says what each shows; nothing where none can be drawn."""
    charts = Sheet(comparison, language).charts() if can_draw() else []
    if not charts:
        return []
    bodies: dict[str, str | bytes] = {"captions.txt": captions(charts)}
    for done, chart in enumerate(charts, 1):
        bodies |= {f"{chart.name}.svg": still(chart), f"{chart.name}.png": picture(chart)}
        if progress:
            progress(done, len(charts))
    return write_whole(folder, bodies)


def captions(charts: list[Chart]) -> str:
    return "\n".join(f"{chart.name}\n    {chart.title}. {chart.alt}\n" for chart in charts)


def still(chart: Chart) -> str:
    """On white, as a page would be; with the font of its Hangul inside, for many a reader has none.

    That font comes first, and has nothing but Hangul: named later, a browser that loads it draws some texts without it.
    """
    svg = str(drawn(chart).svg).replace(PAGE_FONT, f"'{FAMILY}', {PAGE_FONT}")
    opened, inside = svg.split(">", 1)
    face = _face() if any("가" <= letter <= "힣" for letter in svg) else ""
    return f'{opened}>{face}<rect width="100%" height="100%" fill="#ffffff"/>{inside}\n'


def _face() -> str:
    data = base64.b64encode(files("modelkin.report.html").joinpath("fonts", FONT).read_bytes()).decode()
    source = f"url(data:font/woff2;base64,{data}) format('woff2')"
    return f"<style>@font-face{{font-family:'{FAMILY}';font-display:block;src:{source}}}</style>"
