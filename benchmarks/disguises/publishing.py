"""The table of disguises and what it allows to be said, from the data files alone."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.calibration.detection import NEGATIVES, POSITIVES
from benchmarks.calibration.directions import ORDERS
from benchmarks.calibration.kinds import FLAG, joined
from benchmarks.calibration.markdown import per_cent, scientific, table, updated
from benchmarks.calibration.places import right_layers
from benchmarks.calibration.rates import TAUGHT
from benchmarks.calibration.results import PUBLISHED as PAIRS
from benchmarks.calibration.results import (
    Result,
    growing_rows,
    held_out,
    map_of,
    parsed,
    published_rows,
    table_text,
)
from benchmarks.calibration.targets import at_least, at_most
from benchmarks.disguises.rows import BASE, COLUMNS, FREE, GROWING, KINDS, MOVES, NOISY, PUBLISHED, STRANGERS, UNDER

from modelkin.stats import clopper_pearson

YARDSTICKS = ("gain cosine", "PCS", "HuRef", "AWM", "csu")
SCORES = "yardsticks.csv.xz"
FALSE_ALARMS = 1e-3
ALL = "all of these"
Row = Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """One line of the table: pairs in a disguise, on top of something."""

    disguise: str
    under: str
    rows: Sequence[Row]
    scores: Sequence[Row]


def keep(run: Path, data: Path) -> None:
    """The data file of a run, sorted so that the order of comparisons leaves no trace in it."""
    rows = growing_rows(run / GROWING)
    if not rows:
        raise ValueError(f"{run / GROWING} holds no results: python -m benchmarks.disguises run MODELS --out {run}")
    ordered = sorted(rows, key=lambda row: [row[name] for name in ("disguise", "under", "a", "b", "draw")])
    (data / PUBLISHED).write_bytes(lzma.compress(table_text(ordered, COLUMNS).encode(), preset=9))


def page(data: Path, page: Path) -> str:
    """The page with the table and the claim as the data have them."""
    if not (data / PUBLISHED).is_file():
        raise ValueError(f"{data} lacks {PUBLISHED}: python -m benchmarks.disguises --help")
    rows = published_rows(data / PUBLISHED)
    scores = published_rows(data.parent / SCORES) if (data.parent / SCORES).is_file() else []
    plain = held_out(parsed(published_rows(data / PAIRS))) if (data / PAIRS).is_file() else []
    blocks = {
        "disguise-claim": f"{tried(rows)}\n\n{claim_table(rows, plain)}",
        "disguises": disguises_table(rows, scores),
    }
    return updated(page.read_text("utf-8"), blocks)


def tried(rows: Sequence[Row]) -> str:
    """What was disguised, in a sentence."""
    models = {row["b"] for row in rows}
    versions = sorted({f"modelkin {row['modelkin']}, policy {row['policy']}" for row in rows})
    return f"Tried: {len(rows):,} comparisons with {len(models):,} models, disguised ({'; '.join(versions)})."


def disguises_table(rows: Sequence[Row], scores: Sequence[Row]) -> str:
    """Moves alone, then all of them by what lies below, and strangers in the same last."""
    limits = {name: limit for name in YARDSTICKS if (limit := threshold(scores, name)) is not None}
    counts = ("pairs", "models", "related", "95 % interval", "weakest p")
    told = ("called obfuscated", "kind below named", "every layer right", "order right", "order wrong")
    head = ("disguise", "of", *counts, *told, *limits)
    return table(head, [_cells(line, limits) for line in lines(rows, scores)], words=2)


def lines(rows: Sequence[Row], scores: Sequence[Row]) -> list[Line]:
    near = [row for row in rows if row["under"] != STRANGERS]
    kin = [row for row in scores if row["relation"] != "strangers"]
    found = [Line(move.replace("_", " "), ALL, _in(near, move), _in(kin, move)) for move in MOVES]
    for disguise in (NOISY, FREE):
        ours, theirs = _in(near, disguise), _in(kin, disguise)
        for under in UNDER:
            found.append(Line(disguise, under, [r for r in ours if r["under"] == under], _of(theirs, under)))
        found.append(Line(f"**{disguise}**", ALL, ours, theirs))
    apart = [row for row in rows if row["under"] == STRANGERS]
    foreign = [row for row in scores if row["relation"] == "strangers"]
    return [line for line in (*found, Line(NOISY, STRANGERS, apart, _in(foreign, NOISY))) if line.rows]


def _in(rows: Sequence[Row], disguise: str) -> list[Row]:
    return [row for row in rows if row["disguise"] == disguise]


def _of(scores: Sequence[Row], under: str) -> list[Row]:
    """What the yardsticks scored of the same step."""
    if under == BASE:
        return [row for row in scores if row["relation"] == "copy"]
    return [row for row in scores if row["b"].startswith(f"{UNDER[under]}.")]


def threshold(scores: Sequence[Row], name: str) -> float | None:
    """What at most one stranger in a thousand exceeds, in any disguise; None where no stranger was scored."""
    far = sorted((float(r[name]) for r in scores if r["relation"] == "strangers" and r[name]), reverse=True)
    return far[int(FALSE_ALARMS * len(far))] if far else None


def _cells(line: Line, limits: Mapping[str, float]) -> list[str]:
    related = [row for row in line.rows if is_found(row)]
    interval = clopper_pearson(len(related), len(line.rows))
    chances = [float(row["log10_p"]) for row in related if row["log10_p"]]
    spoken = [row for row in related if row["said"] in ORDERS]
    return [
        *(line.disguise, line.under, str(len(line.rows)), str(len({row["b"] for row in line.rows}))),
        *(f"**{len(related)}**", f"{per_cent(interval.low)}–{per_cent(interval.high)}"),
        scientific(max(chances)) if chances else "–",
        str(sum(FLAG in kinds_of(row) for row in related)),
        _kind_named(related),
        _maps(related),
        *(str(sum((row["said"] == "a->b") == right for row in spoken)) for right in (True, False)),
        *(_share(line.scores, name, limit) for name, limit in limits.items()),
    ]


def is_found(row: Row) -> bool:
    return row["verdict"] == "related"


def kinds_of(row: Row) -> list[str]:
    return [joined(word.partition("=")[0]) for word in row["named"].split()]


def _kind_named(related: Sequence[Row]) -> str:
    """Of pairs below whose disguise something was done."""
    told = [KINDS[row["under"]] in kinds_of(row) for row in related if row["under"] in KINDS]
    return f"{sum(told)} of {len(told)}" if told else "–"


def maps_right(row: Row) -> bool:
    right, of = right_layers(map_of(row["true_map"]), map_of(row["map"]))
    return right == of


def _maps(related: Sequence[Row]) -> str:
    told = [maps_right(row) for row in related if row["true_map"]]
    return f"{sum(told)} of {len(told)}" if told else "–"


def _share(scores: Sequence[Row], name: str, limit: float) -> str:
    """Share above the threshold; a pair for which the method is not defined is not found."""
    above = sum(bool(row[name]) and float(row[name]) > limit for row in scores)
    return f"{above / len(scores):.2f}" if scores else "–"


def claim_table(rows: Sequence[Row], plain: Sequence[Result]) -> str:
    """What is asked of disguised models beside what was measured; negatives are the plain strangers, and these."""
    targets = []
    for disguise in (NOISY, FREE):
        near = [row for row in _in(rows, disguise) if row["under"] != STRANGERS]
        found = [row for row in near if is_found(row)]
        targets += [
            at_least(f"found, {disguise}", len(found), len(near), 0.99, POSITIVES),
            at_least("every layer told rightly, of those found", sum(map(maps_right, found)), len(found), 0.99),
        ]
    apart = [row["verdict"] == "related" for row in rows if row["under"] == STRANGERS and not row["nothing"]]
    apart += [
        result.verdict == "related"
        for result in plain
        if result.budget == "standard" and result.compared
        if result.stranger or result.label in TAUGHT
    ]
    targets.append(at_most("strangers called related, plain or disguised", sum(apart), len(apart), 1e-3, NEGATIVES))
    return table(("target", "asked", "measured", "bound at 95 %", ""), [target.row for target in targets])
