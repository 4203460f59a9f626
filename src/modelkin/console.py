"""Standard output and standard error: results on the one, progress on the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType

from modelkin.options import unwritable
from modelkin.report.whole_files import write_whole
from modelkin.sources.protocol import NOTE, Progress

TRUE = ("1", "true", "yes", "on")
# Work that counts figures, models or numbers; the rest, reading and hashing, counts bytes.
COUNTED = ("drawing", "matching experts", "reading models", "what was changed")
NARROWEST = 80  # a narrower terminal breaks the lines itself, at no loss
NARROWEST_PIPED = 60  # what is not a terminal breaks nothing, but below this a table has no room for words


def show(page: RenderableType, plain: str) -> None:
    """A page on standard output: in colour on a terminal, else its plain form, as wide as COLUMNS says."""
    if sys.stdout.isatty():
        Console(width=max(NARROWEST, Console().width)).print(page)
    else:
        columns = os.environ.get("COLUMNS", "")
        sys.stdout.write(_as_wide(page, int(columns)) if columns.isdecimal() and int(columns) else plain)
    sys.stdout.flush()  # a full disk shows here, where it can still be reported


def _as_wide(page: RenderableType, columns: int) -> str:
    from modelkin.report.text import render

    return render(page, max(NARROWEST_PIPED, columns))


def write(target: str, body: str) -> None:
    if target == "-":
        sys.stdout.write(body)
        sys.stdout.flush()
        return
    try:
        _write_file(Path(target).resolve(), body)
    except OSError as error:
        raise unwritable(error, target) from error


def _write_file(path: Path, body: str) -> None:
    """Whole or not at all, but for what nothing can take the place of: a pipe, a device, a file in a closed folder."""
    if (path.is_file() or not path.exists()) and os.access(path.parent, os.W_OK):
        write_whole(path.parent, {path.name: body})
        return
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(body)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on standard error while it is a terminal (and no HF_HUB_DISABLE_PROGRESS_BARS); else long waits alone."""
    if not sys.stderr.isatty() or os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS", "").lower() in TRUE:
        yield _long_waits
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[so_far]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("opening", total=None, so_far="")

        def report(what: str, done: int, total: int) -> None:
            if what.startswith(NOTE):
                bar.console.print(f"modelkin: {what}", markup=False, highlight=False)
                return
            bar.update(task, description=what, completed=done, total=total or None, so_far=so_far(what, done, total))

        yield report


def so_far(what: str, done: int, total: int) -> str:
    """How much of it is done, in the unit of that work; nothing where its length is not known."""
    if not total:
        return ""
    if what in COUNTED or what.startswith("comparing"):
        return f"{done:,} of {total:,}"
    from modelkin.report.text import size

    return f"{size(done)} of {size(total)}"


def _long_waits(what: str, done: int, total: int) -> None:
    """Nobody should take obedience to a rate limit for a hang; and notes are for everybody."""
    if done == total == 0 and what.startswith(("waiting", NOTE)):
        print(f"modelkin: {what}", file=sys.stderr)
