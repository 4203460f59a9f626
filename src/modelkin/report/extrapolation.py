"""Grade B beyond what was measured: every view says so beside the grade."""

from __future__ import annotations

from modelkin.records import Comparison, Evidence

EXTRAPOLATED = "extrapolated:"  # how such an answer says it, among what it takes for granted


def is_extrapolated(answer: Evidence) -> bool:
    """Held against the law that unrelated models suggest, for none of them are of its size and class."""
    return answer.grade == "B" and any(assumption.text.startswith(EXTRAPOLATED) for assumption in answer.assumptions)


def rests_on_extrapolation(comparison: Comparison) -> bool:
    """Whether the strength of the verdict is that of such an answer."""
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    return comparison.verdict.grade == "B" and any(is_extrapolated(answer) for answer in given)
