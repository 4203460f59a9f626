"""Merges of a zoo, un-mixed by `compare --candidates`: method, weights, origins, and what a missing parent leaves.

    python -m benchmarks.merges run MODELS       writes docs/calibration/merges.csv
    python -m benchmarks.merges publish          its tables in docs/calibration.md, from that file alone

Every merge is compared with its first parent at `full`, three times: with its other parents and the model they all
descend from as candidates; with a sibling that had no part in it among them; and without the last of its parents.
Controls beside them are models that were trained on and never merged, given a sibling and the common parent.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.calibration.__main__ import PAGE
from benchmarks.calibration.markdown import table, updated
from benchmarks.calibration.results import HERE
from benchmarks.calibration.running import deaf_pool, progress_bar
from zoo.commands import run as as_command

from modelkin import CompareOptions, Comparison, ReadOptions, compare

DATA = HERE / "merges.csv"
ALL, BYSTANDER, MISSING, NEVER = "all parents", "and a bystander", "a parent missing", "never merged"
BYSTANDER_STEP = "rl"  # a light fine-tune that no merge of the zoo took in
NEVER_STEPS = ("sft", "cpt-light", "cpt-heavy")
WEIGHED = ("linear", "slerp", "soup")
CLOSE = 0.02  # what weights of linear and spherical merges may be off by, the base given
Truth = Mapping[str, Any]
_folder: Path | None = None


@dataclass(frozen=True)
class Case:
    """`weights` are those of `a` and then of the candidates."""

    step: str
    given: str
    a: str
    b: str
    candidates: tuple[str, ...]
    weights: tuple[float, ...] = ()
    origins: tuple[tuple[str, str, str], ...] = ()
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    step: str
    given: str
    a: str
    b: str
    is_merge: int
    method: str
    weight_error: str
    density: str
    origins_right: str
    missing_parent: str
    innocent_named: str = ""  # models named as sources that had no part


def cases(known: Mapping[str, Truth]) -> Iterator[Case]:
    for name, truth in known.items():
        step, _, base = name.partition(".")
        if step in NEVER_STEPS and base.startswith("twin-") and f"{BYSTANDER_STEP}.{base}" in known:
            yield Case(step, NEVER, base, name, (f"{BYSTANDER_STEP}.{base}",))
        if truth["kind"] == "merge" and "details" in truth["made_by"]:
            yield from _merge_cases(step, base, truth, f"{BYSTANDER_STEP}.{base}" in known)


def _merge_cases(step: str, base: str, truth: Truth, bystander: bool) -> Iterator[Case]:
    first, *others = truth["parents"]
    name, weights = truth["name"], _true_weights(truth)
    origins = tuple(
        (str(at), truth["parents"][parent], str(layer))
        for at, (parent, layer) in enumerate(truth["made_by"]["details"].get("layers", ()))
    )
    parents = (first, *others)
    yield Case(step, ALL, first, name, (*others, base), weights, origins, parents)
    if bystander:
        yield Case(step, BYSTANDER, first, name, (*others, base, f"{BYSTANDER_STEP}.{base}"), weights, origins, parents)
    yield Case(step, MISSING, first, name, (*others[:-1], base), parents=parents)


def _true_weights(truth: Truth) -> tuple[float, ...]:
    details, step = truth["made_by"]["details"], truth["made_by"]["step"]
    if step == "slerp":
        return (1 - details["t"], details["t"])
    return tuple(details["weights"]) if step in WEIGHED else ()


def asked(case: Case) -> Row:
    if _folder is None:
        raise RuntimeError("a worker was not prepared")
    folder = _folder
    further = tuple(str(folder / name) for name in case.candidates)
    options = CompareOptions(budget="full", candidates=further, reading=ReadOptions(cache=False))
    return row_of(case, compare(str(folder / case.a), str(folder / case.b), options))


def row_of(case: Case, found: Comparison) -> Row:
    named = {kind.kind for kind in found.verdict.kinds}
    merge = found.relation.merge if found.relation else None
    told = merge is not None and "merge" in named and Path(merge.merged).name == case.b
    if merge is None or not told:
        return Row(case.step, case.given, case.a, case.b, int("merge" in named), "", "", "", "", "")
    given = dict(zip((Path(source).name for source in merge.sources), merge.weights, strict=False))
    true = dict(zip((case.a, *case.candidates), case.weights, strict=False))
    error = max((abs(given.get(name, 0.0) - true.get(name, 0.0)) for name in {*given, *true}), default=0.0)
    sources = {Path(source).name for source in merge.sources}
    origins = {(layer, Path(source).name, its) for layer, source, its in merge.origins}
    return Row(
        *(case.step, case.given, case.a, case.b, 1, merge.method),
        f"{error:.4f}" if case.weights and merge.weights else "",
        "" if merge.density is None else f"{merge.density:.2f}",
        f"{len(origins & set(case.origins))} of {len(case.origins)}" if case.origins else "",
        str(int(merge.missing_parent)),
        str(len(sources - set(case.parents))),
    )


def run(models: Path, workers: int, data: Path) -> int:
    known = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(models.glob("*/truth.json"))}
    wanted = list(cases(known))
    with deaf_pool(workers, _prepare, models) as pool, progress_bar() as bar:
        rows = list(bar.track(pool.imap(asked, wanted), total=len(wanted), description="un-mixing"))
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    writer.writerows(sorted(astuple(row) for row in rows))
    data.write_text(text.getvalue(), "utf-8")
    return len(rows)


def _prepare(folder: Path) -> None:
    global _folder
    _folder = folder


def merges_table(rows: Sequence[Mapping[str, str]]) -> str:
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["step"], row["given"]].append(row)
    head = ("made by", "given", "pairs", "called a merge", "method right", f"weights within {CLOSE}", "worst")
    lines = [_line(*key, groups[key]) for key in sorted(groups, key=lambda key: (key[1] == NEVER, key))]
    last = ("origins of layers", "says a parent may be missing", "names a model without part")
    return table((*head, *last), lines, words=2)


def _line(step: str, given: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    errors = [float(row["weight_error"]) for row in rows if row["weight_error"]]
    origins = [row["origins_right"].split(" of ") for row in rows if row["origins_right"]]
    method = "linear" if step == "soup" else step
    # With a parent left out neither weights nor the method can be right, and with no merge there are none.
    scored = given in (ALL, BYSTANDER)
    return [
        *(step, given, str(len(rows)), str(sum(row["is_merge"] == "1" for row in rows))),
        str(sum(row["method"] == method for row in rows)) if scored else "–",
        f"{sum(error <= CLOSE for error in errors)} of {len(errors)}" if errors and scored else "–",
        f"{max(errors):.4f}" if errors and scored else "–",
        f"{sum(int(right) for right, _ in origins)} of {sum(int(n) for _, n in origins)}" if origins else "–",
        str(sum(row["missing_parent"] == "1" for row in rows)) if given != NEVER else "–",
        str(sum(row["innocent_named"] not in ("", "0") for row in rows)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="compare the merges of a zoo with their parents")
    running.add_argument("models", type=Path)
    running.add_argument("--workers", type=int, default=2)
    publishing = commands.add_parser("publish", help="the table from the data file alone")
    publishing.add_argument("--page", type=Path, default=PAGE)
    for command in (running, publishing):
        command.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args(arguments)
    if given.command == "run":
        print(f"{run(given.models, given.workers, given.data)} comparisons made; python -m benchmarks.merges publish")
        return 0
    rows = list(csv.DictReader(StringIO(given.data.read_text("utf-8"))))
    given.page.write_text(updated(given.page.read_text("utf-8"), {"merges": merges_table(rows)}), "utf-8")
    return 0


if __name__ == "__main__":
    as_command(main)
