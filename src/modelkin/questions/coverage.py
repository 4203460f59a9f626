"""How much of the two models was compared at all, by what their parts are for.

A part counts as compared where a question about it was answered soundly from rows of both: descent of the whole model
would have shown there. What was never read inside such a part is told beside it. This informs and cannot convict; it
keeps a pair from being called unrelated where most of its parameters were out of sight.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from modelkin.architectures import Anatomy
from modelkin.questions import every_neuron
from modelkin.questions.attention import ATTENTION
from modelkin.questions.embeddings import EMBEDDINGS
from modelkin.questions.experts import EXPERTS
from modelkin.questions.gains import GAINS
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.neurons import NEURONS
from modelkin.questions.pooled import POOLED
from modelkin.questions.question import Pair
from modelkin.records import Answer, Assumption, Evidence, LayerFinding, Null, Role, Unanswered

ID = "coverage"
TOKENS, HEAD, ATTENDING, MLP, STREAM = "token embeddings", "output head", "attention", "MLP", "norms and biases"
OTHER = "other tensors"
# The questions about a part, the one whose reason says most first.
ASKED_ABOUT: Mapping[str, tuple[str, ...]] = {
    TOKENS: (EMBEDDINGS.id,),
    HEAD: (EMBEDDINGS.id,),
    ATTENDING: (ATTENTION.id,),
    MLP: (LAYER_MAP.id, NEURONS.id, POOLED.id, every_neuron.ID, EXPERTS.id),
    STREAM: (GAINS.id,),
}
PARTS: Mapping[Role, str] = {
    Role.EMBEDDING: TOKENS,
    **dict.fromkeys((Role.HEAD, Role.HEAD_TRANSFORM), HEAD),
    **dict.fromkeys((Role.Q, Role.K, Role.V, Role.O, Role.Q_A, Role.Q_B, Role.KV_A, Role.KV_B), ATTENDING),
    **dict.fromkeys((Role.CROSS_Q, Role.CROSS_K, Role.CROSS_V, Role.CROSS_O), ATTENDING),
    **dict.fromkeys((Role.GATE, Role.UP, Role.DOWN, Role.ROUTER), MLP),
    **dict.fromkeys((Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN, Role.SHARED_ROUTER), MLP),
}
# Matrices that a question about their part may leave out, in words.
NAMES: Mapping[Role, str] = {
    Role.Q: "the query rows of attention",
    Role.K: "the key rows of attention",
    Role.O: "what attention writes back (o)",
    Role.GATE: "the gates of the MLP",
    Role.DOWN: "what the MLP writes back (down)",
    Role.SHARED_DOWN: "what shared experts write back (down)",
}
NOTHING = "no part in a way that counts"
LEAST_TOLD = 0.01  # of the parameters
NULL = Null("what can be compared depends on shapes, storage and tokenizers, not on whether models are related")

Sizes = dict[Role | None, int]  # parameters by role; None: tensors that have none


@dataclass(frozen=True)
class Share:
    """A part, what share of a model's parameters it holds (of the two models the larger), and whether it was seen."""

    part: str
    share: float
    parameters: int
    compared: bool


def compared_parts(pair: Pair, answers: Sequence[Answer], roles_read: Collection[Role]) -> Evidence:
    """`statistic` is the share of parameters in parts that were compared, of the model where it is smaller.

    `roles_read`: of which rows or whole tensors were read of both models.
    """
    sizes = _sizes(pair.a), _sizes(pair.b)
    sound = {answer.question for answer in answers if isinstance(answer, Evidence) and answer.grade is not None}
    seen = {part for part, questions in ASKED_ABOUT.items() if sound.intersection(questions)}
    if Role.HEAD not in roles_read:
        seen.discard(HEAD)
    shares = [_share(part, sizes, part in seen) for part in (*ASKED_ABOUT, OTHER)]
    shares = [share for share in shares if share.parameters]
    covered = min(_covered(side, seen) for side in sizes)
    read = min(_covered(side, (*ASKED_ABOUT, OTHER), roles_read) for side in sizes)
    named = ", ".join(share.part for share in shares if share.compared)
    parts = f"parts that hold {_percent(covered)} of the parameters ({named})" if named else NOTHING
    return Evidence(
        question=ID,
        index_set="none",
        grade=None,
        statistic=covered,
        pvalue=None,
        log10_pvalue=None,
        null=NULL,
        n=sum(share.parameters for share in shares),
        effect=None,
        observed=f"{parts}; rows were read of matrices that hold {_percent(read)} of the parameters",
        strangers="the same",
        per_layer=tuple(
            LayerFinding(share.part, share.part, float(share.compared), share.parameters, None, share.share)
            for share in shares
        ),
        assumptions=tuple(_remarks(shares, sizes, seen, roles_read, answers)),
    )


def _sizes(anatomy: Anatomy) -> Sizes:
    found: Sizes = {}
    for slot, view in anatomy.slots.items():
        found[slot.role] = found.get(slot.role, 0) + math.prod(view.shape)
    tensors = anatomy.checkpoint.tensors
    left = sum(tensors[name].parameters for name in anatomy.unmapped)
    return found | ({None: left} if left else {})


def _part(role: Role | None) -> str:
    if role is not None and (role.is_gain or role.is_bias):
        return STREAM
    return OTHER if role is None else PARTS.get(role, OTHER)


def _share(part: str, sizes: Sequence[Sizes], compared: bool) -> Share:
    held = [sum(count for role, count in side.items() if _part(role) == part) for side in sizes]
    share = max(count / max(1, sum(side.values())) for count, side in zip(held, sizes, strict=True))
    return Share(part, share, sum(held), compared)


def _covered(sizes: Sizes, seen: Collection[str], roles_read: Collection[Role] | None = None) -> float:
    held = [(role, count) for role, count in sizes.items() if _part(role) in seen]
    counted = sum(count for role, count in held if roles_read is None or role in roles_read)
    return counted / max(1, sum(sizes.values()))


def _remarks(
    shares: Sequence[Share],
    sizes: Sequence[Sizes],
    seen: Collection[str],
    roles_read: Collection[Role],
    answers: Sequence[Answer],
) -> list[Assumption]:
    """What was not compared, in words for the reader of a verdict."""
    found = []
    for share in shares:
        if not share.compared and share.share >= LEAST_TOLD:
            found.append(f"{share.part} ({_percent(share.share)} of the parameters){_why(share.part, answers)}")
    for role, name in NAMES.items():
        held = max(side.get(role, 0) / max(1, sum(side.values())) for side in sizes)
        if held >= LEAST_TOLD and PARTS[role] in seen and role not in roles_read:
            found.append(f"{name} ({_percent(held)} of the parameters)")
    return [Assumption(f"Not compared: {text}.") for text in found]


def _why(part: str, answers: Sequence[Answer]) -> str:
    reasons = {answer.question: answer.unanswered for answer in answers if isinstance(answer, Unanswered)}
    reason = next((reasons[question] for question in ASKED_ABOUT.get(part, ()) if question in reasons), None)
    return f", as {reason}" if reason else ""


def _percent(share: float) -> str:
    """Little is not nothing, and nearly all is not all."""
    if 0 < share < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"
