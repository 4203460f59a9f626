"""What the policy asks for beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.calibration import directions, kinds, places
from benchmarks.calibration.detection import NEGATIVES, POSITIVES, is_miss
from benchmarks.calibration.markdown import per_cent, table
from benchmarks.calibration.rates import TAUGHT
from benchmarks.calibration.results import Result

from modelkin.stats import upper_bound

MET, BY_COUNT, NOT_MET, UNMEASURED = "met", "by the count, not by the bound", "**not met**", "not measured"


@dataclass(frozen=True)
class Target:
    """`bound`: what the counts allow to be said at 95 %, or who is too few."""

    what: str
    asked: str
    measured: str
    bound: str
    met: str

    @property
    def row(self) -> list[str]:
        return [self.what, self.asked, self.measured, self.bound, self.met]


def at_least(what: str, right: int, of: int, share: float, needed: int = 1) -> Target:
    """A share that must be reached: by the count, and with Clopper and Pearson's lower bound."""
    asked = f"≥ {share:g}" + (f", of {needed} or more" if needed > 1 else "")
    if not of:
        return Target(what, asked, "no pairs", "–", UNMEASURED)
    low = 1 - upper_bound(of - right, of)
    met = MET if low >= share and of >= needed else BY_COUNT if right / of >= share else NOT_MET
    return Target(what, asked, f"{right:,} of {of:,} ({per_cent(right / of)})", f"≥ {per_cent(low)}", met)


def at_most(what: str, wrong: int, of: int, share: float, needed: int) -> Target:
    """A rate that must not be exceeded, claimed with enough pairs alone."""
    asked = f"≤ {share:g}, of {needed:,} or more"
    if not of:
        return Target(what, asked, "no pairs", "–", UNMEASURED)
    high = upper_bound(wrong, of)
    met = MET if high <= share and of >= needed else BY_COUNT if wrong / of <= share else NOT_MET
    return Target(what, asked, f"{wrong:,} of {of:,} ({per_cent(wrong / of)})", f"≤ {per_cent(high)}", met)


def never(what: str, wrong: int, of: int) -> Target:
    """What must not happen: no bound can show that, so it is met where it did not."""
    if not of:
        return Target(what, "none", "no pairs", "–", UNMEASURED)
    return Target(
        what, "none", f"{wrong:,} of {of:,}", f"≤ {per_cent(upper_bound(wrong, of))}", NOT_MET if wrong else MET
    )


def score(what: str, value: float | None, low: float | None, asked: float, short: str = "") -> Target:
    """An F1: the bound is of draws of whole bases. `short`: of what there are too few examples.

    Without an error every draw is perfect, which bounds nothing: then there is no bound.
    """
    if value is None:
        return Target(what, f"≥ {asked:g}", "no pairs", "–", UNMEASURED)
    low = None if value == 1 else low
    bound = "–" if low is None else f"≥ {low:.3f}"
    met = NOT_MET if value < asked else MET if low is not None and low >= asked and not short else BY_COUNT
    return Target(what, f"≥ {asked:g}", f"{value:.3f}", f"{bound}; {short}" if short else bound, met)


def targets(results: Sequence[Result]) -> list[Target]:
    return [_at_quick(results), *_detections(results), *_kinds(results), *_directions(results)]


def targets_table(results: Sequence[Result]) -> str:
    return table(("target", "asked", "measured", "bound at 95 %", ""), [t.row for t in targets(results)])


def _at_quick(results: Sequence[Result]) -> Target:
    demanded = [result for result in results if result.budget == result.demand == "quick"]
    found = len(demanded) - sum(map(is_miss, demanded))
    return at_least("single-step derivatives found at `quick` with p ≤ 1e-12", found, len(demanded), 0.99, POSITIVES)


def _detections(results: Sequence[Result]) -> list[Target]:
    apart = [r for r in results if r.budget == "standard" and r.compared and (r.stranger or r.label in TAUGHT)]
    parts = places.stolen(results)
    located = sum(places.is_sure(result) and places.is_located(result) for result in parts)
    accused = sum(result.verdict == "related" for result in apart)
    return [
        at_most("strangers and students called related at `standard`", accused, len(apart), 1e-3, NEGATIVES),
        at_least("one layer, or 2 % of neurons, found at `full` with p ≤ 1e-9 and located", located, len(parts), 0.99),
    ]


def _kinds(results: Sequence[Result]) -> list[Target]:
    single, chained = kinds.singles(results), kinds.chains(results)
    pairs = kinds.kind_pairs(single)
    few = [kind for kind in kinds.ELEVEN if sum(true == kind for true, _ in pairs) < kinds.EXAMPLES]
    short = f"fewer than {kinds.EXAMPLES} of {', '.join(few)}" if few else ""
    low = kinds.low_end(single, lambda draw: kinds.macro_f1(kinds.kind_pairs(draw)))
    return [
        score("kind, macro-F1 over the eleven", kinds.macro_f1(pairs), low, 0.9, short),
        score("two-step chains, micro-F1", kinds.micro_f1(chained), kinds.low_end(chained, kinds.micro_f1), 0.75),
    ]


def _directions(results: Sequence[Result]) -> list[Target]:
    groups = {name: directions.told(group) for name, group in directions.grouped(results).items()}
    descents, lost, apart = (groups[name] for name in (directions.DESCENTS, directions.LOST, directions.NO_ORDER))
    return [
        at_least("direction right when told, of descents", descents.right, descents.spoken, 0.95),
        at_least("the same of kinds that lose information", lost.right, lost.spoken, 0.98),
        never("siblings and shared-init of which an order was told", apart.spoken, apart.related),
    ]
