"""The statistics that others convict by, beside ours: what it costs in strangers to find the relatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.calibration.beside import log10_pearson
from benchmarks.calibration.markdown import per_cent, table
from benchmarks.calibration.results import Naive, Result

FOUND = 0.99  # share of relatives that a threshold must find


@dataclass(frozen=True)
class Statistic:
    """A number that rises with likeness, and the threshold at which it is customarily believed."""

    name: str
    value: Callable[[Result], float | None]
    customary: float
    shown: Callable[[float], str]


def _pearson(r: Callable[[Naive], float | None]) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        found = r(result.naive)
        return None if found is None or result.naive.entries < 3 else -log10_pearson(found, result.naive.entries)

    return value


def _power(value: float) -> str:
    return f"p ≤ 1e-{value:.0f}"


STATISTICS = (
    Statistic("mean raw cosine of norm gains", lambda r: r.naive.cosine, 0.95, lambda x: f"≥ {x:.5f}"),
    Statistic(
        "sigma of that cosine over the baseline of layer 0 within one model",
        lambda r: r.naive.sigma,
        5.0,
        lambda x: f"≥ {x:.3g}",
    ),
    Statistic(
        "Pearson of gains, all layers joined, entries as independent", _pearson(lambda n: n.pooled_r), 6.0, _power
    ),
    Statistic("Pearson of gains, mean over layers, entries as independent", _pearson(lambda n: n.mean_r), 6.0, _power),
    Statistic("mean cosine of facing rows of gate and up", lambda r: r.naive.rows_cosine, 0.9, lambda x: f"≥ {x:.3f}"),
    Statistic("**modelkin**, p over all questions", lambda r: -r.least, 6.0, _power),
)


def measured(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Relatives that `quick` must find, and strangers, as `quick` saw them."""
    seen = [result for result in results if result.budget == "quick" and result.compared]
    return [r for r in seen if r.demand == "quick"], [r for r in seen if r.stranger]


def contrast_table(results: Sequence[Result]) -> str:
    relatives, strangers = measured(results)
    believed, needed = ("believed at", "relatives found", "strangers accused"), "to find 99 % of relatives"
    none = "relatives found if no stranger may be accused"
    head = ("statistic", *believed, needed, "strangers accused then", none)
    if not relatives or not strangers:
        return table(head, [])
    return table(head, [_row(statistic, relatives, strangers) for statistic in STATISTICS])


def _row(statistic: Statistic, relatives: Sequence[Result], strangers: Sequence[Result]) -> list[str]:
    near, far = _values(statistic, relatives), _values(statistic, strangers)
    needed, largest = lowest_finding(near, FOUND), max(far)
    return [
        statistic.name,
        statistic.shown(statistic.customary),
        share_at(near, statistic.customary),
        share_at(far, statistic.customary),
        statistic.shown(needed),
        share_at(far, needed),
        _share(sum(value > largest for value in near), len(near)),
    ]


def _values(statistic: Statistic, results: Sequence[Result]) -> list[float]:
    """Where a statistic has no value it accuses nobody and finds nobody."""
    return [-math.inf if (value := statistic.value(result)) is None else value for result in results]


def lowest_finding(values: Sequence[float], share: float) -> float:
    """The largest threshold that at least this share of the values reaches."""
    return sorted(values, reverse=True)[math.ceil(share * len(values)) - 1]


def share_at(values: Sequence[float], threshold: float) -> str:
    return _share(sum(value >= threshold for value in values), len(values))


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({per_cent(count / total)})"
