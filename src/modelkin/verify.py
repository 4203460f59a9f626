"""A comparison checked: quick answers given again from the kept rows, the verdict drawn again from all answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from modelkin.compare import QUICK_STAGES, ask
from modelkin.errors import NotFound, NothingComparable, UnreadableError
from modelkin.questions import QUESTIONS
from modelkin.records import Comparison
from modelkin.sampling.readings import Readings, unpack
from modelkin.verdict import POLICY, adjusted, judge

TOLERANCE = 1e-9  # relative: another processor may round another way


class Difference(msgspec.Struct, frozen=True):
    """`where` is a path into the record."""

    where: str
    stored: str
    recomputed: str


def read_comparison(path: Path) -> Comparison:
    """From a file that `compare --json` wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Comparison)
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", where=str(path)) from error
    except msgspec.DecodeError as error:
        hint = "give the file that `modelkin compare --json` wrote"
        raise UnreadableError(f"is no comparison: {error}", where=str(path), hint=hint) from error


def verify(comparison: Comparison) -> tuple[Difference, ...]:
    """What does not come out again; nothing if all does. Needs neither network nor models."""
    if comparison.rows is None:
        raise NothingComparable("the record keeps no rows to recompute from", where=comparison.a.id)
    if comparison.policy != POLICY:
        raise NothingComparable(
            f"the record was judged by policy {comparison.policy}, this version has {POLICY}", where=comparison.a.id
        )
    rows = comparison.rows
    a, b = Readings(rows.portrait_a, unpack(rows.a)), Readings(rows.portrait_b, unpack(rows.b))
    depths = comparison.a.layers, comparison.b.layers
    stored = {answer.question: answer for answer in comparison.answers}
    found: list[Difference] = []
    for question in QUESTIONS:
        if question.stage in QUICK_STAGES:
            (again,) = adjusted([ask(question, a, b, comparison.seed)])
            found += differences(f"answers.{question.id}", stored.get(question.id), again)
    found += differences("verdict", comparison.verdict, judge(comparison.answers, depths=depths))
    return tuple(found)


def differences(where: str, stored: Any, again: Any) -> Iterator[Difference]:
    """Numbers to TOLERANCE, everything else exactly."""
    yield from _between(where, msgspec.to_builtins(stored), msgspec.to_builtins(again))


def _between(where: str, stored: Any, again: Any) -> Iterator[Difference]:
    if isinstance(stored, dict) and isinstance(again, dict) and stored.keys() == again.keys():
        for key in stored:
            yield from _between(f"{where}.{key}", stored[key], again[key])
    elif isinstance(stored, list | tuple) and isinstance(again, list | tuple) and len(stored) == len(again):
        for i, (mine, theirs) in enumerate(zip(stored, again, strict=True)):
            yield from _between(f"{where}[{i}]", mine, theirs)
    elif not _equal(stored, again):
        yield Difference(where, _short(stored), _short(again))


def _equal(stored: Any, again: Any) -> bool:
    if isinstance(stored, float) and isinstance(again, float):
        return math.isclose(stored, again, rel_tol=TOLERANCE, abs_tol=1e-300)
    return type(stored) is type(again) and bool(stored == again)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
