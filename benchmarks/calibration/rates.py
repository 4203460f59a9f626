"""False alarms: how often strangers were called related, and how often they would be at other thresholds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from benchmarks.calibration.markdown import per_cent, scientific, table
from benchmarks.calibration.results import BUDGETS, Result, depth

from modelkin.stats import PairRate, pair_rate

ALPHAS = (0.05, 1e-3, 1e-6)
ALL = "all strangers"
TAUGHT = ("distilled (student)", "distilled (narrow-student)")  # by answers alone: no weight was handed down


def groups(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Strangers by budget and class, all of them together last; and students of another model's answers."""
    found: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.stranger:
            found[result.budget, result.label].append(result)
            found[result.budget, ALL].append(result)
        elif result.label in TAUGHT:
            found[result.budget, result.label].append(result)
    order = sorted(found, key=lambda place: (depth(place[0]), place[1] in TAUGHT, place[1] == ALL, place[1]))
    return {place: found[place] for place in order}


def accused(results: Sequence[Result]) -> PairRate | None:
    """Pairs that were called related, of those that could be compared."""
    return rate(results, [result.verdict == "related" for result in results])


def rate(results: Sequence[Result], errors: Sequence[bool]) -> PairRate | None:
    chosen = [(r.pair, error) for r, error in zip(results, errors, strict=True) if r.compared]
    return pair_rate([pair for pair, _ in chosen], [error for _, error in chosen]) if chosen else None


def verdicts_table(results: Iterable[Result]) -> str:
    """What was said of strangers, with three upper bounds on the rate of false accusations."""
    rows = []
    for (budget, name), group in groups(results).items():
        said = Counter(result.verdict for result in group if result.compared)
        found = accused(group)
        bounds = (found.independent, found.jackknife, found.guaranteed) if found else ()
        rows.append(
            [
                *(budget, name, f"{len(group):,}", str(found.models if found else 0), f"**{said['related']}**"),
                *(f"{said[outcome]:,}" for outcome in ("unrelated", "undecided")),
                f"{sum(not result.compared for result in group):,}",
                *(per_cent(bound) for bound in bounds or (1.0, 1.0, 1.0)),
            ]
        )
    head = ("budget", "pairs of", "pairs", "models", "called related", "called unrelated", "undecided")
    return table((*head, "not comparable", "bound, independent", "bound, jackknife", "bound, guaranteed"), rows, 2)


def thresholds_table(results: Iterable[Result]) -> str:
    """How many strangers would be accused at another error budget: count, share, jackknife bound."""
    rows = []
    for (budget, name), group in groups(results).items():
        cells = [_beyond(group, alpha) for alpha in ALPHAS]
        least = min((result.least for result in group if result.compared), default=0.0)
        rows.append([budget, name, f"{sum(r.compared for r in group):,}", *cells, scientific(least)])
    head = ("budget", "pairs of", "compared", *(f"p ≤ {alpha:g}" for alpha in ALPHAS), "smallest p")
    return table(head, rows, words=2)


def _beyond(group: Sequence[Result], alpha: float) -> str:
    found = rate(group, [result.least <= math.log10(alpha) for result in group])
    if found is None:
        return "–"
    return f"{found.errors:,} ({per_cent(found.errors / found.pairs)}, at most {per_cent(found.jackknife)})"


def unanswered_table(results: Iterable[Result]) -> str:
    """Why questions were not answered, and how many pairs could not be compared at all."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for result in results:
        who = "strangers" if result.stranger else "others"
        if result.nothing:
            found[result.budget, "every question", result.nothing, who] += 1
        for name, answer in result.answers.items():
            if answer.unanswered:
                found[result.budget, name, answer.unanswered, who] += 1
    places = sorted({place[:3] for place in found}, key=lambda place: (depth(place[0]), *place[1:]))
    rows = [[*place, f"{found[(*place, 'strangers')]:,}", f"{found[(*place, 'others')]:,}"] for place in places]
    return table(("budget", "question", "why not", "strangers", "other pairs"), rows, words=3)


def cost_table(results: Iterable[Result]) -> str:
    """Bytes of weights a model, and seconds a pair with both models open."""
    found: Mapping[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.compared:
            found[result.budget].append(result)
    rows = []
    for budget in (name for name in BUDGETS if found[name]):
        sizes = [size for result in found[budget] for size in result.bytes]
        seconds = [result.seconds for result in found[budget]]
        told = [f"{np.quantile(sizes, q):,.0f}" for q in (0.5, 0.95)]
        rows.append([budget, f"{len(seconds):,}", *told, *(f"{np.quantile(seconds, q):.3f}" for q in (0.5, 0.95))])
    head = ("budget", "pairs", "bytes of weights a model, median", "95 %", "seconds a pair, median", "95 %")
    return table(head, rows)
