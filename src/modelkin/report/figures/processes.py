"""Tasks shared out over processes of their own, for work that holds the interpreter.

The processes start from nothing (spawn), leave Ctrl-C to the one who started them, and end with it. One that dies is
noticed, and the task that it died of is named.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeVar

from modelkin.errors import ModelkinError

MOST = 4  # each holds all of the data

Data = TypeVar("Data")
Result = TypeVar("Result")


class _Worker(NamedTuple):
    process: BaseProcess
    line: Connection


def processors() -> int:
    """Those that this process may use, within reason."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, mine)


def shared_out(
    do: Callable[[Data, str], Result], data: Data, tasks: Sequence[str], count: int
) -> Iterator[tuple[str, Result]]:
    """`do(data, task)` of every task, in the order in which they end. `do` stands in a module, under its name.

    What `do` raises is raised here, and all processes end.
    """
    waiting = list(reversed(tasks))
    workers: dict[Connection, _Worker] = {}
    try:
        for worker in (_started(do) for _ in range(min(count, len(tasks)))):
            workers[worker.line] = worker
        packed, busy = pickle.dumps(data), dict[Connection, str]()
        for line in workers:
            line.send_bytes(packed)  # all are started by now, and get ready while one of them reads
            busy[line] = _given(line, waiting.pop())
        while busy:
            ready = wait(list(busy))
            for line in [line for line in busy if line in ready]:
                task = busy.pop(line)
                answer = _answer(workers[line], task)
                if waiting:
                    busy[line] = _given(line, waiting.pop())
                yield task, answer
    finally:
        _end(workers.values())


def _started(do: Callable[[Data, str], Result]) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(do, theirs), daemon=True)
    with _interrupts_held():
        process.start()
    theirs.close()  # so that the end of the process is the end of the line
    return _Worker(process, ours)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started meanwhile never hears Ctrl-C, not even before its first line runs; we hear it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which, started later, would let interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _given(line: Connection, task: str) -> str:
    line.send(task)
    return task


def _answer(worker: _Worker, task: str) -> Any:
    try:
        worked, found = worker.line.recv()
    except (EOFError, ConnectionResetError) as error:
        worker.process.join()
        ending = f"ended without an answer (exit code {worker.process.exitcode})"
        raise ModelkinError(f"the process at work on it {ending}", where=task, hint="fewer at a time") from error
    if not worked:
        raise found
    return found


def _end(workers: Any) -> None:
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()
        worker.line.close()


def _work(do: Callable[[Any, str], Any], line: Connection) -> None:
    """The life of a process: the data, then task after task, until the line is cut."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        data = line.recv()
        while True:
            line.send(_tried(do, data, line.recv()))
    except (EOFError, BrokenPipeError):
        return


def _tried(do: Callable[[Any, str], Any], data: Any, task: str) -> tuple[bool, Any]:
    try:
        return True, do(data, task)
    except Exception as error:
        error.add_note(f"In another process:\n{traceback.format_exc()}")
        return False, _portable(error)


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the way to another process, else what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
