"""Many comparisons on several processes, into a file that grows; interrupted, the same command goes on."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

from benchmarks.calibration.comparing import ASKED, Models, compared
from benchmarks.calibration.pairs import jobs, truths
from benchmarks.calibration.results import GROWING, Job, columns, growing_rows, table_text
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from modelkin import __version__
from modelkin.verdict import POLICY

CHUNK = 8  # comparisons handed to a worker at once
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_models: Models | None = None


def run(folder: Path, out: Path, workers: int, budgets: Sequence[str], limit: int | None) -> int:
    """Everything that `out` does not hold yet. Returns how many comparisons were made."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / GROWING
    done = _resumed(path)
    wanted = [job for job in jobs(truths(folder), budgets, limit) if job.key not in done]
    with deaf_pool(workers, _prepare, folder) as pool, path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns(ASKED), lineterminator="\n")
        with progress_bar() as bar:
            task = bar.add_task("comparing", total=len(wanted))
            for row in pool.imap_unordered(_compared, wanted, CHUNK):
                writer.writerow(row)
                file.flush()
                bar.update(task, advance=1, description=f"{row['budget']}, {row['outcome']}")
    return len(wanted)


def _resumed(path: Path) -> set[tuple[str, str, str]]:
    """What is there already. A line that an interruption cut off goes; results of another version are not mixed in."""
    rows = growing_rows(path)
    for row in rows:
        _same_version(path, row)
    path.write_text(table_text(rows, columns(ASKED)), "utf-8")
    return {(row["a"], row["b"], row["budget"]) for row in rows}


def _same_version(path: Path, row: Mapping[str, str]) -> None:
    if (row["modelkin"], row["policy"], list(row)) != (__version__, POLICY, columns(ASKED)):
        raise ValueError(
            f"{path} was made by modelkin {row['modelkin']}, policy {row['policy']}, with "
            f"{len(row)} columns; this is {__version__}, {POLICY}, with {len(columns(ASKED))}: choose another folder"
        )


def progress_bar() -> Progress:
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*parts, console=Console(stderr=True))


def deaf_pool(workers: int, prepare: Callable[..., None], *given: object) -> Pool:
    """Processes of one thread each that do not hear Ctrl-C: it is for the parent, which ends them.

    Spawned, for a fork would keep the threads that numpy has here; what is ignored stays ignored in a new process.
    """
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # two workers of one thread beat one of two
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return get_context("spawn").Pool(workers, prepare, given)
    finally:
        signal.signal(signal.SIGINT, heard)


def _prepare(folder: Path) -> None:
    global _models
    _models = Models(folder)


def _compared(job: Job) -> dict[str, str]:
    if _models is None:
        raise RuntimeError("a worker was not prepared")
    try:
        return compared(_models, job)
    except Exception as error:
        error.add_note(f"while comparing {' and '.join(job.key[:2])} at {job.budget}")
        raise
