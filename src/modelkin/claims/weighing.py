"""What the evidence says to a claim: functions of records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from modelkin.claims.cards import is_folder, is_web_address, same_model
from modelkin.claims.relation_word import Stored, stored_by, weighed_word
from modelkin.records import (
    Claims,
    Direction,
    KindShare,
    Outcome,
    Relation,
    Side,
    Standing,
    WeighedClaim,
    WeighedRelation,
)

Descent = Literal["from it", "to it", "neither", "unknown"]
NOT_COMPARED = "it is not among the models that were compared"
A_WEB_ADDRESS = "it is a web address and no name of a model, and what lies there was not looked at"
A_FOLDER = "it is a place on somebody's disk and no name, and which model lay there is not known"


class Judged(msgspec.Struct, frozen=True):
    """What was found of the claiming model and one other: whether it descends from it, or the other from the claimant.

    No outcome: nothing could be compared.
    """

    outcome: Outcome | None
    descent: Descent = "unknown"
    kinds: tuple[str, ...] = ()
    stored: Stored = "unclear"


def weighed(claims: Claims, judged: Mapping[str, Judged]) -> Claims:
    """The claims with what the evidence says to each. `judged`: what was found of each other model, by its id."""
    found = []
    for name in claims.base_model:
        beside = next((judged[other] for other in judged if same_model(name, other)), None)
        standing, why = _standing(name, beside)
        found.append(WeighedClaim(name, standing, why, _relation(claims.relation, beside, standing)))
    return msgspec.structs.replace(claims, findings=tuple(found))


def seen_from(
    side: Side, outcome: Outcome | None, direction: Direction, kinds: Iterable[KindShare], told: Relation | None = None
) -> Judged:
    """A verdict as one side of the pair sees it. `told`: what all tensors of both said, where they were read."""
    # A merge with a probability is one of two readings: nothing is borne out by it.
    names = tuple(share.kind for share in kinds if share.kind != "merge" or share.probability is None)
    stored: Stored = "unclear" if told is None else stored_by(told.tensors, side)
    if direction in ("neither", "unknown"):
        return Judged(outcome, direction, names, stored)
    return Judged(outcome, "from it" if direction.endswith(side) else "to it", names, stored)


def _standing(name: str, found: Judged | None) -> tuple[Standing, str]:
    """Nothing is called false unless the evidence says the opposite, nor borne out before an order is told."""
    if found is None:
        return "cannot be told", _why_not_compared(name)
    if found.outcome == "unrelated":
        return (
            "contradicted",
            "no relation was found where one would have been noticed; a model that learnt only from another's answers "
            "has none of its weights",
        )
    if found.outcome != "related":
        return "cannot be told", "the comparison is undecided"
    if "shared-init" in found.kinds:
        return "cannot be told", "the two share their first weights, which descent is not needed for"
    if found.descent == "to it":
        return "contradicted", "the two are related, and the descent runs the other way"
    if found.descent == "neither":
        return "contradicted", "the two are related, but neither descends from the other"
    if found.kinds[:1] == ("component-reuse",):
        return "cannot be told", "the two have parts in common; whether the whole descends is not shown"
    if found.descent == "from it":
        return "confirmed", "the weights descend from it, or from a model very near to it"
    return "not contradicted", "the two are related; which of them came first is not told"


def _why_not_compared(name: str) -> str:
    if is_web_address(name):
        return A_WEB_ADDRESS
    return A_FOLDER if is_folder(name) else NOT_COMPARED


def _relation(word: str | None, found: Judged | None, base: Standing) -> WeighedRelation | None:
    """What was done is asked only of two that may be what they are called."""
    if word is None or found is None or found.outcome != "related" or base == "contradicted":
        return None
    return WeighedRelation(word, *weighed_word(word, found.kinds, found.stored, base == "confirmed"))
