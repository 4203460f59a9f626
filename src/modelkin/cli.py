"""The command line: it translates arguments to one call, picks a view, and maps errors to exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from modelkin import __version__
from modelkin.commands import ALL_FIGURES, FIGURES, chosen_figures, show_survey, study, survey
from modelkin.errors import ModelkinError, UsageError
from modelkin.options import now, output_options, read_options, reading_options, view_options, written

EXIT_CODES = """\b
Exit codes: 0 done · 1 any other failure · 2 wrong usage · 3 not found, gated or
unreachable · 4 unreadable or hostile file · 5 nothing comparable · 10 related,
with --fail-on related · 130 interrupted"""


class _Commands(click.Group):
    """Errors of ours become one sentence, a hint and an exit code; no traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ModelkinError as error:
            click.echo(f"modelkin: {_printable(error)}", err=True)
            if error.hint:
                click.echo(f"  try: {_printable(error.hint)}", err=True)
            context.exit(error.exit_code)
        except BrokenPipeError:
            sys.stderr.close()  # the reader has gone; there is nobody to tell
            context.exit(0)
        except KeyboardInterrupt as reason:
            click.echo(f"modelkin: interrupted{'; ' if str(reason) else ''}{reason}", err=True)
            context.exit(130)

    def main(self, *arguments: Any, **settings: Any) -> Any:
        try:
            return super().main(*arguments, **settings)
        except OSError as error:  # a full disk, also under --help
            click.echo(f"modelkin: {_printable(error)}", err=True)
            sys.exit(1)


class _Lists(click.Command):
    """Options that may be given several times also take several values at once: --control M1 M2 M3.

    Only after the command has its own arguments: before that a word without a dash is one of those.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(context, list(self._spelled_out(args)))

    def _spelled_out(self, args: list[str]) -> Iterator[str]:
        options = {name: one for one in self.params if isinstance(one, click.Option) for name in one.opts}
        missing = sum(isinstance(one, click.Argument) for one in self.params)
        several, values = "", 0
        for place, word in enumerate(args):
            if word == "--":
                yield from args[place:]
                return
            if word.startswith("-") and word != "-" and not values:
                one = options.get(word)
                values = 0 if one is None or one.is_flag or one.count else 1
                several = word if one is not None and one.multiple else ""
            elif values:
                values = 0
            elif several and not missing:
                yield several
            else:
                several, missing = "", missing - 1
            yield word


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(__version__, message="modelkin %(version)s")
def main() -> None:
    """Look into open model checkpoints without downloading them.

    MODEL is owner/name, owner/name@revision, hf://owner/name@revision, a folder, or a file.
    """


@main.command()
@click.argument("model")
@output_options
@click.option("--all-layers", is_flag=True, help="Show the gains of every layer.")
@click.option("--no-vocabulary", is_flag=True, help="Leave the tokenizer files unread.")
@click.option("--hash", "hashed", is_flag=True, help="Compute sha256 of local files (reads them whole).")
@reading_options
def inspect(
    model: str, json_to: str | None, out: Path | None, all_layers: bool, no_vocabulary: bool, hashed: bool, **how: Any
) -> None:
    """What MODEL is made of: identity, anatomy, norm gains, vocabulary. Reads headers and norm vectors only."""
    from modelkin.console import progress_bar
    from modelkin.inspection import inspect as inspected

    with progress_bar() as progress:
        record = inspected(model, read_options(how), vocabulary=not no_vocabulary, hashed=hashed, progress=progress)
    _show_inspection(record, json_to, out, all_layers)


@main.command(cls=_Lists)
@click.argument("a")
@click.argument("b")
@click.option(
    "--budget",
    type=click.Choice(["quick", "standard", "full"]),
    default="standard",
    show_default=True,
    help="How much to read: at most 1 MB of weights a model, 64 MB, or everything.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Chooses the rows that are read.")
@click.option(
    "--candidates", metavar="MODEL …", multiple=True, help="Possible further parents or relatives, compared with both."
)
@click.option(
    "--control", metavar="MODEL …", multiple=True, help="Models that should be strangers, shown beside the pair."
)
@click.option("--dry-run", is_flag=True, help="Say what would be read, and stop.")
@click.option("--fail-on", type=click.Choice(["related"]), help="Exit with 10 on this outcome.")
@FIGURES
@output_options
@view_options
@reading_options
def compare(
    a: str,
    b: str,
    budget: Any,
    seed: int,
    candidates: tuple[str, ...],
    control: tuple[str, ...],
    dry_run: bool,
    fail_on: str | None,
    no_figures: bool,
    json_to: str | None,
    out: Path | None,
    markdown_to: str | None,
    card: bool,
    language: Any,
    **how: Any,
) -> None:
    """Do the weights of B descend from those of A? Evidence, its chance between strangers, and a verdict."""
    from modelkin.compare import CompareOptions, plan
    from modelkin.compare import compare as compared
    from modelkin.console import progress_bar
    from modelkin.showing import View, show_comparison

    options = CompareOptions(budget, seed, read_options(how), candidates, control, made=now())
    _one_on_standard_output(json_to, markdown_to)
    if dry_run and (json_to or out or markdown_to or card):
        raise UsageError("--dry-run prints a plan and writes nothing", hint="leave out where it should be written to")
    if dry_run:
        for line in plan(a, b, options):
            click.echo(line)
        return
    with progress_bar() as progress:
        record = compared(a, b, options, progress)
    show_comparison(record, View(json_to, out, markdown_to, card, language, not no_figures))
    if fail_on == record.verdict.outcome:
        sys.exit(10)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@FIGURES
@ALL_FIGURES
@click.option("--unsealed", is_flag=True, help="Show a record whose seal is broken, under a warning.")
@output_options
@view_options
def report(
    file: Path,
    no_figures: bool,
    all_figures: bool,
    unsealed: bool,
    json_to: str | None,
    out: Path | None,
    markdown_to: str | None,
    card: bool,
    language: Any,
) -> None:
    """Show a comparison or a survey again from its JSON FILE alone; with --out as report.html, JSON, CSV and text.

    Nothing is read but FILE. Its seal must be whole, and what it says possible; verify recomputes a comparison.
    """
    from modelkin.records import Survey
    from modelkin.report.html.sections import checked
    from modelkin.report.html.survey_parts import checked_survey
    from modelkin.report.trust import checked_trust
    from modelkin.showing import View, show_comparison
    from modelkin.verify import check_verdict, read_record

    _one_on_standard_output(json_to, markdown_to)
    record = read_record(file)
    if isinstance(record, Survey) and (markdown_to or card):
        raise UsageError("a survey has no such form", where=str(file), hint="--out writes its page and its tables")
    record = checked_survey(record) if isinstance(record, Survey) else checked(record)
    whole = checked_trust(record, str(file), unsealed=unsealed)
    figures = chosen_figures(no_figures, all_figures)
    if isinstance(record, Survey):
        show_survey(record, json_to, out, language, figures=figures, whole=whole)
    else:
        if whole:
            check_verdict(record, str(file))
        show_comparison(record, View(json_to, out, markdown_to, card, language, figures != "none"), whole=whole)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--fetch", is_flag=True, help="Open both models again, check what was read, and recompute every answer.")
@reading_options
def verify(file: Path, fetch: bool, **how: Any) -> None:
    """Check the seal of a comparison, and recompute from what its JSON FILE holds: p-values, identity, verdict.

    Without --fetch nothing is opened but FILE: that shows damage and careless edits. A record that somebody forged and
    sealed anew shows itself with --fetch alone, which opens both models and recomputes every answer.
    """
    from modelkin.console import progress_bar
    from modelkin.verify import not_recomputed, read_comparison, verify_fetched
    from modelkin.verify import verify as verified

    record = read_comparison(file)
    if fetch:
        with progress_bar() as progress:
            different = verify_fetched(record, read_options(how), progress)
    else:
        different = verified(record)
    for difference in different:
        where = _printable(difference.where)
        click.echo(f"{where}: stored {_printable(difference.stored)}, recomputed {_printable(difference.recomputed)}")
    if different:
        raise ModelkinError(_refuted_text(different), where=str(file))
    click.echo(_verified_text(fetch, () if fetch else not_recomputed(record)))


def _refuted_text(different: Sequence[Any]) -> str:
    from modelkin.verify import SEAL

    broken = any(difference.where == SEAL for difference in different)
    others = sum(difference.where != SEAL for difference in different)
    said = ["the record was altered after it was written"] if broken else []
    if others:
        said.append("1 entry does not come out again" if others == 1 else f"{others} entries do not come out again")
    return "; ".join(said)


def _verified_text(fetched: bool, left: tuple[str, ...]) -> str:
    if fetched:
        return "every range that was read is as it was; every answer and the verdict come out again"
    text = (
        "the seal is whole; what the files, the kept rows and the answers show comes out again, and so does the verdict"
    )
    if not left:
        return text
    names = ", ".join(_printable(name) for name in left)
    number = "1 answer needs" if len(left) == 1 else f"{len(left)} answers need"
    taken = "was taken as stored" if len(left) == 1 else "were taken as stored"
    return (
        f"{text}\n{number} the models again and {taken} ({names}): --fetch checks {'it' if len(left) == 1 else 'them'}"
    )


def _one_on_standard_output(json_to: str | None, markdown_to: str | None) -> None:
    """Said before the work begins."""
    if json_to == markdown_to == "-":
        raise UsageError("standard output can hold one of them", hint="give --json or --markdown a file")


def _show_inspection(record: Any, json_to: str | None, out: Path | None, all_layers: bool) -> None:
    from modelkin.console import show, write
    from modelkin.report.files import to_json, write_inspection
    from modelkin.report.text import inspection_page, render

    page = inspection_page(record, all_layers=all_layers)
    if json_to:
        write(json_to, to_json(record))
    if json_to != "-":
        show(page, render(page))
    if out:
        written(out, lambda: write_inspection(record, render(page), out))


@main.command()
@click.option("--list", "listing", is_flag=True, help="Name the bundled models and stop.")
@click.option("--truth", "telling", is_flag=True, help="Say what each bundled model really is and stop.")
@output_options
def demo(listing: bool, telling: bool, json_to: str | None, out: Path | None) -> None:
    """Compare six pairs of bundled models, served over HTTP by a Hub on this machine. Needs no network."""
    from modelkin.demo.catalogue import sentences, table

    if (listing or telling) and (json_to or out):
        raise UsageError("--list and --truth print a page and nothing else", hint="read modelkin/demo/truth.json")
    if listing or telling:
        click.echo("\n\n".join([*([table()] if listing else []), *([sentences()] if telling else [])]))
        return
    from modelkin.console import progress_bar, write
    from modelkin.report.demo_text import demo_text
    from modelkin.report.files import to_json, write_comparisons
    from modelkin.tour import known, tour

    with progress_bar() as progress:
        comparisons = tour(progress)
    page = demo_text(comparisons, known())
    if json_to:
        write(json_to, to_json(comparisons))
    if json_to != "-":
        click.echo(page, nl=False)
    if out:
        written(out, lambda: write_comparisons(comparisons, page, out))


@main.command()
@click.option("--json", "json_to", metavar="FILE|-", help="Write the list as JSON; - is standard output.")
def families(json_to: str | None) -> None:
    """The model families that are mapped, with public examples."""
    from modelkin.architectures import families as known
    from modelkin.console import write
    from modelkin.report.files import to_json

    if json_to:
        fields = ("name", "model_types", "architectures", "examples", "facts", "why")
        write(json_to, to_json([{field: getattr(family, field) for field in fields} for family in known()]))
        return
    for family in known():
        click.echo(f"{family.name:14} {', '.join(family.examples)}")


@main.group()
def cache() -> None:
    """The byte ranges kept on this machine."""


@cache.command("list")
def cache_list() -> None:
    """What is kept, the latest used first."""
    from modelkin.report.text import size
    from modelkin.sources.cache import default_path, open_cache

    cache = open_cache()
    models = cache.models()
    cache.close()
    for model in models:
        click.echo(f"{size(model.bytes):>10}  {model.extents:>6} ranges  {model.repository}@{model.revision[:12]}")
    click.echo(f"{size(sum(model.bytes for model in models))} in {default_path()}", err=True)


@cache.command("clear")
@click.argument("model", required=False)
def cache_clear(model: str | None) -> None:
    """Forget everything, also comparisons that were interrupted; or one MODEL (owner/name)."""
    from modelkin.journal import clear_journals
    from modelkin.report.text import size
    from modelkin.sources.cache import clear_cache

    freed = clear_cache(model) + (0 if model else clear_journals())
    click.echo(f"freed {size(freed)}" if freed or not model else f"nothing is kept of {_printable(model)}", err=True)


main.add_command(survey)
main.add_command(study)
