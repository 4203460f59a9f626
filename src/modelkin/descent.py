"""What is told of a pair once it is known to be one: what was done, who came first, how much is shared."""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.alignment import Alignment, disguises, keeps_gains, keeps_readers, rewritten
from modelkin.architectures import Anatomy
from modelkin.questions import Pair
from modelkin.records import Relation, Verdict
from modelkin.relation.reading import Weights
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.tokens import shared_tokens
from modelkin.sampling.budget import Room, whole
from modelkin.sources.protocol import Progress

WHOLE = frozenset({"undetermined", "depth-upscale", "depth-prune"})  # kinds of a model that goes on as a whole


def descent(
    pair: Pair,
    verdict: Verdict,
    alignment: Alignment | None,
    candidates: Sequence[Anatomy],
    room: Room,
    progress: Progress,
) -> Relation | None:
    """From all tensors of both; None where that is more than the budget allows, or where there is nothing to ask."""
    if not is_asked(pair, verdict, room):
        return None
    b: Weights = pair.b
    layers = verdict.layer_map
    undone: tuple[str, ...] = ()
    if alignment is not None and alignment.rotation is not None:
        layers, undone = alignment.layers, disguises(alignment)
        b = rewritten(alignment) if undone or _has_moved_gains(verdict, alignment) else pair.b
    inquiry = Inquiry(
        layers=layers,
        tokens=shared_tokens(pair.a, pair.b),
        names=(pair.a.checkpoint.id, pair.b.checkpoint.id),
        candidates=[(anatomy.checkpoint.id, anatomy) for anatomy in candidates],
        disguises=undone,
        unplaced=bool(pair.a.unmapped or pair.b.unmapped),
        seed=pair.seed,
    )
    return relate(pair.a, b, inquiry, progress)


def _has_moved_gains(verdict: Verdict, alignment: Alignment) -> bool:
    """Gains that differ are gains moved into matrices only where all else says that it is one model.

    And not where the matrices that read them are the same: then gains were changed, and nothing was moved.
    """
    whole = alignment.hidden == "identity" and {share.kind for share in verdict.kinds} <= WHOLE
    return whole and not keeps_gains(alignment) and not keeps_readers(alignment)


def is_asked(pair: Pair, verdict: Verdict, room: Room) -> bool:
    """Of related pairs that are not the same, if all of both fits into the budget."""
    if verdict.outcome != "related" or pair.budget == "quick":
        return False
    if any(share.kind == "identical" for share in verdict.kinds):
        return False
    return room.has((whole(pair.a), whole(pair.b)))
