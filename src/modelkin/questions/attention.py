"""Attention: do the value rows inside a head know each other?

Inside a head the rows of v may stand in any order, with the columns of o. Rows of q and k may not where positions
rotate them (their order is that of the frequencies), so they are not asked.
"""

from __future__ import annotations

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.experts import STANDARD_BYTES, affordable, counted, of_layers, read_pairs, same_width
from modelkin.questions.layers import bytes_of
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question
from modelkin.records import Cut, Evidence, Role, Slot
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Readings

FEW_LAYERS = 8  # more heads of a layer are read when so many layers fit


def _cuts(pair: Pair) -> Cuts:
    a, b = of_layers(pair.a, Role.V), of_layers(pair.b, Role.V)
    if not a or not b:
        raise CannotAsk("a model has no value rows of its own (latent attention has none)")
    same_width(pair, a, b, "value rows")
    size = _head_dim(pair.a.facts.head_dim, pair.b.facts.head_dim)
    heads = min(_heads(pair.a, a, size), _heads(pair.b, b, size))
    count = heads if pair.budget == "full" else min(heads, _heads_that_fit(pair, a, b, size))
    start = offset(pair.seed, "kv groups", heads, count) * size
    pairs = affordable(pair, a, b, count * size)
    rows = start, start + count * size
    return [Cut(a[left], *rows) for left, _ in pairs], [Cut(b[right], *rows) for _, right in pairs]


def _head_dim(a: int | None, b: int | None) -> int:
    if not a or not b:
        raise CannotAsk("the size of a head is not known")
    if a != b:
        raise CannotAsk(f"heads have different sizes: {a} and {b}")
    return a


def _heads(anatomy: Anatomy, slots: dict[str, Slot], size: int) -> int:
    rows = {anatomy.shape(slot)[0] for slot in slots.values()}
    if min(rows) < size or any(count % size for count in rows):
        raise CannotAsk(f"value rows ({', '.join(map(str, sorted(rows)))}) are not whole heads of {size}")
    return min(rows) // size


def _heads_that_fit(pair: Pair, a: dict[str, Slot], b: dict[str, Slot], size: int) -> int:
    costs = [bytes_of(side, slot)[1] for side, slots in ((pair.a, a), (pair.b, b)) for slot in slots.values()]
    layers = min(len(a), len(b), FEW_LAYERS)
    return max(1, int(STANDARD_BYTES / (layers * size * max(1.0, *costs))))


def _answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    size = _head_dim(a.portrait.head_dim, b.portrait.head_dim)
    pairs = [
        (i, j, left[at : at + size], right[at : at + size])
        for i, j, left, right in read_pairs(a, b, Role.V)
        for at in range(0, len(left) - size + 1, size)
    ]
    return counted(ATTENTION, pairs, "value row", rng)


ATTENTION = Question(
    id="attention",
    asks="Do the value rows inside the heads know each other?",
    index_set="kv groups",
    stage=4,
    weight=0.10,
    null="The value rows inside a head could stand in any order, so one of a head finds itself.",
    cuts=_cuts,
    answer=_answer,
)
