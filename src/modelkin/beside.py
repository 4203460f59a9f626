"""Further models beside the pair: controls, which show what strangers give, and candidates for kinship.

Each is compared with a and with b. A control is asked the quick questions alone; a candidate as much as the pair, up to
what `standard` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint
from modelkin.errors import ModelkinError, NothingComparable
from modelkin.questions import Pair
from modelkin.records import Answer, Beside, BriefAnswer, BudgetName, Comparison, Evidence, Side
from modelkin.sources.protocol import NOTE, Progress

As = Literal["control", "candidate"]
Compare = Callable[[Pair], Comparison]
SIDES: tuple[Side, Side] = ("a", "b")


@contextmanager
def opened(
    models: Sequence[str], role: As, open_one: Callable[[str], Checkpoint], progress: Progress
) -> Iterator[tuple[Anatomy, ...]]:
    """All of them, before anything long begins: a name with a slip in it must not cost an hour. Each once.

    One that cannot be opened is named with the role that it was given for: of the pair nothing is wrong.
    """
    with ExitStack() as stack:
        found: dict[tuple[str, str | None], Anatomy] = {}
        for model in models:
            with _named_as(role):
                checkpoint = open_one(model)
            stack.callback(checkpoint.close)
            if (checkpoint.id, checkpoint.revision) in found:
                progress(f"{NOTE}{checkpoint.id} was given twice, and is compared once", 0, 0)
            else:
                with _named_as(role):
                    found[checkpoint.id, checkpoint.revision] = identify(checkpoint)
        yield tuple(found.values())


@contextmanager
def _named_as(role: As) -> Iterator[None]:
    """A and B are open by now, so what fails is not of them."""
    try:
        yield
    except ModelkinError as reason:
        raise type(reason)(
            f"{reason.message} (this is a {role}; A and B could be opened)",
            where=reason.where,
            hint=f"{reason.hint + '; or ' if reason.hint else ''}leave the {role} out: nothing was computed yet",
        ) from reason


def pairs(pair: Pair, others: Sequence[Anatomy], role: As) -> list[tuple[Side, Pair]]:
    """Each further model with a, then with b; it stands second in its pair."""
    budget: BudgetName = "quick" if role == "control" or pair.budget == "quick" else "standard"
    return [
        (side, Pair(mine, other, pair.seed, budget))
        for other in others
        for side, mine in zip(SIDES, (pair.a, pair.b), strict=True)
    ]


def compared(
    pair: Pair, others: Sequence[Anatomy], role: As, compare: Compare, progress: Progress
) -> tuple[Beside, ...]:
    """What came out, a record each. A control that turns out to be related says so in its sentence."""
    wanted = pairs(pair, others, role)
    found = []
    for done, (side, further) in enumerate(wanted):
        progress(f"comparing {role}s", done, len(wanted))
        found.append(_one(side, further, role, compare))
    return tuple(found)


def _one(side: Side, pair: Pair, role: As, compare: Compare) -> Beside:
    known = pair.b.checkpoint
    before = _bytes(pair)
    try:
        result = compare(pair)
    except NothingComparable as reason:
        return Beside(
            id=known.id,
            revision=known.revision,
            side=side,
            budget=pair.budget,
            outcome=None,
            sentence=reason.message,
            bytes=_bytes(pair) - before,
        )
    verdict = result.verdict
    return Beside(
        id=known.id,
        revision=known.revision,
        side=side,
        budget=pair.budget,
        outcome=verdict.outcome,
        kinds=verdict.kinds,
        direction=verdict.direction,
        sentence=_sentence(result, role, side),
        answers=tuple(map(brief, result.answers)),
        bytes=_bytes(pair) - before,
    )


def _sentence(result: Comparison, role: As, side: Side) -> str:
    if role == "control" and result.verdict.outcome == "related":
        return f"No stranger: this control is related to {side.upper()}, and shows nothing of what strangers give."
    return result.verdict.sentence


def brief(answer: Answer) -> BriefAnswer:
    if not isinstance(answer, Evidence):
        return BriefAnswer(question=answer.question, unanswered=answer.unanswered)
    return BriefAnswer(
        question=answer.question,
        statistic=answer.statistic,
        n=answer.n,
        log10_pvalue=answer.log10_pvalue,
        strangers=answer.strangers,
    )


def _bytes(pair: Pair) -> int:
    """Read of both so far; hashing a local file costs no reading of the comparison's."""
    ledgers = [anatomy.checkpoint.source.ledger for anatomy in (pair.a, pair.b)]
    return sum(ledger.bytes() - ledger.bytes({"hash"}) for ledger in ledgers)
