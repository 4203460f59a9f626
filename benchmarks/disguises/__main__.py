"""The command: see the package."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.calibration.__main__ import PAGE
from benchmarks.calibration.results import HERE
from benchmarks.disguises import __doc__ as about
from zoo.commands import run as as_command


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    return int(given.command(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="disguise and compare models of a zoo")
    run.add_argument("models", type=Path, help="folder of model folders, each with its truth.json")
    run.add_argument("--out", type=Path, required=True, help="folder of the results; goes on with what is there")
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--half", default="test", choices=("test", "tune"), help="of the zoo; thresholds were set on tune")
    run.add_argument("--composed", type=int, default=32, help="pairs of each kind in all moves and noise")
    run.add_argument("--free", type=int, default=12, help="the same with free gains as well")
    run.add_argument("--alone", type=int, default=3, help="pairs of each kind in one move")
    run.add_argument("--strangers", type=int, default=60, help="pairs of strangers in all moves and noise")
    run.set_defaults(command=_run)
    publish = commands.add_parser("publish", help="the table from the data file alone")
    publish.add_argument("--from", dest="source", type=Path, help="first make the data file of this run")
    publish.add_argument("--data", type=Path, default=HERE)
    publish.add_argument("--page", type=Path, default=PAGE)
    publish.set_defaults(command=_publish)
    return parser


def _run(given: argparse.Namespace) -> int:
    from benchmarks.disguises import running
    from benchmarks.disguises.tasks import Amounts, tasks

    amounts = Amounts(given.composed, given.free, given.alone, given.strangers)
    made = running.run(given.models, tasks(given.models, given.half, amounts), given.out, given.workers)
    print(f"{made} comparisons made; python -m benchmarks.disguises publish --from {given.out}")
    return 0


def _publish(given: argparse.Namespace) -> int:
    from benchmarks.disguises import publishing

    if given.source:
        publishing.keep(given.source, given.data)
    given.page.write_text(publishing.page(given.data, given.page), "utf-8")
    return 0


if __name__ == "__main__":
    as_command(main)
