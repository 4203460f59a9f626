"""The command: see the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.yardsticks import __doc__ as about
from zoo.commands import run as as_command


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    from benchmarks.calibration.markdown import updated
    from benchmarks.yardsticks import rates, running
    from benchmarks.yardsticks.pairs import DISGUISES, GROUPS, tasks

    groups, disguises = _chosen(given.pairs, GROUPS), _chosen(given.disguises, DISGUISES)
    if given.models:
        made = running.run(tasks(given.models, groups, disguises, given.limit), given.out, given.workers)
        print(f"{made} pairs scored", file=sys.stderr)
    rows = running.rows_of(given.out)
    blocks = rates.blocks(rows)
    if given.page:
        given.page.write_text(updated(given.page.read_text("utf-8"), blocks), "utf-8")
        running.publish(rows, given.page.with_suffix(".csv.xz"))
    else:
        print("\n\n".join(blocks.values()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="folders of model folders, each with its truth.json")
    parser.add_argument("--out", type=Path, required=True, help="the file of scores; goes on with what is there")
    parser.add_argument("--pairs", default="strangers,relatives")
    parser.add_argument("--disguises", default="all", help="by name, with commas; none is one of them")
    parser.add_argument("--limit", type=int, help="at most so many pairs of strangers a folder and disguise")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path, help="write the tables into this page, and the scores beside it")
    return parser


def _chosen(names: str, known: Sequence[str]) -> list[str]:
    if names == "all":
        return list(known)
    chosen = [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"no {unknown[0]!r}; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    as_command(main)
