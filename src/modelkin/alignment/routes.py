"""How a rotation is come by: from layers side by side, or, where nobody knows what faces what, from any two layers.

Both give two rotations, each taught by some layers and to be judged on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.banks import Bank, Step, attention_bank, common_block, mlp_bank, side_by_side
from modelkin.alignment.folding import Block, Unfit, attention, attention_slots, blocks, gated, neurons
from modelkin.alignment.matching import by_rotation, by_signature, scored
from modelkin.alignment.operators import Operator, local_signatures, mlp_operators, operator
from modelkin.alignment.sides import LEAST_OF_A_BLOCK, MOST_NEURONS, BlockPair, Side, Sides, span
from modelkin.alignment.teaching import Found, LayerPair, Taught, teach
from modelkin.architectures import Anatomy
from modelkin.stats import holm
from modelkin.stats.layer_path import cell_scores, layer_path

Floats = NDArray[np.float32]
ENOUGH_OPERATORS = 48  # with fewer, operators of MLPs join those of attention
NO_OPERATOR = "neither plain attention nor an MLP that all tokens share gives an operator to recognise neurons by"
SCANNED = 256  # neurons of a layer of b that are matched with those of every layer of a


def facing_route(
    sides: Sides, everywhere: Sequence[LayerPair], chosen: Sequence[LayerPair], step: Step
) -> list[Taught]:
    """Layers side by side: attention of all gives the operators, neurons of every second chosen layer a rotation.

    Operators of MLPs, where needed, are those of the teaching layers: what will be judged had no part.
    """
    bank = attention_bank(sides, everywhere, step)
    found = []
    for fold in (chosen[0::2], chosen[1::2]):
        banks: list[Bank] = [bank] if 2 * len(bank) >= ENOUGH_OPERATORS else [bank, mlp_bank(sides, fold)]
        if fold and not any(banks):
            sides.note(NO_OPERATOR)
        taught = teach(sides, side_by_side(sides, fold, banks, step))
        found += [] if taught is None else [taught]
    return found


@dataclass(frozen=True, eq=False)
class Scan:
    """Scored local signatures of every block, and how surely each two layers agree: log10 p, (layers a, layers b)."""

    a: dict[str, tuple[Floats, ...]]
    b: dict[str, tuple[Floats, ...]]
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


def scanning_route(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str], step: Step) -> list[Taught]:
    """Any two layers: the surest cell gives a rotation, and that a map of the layers, which says who may teach whom.

    Layers of both models are then parted in two along the map, and each part teaches from its own surest cell, without
    anything of the other.
    """
    scan = _scanned(sides, layers_a, layers_b, step)
    best = scan.best(layers_a, layers_b)
    if best is None:
        return []
    first = _from_cell(sides, scan, best)
    if first is None:
        return []
    pairs = _map_under(sides, first, scan, step)
    found = []
    for a, b in _parts(list(scan.a), list(scan.b), pairs):
        cell = scan.best(a, b)
        taught = None if cell is None else _from_cell(sides, scan, cell)
        if taught is not None:
            own = [pair for pair in pairs if pair[0] in a and pair[1] in b]
            found.append(_extended(sides, taught, own))
    return found


def _scanned(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str], step: Step) -> Scan:
    kinds = _common_kinds(sides, layers_a, layers_b)
    a = _described(sides, sides.a, layers_a, kinds, None, step)
    b = _described(sides, sides.b, layers_b, kinds, MOST_NEURONS, step)
    table = np.zeros((len(a), len(b)))
    for i, left in enumerate(a.values()):
        for j, right in enumerate(b.values()):
            some = [view[:SCANNED] for view in right]
            table[i, j] = by_signature(left, some, sides.rng).log10_pvalue
    return Scan(a, b, table)


@dataclass(frozen=True)
class _Kinds:
    """Which operators, and ways of looking, all layers of both models have."""

    attention: bool
    mlp: bool
    gate: bool


def _common_kinds(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str]) -> _Kinds:
    both = [(sides.a.anatomy, layer) for layer in layers_a] + [(sides.b.anatomy, layer) for layer in layers_b]
    return _Kinds(
        attention=all(attention_slots(anatomy, layer) is not None for anatomy, layer in both),
        mlp=all(common_block(anatomy, layer) is not None for anatomy, layer in both),
        gate=all(gated(anatomy, _block(anatomy, layer)) for anatomy, layer in both),
    )


def _block(anatomy: Anatomy, layer: str) -> Block:
    """The neurons by which a layer is recognised: those that all tokens share, or those of its first expert."""
    return common_block(anatomy, layer) or blocks(anatomy, layer)[0]


def _described(
    sides: Sides, side: Side, layers: Sequence[str], kinds: _Kinds, most: int | None, step: Step
) -> dict[str, tuple[Floats, ...]]:
    """Scored local signatures of every layer, by two ways of looking."""
    found = {}
    for layer in layers:
        step(f"describing the neurons of layer {layer} by their own layer")
        block = _block(side.anatomy, layer)
        try:
            operators = _operators(side.anatomy, block, kinds, sides.rng)
            if not operators:
                raise Unfit(NO_OPERATOR)
            views = side.views(block, None if most is None else span(side.anatomy, block, most), kinds.gate)[:2]
        except Unfit as reason:
            sides.note(str(reason))
            continue
        found[layer] = tuple(scored(local_signatures(view, operators)) for view in views)
    return found


def _operators(anatomy: Anatomy, block: Block, kinds: _Kinds, rng: np.random.Generator) -> list[Operator]:
    factors = attention(anatomy, block.layer) if kinds.attention else None
    found = [operator(each, rng) for each in factors or ()]
    if kinds.mlp:
        own = mlp_operators(neurons(anatomy, block), rng)
        found += own if kinds.gate else own[:1]
    return found


def _from_cell(sides: Sides, scan: Scan, cell: LayerPair) -> Taught | None:
    a, b = _block(sides.a.anatomy, cell[0]), _block(sides.b.anatomy, cell[1])
    pair = BlockPair(a, b, None, span(sides.b.anatomy, b, MOST_NEURONS))
    return teach(sides, {cell: [(pair, by_signature(scan.a[cell[0]], scan.b[cell[1]], sides.rng))]})


def _map_under(sides: Sides, taught: Taught, scan: Scan, step: Step) -> list[LayerPair]:
    """Layers that a rotation sets beside each other beyond doubt. No evidence: it says who must not judge whom."""
    found = []
    for a in scan.a:
        step(f"looking for layer {a}")
        for b in scan.b:
            blocks = sides.paired(a, b, None, LEAST_OF_A_BLOCK)
            found.append(min(by_rotation(sides, block, taught.rotation, ways=2).log10_pvalue for block in blocks))
    path = layer_path(cell_scores(holm(found), len(scan.a)))
    names = list(scan.a)
    return [(names[i], b) for b, i in zip(scan.b, path, strict=True) if i is not None]


def _parts(a: Sequence[str], b: Sequence[str], pairs: Sequence[LayerPair]) -> list[tuple[set[str], set[str]]]:
    """Both models' layers in two parts, such that layers beside each other fall in one."""
    found = list(dict.fromkeys(left for left, _ in pairs))
    rest = [name for name in a if name not in found]
    first = {*found[0::2], *rest[0::2]}
    continued = {right: left for left, right in pairs}
    new = [name for name in b if name not in continued]
    ours = {name for name in b if continued.get(name) in first} | set(new[0::2])
    return [(first, ours), (set(a) - first, set(b) - ours)]


def _extended(sides: Sides, taught: Taught, pairs: Sequence[LayerPair]) -> Taught:
    """The same rotation, better for what the other layers of its part add."""
    found: Found = {}
    for pair in pairs:
        blocks = sides.paired(*pair)
        found[pair] = [(block, by_rotation(sides, block, taught.rotation, ways=2)) for block in blocks]
    better = teach(sides, found) if found else None
    if better is None or better.anchors <= taught.anchors:
        return taught
    return Taught(better.rotation, better.a | taught.a, better.b | taught.b, better.anchors)
