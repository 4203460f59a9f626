"""Whether a record may be shown: its seal is whole, and it does not contradict itself.

A seal shows damage and careless edits. Who alters a record on purpose can seal it anew, and only `verify --fetch` shows
that; but what no comparison can find is refused here, sealed or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from modelkin.errors import UnreadableError
from modelkin.records import Comparison, Evidence, Outcome, Survey, Verdict
from modelkin.records.comparison import seal
from modelkin.records.survey import seal_of_survey
from modelkin.report.lineage import date

HAIR = 1e-9  # by which rounding may leave a p above 1
# How the sentence of each outcome begins.
BEGINNINGS: dict[Outcome, tuple[str, ...]] = {
    "related": ("The two models are related", "The two models are identical"),
    "unrelated": ("The two models are unrelated",),
    "undecided": ("It is undecided whether the two models are related",),
}
BROKEN = {
    "en": (
        "This record was changed after it was made: its seal is broken. Nothing below can be relied on, and none of it "
        "is what modelkin found."
    ),
    "ko": (
        "이 기록은 만들어진 뒤에 바뀌었습니다. 봉인이 깨졌습니다. 아래 내용은 어느 것도 믿을 수 없으며, modelkin이 "
        "찾아낸 그대로가 아닙니다."
    ),
}


def is_whole(record: Comparison | Survey) -> bool:
    """Whether it is what was sealed."""
    found = seal(record) if isinstance(record, Comparison) else seal_of_survey(record)
    return record.sha256 == found


def checked_trust(record: Comparison | Survey, where: str, *, unsealed: bool = False) -> bool:
    """Whether the seal is whole. A broken one is refused unless `unsealed`, a contradiction always."""
    for problem in contradictions(record):
        raise UnreadableError(
            f"the record contradicts itself: {problem}", where=where, hint="ask for the file as modelkin wrote it"
        )
    whole = is_whole(record)
    if not (whole or unsealed):
        raise UnreadableError(
            f"the record was changed after it was made: {_seal_found(record)}",
            where=where,
            hint="ask for the file as modelkin wrote it, or --unsealed to show this one all the same, under a warning",
        )
    return whole


def _seal_found(record: Comparison | Survey) -> str:
    return "its seal (sha256) is not that of what it holds" if record.sha256 else "it has no seal (sha256)"


def contradictions(record: Comparison | Survey) -> Iterator[str]:
    """What no comparison and no survey can find, in words."""
    if isinstance(record, Survey):
        yield from _impossible_columns(record)
        return
    verdict = record.verdict
    if not verdict.sentence.startswith(BEGINNINGS[verdict.outcome]):
        yield f"its outcome is {verdict.outcome!r}, and its sentence begins {verdict.sentence[:40]!r}"
    if verdict.outcome != "undecided" and not any(isinstance(answer, Evidence) for answer in record.answers):
        yield f"its outcome is {verdict.outcome!r}, and no question has an answer"
    yield from (f"{name} is {value:g}, which no p can be" for name, value in _pvalues(record) if not _possible(value))
    for answer in record.answers:
        if isinstance(answer, Evidence) and answer.n < 0:
            yield f"{answer.question} was asked of {answer.n} things"
    if record.made and date(record) is None:
        yield f"it was made on {record.made[:40]!r}, which is no date"
    for name, value in _shares(record):
        if not 0 <= value <= 1 + HAIR:
            yield f"{name} is {value:g}, which no share can be"


def _possible(pvalue: float) -> bool:
    return 0 <= pvalue <= 1 + HAIR


def _pvalues(record: Comparison) -> Iterator[tuple[str, float]]:
    """Every p; of its logarithm what it stands for."""
    given = [(answer.question, answer) for answer in record.answers if isinstance(answer, Evidence)]
    parts: list[tuple[str, Verdict | Evidence]] = [("the verdict", record.verdict), *given]
    for name, part in parts:
        yield from ((f"the p of {name}", value) for value in (part.pvalue,) if value is not None)
        yield from _from_logarithm(f"the p of {name}", part.log10_pvalue)
    for name, answer in given:
        for layer in answer.per_layer:
            yield from _from_logarithm(f"the p of {name} in layer {layer.b!r}", layer.log10_pvalue)
    for model in (*record.controls, *record.candidates):
        for brief in model.answers:
            yield from _from_logarithm(f"the p of {brief.question} beside {model.id!r}", brief.log10_pvalue)


def _from_logarithm(name: str, log10: float | None) -> Iterator[tuple[str, float]]:
    """Above 1 where the logarithm is above 0; how far does not matter."""
    if log10 is not None:
        yield name, 10.0 ** min(log10, 300.0)


def _shares(record: Comparison) -> Iterator[tuple[str, float]]:
    verdict = record.verdict
    found = {f"the probability of {share.kind!r}": share.probability for share in verdict.kinds}
    found["the probability of the direction"] = verdict.direction_probability
    if verdict.shared is not None:
        shared = verdict.shared
        found |= {"the part shared": shared.fraction, "its lower end": shared.low, "its upper end": shared.high}
    return ((name, value) for name, value in found.items() if value is not None)


def _impossible_columns(survey: Survey) -> Iterator[str]:
    for table in survey.tables:
        places = [place for place, name in enumerate(table.columns) if name == "p" or name.endswith("_p")]
        for row in table.rows:
            for place in places:
                value = row[place] if place < len(row) else None
                if isinstance(value, (int, float)) and not _possible(value):
                    yield f"{table.columns[place]} of the table {table.name} holds {value:g}, which no p can be"
