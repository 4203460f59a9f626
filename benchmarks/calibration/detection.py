"""Relatives: how many were found, at which budget, how surely, and what was named wrongly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from benchmarks.calibration.kinds import joined, named_kind
from benchmarks.calibration.markdown import per_cent, scientific, table
from benchmarks.calibration.rates import TAUGHT, rate
from benchmarks.calibration.results import Result, depth

from modelkin.stats import clopper_pearson, upper_bound

BEYOND_DOUBT = -12.0  # log10 of the p that the policy demands at `quick`
POSITIVES, NEGATIVES = 299, 2995  # without a miss: 0.99 and 1e-3 at 95 %
OUTCOMES = ("descendant", "shared-init", "siblings", "distilled")
NAMES_SHOWN = 6


def is_demanded(result: Result) -> bool:
    """Whether the policy demands that this pair is found at this budget."""
    return bool(result.demand) and depth(result.demand) <= depth(result.budget)


def is_beyond_doubt(result: Result) -> bool:
    """Equal bytes have no p-value and leave no doubt."""
    return result.verdict == "related" and (result.log10_p is None or result.log10_p <= BEYOND_DOUBT)


def is_miss(result: Result) -> bool:
    """Demanded and not found; at `quick` also what was found with less certainty than demanded."""
    found = is_beyond_doubt(result) if result.budget == "quick" else result.verdict == "related"
    return is_demanded(result) and not found


def detection_table(results: Iterable[Result]) -> str:
    """A line a relation and budget. Between strangers `related` was said as often as the table above has it."""
    found: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        if not result.stranger:
            found[result.outcome, result.label, result.budget].append(result)
    order = sorted(found, key=lambda place: (OUTCOMES.index(place[0]), place[1], depth(place[2])))
    counts = ("pairs", "related", "95 % interval", "undecided", "unrelated", "not comparable", "p ≤ 1e-12", "weakest p")
    head = ("relation", "budget", *counts, "kinds named")
    return table(head, [_detection_row(label, budget, found[_, label, budget]) for _, label, budget in order], words=2)


def _detection_row(label: str, budget: str, group: Sequence[Result]) -> list[str]:
    said = Counter(result.verdict for result in group if result.compared)
    interval = clopper_pearson(said["related"], len(group))
    surely = sum(is_beyond_doubt(result) for result in group)
    weakest = max((r.log10_p for r in group if r.verdict == "related" and r.log10_p is not None), default=None)
    mark = " ●" if any(is_demanded(result) for result in group) else ""
    return [
        *(f"{label}{mark}", budget, str(len(group)), str(said["related"])),
        f"{per_cent(interval.low)}–{per_cent(interval.high)}",
        *(str(said[outcome]) for outcome in ("undecided", "unrelated")),
        str(sum(not result.compared for result in group)),
        str(surely),
        "–" if weakest is None else scientific(weakest),
        _kinds(group),
    ]


def _kinds(group: Sequence[Result]) -> str:
    named = Counter(" + ".join(result.named) for result in group if result.verdict == "related" and result.named)
    return ", ".join(f"{kind} {count}" for kind, count in named.most_common()) or "–"


def claim(results: Sequence[Result]) -> str:
    """What the counts allow to be said, in the words that the policy fixes."""
    positives = [result for result in results if result.budget == "quick" and result.demand == "quick"]
    negatives = [result for result in results if result.budget == "quick" and result.stranger and result.compared]
    misses, alarms = sum(map(is_miss, positives)), sum(result.verdict == "related" for result in negatives)
    if not positives or not negatives:
        return "There are not enough pairs to claim anything."
    clustered = rate(negatives, [result.verdict == "related" for result in negatives])
    told = (
        f"Of {len(positives):,} single-step derivatives that `quick` must find, {len(positives) - misses:,} were found "
        f"at p ≤ 1e-12; of {len(negatives):,} pairs of strangers {alarms:,} were called related. "
    )
    bounds = (
        f"detection of at least {per_cent(1 - upper_bound(misses, len(positives)))} and a false-alarm rate of at most "
        f"{per_cent(upper_bound(alarms, len(negatives)))} (each at 95 %, pairs taken as independent; "
        f"{per_cent(clustered.guaranteed if clustered else 1.0)} under any dependence through shared models)"
    )
    if not misses and not alarms and len(positives) >= POSITIVES and len(negatives) >= NEGATIVES:
        return f"{told}**That allows the claim of 0.99 detection at a false-alarm rate of 1e-3**: {bounds}."
    return (
        f"{told}The claim of 0.99 detection at a false-alarm rate of 1e-3 needs {POSITIVES} positives without a miss "
        f"and {NEGATIVES:,} clean negatives, so it is not made. What the counts allow: {bounds}."
    )


def surprise(result: Result) -> str:
    """Why a verdict is not what one would wish; "" where it is. The first reason that fits."""
    if not result.compared:
        return "demanded, but could not be compared" if is_miss(result) else ""
    if result.verdict == "related":
        return _surprise_related(result)
    if is_miss(result):
        return "missed: demanded at this budget"
    if result.verdict == "unrelated" and result.outcome in ("descendant", "siblings", "shared-init"):
        return "called unrelated: disguised" if result.disguised else "called unrelated, and is not"
    return ""


def _surprise_related(result: Result) -> str:
    if result.stranger or result.label in TAUGHT:
        return "FALSE ACCUSATION"
    if is_miss(result):
        return "found, but with less certainty than demanded"
    wrong = result.budget != "quick" and result.expected and joined(result.expected) != named_kind(result)
    return f"named otherwise than {result.expected}" if wrong else ""


def surprises(results: Iterable[Result]) -> list[tuple[str, Result]]:
    found = [(why, result) for result in results if (why := surprise(result))]
    return sorted(found, key=lambda item: (item[0], item[1].label, depth(item[1].budget), item[1].pair))


def surprises_table(results: Iterable[Result], names: int | None = NAMES_SHOWN) -> str:
    """Grouped; with `names` None every pair is listed."""
    found: dict[tuple[str, str, str, str], list[Result]] = defaultdict(list)
    for why, result in surprises(results):
        found[why, result.label, result.budget, " + ".join(result.named) or result.verdict or "–"].append(result)
    rows = [[*place, str(len(group)), _names(group, names)] for place, group in found.items()]
    return table(("what happened", "relation", "budget", "said", "pairs", "which"), rows, words=4)


def _names(group: Sequence[Result], most: int | None) -> str:
    listed = ", ".join(f"{result.a} · {result.b}" for result in islice(group, most))
    return listed if most is None or len(group) <= most else f"{listed}, …"
