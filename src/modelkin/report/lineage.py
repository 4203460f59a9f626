"""What a comparison tells other programs: who descends from whom, if it carries that much, and on what it rests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from modelkin.records import Answer, Beside, Comparison, Evidence, Kind, Party, Unanswered
from modelkin.records.comparison import seal
from modelkin.report.comparison_text import COUNTS
from modelkin.report.extrapolation import is_extrapolated

# A part that was taken over, a common random start and a common ancestor are no descent of one model from the other.
NO_DESCENT: frozenset[Kind] = frozenset(("component-reuse", "shared-init", "shared-ancestor"))
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
HUB_PAGE = re.compile(r"https?://[\w.-]+(:\d{1,5})?(/[\w.-]+)+/tree/[\w.%-]+", re.ASCII)
DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3])(:[0-5]\d){2}Z", re.ASCII)


@dataclass(frozen=True)
class Descent:
    """`descendant` continues from the weights of `ancestor`, or of a model very near to it."""

    ancestor: Party
    descendant: Party


def descent(comparison: Comparison) -> Descent | None:
    """None unless the whole of one model was found to continue from the other, and which from which."""
    verdict = comparison.verdict
    if verdict.outcome != "related" or any(share.kind in NO_DESCENT for share in verdict.kinds):
        return None
    if verdict.direction == "a->b":
        return Descent(comparison.a, comparison.b)
    return Descent(comparison.b, comparison.a) if verdict.direction == "b->a" else None


def ancestors(comparison: Comparison, found: Descent) -> tuple[Party | Beside, ...]:
    """Whom the descendant continues from; of a mixture all parents that were given, the one of the pair first.

    Of what only may be a mixture nobody is a parent by that.
    """
    merge = comparison.relation.merge if comparison.relation else None
    if merge is None or merge.last != found.descendant.id:
        return (found.ancestor,)
    candidates = {row.id: row for row in comparison.candidates}
    named = dict.fromkeys((*merge.sources, merge.base))
    return (found.ancestor, *(candidates[name] for name in named if name in candidates))


def on_the_hub(party: Party | Beside) -> bool:
    """Read from a Hub: it has a commit, and a name that a model card may point to."""
    return party.revision is not None and HUB_ID.fullmatch(party.id) is not None


def package_url(party: Party | Beside) -> str | None:
    """The package URL of type huggingface; the version is the commit, in lower case as the type asks."""
    if not on_the_hub(party):
        return None
    owner, name = party.id.split("/")
    return f"pkg:huggingface/{quote(owner)}/{quote(name)}@{quote(str(party.revision).lower(), safe='')}"


def address(party: Party) -> str | None:
    """Where the same bytes can be had again. Anybody may have written the record: it must look like a page of a Hub."""
    return party.address if party.address and HUB_PAGE.fullmatch(party.address) else None


def date(comparison: Comparison) -> str | None:
    """When the record was made, if it says so as `compare` does."""
    return comparison.made if comparison.made and DATE.fullmatch(comparison.made) else None


def digest(comparison: Comparison) -> str:
    """The seal that the record bears; computed where it was never sealed."""
    return comparison.sha256 or seal(comparison)


def identifier(comparison: Comparison) -> str:
    """A UUID: the same for the same record, another for any other."""
    return str(uuid5(NAMESPACE_URL, f"{comparison.schema}#{digest(comparison)}"))


def failed(answer: Evidence) -> tuple[str, ...]:
    """What the answer rests on and does not hold; a count that does not count is better not shown at all."""
    return tuple(assumption.text for assumption in answer.assumptions if assumption.held is False)


def rests_on(comparison: Comparison, answer: Evidence) -> bool:
    """Whether the verdict rests on it: a relation on what rejects or is equal, anything else on all that may count."""
    if answer.grade is None or failed(answer):
        return False
    if comparison.verdict.outcome != "related" or answer.adjusted_pvalue is None:
        return True
    return answer.adjusted_pvalue <= COUNTS[answer.grade]


def in_words(answer: Answer) -> str:
    """What was seen, and what strangers show: never the one without the other."""
    if isinstance(answer, Unanswered):
        return f"Not asked: {answer.unanswered}."
    if missing := failed(answer):
        return f"Does not count, as this does not hold: {'; '.join(missing)}."
    beyond = ", extrapolated" if is_extrapolated(answer) else ""
    standing = f"Grade {answer.grade}{beyond}." if answer.grade else "It has no grade: it informs and never counts."
    return f"Observed: {answer.observed}. Between strangers: {answer.strangers}. {standing}"
