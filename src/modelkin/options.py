"""What several commands take and do: where output goes, and how bytes are got."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from modelkin.errors import UsageError


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    folder = click.Path(path_type=Path)
    command = click.option("--out", metavar="DIR", type=folder, help="Write JSON, CSV and text files.")(command)
    form = "Write the record as JSON; - is standard output."
    return click.option("--json", "json_to", metavar="FILE|-", help=form)(command)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--offline", is_flag=True, help="Use only what is on this machine."),
        click.option("--connections", type=click.IntRange(1, 32), default=16, show_default=True, help="To one host."),
        click.option("--no-cache", is_flag=True, help="Neither use nor write the range cache on disk."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_options(how: dict[str, Any]) -> Any:
    from modelkin.sources import ReadOptions

    return ReadOptions(offline=how["offline"], connections=how["connections"], cache=not how["no_cache"])


def written(out: Path, write_all: Callable[[], list[Path]]) -> None:
    """Do the writing, and name the files; a folder that cannot be written is the user's to mend."""
    try:
        paths = write_all()
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(out)) from error
    click.echo("".join(f"wrote {path}\n" for path in paths), err=True, nl=False)
