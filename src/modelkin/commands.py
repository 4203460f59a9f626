"""The commands about many models, `survey` and `study`: arguments to one call, and a view."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import click

from modelkin.errors import UsageError
from modelkin.options import language_option, now, output_options, read_options, reading_options, written

SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Chooses what is drawn.")
FIGURES = click.option("--no-figures", is_flag=True, help="Leave the pictures out of --out.")
ALL_FIGURES = click.option(
    "--all-figures", is_flag=True, help="Draw every pair and model of a survey, not the most alike alone."
)
Figures = Literal["none", "notable", "all"]


@click.command()
@click.argument("models", nargs=-1)
@click.option("--roles", help="Such as input_norm,post_norm,k,v,router,embedding; by default the gains of every layer.")
@click.option("--layers", help="Where models are set beside each other, as 10,20,30, or all; by default three depths.")
@click.option("--group", "groups", multiple=True, metavar="NAME=M1,M2", help="Models that belong together.")
@click.option("--known", multiple=True, metavar="derived:M1,M2", help="Or independent:M1,M2: shown beside the numbers.")
@click.option("--mixed", metavar="M1:10,M2:20", help="A layer of its own for each model, for the mixed matrix.")
@click.option("--check-reference", is_flag=True, help="Hold the survey against published numbers.")
@SEED
@FIGURES
@ALL_FIGURES
@output_options
@language_option
@reading_options
def survey(
    models: tuple[str, ...],
    check_reference: bool,
    no_figures: bool,
    all_figures: bool,
    json_to: str | None,
    out: Path | None,
    language: Any,
    **given: Any,
) -> None:
    """Set MODELS side by side: every metric, every layer, with what strangers would show. Each is read once.

    A survey describes; whether two models are related is what compare answers. Models that --check-reference is about
    are read where none is named.
    """
    from modelkin.console import progress_bar
    from modelkin.records.survey import sealed_survey
    from modelkin.survey import survey as surveyed

    figures = chosen_figures(no_figures, all_figures)
    _tried(out)
    if check_reference and not models:
        from modelkin.reference.published import REPOSITORIES

        models = tuple(REPOSITORIES.values())
    with progress_bar() as progress:
        record = surveyed(models, _survey_options(given), progress)
    if check_reference:
        record = _checked(record)
    show_survey(sealed_survey(record, now()), json_to, out, language, figures=figures)


@click.command()
@click.argument("name", required=False)
@click.argument("models", nargs=-1)
@click.option("--small", is_flag=True, help="The quick form, where there is one.")
@SEED
@FIGURES
@output_options
@reading_options
def study(
    name: str | None,
    models: tuple[str, ...],
    small: bool,
    seed: int,
    no_figures: bool,
    json_to: str | None,
    out: Path | None,
    **how: Any,
) -> None:
    """A small experiment, NAME, that teaches one thing; without a name, the list of them. Some look at MODELS."""
    from modelkin.studies import STUDIES

    if name is None:
        for experiment in STUDIES.values():
            click.echo(f"{experiment.name:12} {experiment.summary}")
        return
    if name not in STUDIES:
        raise UsageError(f"there is no study {name!r}", hint=f"one of {', '.join(STUDIES)}")
    _tried(out)
    record = STUDIES[name].run(models, small=small, seed=seed, reading=read_options(how))
    _show_study(record, json_to, out, figures=not no_figures)


def chosen_figures(no_figures: bool, all_figures: bool) -> Figures:
    if no_figures and all_figures:
        raise UsageError("--no-figures and --all-figures say opposite things", hint="leave out one of them")
    return "none" if no_figures else "all" if all_figures else "notable"


def _tried(out: Path | None) -> None:
    """Make the folder, and a file in it, before hours of work go into what could not be written."""
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(out)) from error


def _survey_options(given: dict[str, Any]) -> Any:
    from modelkin.records import KnownPair
    from modelkin.survey import SurveyOptions

    return SurveyOptions(
        roles=_list(given["roles"]),
        layers=_list(given["layers"]),
        groups=tuple(
            (name, _list(members)) for name, members in (_split(it, "=", "--group") for it in given["groups"])
        ),
        known=tuple(KnownPair(*_two(members), _relation(kind)) for kind, members in _known(given["known"])),
        mixed=tuple(_split(part, ":", "--mixed", last=True) for part in _list(given["mixed"])),
        seed=given["seed"],
        reading=read_options(given),
    )


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _split(text: str, sign: str, option: str, *, last: bool = False) -> tuple[str, str]:
    left, found, right = text.rpartition(sign) if last else text.partition(sign)
    if not (left and found and right):
        raise UsageError(f"expected something{sign}something, found {text!r}", where=option)
    return left, right


def _known(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [_split(text, ":", "--known") for text in texts]


def _two(members: str) -> tuple[str, str]:
    names = _list(members)
    if len(names) != 2:
        raise UsageError(f"expected two models, found {members!r}", where="--known")
    return names[0], names[1]


def _relation(kind: str) -> Any:
    if kind not in ("derived", "independent"):
        raise UsageError(f"expected derived or independent, found {kind!r}", where="--known")
    return kind


def _checked(record: Any) -> Any:
    """The survey with one table more."""
    import msgspec

    from modelkin.reference import check
    from modelkin.reference.published import REPOSITORIES

    table, left_out = check(record), record.left_out
    originals = {name.rpartition("/")[2].lower() for name in REPOSITORIES.values()}
    if not any(
        model.id.partition("@")[0].rstrip("/").rpartition("/")[2].lower() in originals for model in record.models
    ):
        said = f"None of these models is one of the originals ({', '.join(REPOSITORIES.values())})"
        table = msgspec.structs.replace(table, caption=f"{said}, so nothing could be checked. {table.caption}")
        left_out = (f"{said}: no published number was checked", *left_out)
    return msgspec.structs.replace(record, tables=(*record.tables, table), left_out=left_out)


def show_survey(
    record: Any, json_to: str | None, out: Path | None, language: Any, *, figures: Figures, whole: bool = True
) -> None:
    """`whole` is whether the seal of the record is: every page made of one that is not says so first."""
    from modelkin.console import show, write
    from modelkin.report.files import to_json
    from modelkin.report.html.drawing import HINT, can_draw
    from modelkin.report.survey_files import write_survey
    from modelkin.report.survey_text import BESIDE, survey_page
    from modelkin.report.text import render
    from modelkin.showing import under_warning

    def page(where: str | None) -> Any:
        said = survey_page(record, where)
        return said if whole else under_warning(said)

    if json_to:
        write(json_to, to_json(record))
    if json_to != "-":
        show(page(str(out) if out else None), render(page(str(out) if out else None)))
    if out:
        written(out, lambda: write_survey(record, render(page(BESIDE)), out, language, whole=whole))
        if not can_draw():
            click.echo(f"modelkin: report.html has no charts: they need {HINT}", err=True)
        if figures != "none":
            written(out, lambda: _figures(record, out / "figures", language, every=figures == "all"))


def _figures(record: Any, folder: Path, language: Any, *, every: bool) -> list[Path]:
    from modelkin.console import progress_bar
    from modelkin.report.figures import draw_all, processors

    with progress_bar() as progress:
        draw_all(
            record,
            folder,
            lambda done, total: progress("drawing", done, total),
            processors(),
            every=every,
            language=language,
        )
    return [folder]


def _show_study(record: Any, json_to: str | None, out: Path | None, *, figures: bool) -> None:
    from modelkin.console import write
    from modelkin.report.files import to_json
    from modelkin.report.study_files import write_study
    from modelkin.report.study_text import study_page

    page = study_page(record)
    if json_to:
        write(json_to, to_json(record))
    if json_to != "-":
        click.echo(page, nl=not page.endswith("\n"))
    if out:
        written(out, lambda: write_study(record, page, out, figures=figures))
