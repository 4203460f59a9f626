"""Disguises and compares on several processes, into a file that grows; interrupted, the same command goes on."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.calibration.comparing import SEED, Models, judged, looked, why_not
from benchmarks.calibration.results import growing_rows, table_text
from benchmarks.calibration.running import deaf_pool, progress_bar
from benchmarks.disguises.rows import COLUMNS, GROWING
from benchmarks.disguises.tasks import Task
from benchmarks.yardsticks.pairs import disguised
from zoo.checkpoints import load, save

from modelkin import __version__
from modelkin.architectures import Anatomy, identify
from modelkin.compare import compare_pair
from modelkin.errors import ModelkinError
from modelkin.inspection import open_model
from modelkin.questions import Pair
from modelkin.verdict import POLICY

_models: Models | None = None


def run(folder: Path, wanted: Sequence[Task], out: Path, workers: int) -> int:
    """Everything that `out` does not hold yet. Returns how many comparisons were made."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / GROWING
    done = _resumed(path)
    left = [task for task in wanted if task.key not in done]
    made = 0
    with (
        deaf_pool(workers, _prepare, folder) as pool,
        path.open("a", encoding="utf-8", newline="") as file,
        progress_bar() as bar,
    ):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        task = bar.add_task("disguising", total=len(left))
        for row in pool.imap_unordered(_compared, left):
            if row is not None:
                writer.writerow(row)
                file.flush()
                made += 1
            bar.update(task, advance=1)
    return made


def _resumed(path: Path) -> set[tuple[str, ...]]:
    """What is there already, without a line that an interruption cut off; other versions are not mixed in."""
    rows = growing_rows(path)
    versions = {(row["modelkin"], row["policy"], tuple(row)) for row in rows}
    if versions - {(__version__, POLICY, COLUMNS)}:
        raise ValueError(f"{path} was made by another version of modelkin or its policy: choose another folder")
    path.write_text(table_text(rows, COLUMNS), "utf-8")
    return {tuple(row[name] for name in ("disguise", "draw", "a", "b")) for row in rows}


def _prepare(folder: Path) -> None:
    global _models
    _models = Models(folder)


def _compared(task: Task) -> dict[str, str] | None:
    if _models is None:
        raise RuntimeError("a worker was not prepared")
    try:
        return compared(_models, task)
    except Exception as error:
        error.add_note(f"while comparing {task.a} and {task.b}, disguised by {task.disguise}")
        raise


def compared(models: Models, task: Task) -> dict[str, str] | None:
    """Every column, as text; None where the family does not allow the disguise."""
    row = dict.fromkeys(COLUMNS, "") | {name: str(value) for name, value in asdict(task).items()}
    row |= {"modelkin": __version__, "policy": POLICY}
    a = models[task.a]
    with _worn(models.folder / task.b, task) as b:
        if b is None:
            return None
        began = time.perf_counter()
        try:
            found = compare_pair(Pair(a, b, SEED, "standard"), began)
        except ModelkinError as error:
            return row | {"nothing": why_not(error)}
        return row | judged(found) | looked(found, a, b) | {"seconds": f"{time.perf_counter() - began:.3f}"}


@contextmanager
def _worn(folder: Path, task: Task) -> Iterator[Anatomy | None]:
    model = disguised(load(folder), task.disguise, task.seed)
    if model is None:
        yield None
        return
    with TemporaryDirectory(prefix="modelkin-disguise-") as place:
        save(model, Path(place))
        checkpoint = open_model(place)
        try:
            yield identify(checkpoint)
        finally:
            checkpoint.close()
