"""The demonstration as text: every verdict beside what is true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

from modelkin.records import Comparison
from modelkin.report.comparison_relation import kinds_text
from modelkin.report.comparison_text import pvalue_text
from modelkin.report.extrapolation import rests_on_extrapolation
from modelkin.report.text import size

WIDTH = 80


def demo_text(comparisons: Sequence[Comparison], truths: Iterable[str]) -> str:
    pairs = [_pair(comparison, known) for comparison, known in zip(comparisons, truths, strict=True)]
    requests, seconds = sum(c.cost.requests for c in comparisons), sum(c.cost.seconds for c in comparisons)
    cost = f"{len(pairs)} comparisons over HTTP, {requests} requests, {seconds:.1f} s"
    return "\n\n".join([*pairs, f"{cost}. One in full: modelkin compare A B."]) + "\n"


def _pair(comparison: Comparison, known: str) -> str:
    verdict, cost = comparison.verdict, comparison.cost
    kinds = "" if [share.kind for share in verdict.kinds] == ["undetermined"] else kinds_text(verdict.kinds)
    order = "" if verdict.direction == "unknown" else verdict.direction
    beyond = ", extrapolated" if rests_on_extrapolation(comparison) else ""
    grade = f" (grade {verdict.grade}{beyond})" if verdict.grade == "B" else ""
    chance = f"p ≤ {pvalue_text(verdict.log10_pvalue)}{grade}" if verdict.log10_pvalue is not None else ""
    facts = " · ".join(part for part in (verdict.outcome.upper(), kinds, order, chance) if part)
    read = f"{size(cost.tensor_bytes_a)} + {size(cost.tensor_bytes_b)} of weights"
    return "\n".join(
        [
            f"{comparison.a.id} and {comparison.b.id}: {facts}",
            fill(verdict.sentence, WIDTH, initial_indent="  says   ", subsequent_indent="         "),
            fill(known, WIDTH, initial_indent="  truth  ", subsequent_indent="         "),
            f"  read   {read}",
        ]
    )
