"""report.html: one self-contained file with a sheet in each language, from the record alone.

Both languages are whole sheets in the same file. A link to the other one needs no script: the sheet that the address
points into is the one that shows, and `lang` decides which shows where it points nowhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import ascii_letters, digits
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from modelkin.records import Comparison, Survey
from modelkin.report.html.drawing import Drawing, can_draw, drawn, script
from modelkin.report.html.sheet import Sheet
from modelkin.report.html.survey_parts import checked_survey
from modelkin.report.html.survey_sheet import SurveySheet
from modelkin.report.html.words import LANGUAGES, Language
from modelkin.report.text import plain
from modelkin.report.trust import BROKEN

FONTS = {
    "serif": ("Modelkin Hangul Serif", 400),
    "serif-bold": ("Modelkin Hangul Serif", 700),
    "sans": ("Modelkin Hangul Sans", 400),
}
PLAIN = frozenset(ascii_letters + digits + " -_.:,")
AnySheet = Sheet | SurveySheet
SPEC = "{language}-{name}-spec"


def comparison_html(comparison: Comparison, first: Language = "en", *, whole: bool = True) -> str:
    """`whole` is whether the seal of the record is; a page of one that is not begins with a warning."""
    sheets = {language: Sheet(comparison, language) for language in LANGUAGES}
    return _page(sheets, "sheet.html", first, whole)


def survey_html(survey: Survey, first: Language = "en", *, whole: bool = True) -> str:
    known = checked_survey(survey)
    sheets = {language: SurveySheet(known, language) for language in LANGUAGES}
    return _page(sheets, "survey.html", first, whole)


def _page(sheets: Mapping[Language, AnySheet], template: str, first: Language, whole: bool) -> str:
    if can_draw():
        for sheet in sheets.values():
            sheet.drawings.update({chart.name: drawn(chart) for chart in sheet.charts()})
    page_script = _file("templates/page.js")
    chart_script = script() if any(sheet.drawings for sheet in sheets.values()) else ""
    scripts = [page_script, *([chart_script] if chart_script else [])]
    environment = _environment()
    page = environment.get_template("page.html")
    return page.render(
        first=first,
        languages=LANGUAGES,
        warning={} if whole else BROKEN,
        titles={language: sheet.title for language, sheet in sheets.items()},
        sheets={
            language: Markup(environment.get_template(template).render(p=sheet)) for language, sheet in sheets.items()
        },
        specs=_specs(sheets),
        font_licence=Markup(_file("fonts/OFL.txt")),
        style=Markup(_fonts() + _file("templates/page.css") + _running(sheets)),
        page_script=Markup(page_script),
        chart_script=Markup(chart_script),
        script_hashes=Markup(" ".join(_allowed(body) for body in scripts)),
    )


def _specs(sheets: Mapping[Language, AnySheet]) -> dict[str, Markup]:
    return {
        SPEC.format(language=language, name=name): _as_data(drawing)
        for language, sheet in sheets.items()
        for name, drawing in sheet.drawings.items()
    }


def _as_data(drawing: Drawing) -> Markup:
    """JSON that no name in it can end early: `<` stands only as an escape."""
    text: str = json.dumps(drawing.vega, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _allowed(body: str) -> str:
    """The page runs these scripts and no other, whatever a name in a record may try."""
    return f"'sha256-{base64.b64encode(sha256(body.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("modelkin.report.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: object) -> object:
    """Every text that a template shows: a name must not turn the direction of the page, nor hide in it."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _running(sheets: Mapping[Language, AnySheet]) -> str:
    """For the head of printed pages, in the language that shows. page.css says which of these pages are printed."""
    look = "font: 8pt Helvetica, Arial, 'Modelkin Hangul Sans', sans-serif; color: #5a5a5a"
    return "".join(
        f'@page {language} {{ @top-left {{ content: "{_quoted(sheet.running)}"; {look} }} }}\n'
        for language, sheet in sheets.items()
    )


def _quoted(names: str) -> str:
    """Whatever is no letter of a plain name is escaped."""
    return "".join(c if c in PLAIN else f"\\{ord(c):x} " for c in plain(names))


@cache
def _fonts() -> str:
    """Syllables of KS X 1001, for readers without a Korean font; licence in fonts/OFL.txt."""
    faces = []
    for name, (family, weight) in FONTS.items():
        data = base64.b64encode(files("modelkin.report.html").joinpath("fonts", f"hangul-{name}.woff2").read_bytes())
        source = f"url(data:font/woff2;base64,{data.decode()}) format('woff2')"
        faces.append(f"@font-face{{font-family:'{family}';font-weight:{weight};font-display:block;src:{source}}}\n")
    return "".join(faces)


def _file(name: str) -> str:
    resource: Any = files("modelkin.report.html").joinpath(*name.split("/"))
    return str(resource.read_text(encoding="utf-8"))
