"""The two models of a record: what each is, what it says of its origin, and what the evidence says to that."""

from __future__ import annotations

import msgspec

from modelkin.architectures import Anatomy
from modelkin.claims import read_claims, seen_from, weighed
from modelkin.fingerprints import weights
from modelkin.inspection import identity
from modelkin.records import BudgetName, Claims, Comparison, Party, Side


def party(anatomy: Anatomy, budget: BudgetName) -> Party:
    """Claims are read of a card and its like: a request or two more, which `quick` does not spend."""
    known = identity(anatomy.checkpoint, anatomy)
    return Party(
        id=known.id,
        revision=known.revision,
        format=known.format,
        parameters=known.parameters,
        layers=known.layers,
        hidden=known.hidden,
        vocabulary=known.vocabulary,
        files=known.files,
        weights=tuple(fact.name for fact in weights(anatomy)),
        address=anatomy.checkpoint.source.address,
        claims=Claims() if budget == "quick" else read_claims(anatomy.checkpoint),
    )


def with_claims_weighed(found: Comparison) -> Comparison:
    """The record with what its evidence says to the claims of either model."""
    return msgspec.structs.replace(found, a=_weighed(found, "a"), b=_weighed(found, "b"))


def _weighed(found: Comparison, side: Side) -> Party:
    """A party with what the evidence says to its claims."""
    mine, other = (found.a, found.b) if side == "a" else (found.b, found.a)
    verdict = found.verdict
    judged = {
        row.id: seen_from("a", row.outcome, row.direction, row.kinds)
        for row in (*found.candidates, *found.controls)
        if row.side == side
    }
    judged[other.id] = seen_from(side, verdict.outcome, verdict.direction, verdict.kinds, found.relation)
    return msgspec.structs.replace(mine, claims=weighed(mine.claims, judged))
