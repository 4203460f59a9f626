"""A comparison in the forms that were asked for: on the terminal, in files, or as what its owner may paste."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from modelkin.console import progress_bar, show, write
from modelkin.errors import UsageError
from modelkin.options import written
from modelkin.records import Comparison
from modelkin.report.comparison_text import comparison_page
from modelkin.report.files import to_json, write_comparison
from modelkin.report.html.drawing import HINT, can_draw
from modelkin.report.html.words import Language
from modelkin.report.markdown import markdown
from modelkin.report.model_card import card_text
from modelkin.report.text import render
from modelkin.report.trust import BROKEN


@dataclass(frozen=True, slots=True)
class View:
    """Where each form goes; None where it was not asked for."""

    json_to: str | None
    out: Path | None
    markdown_to: str | None
    card: bool
    language: Language
    figures: bool = True


def show_comparison(record: Comparison, view: View, *, whole: bool = True) -> None:
    """`whole` is whether its seal is: every page made of one that is not says so first."""
    if view.card and not whole:
        raise UsageError("no card is proposed from a record that was changed", hint="leave out --model-card")
    page = comparison_page(record) if whole else under_warning(comparison_page(record))
    if view.json_to:
        write(view.json_to, to_json(record))
    if view.markdown_to:
        write(view.markdown_to, markdown(record) if whole else f"> **{BROKEN['en']}**\n\n{markdown(record)}")
    on_terminal = "-" not in (view.json_to, view.markdown_to)
    if on_terminal:
        show(page, render(page))
    if view.card:
        click.echo(card_text(record), err=not on_terminal)
    if view.out:
        _write(record, render(page), view, view.out, whole)


def _write(record: Comparison, page: str, view: View, out: Path, whole: bool) -> None:
    with progress_bar() as progress:
        written(
            out,
            lambda: write_comparison(
                record,
                page,
                out,
                view.language,
                whole=whole,
                figures=view.figures,
                progress=lambda done, total: progress("drawing", done, total),
            ),
        )
    if not can_draw():
        click.echo(f"modelkin: report.html has no charts: they need {HINT}", err=True)


def under_warning(page: RenderableType) -> RenderableType:
    """On the terminal and in text, where a reader begins."""
    return Group(Text(f"WARNING: {BROKEN['en']}", style="bold"), page)
