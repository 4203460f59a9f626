"""The operators by which neurons are recognised: of all layers side by side, or of one layer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Block, Unfit, attention, blocks, neurons, router
from modelkin.alignment.matching import Choice, Rotation, assigned, by_signature, scored, turned
from modelkin.alignment.operators import Operator, mlp_operators, operator, rank_for, signatures
from modelkin.alignment.sides import BlockPair, Sides, unit
from modelkin.alignment.teaching import Found, LayerPair
from modelkin.architectures import Anatomy

Floats = NDArray[np.float32]
Step = Callable[[str], None]
Bank = dict[LayerPair, tuple[list[Operator], list[Operator]]]  # of two layers beside each other, one for one


def attention_bank(sides: Sides, pairs: Sequence[LayerPair], step: Step) -> Bank:
    """QK and OV of layers beside each other; a layer is read, cut down to its operators, and let go."""
    rank, found = rank_for(2 * len(pairs)), {}
    for pair in pairs:
        step(f"reading attention, layers {pair[0]} and {pair[1]}")
        try:
            factors = attention(sides.a.anatomy, pair[0]), attention(sides.b.anatomy, pair[1])
        except Unfit as reason:
            sides.note(str(reason))
            continue
        if factors[0] is not None and factors[1] is not None:
            left, right = ([operator(each, sides.rng, rank) for each in side] for side in (factors[0], factors[1]))
            found[pair] = left, right
    return found


def mlp_bank(sides: Sides, pairs: Sequence[LayerPair]) -> Bank:
    """DU and GG of layers that have one MLP for all tokens."""
    rank, found = rank_for(4 * len(pairs)), {}
    for pair in pairs:
        mine, theirs = common_block(sides.a.anatomy, pair[0]), common_block(sides.b.anatomy, pair[1])
        if mine is None or theirs is None or mine.shared != theirs.shared:
            continue
        try:
            left = mlp_operators(neurons(sides.a.anatomy, mine), sides.rng, rank)
            right = mlp_operators(neurons(sides.b.anatomy, theirs), sides.rng, rank)
        except Unfit as reason:
            sides.note(str(reason))
            continue
        found[pair] = left[: len(right)], right[: len(left)]
    return found


def common_block(anatomy: Anatomy, layer: str) -> Block | None:
    """What works for every token: the MLP of a dense layer, or the shared expert."""
    return next((block for block in blocks(anatomy, layer) if block.expert < 0), None)


def side_by_side(
    sides: Sides, pairs: Sequence[LayerPair], banks: Sequence[Bank], step: Step, together: bool = False
) -> Found:
    """The neurons of layers beside each other, matched by their forms with all operators.

    By two ways of looking, or by all that there are together.
    """
    mine = [each for bank in banks for left, _ in bank.values() for each in left]
    theirs = [each for bank in banks for _, right in bank.values() for each in right]
    found: Found = {}
    for pair in pairs if mine else ():
        step(f"matching neurons by signature, layers {pair[0]} and {pair[1]}")
        try:
            experts = experts_by_signature(sides, pair, mine, theirs)
            paired = sides.paired(*pair, experts)
            found[pair] = [(block, _matched(sides, block, mine, theirs, together)) for block in paired]
        except Unfit as reason:
            sides.note(str(reason))
    return found


def _matched(sides: Sides, pair: BlockPair, mine: list[Operator], theirs: list[Operator], together: bool) -> Choice:
    views = sides.views(pair)[: None if together else 2]
    left, right = ([scored(signatures(view[side], ops)) for view in views] for side, ops in ((0, mine), (1, theirs)))
    return by_signature(left, right, sides.rng, together)


def experts_by_signature(
    sides: Sides, pair: LayerPair, mine: list[Operator], theirs: list[Operator]
) -> list[tuple[int, int]] | None:
    """(expert of a, expert of b) by the forms that their router rows make; None where one of the layers has none."""
    left, right = router(sides.a.anatomy, pair[0]), router(sides.b.anatomy, pair[1])
    if left is None or right is None:
        return None
    a, b = scored(signatures(unit(left), mine)), scored(signatures(unit(right), theirs))
    return _listed(assigned(b @ a.T, sides.rng))


def experts_by_rotation(sides: Sides, pair: LayerPair, rotation: Rotation) -> list[tuple[int, int]] | None:
    """The same by the router rows themselves, once it is known how the stream was turned."""
    left, right = router(sides.a.anatomy, pair[0]), router(sides.b.anatomy, pair[1])
    if left is None or right is None:
        return None
    return _listed(assigned(turned(unit(right), rotation) @ unit(left).T, sides.rng))


def _listed(chosen: NDArray[np.intp]) -> list[tuple[int, int]]:
    return [(int(a), b) for b, a in enumerate(chosen) if a >= 0]
