"""The command: see the package."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.calibration import __doc__ as about
from benchmarks.calibration.results import HERE
from zoo.commands import run as as_command

PAGE = HERE.with_suffix(".md")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    return int(given.command(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="compare the pairs of a zoo")
    run.add_argument("models", type=Path, help="folder of model folders, each with its truth.json")
    run.add_argument("--out", type=Path, required=True, help="folder of the results; goes on with what is there")
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--budgets", default="quick,standard,full")
    run.add_argument("--limit", type=int, help="at most so many pairs of every outcome and budget")
    run.set_defaults(command=_run)
    gauge = commands.add_parser("gauge", help="renumbered copies against the exact laws")
    gauge.add_argument("--copies", type=int, default=100_000)
    gauge.add_argument("--workers", type=int, default=2)
    gauge.add_argument("--data", type=Path, default=HERE)
    gauge.set_defaults(command=_gauge)
    publish = commands.add_parser("publish", help="tables and figures from the data file alone")
    publish.add_argument("--from", dest="source", type=Path, help="first make the data file of this run")
    publish.add_argument("--data", type=Path, default=HERE)
    publish.add_argument("--page", type=Path, default=PAGE)
    publish.add_argument("--check", action="store_true", help="exit with 1 if the page is out of date; write nothing")
    publish.set_defaults(command=_publish)
    return parser


def _run(given: argparse.Namespace) -> int:
    from benchmarks.calibration import running

    budgets = given.budgets.split(",")
    made = running.run(given.models, given.out, given.workers, budgets, given.limit)
    print(f"{made} comparisons made; python -m benchmarks.calibration publish --from {given.out}")
    return 0


def _gauge(given: argparse.Namespace) -> int:
    from benchmarks.calibration import gauge

    print(f"{gauge.run(given.copies, given.workers, given.data / gauge.GAUGE):,} copies asked")
    return 0


def _publish(given: argparse.Namespace) -> int:
    from benchmarks.calibration import publishing

    if given.source:
        publishing.keep(given.source, given.data)
    pages = publishing.pages(given.data, given.page)
    if given.check:
        return publishing.check(pages)
    publishing.write(pages)
    publishing.draw(given.data)
    return 0


if __name__ == "__main__":
    as_command(main)
