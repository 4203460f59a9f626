"""A verdict with what was done, who came first and how much is shared, where the whole of both models was read.

What the table of outcomes says first stays first: a part that was taken over, a random start, unless the one is known
to be a mixture with the other in it. Nothing here makes or unmakes a relation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from modelkin.records import Direction, Kind, KindShare, Relation, Verdict
from modelkin.records.naming import mixture_of, seen_from_child, short_names
from modelkin.records.relation import KindFound
from modelkin.verdict import words
from modelkin.verdict.policy import GAINS, Tally

TOLD_APART = 0.05  # of the parameters: what a count leaves open; more could not be compared
OF_A_PART: tuple[Kind, ...] = ("component-reuse", "shared-init")
NEARLY_ALL = 0.9  # of the parameters, at the low end of the interval
OF_THE_WHOLE: tuple[Kind, ...] = ("identical", "fine-tune", "continued-pretraining", "merged-lora")  # not of a part


def told(verdict: Verdict, found: Tally, undone: Sequence[str], relation: Relation) -> Verdict:
    """`undone`: what had to be undone before the two could be compared."""
    if _is_the_whole(relation):
        verdict = _not_of_a_part(verdict)
    looks_begun_alike = _began_alike(verdict.kinds)
    if _is_mixed_from_the_other(relation):
        verdict = _not_begun_alike(verdict)
    first = tuple(share for share in verdict.kinds if share.kind != "undetermined")
    known = {share.kind for share in first}
    left_out = known | _ruled_out(known, found)
    more = tuple(KindShare(each.kind, each.probability) for each in relation.kinds if each.kind not in left_out)
    kinds = (*first, *more) or (KindShare("undetermined", None),)
    direction = _direction(verdict, kinds, relation)
    is_told = direction in ("a->b", "b->a")
    cannot = (limit for limit in verdict.limits if direction == "unknown" or limit != words.LIMITS[0])
    named = words.limits_of([each.kind for each in more])
    of_order = (words.CAN_BE_FORGED, words.ORDER_OF_TWO) if is_told else ()
    return msgspec.structs.replace(
        verdict,
        kinds=kinds,
        direction=direction,
        direction_probability=relation.direction_probability if is_told else None,
        # That two began alike leaves parameters alike, and none of them was inherited. Of a mixture that looks so every
        # parameter is the other's, but to a small share: too faint to be counted.
        shared=None if looks_begun_alike or _began_alike(kinds) else relation.shared,
        layer_map=max(verdict.layer_map, relation.layer_map, key=_matched),
        sentence=_of_a_part(verdict, more, direction, relation)
        or _sentence(verdict, found, undone, direction, _mixture(relation, direction)),
        limits=tuple(dict.fromkeys((*cannot, *named, *of_order, *relation.limits))),
    )


def _is_the_whole(relation: Relation) -> bool:
    """Whether all of both was read and nearly all is the same but for rounding and numbers that are free.

    Rows that were read in part agree only as they stand: gains moved into matrices, zeros and grids hide the rest.
    """
    share = relation.shared
    only_stored = {each.kind for each in relation.kinds} <= {"re-encoded"}
    return only_stored and share is not None and share.low >= NEARLY_ALL


def _not_of_a_part(verdict: Verdict) -> Verdict:
    kept = tuple(share for share in verdict.kinds if share.kind not in OF_A_PART)
    if kept == verdict.kinds:
        return verdict
    return msgspec.structs.replace(verdict, kinds=kept, sentence=words.related())


def _is_mixed_from_the_other(relation: Relation) -> bool:
    """Whether one of the pair was computed from others, the other among them, whatever else its order rests on."""
    if relation.merge is None or relation.merge.last is None:
        return False
    said = [mixture_of(side, relation.merge.sources) for side in ("a", "b")]
    return any(text in why for text in said for why in relation.direction_reasons)


def _not_begun_alike(verdict: Verdict) -> Verdict:
    """A small share of a mixture looks like a common start; where it was computed from the other, that is descent."""
    kept = tuple(share for share in verdict.kinds if share.kind != "shared-init")
    is_start = verdict.sentence in (words.SHARED_INIT, words.RELATED_OR_START)
    return msgspec.structs.replace(verdict, kinds=kept, sentence=words.related() if is_start else verdict.sentence)


def _matched(layers: Sequence[tuple[str, str | None]]) -> int:
    return sum(a is not None for _, a in layers)


def _ruled_out(first: Collection[Kind], found: Tally) -> set[Kind]:
    """What the evidence contradicts."""
    ruled_out: set[Kind] = {"undetermined"}
    if "component-reuse" in first or "shared-init" in first:
        ruled_out.update(OF_THE_WHOLE)
    if found.rejects(GAINS) or found.is_recognised:
        ruled_out.add("shared-init")
    return ruled_out


def _began_alike(kinds: Sequence[KindShare | KindFound]) -> bool:
    return any(each.kind == "shared-init" for each in kinds)


def _direction(verdict: Verdict, kinds: Sequence[KindShare], relation: Relation) -> Direction:
    """Where a common random start is not ruled out, an order of two would be one too many."""
    if _began_alike(verdict.kinds) and _began_alike(relation.kinds):
        return "neither"
    if _began_alike(kinds) or verdict.sentence == words.RELATED_OR_START:
        return "unknown"
    return relation.direction


def _mixture(relation: Relation, direction: Direction) -> tuple[str, ...]:
    """What the descendant was mixed from, where its order rests on that: a sentence without it would tell of one."""
    if relation.merge is None or direction not in ("a->b", "b->a"):
        return ()
    told = mixture_of(direction[-1], relation.merge.sources) in relation.direction_reasons
    return tuple(short_names(relation.merge.sources).values()) if told else ()


def _of_a_part(verdict: Verdict, more: Sequence[KindShare], direction: Direction, relation: Relation) -> str | None:
    """Where all tensors show that only a part goes on, and the rows that were read did not."""
    open_ones = {words.related(), *((words.RELATED_OR_START,) if _has_copies(relation) else ())}
    if verdict.sentence not in open_ones or not any(each.kind == "component-reuse" for each in more):
        return None
    share = relation.shared
    if share is None:
        return None
    if share.high - share.low > TOLD_APART:
        return words.at_least_shared(math.floor(100 * share.low) / 100, share.side(direction), direction)
    return words.shared_in_part(share.fraction, share.side(direction), direction)


def _has_copies(relation: Relation) -> bool:
    """Matrices that are the same to the bit: a common random start leaves none once both were trained."""
    return any(fact.same == 1 and len(fact.shape) == 2 for fact in relation.tensors)


def _sentence(verdict: Verdict, found: Tally, undone: Sequence[str], direction: Direction, mixed: Sequence[str]) -> str:
    """Of the sentences that leave open who came first, the one that does not."""
    if verdict.sentence == words.related():
        return words.related(direction, mixed)
    if verdict.sentence == words.turned(found, undone):
        return words.turned(found, seen_from_child(undone, direction), direction, mixed)
    return verdict.sentence
