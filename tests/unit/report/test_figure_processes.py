"""Work shared out over processes: all of it is done, errors name the task, and no process outlives the work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest

from modelkin.errors import ModelkinError, UsageError
from modelkin.report.figures.processes import processors, shared_out


def lengthened(data: int, task: str) -> tuple[int, int]:
    return data * len(task), os.getpid()


def failing(data: int, task: str) -> int:
    if task == "c":
        raise UsageError("no", where=task, hint="another")
    return data


def stubborn(_data: int, task: str) -> int:
    class Local(Exception):  # no other process knows it
        pass

    raise Local(f"{task} went wrong")


def killed(data: int, task: str) -> int:
    if task == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def interrupted(data: int, _task: str) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return data


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def test_every_task_is_done_once_and_elsewhere() -> None:
    done = dict(shared_out(lengthened, 7, ["a", "bb", "ccc", "dddd"], 2))
    assert {task: found for task, (found, _) in done.items()} == {"a": 7, "bb": 14, "ccc": 21, "dddd": 28}
    where = {process for _, process in done.values()}
    assert os.getpid() not in where
    assert 1 <= len(where) <= 2


def test_what_goes_wrong_arrives_as_it_was_and_says_where() -> None:
    with pytest.raises(UsageError) as caught:
        list(shared_out(failing, 1, ["a", "b", "c", "d"], 2))
    assert (caught.value.where, caught.value.hint, caught.value.exit_code) == ("c", "another", 2)
    assert "in failing" in caught.value.__notes__[0]


def test_an_error_that_cannot_travel_sends_its_words() -> None:
    with pytest.raises(RuntimeError, match="a went wrong"):
        list(shared_out(stubborn, 1, ["a"], 1))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that this system has not")
def test_a_process_that_dies_is_noticed_and_its_task_named() -> None:
    with pytest.raises(ModelkinError, match=r"b: .* without an answer"):
        list(shared_out(killed, 1, ["a", "b", "c"], 2))


def test_interrupts_are_left_to_the_one_who_started() -> None:
    assert dict(shared_out(interrupted, 3, ["a", "b"], 2)) == {"a": 3, "b": 3}


def test_stopping_early_ends_the_processes() -> None:
    work = shared_out(lengthened, 1, list("abcdef"), 2)
    next(work)
    assert len(multiprocessing.active_children()) == 2
    del work  # as an error where its answers are used does; that none is left is seen above


def test_at_least_one_processor() -> None:
    assert processors() >= 1
