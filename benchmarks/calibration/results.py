"""What is kept of a comparison: a line of text by column, in a file that grows, and in the file that is published.

Columns of a question are its id and a letter: `neurons.k`. Kept as text, for a table that nobody recomputes must not
change by being read; `Result` is the same as numbers.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

Row = Mapping[str, str]
Budget = Literal["quick", "standard", "full"]
Counts = tuple[tuple[int, int], ...]  # (K, n) of roll calls
LayerMap = tuple[tuple[str, str], ...]  # (layer of b, layer of a); "" where it continues none

BUDGETS: tuple[Budget, ...] = ("quick", "standard", "full")
PAIR = ("a", "b", "budget", "outcome", "kinds", "direction", "class", "half", "label", "demand", "expected", "true_map")
VERDICT = ("modelkin", "policy", "verdict", "named", "log10_p", "least", "nothing", "bytes_a", "bytes_b", "seconds")
# What is told after a rejection: `said` is the direction, `map` and `at` the layers. The kinds are in `named`.
RELATION = ("grade", "said", "said_p", "shared", "map", "at")
# Neurons that two ways of looking agreed on once axes were turned back, or three, in so many sets; and beside whom.
UNMASKED = ("two", "three", "sets", "against")
NAIVE = ("cosine", "pooled_r", "mean_r", "entries", "rows_cosine", "sigma", "gate", "up", "values")
# k: statistic, n: of how many, p: log10, g: grade, d: detectable, c: counts of its own roll calls, u: why unanswered
ANSWER = ("k", "n", "p", "g", "d", "c", "u")
HERE = Path(__file__).resolve().parents[2] / "docs" / "calibration"
GROWING, PUBLISHED = "pairs.csv", "pairs.csv.xz"


@dataclass(frozen=True)
class Job:
    """One comparison: a pair as `zoo.lineage` tells it, with its label, and a budget."""

    budget: Budget
    pair: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.pair["a"], self.pair["b"], self.budget


@dataclass(frozen=True)
class Answered:
    """One question's answer; `unanswered` says why there is none. `log10_p` is None where a test has no p-value."""

    statistic: float = 0.0
    n: int = 0
    log10_p: float | None = None
    graded: bool = False
    detectable: float | None = None
    counts: Counts = ()
    unanswered: str = ""


@dataclass(frozen=True)
class Unmasked:
    """Neurons on which two ways of looking agreed, and three, once axes were turned back. `against`: the controls."""

    two: int
    three: int
    sets: int
    against: str

    @property
    def score(self) -> float:
        """Agreements a set, which the controls are ordered by: about one between strangers."""
        return (self.two + self.three) / max(1, self.sets)


@dataclass(frozen=True)
class Naive:
    """What others would have computed from the same readings; None where it has no value."""

    cosine: float | None = None
    pooled_r: float | None = None
    mean_r: float | None = None
    entries: int = 0
    rows_cosine: float | None = None
    sigma: float | None = None


@dataclass(frozen=True)
class Result:
    """One pair at one budget. `least` is the smallest log10 p over the question's weight, of sound answers."""

    a: str
    b: str
    budget: str
    outcome: str
    kinds: tuple[str, ...]
    label: str
    classes: str = ""
    demand: str = ""  # the budget at which the policy demands that this pair is found
    expected: str = ""  # the kind that should be named, where kinds of that sort are named yet
    verdict: str = ""
    named: tuple[str, ...] = ()
    log10_p: float | None = None
    least: float = 0.0
    nothing: str = ""
    bytes: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    half: str = ""  # tune, test, or across
    direction: str = "neither"  # the true one
    true_map: LayerMap = ()
    named_p: Mapping[str, float] = field(default_factory=dict)  # of the kinds that have a probability
    grade: str = ""
    said: str = ""  # the direction that was told
    said_p: float | None = None
    shared: float | None = None
    map: LayerMap = ()
    at: tuple[str, ...] = ()  # layers of b that hold more of a's neurons than chance allows
    unmasked: Unmasked | None = None
    naive: Naive = Naive()
    gate: Counts = ()
    up: Counts = ()
    values: Counts = ()
    answers: Mapping[str, Answered] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        return self.a, self.b

    @property
    def compared(self) -> bool:
        return not self.nothing

    @property
    def disguised(self) -> bool:
        return "obfuscated" in self.kinds

    @property
    def stranger(self) -> bool:
        return self.outcome == "unrelated"


def is_made(name: str) -> bool:
    """Whether a model of this name is made for its comparison, and not kept: see `made`."""
    return name.startswith("made-")


def depth(budget: str) -> int:
    """Small budgets first."""
    return [str(name) for name in BUDGETS].index(budget)


def columns(questions: Sequence[str]) -> list[str]:
    return [
        *PAIR,
        *VERDICT,
        *RELATION,
        *UNMASKED,
        *NAIVE,
        *(f"{question}.{letter}" for question in questions for letter in ANSWER),
    ]


def number(value: float | None, digits: int = 4) -> str:
    """Short, and never more precise than the table needs."""
    return "" if value is None else f"{value:.{digits}g}"


def counts_text(counts: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{k}/{n}" for k, n in counts)


def kinds_text(kinds: Iterable[tuple[str, float | None]]) -> str:
    return " ".join(kind if p is None else f"{kind}={p:.3f}" for kind, p in kinds)


def map_text(layers: Iterable[tuple[str, str | None]]) -> str:
    return " ".join(f"{b}:{a or ''}" for b, a in layers)


def map_of(text: str) -> LayerMap:
    return tuple((b, a) for b, _, a in (word.partition(":") for word in text.split()))


def reason(text: str) -> str:
    """A reason without its numbers, so that equal reasons are equal."""
    return re.sub(r"\d[\d,.]*\d|\d", "#", text)


def parsed(rows: Sequence[Row]) -> list[Result]:
    asked = [column[: -len(".k")] for column in (rows[0] if rows else ()) if column.endswith(".k")]
    columns = {question: [f"{question}.{letter}" for letter in ANSWER] for question in asked}
    return [_result(row, columns) for row in rows]


def held_out(results: Iterable[Result]) -> list[Result]:
    """Of models that nothing was set on: half of the first zoo, all of a later one."""
    return [result for result in results if result.half == "test"]


def _result(row: Row, asked: Mapping[str, Sequence[str]]) -> Result:
    given = {question: _answer([row[column] for column in columns]) for question, columns in asked.items()}
    named = [word.partition("=") for word in row["named"].split()]
    return Result(
        a=row["a"],
        b=row["b"],
        budget=row["budget"],
        outcome=row["outcome"],
        kinds=tuple(row["kinds"].split()),
        label=row["label"],
        classes=row["class"],
        demand=row["demand"],
        expected=row["expected"],
        verdict=row["verdict"],
        named=tuple(kind for kind, _, _ in named),
        named_p={kind: float(p) for kind, _, p in named if p},
        half=row["half"],
        direction=row["direction"],
        true_map=map_of(row["true_map"]),
        grade=row["grade"],
        said=row["said"],
        said_p=_float(row["said_p"]),
        shared=_float(row["shared"]),
        map=map_of(row["map"]),
        at=tuple(row["at"].split()),
        unmasked=_unmasked(row),
        log10_p=_float(row["log10_p"]),
        least=_float(row["least"]) or 0.0,
        nothing=row["nothing"],
        bytes=(int(row["bytes_a"] or 0), int(row["bytes_b"] or 0)),
        seconds=_float(row["seconds"]) or 0.0,
        naive=_naive(row),
        gate=_counts(row["gate"]),
        up=_counts(row["up"]),
        values=_counts(row["values"]),
        answers={question: answer for question, answer in given.items() if answer is not None},
    )


def _unmasked(row: Row) -> Unmasked | None:
    """None where nobody looked through a disguise."""
    if not row["sets"]:
        return None
    return Unmasked(int(row["two"]), int(row["three"]), int(row["sets"]), row["against"])


def _naive(row: Row) -> Naive:
    values = {name: _float(row[name]) for name in ("cosine", "pooled_r", "mean_r", "rows_cosine", "sigma")}
    return Naive(entries=int(row["entries"] or 0), **values)


def _answer(texts: Sequence[str]) -> Answered | None:
    """None where the budget does not ask this question."""
    k, n, p, g, d, c, u = texts
    if u:
        return Answered(unanswered=u)
    return Answered(float(k), int(n), _float(p), g == "A", _float(d), _counts(c)) if k else None


def _float(text: str) -> float | None:
    return float(text) if text else None


@lru_cache(maxsize=100_000)
def _counts(text: str) -> Counts:
    return tuple((int(k), int(n)) for k, n in (word.split("/") for word in text.split()))


def table_text(rows: Iterable[Row], names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def publish_rows(rows: Sequence[Row], path: Path) -> None:
    """The data file, sorted so that the order in which pairs were compared leaves no trace in it."""
    ordered = sorted(rows, key=lambda row: (row["budget"], row["outcome"], row["label"], row["a"], row["b"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(table_text(ordered, list(rows[0])).encode(), preset=9 | lzma.PRESET_EXTREME))


def published_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(lzma.decompress(path.read_bytes()).decode())))


def growing_rows(path: Path) -> list[dict[str, str]]:
    """What a run has written so far. A last line without its end was cut off by an interruption and is not a result."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
