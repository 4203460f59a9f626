"""How layers teach a rotation of the residual stream, without a token.

1. Neurons of layers beside each other are matched by signature, once by what opens them, once by what they read. Those
   on which both ways of looking agree are anchors: nearly all between relatives, about one a layer between strangers.
2. The anchors give the rotation (orthogonal Procrustes), and the rotation gives better anchors.
3. Where that finds nothing, all ways of looking choose together, and every neuron is an anchor. Most are wrong, but
   wrong ones point anywhere, and the few right ones all say the same.

Every rotation remembers the layers that taught it, so that it is judged on others alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.alignment.matching import Choice, Indices, Rotation, anchors, by_rotation, procrustes
from modelkin.alignment.sides import BlockPair, Sides

LayerPair = tuple[str, str]  # a layer of a, a layer of b
Found = dict[LayerPair, list[tuple[BlockPair, Choice]]]
ROUNDS = 3
FEWEST_ANCHORS = 2
GROWTH = 1.02  # a round that brings no more anchors than this is the last
NEARLY_ALL = 0.9
MORE_ROUNDS = 8  # where most anchors are wrong at first: then each round brings some right ones
SETTLED = 0.99  # of all neurons that choose as they did in the round before
SURE = -4.0  # log10 p from which on a layer is known to teach


@dataclass(frozen=True, eq=False)
class Taught:
    """A rotation, and the layers of each model whose neurons gave it."""

    rotation: Rotation
    a: frozenset[str]
    b: frozenset[str]
    anchors: int


def teach(sides: Sides, first: Found) -> Taught | None:
    """The rotation that these layers show; None where there are no layers, or no neurons in them.

    Where next to none of their neurons was recognised, what one way of looking guesses must do: strangers are judged
    too, and a count is owed for them.
    """
    found, best = first, None
    if not asked(found):
        return None
    for _ in range(1 + ROUNDS):
        using = teachers(found)
        count = _agreed(using)
        if best is not None and count <= GROWTH * best.anchors:
            break
        if count < FEWEST_ANCHORS:
            using = _guessed(using)
        rotation = fitted(sides, using, None if best is None else best.rotation)
        had = best or Taught(rotation, frozenset(), frozenset(), 0)
        best = Taught(rotation, had.a | {a for a, _ in using}, had.b | {b for _, b in using}, count)
        if count >= NEARLY_ALL * asked(using):
            break
        found = _under(sides, found, rotation, ways=2)
    return best


def teach_together(sides: Sides, first: Found) -> Taught | None:
    """The same, of neurons that all ways of looking chose together: each is an anchor, in every round.

    `anchors` are those that are confirmed: all of them fit themselves to the rotation, so counting these says little.
    """
    found, rotation = first, None
    if not asked(found):
        return None
    for _ in range(MORE_ROUNDS):
        rotation = fitted(sides, found, rotation)
        again = _under(sides, found, rotation, ways=3, together=True)
        settled = _as_before(found, again) >= SETTLED * asked(found)
        found = again
        if settled:
            break
    if rotation is None:
        return None
    count = _confirmed(sides, found, rotation)
    return Taught(rotation, frozenset(a for a, _ in found), frozenset(b for _, b in found), count)


def _confirmed(sides: Sides, found: Found, rotation: Rotation) -> int:
    """Neurons that two ways of looking agree on again, each by itself, under what the other half of them shows.

    Few neurons on a wide stream fit any others in every direction: strangers agree on half of those that taught.
    """
    return sum(
        _agreed(_half(_under(sides, found, fitted(sides, _half(found, 1 - rest), rotation), ways=2), rest))
        for rest in (0, 1)
    )


def _half(found: Found, start: int) -> Found:
    """Choices of every second neuron; of the others none."""
    return {
        pair: [(block, Choice(tuple(_every_second(view, start) for view in choice.views))) for block, choice in inside]
        for pair, inside in found.items()
    }


def _every_second(view: Indices, start: int) -> Indices:
    return np.where(np.arange(len(view)) % 2 == start, view, -1)


def _under(sides: Sides, found: Found, rotation: Rotation, ways: int, together: bool = False) -> Found:
    """The same blocks, matched anew."""
    return {
        pair: [(block, by_rotation(sides, block, rotation, ways, together)) for block, _ in inside]
        for pair, inside in found.items()
    }


def _as_before(found: Found, again: Found) -> int:
    """Neurons that chose alike twice."""
    return sum(
        int(Choice((before.views[0], after.views[0])).two.sum())
        for pair, inside in found.items()
        for (_, before), (_, after) in zip(inside, again[pair], strict=True)
    )


def asked(found: Found) -> int:
    return sum(choice.asked for inside in found.values() for _, choice in inside)


def _agreed(found: Found) -> int:
    return sum(int(choice.two.sum()) for inside in found.values() for _, choice in inside)


def _guessed(found: Found) -> Found:
    """As if every way of looking had chosen what the first chose."""
    return {
        pair: [(block, Choice((choice.views[0], choice.views[0]))) for block, choice in inside]
        for pair, inside in found.items()
    }


def teachers(found: Found) -> Found:
    """Layers whose neurons were recognised beyond doubt; all, where there are none: then chance will be judged."""
    sure = {pair: inside for pair, inside in found.items() if _sure(inside)}
    return sure or found


def _sure(inside: Sequence[tuple[BlockPair, Choice]]) -> bool:
    best = min((choice.log10_pvalue for _, choice in inside), default=0.0)
    return best + math.log10(max(1, len(inside))) <= SURE


def fitted(sides: Sides, using: Found, rotation: Rotation | None) -> Rotation:
    rows = [anchors(sides, block, choice, rotation) for inside in using.values() for block, choice in inside]
    return procrustes(np.concatenate([left for left, _ in rows]), np.concatenate([right for _, right in rows]))
