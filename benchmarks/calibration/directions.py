"""Who came first: how often that was told, and how often it was right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.calibration.kinds import deepest
from benchmarks.calibration.markdown import per_cent, table
from benchmarks.calibration.results import Result
from benchmarks.disguises.rows import MOVES
from zoo.tables import step_of

from modelkin.stats import clopper_pearson

ORDERS = ("a->b", "b->a")
# Kinds that lose information, or add what is empty: there the order can be counted.
LOSING = frozenset({"depth-prune", "width-prune", "re-encoded", "depth-upscale", "moe-upcycle"})
EXTENDED = ("vocabulary-surgery (extend)", "vocabulary-surgery (made-words)")
DESCENTS, LOST, NO_ORDER = "all descents", "kinds that lose information", "siblings and shared-init"
EQUAL = "beside the parent in other coordinates"
EXACT = frozenset(name.replace("_", "-") for name in MOVES)  # they leave the function as it is


@dataclass(frozen=True)
class Told:
    """Of related pairs, how often an order was told and how often that was the true one."""

    pairs: int
    related: int
    spoken: int
    right: int

    @property
    def wrong(self) -> int:
        return self.spoken - self.right


def told(results: Sequence[Result]) -> Told:
    """Where there is no order, as between siblings, every order that is told is wrong."""
    related = [result for result in results if result.verdict == "related"]
    spoken = [result for result in related if result.said in ORDERS]
    return Told(len(results), len(related), len(spoken), sum(result.said == result.direction for result in spoken))


def loses(result: Result) -> bool:
    """A single step that loses information."""
    single = result.outcome == "descendant" and len(result.kinds) == 1
    return single and (result.kinds[0] in LOSING or result.label in EXTENDED)


def grouped(results: Iterable[Result]) -> dict[str, list[Result]]:
    """By the true kind, then descents together, those that lose information, and pairs without an order."""
    kinds: dict[str, list[Result]] = defaultdict(list)
    sums: dict[str, list[Result]] = {DESCENTS: [], LOST: [], NO_ORDER: []}
    for result in deepest(results):
        if result.outcome == "descendant":
            kinds[" → ".join(result.kinds)].append(result)
            sums[DESCENTS].append(result)
            sums[LOST] += [result] if loses(result) else []
        elif (other := _of_an_equal(result)) is not None:
            kinds[EQUAL].append(other)
        elif result.outcome in ("siblings", "shared-init"):
            kinds[result.label].append(result)
            sums[NO_ORDER].append(result)
    return {**{name: kinds[name] for name in sorted(kinds)}, **sums}


def _of_an_equal(result: Result) -> Result | None:
    """Siblings of which one is their parent but for the numbers of its parts: then the other continues from it.

    With the order that this makes. None of all others.
    """
    equal = [step_of(name) in EXACT for name in (result.a, result.b)]
    if result.outcome != "siblings" or sum(equal) != 1:
        return None
    return replace(result, direction="a->b" if equal[0] else "b->a")


def directions_table(results: Iterable[Result]) -> str:
    rows = [_row(name, told(group)) for name, group in grouped(results).items() if group]
    head = ("relation", "pairs", "related", "order told", "right", "wrong", "right, 95 % interval", "coverage")
    return table(head, rows)


def _row(name: str, found: Told) -> list[str]:
    interval = clopper_pearson(found.right, found.spoken) if found.spoken else None
    return [
        f"**{name}**" if name in (DESCENTS, LOST, NO_ORDER) else name,
        *map(str, (found.pairs, found.related, found.spoken, found.right, found.wrong)),
        "–" if interval is None else f"{per_cent(interval.low)}–{per_cent(interval.high)}",
        per_cent(found.spoken / found.related) if found.related else "–",
    ]
