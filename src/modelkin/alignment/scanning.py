"""Layers described by themselves alone, every two of them compared: where nobody knows what faces what.

Experts have no order, so the neurons of all experts of a layer look for theirs together, and say whose expert is whose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.banks import Step, common_block
from modelkin.alignment.folding import Block, Neurons, Span, Unfit, attention, attention_slots, blocks, gated, neurons
from modelkin.alignment.matching import Choice, assigned, by_signature, scored
from modelkin.alignment.operators import Operator, local_signatures, mlp_operators, operator
from modelkin.alignment.sides import LEAST_OF_A_BLOCK, MOST_NEURONS, BlockPair, Side, Sides, span
from modelkin.alignment.teaching import LayerPair
from modelkin.architectures import Anatomy

Floats = NDArray[np.float32]
NO_OPERATOR = "neither plain attention nor an MLP that all tokens share gives an operator to recognise neurons by"
FIRST_EXPERT = "only the first expert of every layer was looked at: all of them would take long in models of this size"
SCANNED = 256  # neurons of a layer of b that are matched with those of every layer of a


@dataclass(frozen=True, eq=False)
class Described:
    """The neurons of a layer, block after block, by scored local signatures: one array a way of looking."""

    views: tuple[Floats, ...]
    blocks: tuple[tuple[Block, Span | None, int], ...]  # and how many neurons of each

    def spans(self) -> list[Span]:
        stops = np.cumsum([count for *_, count in self.blocks])
        return [(int(stop) - count, int(stop)) for stop, (*_, count) in zip(stops, self.blocks, strict=True)]


@dataclass(frozen=True, eq=False)
class Scan:
    """Every layer described, and how surely each two agree: log10 p, (layers a, layers b)."""

    a: dict[str, Described]
    b: dict[str, Described]
    table: NDArray[np.float64]

    def best(self, a: Iterable[str], b: Iterable[str]) -> LayerPair | None:
        """The surest cell of these layers."""
        rows = [i for i, name in enumerate(self.a) if name in set(a)]
        columns = [j for j, name in enumerate(self.b) if name in set(b)]
        if not rows or not columns:
            return None
        inside = self.table[np.ix_(rows, columns)]
        i, j = np.unravel_index(int(np.argmin(inside)), inside.shape)
        return list(self.a)[rows[int(i)]], list(self.b)[columns[int(j)]]


def scanned(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str], step: Step) -> Scan:
    kinds = _common_kinds(sides, layers_a, layers_b)
    a = _all_described(sides, sides.a, layers_a, kinds, None, step)
    b = _all_described(sides, sides.b, layers_b, kinds, MOST_NEURONS, step)
    table = np.zeros((len(a), len(b)))
    for i, left in enumerate(a.values()):
        for j, right in enumerate(b.values()):
            some = _some(len(right.views[0]))
            table[i, j] = by_signature(left.views, [view[some] for view in right.views], sides.rng).log10_pvalue
    return Scan(a, b, table)


def _some(count: int) -> NDArray[np.intp]:
    """A few neurons of all blocks alike."""
    return np.unique(np.linspace(0, count - 1, min(count, SCANNED)).astype(np.intp))


@dataclass(frozen=True)
class _Kinds:
    """Which operators, and ways of looking, all layers of both models have."""

    attention: bool
    mlp: bool
    gate: bool


def _common_kinds(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str]) -> _Kinds:
    both = [(sides.a, layer) for layer in layers_a] + [(sides.b, layer) for layer in layers_b]
    return _Kinds(
        attention=all(attention_slots(side.anatomy, layer) is not None for side, layer in both),
        mlp={_whole(side, layer) for side, layer in both} in ({"one MLP"}, {"all experts"}),
        gate=all(gated(side.anatomy, blocks(side.anatomy, layer)[0]) for side, layer in both),
    )


def _whole(side: Side, layer: str) -> str:
    """What the operators of a layer's MLPs are made of: those of one kind may be compared, but not parts of any."""
    if common_block(side.anatomy, layer) is not None:
        return "one MLP"
    return "all experts" if side.small else "in part"


def _looked_at(side: Side, layer: str) -> list[Block]:
    """The neurons by which a layer is recognised: those that all tokens share, or those of its experts."""
    common, known = common_block(side.anatomy, layer), blocks(side.anatomy, layer)
    if common is not None:
        return [common]
    return known if side.small else known[:1]


def _all_described(
    sides: Sides, side: Side, layers: Sequence[str], kinds: _Kinds, most: int | None, step: Step
) -> dict[str, Described]:
    found = {}
    for layer in layers:
        step(f"describing the neurons of layer {layer} by their own layer")
        if _whole(side, layer) == "in part":
            sides.note(FIRST_EXPERT)
        try:
            found[layer] = _described(sides, side, layer, kinds, most)
        except Unfit as reason:
            sides.note(str(reason))
    return found


def _described(sides: Sides, side: Side, layer: str, kinds: _Kinds, most: int | None) -> Described:
    inside = _looked_at(side, layer)
    operators = _operators(side.anatomy, layer, inside, kinds, sides.rng)
    if not operators:
        raise Unfit(NO_OPERATOR)
    few = None if most is None else max(LEAST_OF_A_BLOCK, most // len(inside))
    spans = [None if few is None else span(side.anatomy, block, few) for block in inside]
    rows = [side.views(block, part, kinds.gate)[:2] for block, part in zip(inside, spans, strict=True)]
    return Described(
        views=tuple(scored(local_signatures(np.concatenate(view), operators)) for view in zip(*rows, strict=True)),
        blocks=tuple((block, part, len(view[0])) for block, part, view in zip(inside, spans, rows, strict=True)),
    )


def _operators(
    anatomy: Anatomy, layer: str, inside: Sequence[Block], kinds: _Kinds, rng: np.random.Generator
) -> list[Operator]:
    factors = attention(anatomy, layer) if kinds.attention else None
    found = [operator(each, rng) for each in factors or ()]
    if kinds.mlp:
        own = mlp_operators(_together([neurons(anatomy, block) for block in inside]), rng)
        found += own if kinds.gate else own[:1]
    return found


def _together(parts: Sequence[Neurons]) -> Neurons:
    """What all experts write for what they read does not depend on their numbers."""
    gates = [part.gate for part in parts if part.gate is not None]
    return Neurons(
        gate=np.concatenate(gates) if len(gates) == len(parts) else None,
        up=np.concatenate([part.up for part in parts]),
        down=np.concatenate([part.down for part in parts]),
    )


def recognised(sides: Sides, a: Described, b: Described) -> list[tuple[BlockPair, Choice]]:
    """The neurons of two layers matched by signature, block by block: of two sets of experts those that fit best."""
    choice = by_signature(a.views, b.views, sides.rng)
    pairs = {
        (i, j): Choice(tuple(_within(view[slice(*theirs)], mine) for view in choice.views))
        for i, mine in enumerate(a.spans())
        for j, theirs in enumerate(b.spans())
    }
    if len(a.blocks) > 1 and len(b.blocks) > 1:
        votes = np.array([[pairs[i, j].two.sum() for i in range(len(a.blocks))] for j in range(len(b.blocks))])
        chosen = assigned(votes.astype(np.float64), sides.rng)
        pairs = {(i, j): pairs[i, j] for j, i in enumerate(chosen.tolist()) if i >= 0}
    return [(BlockPair(a.blocks[i][0], b.blocks[j][0], None, b.blocks[j][1]), found) for (i, j), found in pairs.items()]


def _within(chosen: NDArray[np.intp], of: Span) -> NDArray[np.intp]:
    """Choices inside a span, counted from its start; -1 for those outside."""
    return np.where((chosen >= of[0]) & (chosen < of[1]), chosen - of[0], -1)
