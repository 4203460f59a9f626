"""Strangers looked at as if one were disguised: what was counted, and the p that controls gave it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from benchmarks.calibration.kinds import deepest
from benchmarks.calibration.markdown import per_cent, scientific, table
from benchmarks.calibration.rates import TAUGHT, rate
from benchmarks.calibration.results import Result

ALPHAS = (0.05, 0.01, 1e-3)  # the last is the error budget of this question, and all of grade B
QUESTION = "unmasked-neurons"
ALL = "all"
STUDENTS = "students of answers"


def looked_at(results: Iterable[Result]) -> list[Result]:
    """Strangers and students whose neurons were counted with axes turned back."""
    return [r for r in deepest(results) if r.unmasked is not None and (r.stranger or r.label in TAUGHT)]


def log10_p(result: Result) -> float:
    """1 where there are no controls: such a pair convicts nobody."""
    answer = result.answers.get(QUESTION)
    return 0.0 if answer is None or answer.log10_p is None else answer.log10_p


def strangers_table(results: Iterable[Result]) -> str:
    """By class of controls: agreements a set, and how many pairs lie at or below a p."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in looked_at(results):
        found[result.unmasked.against if result.stranger and result.unmasked else STUDENTS].append(result)
        if result.stranger:
            found[ALL].append(result)
    order = sorted(found, key=lambda name: (name == STUDENTS, name == ALL, name))
    head = ("held against", "pairs", "models", "agreements a set, median", "most", "most by three in a pair")
    columns = [f"p ≤ {alpha:g}" for alpha in ALPHAS]
    return table(
        (*head, *columns, "smallest p", "called related"), [_row(name, found[name]) for name in order], words=2
    )


def _row(name: str, group: Sequence[Result]) -> list[str]:
    seen = [result.unmasked for result in group if result.unmasked is not None]
    scores = [each.score for each in seen]
    return [
        *(name, f"{len(group):,}", str(len({model for result in group for model in result.pair}))),
        *(f"{np.median(scores):.2f}", f"{max(scores):.2f}", str(max(each.three for each in seen))),
        *(_beyond(group, alpha) for alpha in ALPHAS),
        scientific(min(map(log10_p, group))),
        f"**{sum(result.verdict == 'related' for result in group)}**",
    ]


def _beyond(group: Sequence[Result], alpha: float) -> str:
    """Count, share, and the bound when whole models are left out."""
    found = rate(group, [log10_p(result) <= math.log10(alpha) + 1e-9 for result in group])
    if found is None:
        return "–"
    return f"{found.errors:,} ({per_cent(found.errors / found.pairs)}, at most {per_cent(found.jackknife)})"


def alarms_table(results: Iterable[Result]) -> str:
    """False accusations at the default budget: by any evidence, and by grade B alone."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.budget == "standard" and result.compared and (result.stranger or result.label in TAUGHT):
            found["strangers" if result.stranger else STUDENTS].append(result)
    rows = []
    for name, group in sorted(found.items()):
        accused = [result.verdict == "related" for result in group]
        by_look = [was and result.grade == "B" for was, result in zip(accused, group, strict=True)]
        bounds = rate(group, accused)
        told = (bounds.independent, bounds.jackknife, bounds.guaranteed) if bounds else (1.0, 1.0, 1.0)
        looked = sum(result.unmasked is not None for result in group)
        counts = (f"{len(group):,}", f"{looked:,}", str(sum(by_look)), f"**{sum(accused)}**")
        rows.append([name, *counts, *map(per_cent, told)])
    head = ("pairs of", "pairs", "looked through", "called related by that", "called related at all")
    return table((*head, "bound, independent", "bound, jackknife", "bound, guaranteed"), rows, words=2)
