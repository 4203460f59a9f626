"""How a rotation is come by: from layers side by side, or, where nobody knows what faces what, from any two layers.

Both give two rotations, each taught by some layers and to be judged on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelkin.alignment.banks import Bank, Step, attention_bank, experts_by_rotation, mlp_bank, side_by_side
from modelkin.alignment.folding import Unfit
from modelkin.alignment.layer_maps import Shown, layer_map
from modelkin.alignment.matching import Choice, by_rotation
from modelkin.alignment.scanning import NO_OPERATOR, Scan, recognised, scanned
from modelkin.alignment.sides import LEAST_OF_A_BLOCK, MOST_NEURONS, BlockPair, Sides
from modelkin.alignment.teaching import Found, LayerPair, Taught, asked, teach, teach_together

ENOUGH_OPERATORS = 48  # with fewer, operators of MLPs join those of attention
RECOGNISED = 0.25  # of the neurons that teach: fewer are next to nobody
NOT_TOGETHER = "neurons were not matched by all of their rows together: it would take long in models of this size"


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
        taught = _taught(sides, fold, banks, step)
        found += [] if taught is None else [taught]
    return found


def _taught(sides: Sides, fold: Sequence[LayerPair], banks: Sequence[Bank], step: Step) -> Taught | None:
    """By ways of looking apart; and where next to nobody is recognised so, by all together.

    Which of the two is believed is settled here, by the layers that teach, so what will be judged has no part in it.
    The second has a chance of its own: where it shows nothing, all is as if it had not been tried.
    """
    found = side_by_side(sides, fold, banks, step)
    taught = teach(sides, found)
    enough = RECOGNISED * asked(found)
    if taught is None or taught.anchors >= enough:
        return taught
    if not (sides.a.small and sides.b.small):
        sides.note(NOT_TOGETHER)
        return taught
    apart = replace(sides, rng=sides.rng.spawn(1)[0])
    second = teach_together(apart, side_by_side(apart, fold, banks, step, together=True))
    return taught if second is None or second.anchors < enough else second


def scanning_route(sides: Sides, layers_a: Sequence[str], layers_b: Sequence[str], step: Step) -> list[Taught]:
    """Any two layers: the surest cell gives a rotation, and that a map of the layers, which says who may teach whom.

    Layers of both models are then parted in two along the map, and each part teaches from its own surest cell, without
    anything of the other.
    """
    scan = scanned(sides, layers_a, layers_b, step)
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


def _from_cell(sides: Sides, scan: Scan, cell: LayerPair) -> Taught | None:
    return teach(sides, {cell: recognised(sides, scan.a[cell[0]], scan.b[cell[1]])})


def _map_under(sides: Sides, taught: Taught, scan: Scan, step: Step) -> list[LayerPair]:
    """Layers that a rotation sets beside each other beyond doubt. No evidence: it says who must not judge whom."""
    cells = {}
    for a in scan.a:
        step(f"looking for layer {a}")
        for b in scan.b:
            try:
                found = _seen(sides, (a, b), taught, LEAST_OF_A_BLOCK)
            except Unfit as reason:
                sides.note(str(reason))
                continue
            asked, agreed = sum(c.asked for _, c in found), sum(int(c.two.sum()) for _, c in found)
            cells[a, b] = Shown(min(choice.log10_pvalue for _, choice in found), agreed / max(1, asked))
    path = layer_map(cells, list(scan.a), list(scan.b))
    return [(a, b) for b, a in zip(scan.b, path, strict=True) if a is not None]


def _seen(sides: Sides, pair: LayerPair, taught: Taught, most: int) -> list[tuple[BlockPair, Choice]]:
    experts = experts_by_rotation(sides, pair, taught.rotation)
    return [(block, by_rotation(sides, block, taught.rotation, 2)) for block in sides.paired(*pair, experts, most)]


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
    found: Found = {pair: _seen(sides, pair, taught, MOST_NEURONS) for pair in pairs}
    better = teach(sides, found) if found else None
    if better is None or better.anchors <= taught.anchors:
        return taught
    return Taught(better.rotation, better.a | taught.a, better.b | taught.b, better.anchors)
