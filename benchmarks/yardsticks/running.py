"""Scores of many pairs, into a file that grows; interrupted, the same command goes on."""

from __future__ import annotations

import csv
import io
import lzma
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from benchmarks.calibration.running import deaf_pool
from benchmarks.yardsticks.pairs import NONE, Task, disguised, seed_of
from benchmarks.yardsticks.table import YARDSTICKS
from benchmarks.yardsticks.weights import NotApplicable
from zoo.checkpoints import load, save

from modelkin.architectures import Anatomy, identify
from modelkin.inspection import open_model

PAIR = ("folder", "a", "b", "disguise", "relation")
COLUMNS = (*PAIR, *(yardstick.name for yardstick in YARDSTICKS))
Row = dict[str, str]


def run(wanted: Sequence[Task], path: Path, workers: int) -> int:
    """Everything that the file does not hold yet. Returns how many pairs were scored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = without_done(wanted, _resumed(path))
    made = 0
    with deaf_pool(workers, _prepare) as pool, path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        for rows in pool.imap_unordered(scored, left):
            writer.writerows(rows)
            file.flush()
            made += len(rows)
    return made


def without_done(wanted: Sequence[Task], done: set[tuple[str, ...]]) -> list[Task]:
    found = []
    for task in wanted:
        others = tuple(other for other, key in zip(task.others, task.keys, strict=True) if key not in done)
        if others:
            found.append(Task(task.folder, task.b, task.disguise, others))
    return found


def _resumed(path: Path) -> set[tuple[str, ...]]:
    """What is there already; a line that an interruption cut off goes."""
    rows = rows_of(path)
    path.write_text(_text(rows), "utf-8")
    return {tuple(row[name] for name in PAIR[:4]) for row in rows}


def rows_of(path: Path) -> list[Row]:
    """Of a file that grows, or of one that was published (.xz)."""
    if not path.exists():
        return []
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
    if rows and tuple(rows[0]) != COLUMNS:
        raise ValueError(f"{path} has other columns than this version writes: choose another file")
    return rows


def publish(rows: Sequence[Row], path: Path) -> None:
    """Sorted, so that the order in which pairs were scored leaves no trace."""
    ordered = sorted(rows, key=lambda row: [row[name] for name in PAIR])
    path.write_bytes(lzma.compress(_text(ordered).encode(), preset=9 | lzma.PRESET_EXTREME))


def _text(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def scored(task: Task) -> list[Row]:
    """A line for every model beside b; none where the family does not allow the disguise."""
    with _worn(task) as b:
        if b is None:
            return []
        return [_row(task, a, relation, b) for a, relation in task.others]


@contextmanager
def _worn(task: Task) -> Iterator[Anatomy | None]:
    if task.disguise == NONE:
        yield _opened(task.folder / task.b)
        return
    model = disguised(load(task.folder / task.b), task.disguise, seed_of(task))
    if model is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as place:
        save(model, Path(place))
        checkpoint = open_model(place)
        try:
            yield identify(checkpoint)
        finally:
            checkpoint.close()


def _row(task: Task, a: str, relation: str, b: Anatomy) -> Row:
    values = dict(zip(PAIR, (task.folder.name, a, task.b, task.disguise, relation), strict=True))
    return values | scores(_opened(task.folder / a), b)


def scores(a: Anatomy, b: Anatomy) -> Row:
    """Empty where a method is not defined for the pair."""
    found = {}
    for yardstick in YARDSTICKS:
        try:
            found[yardstick.name] = f"{yardstick.score(a, b):.6g}"
        except NotApplicable:
            found[yardstick.name] = ""
    return found


@lru_cache(maxsize=64)
def _opened(folder: Path) -> Anatomy:
    return identify(open_model(str(folder)))


def _prepare() -> None:
    """Models are opened when they are first needed."""
