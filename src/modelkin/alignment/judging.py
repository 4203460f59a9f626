"""Layers judged by rotations that others taught: how many neurons do two, or three, ways of looking agree on?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.alignment.banks import experts_by_rotation
from modelkin.alignment.folding import Unfit
from modelkin.alignment.layer_maps import Shown, layer_map
from modelkin.alignment.matching import Choice, Rotation, by_rotation, likeness
from modelkin.alignment.sides import LEAST_OF_A_BLOCK, MOST_NEURONS, BlockPair, Sides
from modelkin.alignment.teaching import LayerPair, Taught
from modelkin.stats.layer_path import ALPHA
from modelkin.stats.rencontres import log_total_tail

Step = Callable[[str], None]
LN10 = math.log(10)


@dataclass(frozen=True)
class HeldOut:
    """A layer of b beside one of a, judged by a rotation that neither taught.

    Of all neurons in blocks of these `sizes` two ways of looking agreed on `two`, three on `three` (0 where there are
    but two); of experts beside one MLP these are means, as if of one block. `likeness` is the median |cosine| of
    neurons with the ones they chose, `chance` what the best of so many random directions has. This layer of a was the
    best of `tried`.
    """

    a: str
    b: str
    sizes: tuple[int, ...]
    two: int
    three: int
    likeness: float
    chance: float
    tried: int = 1

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def log10_pvalue(self) -> float:
        """Of `two`, if ways of looking at strangers chose apart from each other: then one of a block agrees.

        Real strangers come close to that, and no nearer: it ranks, and the controls decide.
        """
        return log_total_tail(self.sizes, self.two) / LN10


@dataclass(frozen=True, eq=False)
class Cell:
    """What one layer of a and one of b showed, block by block."""

    found: HeldOut
    rotation: Rotation
    blocks: tuple[tuple[BlockPair, Choice], ...]
    experts: tuple[tuple[int, int], ...] | None

    @property
    def shown(self) -> Shown:
        return Shown(self.found.log10_pvalue, (self.found.two + self.found.three) / max(1, self.found.n))


@dataclass(frozen=True, eq=False)
class Judged:
    """The layer of a that every layer of b continues, or None; what every layer of b showed, at its best."""

    layers: tuple[tuple[str, str | None], ...]
    held_out: tuple[HeldOut, ...]
    cells: tuple[Cell, ...]  # of the layers that were found

    @property
    def found(self) -> bool:
        return bool(self.cells)

    @property
    def agreed(self) -> int:
        """Neurons recognised in layers that were found."""
        return sum(cell.found.two for cell in self.cells)

    @property
    def plain(self) -> bool:
        """Whether every layer is its counterpart's beyond what layers of one model share with each other."""
        return self.found and all(found.two >= NEIGHBOURLY * found.n for found in self.held_out)


def judge(
    sides: Sides, taught: Sequence[Taught], facing: Sequence[LayerPair], every: bool, names: LayerNames, step: Step
) -> Judged:
    """Facing layers first. Layers of b that these do not explain are tried with every layer of a, where it makes sense.

    That is where some other layer was found, or where nobody knows what faces what (`every`).
    """
    cells = {pair: cell for pair in facing if (cell := judged(sides, pair, taught, MOST_NEURONS, step)) is not None}
    lost = {b for _, b in facing} - {b for (_, b), cell in cells.items() if _clear(cell)}
    if every or (lost and any(_clear(cell) for cell in cells.values())):
        more = [(a, b) for a in names[0] for b in names[1] if (every or b in lost) and (a, b) not in cells]
        most = LEAST_OF_A_BLOCK if len(more) > MANY_CELLS else MOST_NEURONS
        cells |= {pair: cell for pair in more if (cell := judged(sides, pair, taught, most, step)) is not None}
    return _mapped(sides, cells, taught, names, step)


LayerNames = tuple[Sequence[str], Sequence[str]]
NEIGHBOURLY = 0.25  # of the neurons of a layer: neighbours in one model share a seventh at most
MANY_CELLS = 128  # more are looked at by few neurons first


def judged(sides: Sides, pair: LayerPair, taught: Iterable[Taught], most: int, step: Step) -> Cell | None:
    """By the rotation with most anchors among those that neither layer taught; None where there is no such."""
    fair = [each for each in taught if pair[0] not in each.a and pair[1] not in each.b]
    if not fair:
        return None
    step(f"judging layer {pair[1]} beside {pair[0]}")
    try:
        return judged_by(sides, pair, max(fair, key=lambda each: each.anchors).rotation, most)
    except Unfit as reason:
        sides.note(str(reason))
        return None


def judged_by(sides: Sides, pair: LayerPair, rotation: Rotation, most: int = MOST_NEURONS) -> Cell:
    experts = experts_by_rotation(sides, pair, rotation)
    blocks = [(block, by_rotation(sides, block, rotation)) for block in sides.paired(*pair, experts, most)]
    cosines = np.concatenate([likeness(sides, block, rotation, choice) for block, choice in blocks])
    searched = max(sides.a.anatomy.shape(block.a.slots()[1])[0] for block, _ in blocks)
    sizes, two, three = _counted(blocks)
    found = HeldOut(
        a=pair[0],
        b=pair[1],
        sizes=sizes,
        two=two,
        three=three,
        likeness=float(np.median(cosines)) if cosines.size else 0.0,
        chance=min(1.0, math.sqrt(2 * math.log(2 * searched) / rotation.shape[0])),
    )
    return Cell(found, rotation, tuple(blocks), None if experts is None else tuple(experts))


def _counted(blocks: Sequence[tuple[BlockPair, Choice]]) -> tuple[tuple[int, ...], int, int]:
    """Sizes of the blocks, and the neurons on which two and three ways of looking agree.

    Experts beside one MLP may be copies of each other: what chance shows one of them it shows all, and their counts
    must not be added up. They count as one block, at their mean.
    """
    sizes = tuple(choice.asked for _, choice in blocks)
    two = sum(int(choice.two.sum()) for _, choice in blocks)
    three = sum(int(choice.three.sum()) for _, choice in blocks)
    if all((pair.a.expert < 0) == (pair.b.expert < 0) for pair, _ in blocks):
        return sizes, two, three
    return (sum(sizes) // len(sizes),), two // len(sizes), three // len(sizes)


def _clear(cell: Cell) -> bool:
    return cell.found.log10_pvalue <= ALPHA


def _mapped(
    sides: Sides, cells: dict[LayerPair, Cell], taught: Sequence[Taught], names: LayerNames, step: Step
) -> Judged:
    """The likeliest way through the cells. Layers chosen from many by few neurons are judged again by more."""
    shown = [b for b in names[1] if any(pair[1] == b for pair in cells)]
    path = layer_map({pair: cell.shown for pair, cell in cells.items()}, names[0], shown)
    layers, held_out, kept = [], [], []
    for b, a in zip(shown, path, strict=True):
        column = {pair: cell for pair, cell in cells.items() if pair[1] == b}
        pair = max(column, key=lambda p: column[p].found.two) if a is None else (a, b)
        cell = column[pair]
        if len(column) > 1 and cell.found.n < MOST_NEURONS and len(cells) > MANY_CELLS:
            cell = judged(sides, pair, taught, MOST_NEURONS, step) or cell
        layers.append((b, a))
        held_out.append(HeldOut(**{**vars(cell.found), "tried": len(column)}))
        kept += [] if a is None else [cell]
    return Judged(tuple(layers), tuple(held_out), tuple(kept))


def completed(sides: Sides, judged: Judged, rotation: Rotation, tried: Sequence[LayerPair], step: Step) -> Judged:
    """The same, and the layers of b that found nobody because the layers to judge them by could not teach.

    Layers that were found give a rotation, and it shows what else belongs together. That is a map and no evidence: what
    was held out, and counts, stays as it was.
    """
    lost = {b for b, a in judged.layers if a is None}
    if not judged.cells or not lost:
        return judged
    cells = {(cell.found.a, cell.found.b): cell for cell in judged.cells}
    for pair in tried:
        if pair[1] in lost:
            step(f"looking at layer {pair[1]} beside {pair[0]} again")
            try:
                cells[pair] = judged_by(sides, pair, rotation)
            except Unfit as reason:
                sides.note(str(reason))
    names = [b for b, _ in judged.layers]
    path = layer_map(
        {pair: cell.shown for pair, cell in cells.items()}, list(dict.fromkeys(a for a, _ in tried)), names
    )
    layers = tuple(zip(names, path, strict=True))
    return Judged(layers, judged.held_out, tuple(cells[a, b] for b, a in layers if a is not None))
