"""Stage 5 of a comparison: was b turned and renumbered? Asked where the weights do not agree in their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.alignment import Alignment, align, bytes_needed, disguises, summary
from modelkin.questions import CannotAsk, Pair, unmasked
from modelkin.questions.attention import heads_stand_elsewhere
from modelkin.questions.folded import folded_attention
from modelkin.records import Answer, Json, NotEvidence, Unanswered
from modelkin.sampling.budget import Room
from modelkin.sources.protocol import Progress
from modelkin.verdict.depth import layers_apart
from modelkin.verdict.policy import EMBEDDINGS, GAINS, SETS_NEEDED, Tally, tally

STAGE = 5
WHOLE, HALF = 0.9, 0.5  # shares of hidden axes that find themselves, by tokens and by gains
IN_PLACE = "not needed: the weights agree in their places"


@dataclass(frozen=True, eq=False)
class Unmasked:
    """The answer, None where nobody asked; the alignment where there is one, and what looks like evidence beside it."""

    answer: Answer | None = None
    alignment: Alignment | None = None
    not_evidence: tuple[NotEvidence, ...] = ()

    @property
    def told(self) -> Json | None:
        """For the record."""
        if self.alignment is None:
            return None
        return summary(self.alignment) | {"undone": list(disguises(self.alignment))}


def unmask(pair: Pair, found: Sequence[Answer], room: Room, progress: Progress) -> Unmasked:
    """`found`: the answers so far."""
    if all_in_place(found):
        return Unmasked(Unanswered(unmasked.ID, IN_PLACE))
    needed = bytes_needed(pair.a, pair.b)
    if not room.has(needed):
        sizes = " and ".join(f"{size / 1e6:,.0f} MB of {who}" for size, who in zip(needed, "AB", strict=True))
        return Unmasked(Unanswered(unmasked.ID, f"it would read {sizes}; --budget full does"))
    progress("looking through disguises", 0, 0)
    rng = np.random.default_rng([pair.seed, STAGE])
    alignment = align(pair.a, pair.b, rng, progress)
    beside = folded_attention(pair, rng)
    try:
        return Unmasked(unmasked.answer(alignment), alignment, beside)
    except CannotAsk as reason:
        return Unmasked(Unanswered(unmasked.ID, str(reason)), None, beside)


def all_in_place(found: Sequence[Answer]) -> bool:
    """Whether all that was asked agrees in its place, in all layers: then nothing was rearranged."""
    seen = tally(found)
    elsewhere = layers_apart(seen.rejecting) or any(map(heads_stand_elsewhere, seen.rejecting))
    return len(seen.sets) >= SETS_NEEDED and not seen.quiet and not elsewhere and not _gains_differ(seen)


def _gains_differ(seen: Tally) -> bool:
    """Tokens say that the axes are the same, and gains do not: they may have been moved into the matrices."""
    effects = {answer.question: answer.effect or 0.0 for answer in seen.rejecting}
    return effects.get(EMBEDDINGS, 0.0) >= WHOLE and effects.get(GAINS, 1.0) < HALF
