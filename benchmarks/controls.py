"""The controls of grade B: unrelated models of a zoo, aligned with each other as `compare` would.

    python -m benchmarks.controls run MODELS --out DIR     every pair of control models; interrupted, it goes on
    python -m benchmarks.controls publish --from DIR       writes src/modelkin/questions/controls.json

Controls are of the half of the zoo that thresholds are set on; the other is left for measuring what they decide.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from benchmarks.calibration.pairs import truths
from benchmarks.calibration.running import deaf_pool, progress_bar
from zoo.lineage import pairs_for_calibration

from modelkin.alignment import align
from modelkin.architectures import Anatomy, identify
from modelkin.inspection import open_model
from modelkin.questions.controls import ControlClass, Controls, Counts, PairClass, counts_of, pair_class, shape_of

GROWING = "controls.csv"
SHIPPED = Path(__file__).parents[1] / "src" / "modelkin" / "questions" / "controls.json"
COLUMNS = (
    *("a", "b", "gated", "experts", "route", "width_a", "width_b", "layers_a", "layers_b", "sets", "two", "three"),
    *("most_two", "most_three"),
)
Row = Mapping[str, str]
_folder: Path | None = None


@dataclass(frozen=True)
class Work:
    a: str
    b: str


def wanted(folder: Path) -> list[Work]:
    """Unrelated pairs of the half that is tuned on, in an order by which any part of them is an even sample."""
    rows = pairs_for_calibration(truths(folder))
    pairs = [Work(row["a"], row["b"]) for row in rows if (row["outcome"], row["half"]) == ("unrelated", "tune")]
    return sorted(pairs, key=lambda work: crc32(f"{work.a}|{work.b}".encode()))


def run(folder: Path, out: Path, workers: int, limit: int | None) -> int:
    out.mkdir(parents=True, exist_ok=True)
    path = out / GROWING
    done = {(row["a"], row["b"]) for row in _rows(path)}
    left = [work for work in wanted(folder)[:limit] if (work.a, work.b) not in done]
    with (
        deaf_pool(workers, _prepare, folder) as pool,
        path.open("a", encoding="utf-8", newline="") as file,
        progress_bar() as bar,
    ):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            writer.writeheader()
        task = bar.add_task("aligning strangers", total=len(left))
        for row in pool.imap_unordered(_aligned, left, 4):
            writer.writerow(row)
            file.flush()
            bar.update(task, advance=1)
    return len(left)


def _rows(path: Path) -> list[Row]:
    """Whole lines alone: an interruption may have cut the last."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, "utf-8")
    return list(csv.DictReader(whole.splitlines()))


def _prepare(folder: Path) -> None:
    global _folder
    _folder = folder


@cache
def _opened(name: str) -> Anatomy:
    if _folder is None:
        raise RuntimeError("a worker was not prepared")
    return identify(open_model(str(_folder / name)))


def _aligned(work: Work) -> dict[str, object]:
    a, b = _opened(work.a), _opened(work.b)
    found = align(a, b, np.random.default_rng(crc32(f"{work.a}|{work.b}".encode())))
    counts, of = counts_of(found.held_out), pair_class(found)
    (width_a, layers_a), (width_b, layers_b) = shape_of(a), shape_of(b)
    shapes = {"width_a": width_a, "width_b": width_b, "layers_a": layers_a, "layers_b": layers_b}
    most = {
        "most_two": max((layer.two for layer in found.held_out), default=0),
        "most_three": max((layer.three for layer in found.held_out), default=0),
    }
    told = msgspec.structs.asdict(of) | {"gated": int(of.gated)} | msgspec.structs.asdict(counts)
    return {"a": work.a, "b": work.b} | told | shapes | most


def published(rows: Iterable[Row]) -> Controls:
    """By class; pairs that could not be judged are no controls."""
    classes: dict[PairClass, list[Row]] = defaultdict(list)
    for row in rows:
        if int(row["sets"]):
            classes[PairClass(row["gated"] == "1", int(row["experts"]), row["route"])].append(row)
    return Controls(tuple(_class(of, classes[of]) for of in sorted(classes, key=str)))


def _class(of: PairClass, rows: Sequence[Row]) -> ControlClass:
    widths = [int(row[side]) for row in rows for side in ("width_a", "width_b")]
    layers = [int(row[side]) for row in rows for side in ("layers_a", "layers_b")]
    counts = sorted((Counts(int(row["two"]), int(row["three"]), int(row["sets"])) for row in rows), key=_by_score)
    return ControlClass(
        of=of,
        models=len({row[side] for row in rows for side in "ab"}),
        widths=(min(widths), max(widths)),
        layers=(min(layers), max(layers)),
        pairs=tuple(counts),
    )


def _by_score(counts: Counts) -> tuple[float, int]:
    return counts.score, counts.sets


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="align control models with each other")
    running.add_argument("models", type=Path)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--workers", type=int, default=2)
    running.add_argument("--limit", type=int, help="at most so many pairs")
    publishing = commands.add_parser("publish", help="write the file that the package ships")
    publishing.add_argument("--from", dest="source", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "run":
        print(f"{run(given.models, given.out, given.workers, given.limit):,} pairs aligned")
        return
    controls = published(_rows(given.source / GROWING))
    SHIPPED.write_bytes(msgspec.json.encode(controls) + b"\n")
    for each in controls.classes:
        print(f"{each.of}: {len(each.pairs):,} pairs of {each.models} models, at most {each.means[0]:.1f} a set")


if __name__ == "__main__":
    main()
