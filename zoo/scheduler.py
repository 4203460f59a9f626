"""Many runs side by side: workers that stay up and take one run after another, parents before children."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from zoo.families import Run
from zoo.single import job_line

Arrays = Callable[[Run], tuple[Path, Path, Path]]

COMMAND = ("-m", "zoo.single")
LAST_LINES = 15


def run_all(
    runs: Sequence[Run],
    arrays: Arrays,
    out: Path,
    device: str = "cuda",
    workers: int = 12,
    stop: threading.Event | None = None,
) -> None:
    """Train every run that has no folder yet. `arrays(run)` -> paths of training tokens, held-out tokens, tokenizer.

    A line on standard output tells of each end. Failures are shown as they come; the others go on, then SystemExit.
    Once `stop` is set, workers are ended, whatever they are at; no half folder is left.
    """
    if workers < 1:
        raise ValueError(f"{workers} workers: at least one is needed")
    out.mkdir(parents=True, exist_ok=True)
    waiting, stop = Waiting(runs, out), stop or threading.Event()
    count = min(workers, len(waiting.left))
    threads = [threading.Thread(target=_keep_busy, args=(waiting, arrays, out, device)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads) and not stop.wait(0.1):
            pass
    finally:
        if stop.is_set() or any(thread.is_alive() for thread in threads):
            waiting.stop()
        for thread in threads:
            thread.join()
    if waiting.failed:
        raise SystemExit(f"{len(waiting.failed)} of {len(runs)} runs failed: {', '.join(sorted(waiting.failed))}")


class Waiting:
    """What is still to do. The run that heads the longest line of descent goes first, once its parent is there."""

    def __init__(self, runs: Sequence[Run], out: Path) -> None:
        names = [run.name for run in runs]
        if len(set(names)) < len(names):
            raise ValueError(f"two runs are called {next(n for n in names if names.count(n) > 1)}")
        self.total, self.began = len(runs), time.monotonic()
        self.done = {name for name in names if (out / name / "truth.json").exists()}
        self.failed: set[str] = set()
        ahead = work_ahead(runs)
        self.left = sorted((run for run in runs if run.name not in self.done), key=lambda run: -ahead[run.name])
        for run in self.left:
            if run.parent and run.parent not in names and not (out / run.parent).exists():
                raise ValueError(f"{run.name} descends from {run.parent}, which is neither a run nor a folder of {out}")
        self.known, self.changed = set(names), threading.Condition()
        self.stopped, self.workers = False, set[subprocess.Popen[bytes]]()

    def take(self) -> Run | None:
        """The next run whose parent is ready, once there is one; None when nothing is left."""
        with self.changed:
            while self.left:
                for run in self.left:
                    if run.parent is None or run.parent in self.done or run.parent not in self.known:
                        self.left.remove(run)
                        return run
                self.changed.wait()
            return None

    def stop(self) -> None:
        """Begin nothing more, and end what has begun."""
        with self.changed:
            self.stopped = True
            self.left.clear()
            for worker in self.workers:
                worker.kill()
            self.changed.notify_all()

    def ended(self, run: Run, answer: dict[str, Any]) -> None:
        with self.changed:
            if self.stopped:
                return
            if "error" in answer:
                self._drop(run, "\n".join(answer["error"].splitlines()[-LAST_LINES:]))
            else:
                self.done.add(run.name)
                truth, seconds = answer["truth"], answer["seconds"]
                self._say(f"{run.name}: loss {truth['loss']:.3f} of {truth['unigram_entropy']:.3f}, {seconds:.0f} s")
            self.changed.notify_all()

    def _drop(self, run: Run, why: str) -> None:
        self.failed.add(run.name)
        self._say(f"{run.name}: failed\n{why}")
        for child in [child for child in self.left if child.parent == run.name]:
            self.left.remove(child)
            self._drop(child, f"its parent {run.name} failed")

    def _say(self, line: str) -> None:
        ended = len(self.done) + len(self.failed)
        print(f"[{time.monotonic() - self.began:5.0f} s] {ended}/{self.total} {line}", flush=True)


def work_ahead(runs: Sequence[Run]) -> dict[str, int]:
    """Name -> rough work of the run and of the longest line of children behind it."""
    children = {run.name: [child for child in runs if child.parent == run.name] for run in runs}

    def ahead(run: Run) -> int:
        own = run.steps * run.batch * run.length * run.shape["hidden"] * run.shape["layers"]
        return own * (2 if "experts" in run.shape else 1) + max(map(ahead, children[run.name]), default=0)

    return {run.name: ahead(run) for run in runs}


def _keep_busy(waiting: Waiting, arrays: Arrays, out: Path, device: str) -> None:
    """One worker after another, should they die, until nothing is left."""
    run = waiting.take()
    while run:
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
            _worker(out, device, log) as worker,
        ):
            waiting.workers.add(worker)
            alive = True
            while run and alive:
                try:
                    answer = _ask(worker, job_line(run, *arrays(run)))
                except Exception as error:
                    answer, alive = {"error": f"{type(error).__name__}: {error}"}, False
                if answer is None:
                    worker.wait()
                    log.seek(0)
                    answer, alive = {"error": f"the worker ended with {worker.returncode}\n{log.read()}"}, False
                waiting.ended(run, answer)
                run = waiting.take()
            waiting.workers.discard(worker)


def _worker(out: Path, device: str, log: IO[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, *COMMAND, str(out.resolve()), device]
    root = Path(__file__).resolve().parent.parent
    # Unbuffered, so that closing the pipe to a dead worker has nothing to send; in a session of its own, so that Ctrl-C
    # reaches the scheduler alone and not the workers before it.
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
    return subprocess.Popen(command, **pipes, cwd=root, bufsize=0, start_new_session=True)


def _ask(worker: subprocess.Popen[bytes], line: str) -> dict[str, Any] | None:
    """The worker's answer, or None where it died over the question."""
    assert worker.stdin
    assert worker.stdout
    try:
        worker.stdin.write(line.encode() + b"\n")
    except BrokenPipeError:
        return None
    answer = worker.stdout.readline()
    return json.loads(answer) if answer else None
