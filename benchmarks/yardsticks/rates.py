"""The tables: a threshold for each yardstick from strangers, and how many relatives lie above it in each disguise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.calibration.markdown import per_cent, table
from benchmarks.yardsticks.pairs import DISGUISES, FREE, NOISY, NONE
from benchmarks.yardsticks.table import YARDSTICKS

from modelkin.stats import upper_bound

FALSE_ALARMS = 1e-3
Row = Mapping[str, str]


def blocks(rows: Sequence[Row]) -> dict[str, str]:
    """Every table of the page, by the name of its place there."""
    return {
        "thresholds": thresholds_table(rows),
        "detection": detection_table(rows),
        "kinds": kinds_table(rows, NOISY),
        "kinds-free": kinds_table(rows, FREE),
    }


def threshold(scores: Sequence[float], rate: float = FALSE_ALARMS) -> float:
    """What at most `rate` of the strangers exceed: with fewer than 1/rate of them, what none exceeds."""
    allowed = int(rate * len(scores))
    return sorted(scores, reverse=True)[allowed]


def stranger_scores(rows: Sequence[Row], name: str) -> list[float]:
    """Of strangers in every disguise: a method must not take the disguise itself for kinship."""
    return [float(row[name]) for row in rows if row["relation"] == "strangers" and row[name]]


def thresholds_table(rows: Sequence[Row]) -> str:
    """Where every yardstick must be set on these strangers, beside what its paper calls a match."""
    lines = []
    for yardstick in YARDSTICKS:
        scores = stranger_scores(rows, yardstick.name)
        if not scores:
            continue
        limit = threshold(scores)
        alarms = sum(score > limit for score in scores)
        median = sorted(scores)[len(scores) // 2]
        lines.append(
            [
                *(yardstick.name, yardstick.source, yardstick.match, str(len(scores)), f"{median:.4g}", f"{limit:.4g}"),
                f"{per_cent(alarms / len(scores))} (≤ {per_cent(upper_bound(alarms, len(scores)))})",
            ]
        )
    head = ("yardstick", "from", "a match, in its paper", "strangers", "their median", "threshold", "above it (95 %)")
    return table(head, lines, words=3)


def detection(rows: Sequence[Row], name: str, limit: float, disguise: str) -> tuple[int, int]:
    """(found, of how many) relatives; a pair for which the method is not defined is not found."""
    near = [row for row in rows if row["relation"] != "strangers" and row["disguise"] == disguise]
    return sum(bool(row[name]) and float(row[name]) > limit for row in near), len(near)


def detection_table(rows: Sequence[Row]) -> str:
    """A line a disguise, a column a yardstick: the share of relatives above the threshold."""
    limits = {y.name: threshold(found) for y in YARDSTICKS if (found := stranger_scores(rows, y.name))}
    lines = []
    for disguise in DISGUISES:
        counts = [detection(rows, name, limit, disguise) for name, limit in limits.items()]
        if counts and counts[0][1]:
            label = "undisguised" if disguise == NONE else disguise.replace("_", " ")
            lines.append([label, str(counts[0][1]), *(f"{found / of:.2f}" for found, of in counts)])
    return table(("disguise", "pairs", *limits), lines)


def kinds_table(rows: Sequence[Row], disguise: str) -> str:
    """The same in one disguise, a line a kind of relation."""
    limits = {y.name: threshold(found) for y in YARDSTICKS if (found := stranger_scores(rows, y.name))}
    lines = []
    for kind in sorted({row["relation"] for row in rows} - {"strangers"}):
        group = [row for row in rows if row["relation"] == kind]
        counts = [detection(group, name, limit, disguise) for name, limit in limits.items()]
        if counts and counts[0][1]:
            lines.append([kind, str(counts[0][1]), *(f"{found / of:.2f}" for found, of in counts)])
    return table(("relation", "pairs", *limits), lines)
