"""Counts against the law of fixed points, and p-values against the uniform law that they may not fall below."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.calibration.markdown import per_cent, scientific, table
from benchmarks.calibration.results import Counts, Result, depth
from scipy.stats import chi2

from modelkin.stats import clopper_pearson
from modelkin.stats.rencontres import log_rencontres_law

SHOWN = 5  # counts from here on are one column
FEWEST = 5.0  # expected in a cell of the chi-square test
THRESHOLDS = (-1.0, -2.0, -3.0)
# Questions that are one roll call of the whole model: their statistic is K itself.
ONE_ROLL_CALL = ("hidden-axes-by-gains", "hidden-axes-by-embeddings")
VALUES = "value rows in a head"  # asked once of every renumbered copy
GROUPS = ("strangers", "relatives", "the model itself")


@dataclass(frozen=True)
class Law:
    """How often K was 0, 1, … (the last for all beyond), beside what chance expects of the same sizes."""

    seen: tuple[int, ...]
    expected: tuple[float, ...]
    mean: float
    largest: int

    @property
    def total(self) -> int:
        return sum(self.seen)

    @property
    def pvalue(self) -> float | None:
        """Chi-square; cells that expect too little are joined with their neighbours."""
        cells = [[0.0, 0.0]]
        for seen, expected in zip(self.seen, self.expected, strict=True):
            if cells[-1][1] >= FEWEST:
                cells.append([0.0, 0.0])
            cells[-1][0] += seen
            cells[-1][1] += expected
        if cells[-1][1] < FEWEST and len(cells) > 1:
            last = cells.pop()
            cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
        if len(cells) < 2:
            return None
        return float(chi2.sf(sum((seen - expected) ** 2 / expected for seen, expected in cells), len(cells) - 1))


def law(counts: Mapping[tuple[int, int], int]) -> Law:
    """From how often every (K, n) was seen."""
    seen, expected = np.zeros(SHOWN + 1, dtype=int), np.zeros(SHOWN + 1)
    sizes: Counter[int] = Counter()
    for (k, n), times in counts.items():
        seen[min(k, SHOWN)] += times
        sizes[n] += times
    for n, times in sizes.items():
        shares = np.exp(log_rencontres_law(n))
        padded = np.concatenate([shares, np.zeros(SHOWN + 1)])
        expected += times * np.append(padded[:SHOWN], padded[SHOWN:].sum())
    total = sum(counts.values())
    mean = sum(k * times for (k, _), times in counts.items()) / max(1, total)
    return Law(tuple(seen.tolist()), tuple(expected.tolist()), mean, max((k for k, _ in counts), default=0))


def stranger_counts(results: Iterable[Result]) -> dict[str, Counter[tuple[int, int]]]:
    """Every roll call between strangers, by what was called; each pair at the smallest budget that asks."""
    found: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    asked: set[tuple[str, str, str]] = set()
    for result in sorted((r for r in results if r.stranger), key=lambda r: depth(r.budget)):
        for name, counts in _counts(result):
            if counts and (name, *result.pair) not in asked:
                asked.add((name, *result.pair))
                found[name].update(counts)
    return dict(found)


def _counts(result: Result) -> list[tuple[str, Counts]]:
    answers = [(name, answer) for name, answer in result.answers.items() if not answer.unanswered]
    whole = [(name, ((int(answer.statistic), answer.n),)) for name, answer in answers if name in ONE_ROLL_CALL]
    apart = [(name, answer.counts) for name, answer in answers if answer.counts]
    rows = {"neurons, gate rows of a layer": result.gate, "neurons, up rows of a layer": result.up}
    return [*whole, *rows.items(), ("value rows of a head", result.values), *apart]


def law_table(named: Mapping[str, Mapping[tuple[int, int], int]], head: str = "counted between strangers") -> str:
    columns = [*(f"K = {k}" for k in range(SHOWN)), f"K ≥ {SHOWN}"]
    rows = [line for name, counts in named.items() for line in _law_rows(name, law(counts))]
    return table((head, "", "roll calls", "mean", *columns, "largest", "chi-square p"), rows, words=2)


def _law_rows(name: str, found: Law) -> list[list[str]]:
    """Observed, and below it the law."""
    p = "–" if found.pvalue is None else f"{found.pvalue:.2g}"
    seen = [f"{value:,}" for value in found.seen]
    expected = [f"{value:,.1f}" for value in found.expected]
    law_mean = f"{1.0:.3f}"
    return [
        [name, "seen", f"{found.total:,}", f"{found.mean:.3f}", *seen, str(found.largest), p],
        ["", "law", "", law_mean, *expected, "", ""],
    ]


def share_below(values: Sequence[float], threshold: float) -> str:
    """Count, share and its 95 % interval; marked where even the lower end is above the threshold."""
    count = sum(value <= threshold for value in values)
    interval = clopper_pearson(count, len(values))
    mark = " **too many**" if interval.low > 10**threshold else ""
    return f"{count:,} ({per_cent(count / len(values))}; {per_cent(interval.low)}–{per_cent(interval.high)}){mark}"


def uniform_table(named: Mapping[tuple[str, ...], Sequence[float]], head: Sequence[str]) -> str:
    """Shares of log10 p-values at or below 0.1, 0.01, 0.001; what an exact test may show is in the head."""
    columns = [f"p ≤ {10**t:g}" for t in THRESHOLDS]
    rows = [
        [*name, f"{len(values):,}", *(share_below(values, t) for t in THRESHOLDS), scientific(min(values))]
        for name, values in named.items()
        if values
    ]
    return table((*head, "p-values", *columns, "smallest"), rows, words=len(head))


def stranger_pvalues(results: Iterable[Result]) -> dict[tuple[str, ...], list[float]]:
    """log10 p of every answer between strangers, by budget and question."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for result in results:
        for name, answer in result.answers.items() if result.stranger else ():
            if answer.log10_p is not None:
                found[result.budget, name].append(answer.log10_p)
    return dict(sorted(found.items()))


# Renumbered copies.


def gauge_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def gauge_counts(rows: Iterable[Mapping[str, str]]) -> dict[str, Counter[tuple[int, int]]]:
    found: dict[tuple[str, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for row in rows:
        if row["k"]:
            place = row["test"], GROUPS.index(row["pairs"])
            found[place][int(row["k"]), int(row["n"])] += int(row["copies"])
    return {f"{test}; {GROUPS[place]}": found[test, place] for test, place in sorted(found)}


def gauge_pvalues(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, ...], list[float]]:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if not row["k"]:
            found[row["test"], GROUPS.index(row["pairs"])] += [float(row["log10_p"])] * int(row["copies"])
    return {(test, GROUPS[place]): found[test, place] for test, place in sorted(found)}
