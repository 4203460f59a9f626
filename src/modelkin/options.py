"""What several commands take and do: where output goes, and how bytes are got."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from modelkin.errors import ModelkinError, UsageError

FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both places are tried before the work begins, so that no long result is lost for want of one."""
    out = click.option(
        "--out",
        metavar="DIR",
        type=click.Path(path_type=Path),
        callback=_folder_to_write,
        help="Write all forms of the result into a folder.",
    )
    to_json = click.option(
        "--json",
        "json_to",
        metavar="FILE|-",
        callback=_file_to_write,
        help="Write the record as JSON; - is standard output.",
    )
    return to_json(out(command))


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--lang",
        "language",
        type=click.Choice(["en", "ko"]),
        default="en",
        show_default=True,
        help="The language that report.html opens in; it holds both.",
    )(command)


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The forms that a comparison can be shown in beside its page."""
    markdown = click.option(
        "--markdown",
        "markdown_to",
        metavar="FILE|-",
        callback=_file_to_write,
        help="Write it for an issue or pull request; - is standard output.",
    )
    card = click.option("--model-card", "card", is_flag=True, help="Print what the owner may put into the model card.")
    return markdown(card(language_option(command)))


def _file_to_write(_context: click.Context, _option: click.Parameter, target: str | None) -> str | None:
    if target is not None and target != "-":
        path = Path(target)
        if path.is_dir():
            raise unwritable(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), target)
        if not path.exists():
            _try_in(path.parent, target)
        elif not os.access(path, os.W_OK):
            raise unwritable(OSError(errno.EACCES, os.strerror(errno.EACCES)), target)
    return target


def _folder_to_write(_context: click.Context, _option: click.Parameter, folder: Path | None) -> Path | None:
    """A folder, or a path that can become one."""
    if folder is not None:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        _try_in(there, str(folder))
    return folder


def _try_in(folder: Path, target: str) -> None:
    """Make a folder there and take it away again: permissions alone do not tell, as /proc shows."""
    try:
        with TemporaryDirectory(prefix=".modelkin-", dir=folder):
            pass
    except OSError as error:
        raise unwritable(error, target) from error


def unwritable(error: OSError, target: str) -> ModelkinError:
    """A place that cannot be written is the user's to mend, a disk that is full or broken a failure of its own."""
    kind = ModelkinError if error.errno in FAILURES else UsageError
    return kind(f"cannot be written: {error.strerror}", where=target)


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


def now() -> str:
    """As records say when they were made."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written(out: Path, write_all: Callable[[], list[Path]]) -> None:
    """Do the writing, and name the files."""
    try:
        paths = write_all()
    except OSError as error:
        raise unwritable(error, str(out)) from error
    click.echo("".join(f"wrote {path}\n" for path in paths), err=True, nl=False)
