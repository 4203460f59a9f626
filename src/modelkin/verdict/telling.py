"""A verdict with what was done, who came first and how much is shared, where the whole of both models was read.

What the table of outcomes says first stays first: a part that was taken over, a random start. Nothing here makes or
unmakes a relation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from modelkin.records import Direction, Kind, KindShare, Relation, Verdict
from modelkin.verdict import words
from modelkin.verdict.policy import GAINS, Tally

OF_THE_WHOLE: tuple[Kind, ...] = ("identical", "fine-tune", "continued-pretraining", "merged-lora")  # not of a part


def told(verdict: Verdict, found: Tally, undone: Sequence[str], relation: Relation) -> Verdict:
    """`undone`: what had to be undone before the two could be compared."""
    first = tuple(share for share in verdict.kinds if share.kind != "undetermined")
    known = {share.kind for share in first}
    left_out = known | _ruled_out(known, found)
    more = tuple(KindShare(each.kind, each.probability) for each in relation.kinds if each.kind not in left_out)
    direction = _direction(verdict, known, relation)
    cannot = (limit for limit in verdict.limits if direction == "unknown" or limit != words.LIMITS[0])
    return msgspec.structs.replace(
        verdict,
        kinds=(*first, *more) or (KindShare("undetermined", None),),
        direction=direction,
        direction_probability=relation.direction_probability if direction == relation.direction != "unknown" else None,
        shared=relation.shared,
        layer_map=verdict.layer_map or relation.layer_map,
        sentence=_sentence(verdict, found, undone, direction),
        limits=(*cannot, *((words.CAN_BE_FORGED,) if direction in ("a->b", "b->a") else ()), *relation.limits),
    )


def _ruled_out(first: Collection[Kind], found: Tally) -> set[Kind]:
    """What the evidence contradicts."""
    ruled_out: set[Kind] = {"undetermined"}
    if "component-reuse" in first or "shared-init" in first:
        ruled_out.update(OF_THE_WHOLE)
    if found.rejects(GAINS) or found.is_recognised:
        ruled_out.add("shared-init")
    return ruled_out


def _direction(verdict: Verdict, first: Collection[Kind], relation: Relation) -> Direction:
    """Where a common random start is not ruled out, an order of two would be one too many."""
    if "shared-init" in first:
        return "neither" if any(each.kind == "shared-init" for each in relation.kinds) else "unknown"
    return "unknown" if verdict.sentence == words.RELATED_OR_START else relation.direction


def _sentence(verdict: Verdict, found: Tally, undone: Sequence[str], direction: Direction) -> str:
    """Of the sentences that leave open who came first, the one that does not."""
    if verdict.sentence == words.related():
        return words.related(direction)
    if verdict.sentence == words.turned(found, undone):
        return words.turned(found, undone, direction)
    return verdict.sentence
