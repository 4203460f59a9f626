"""An alignment in the words and numbers that a record keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np

from modelkin.alignment.aligning import Alignment
from modelkin.alignment.folding import router
from modelkin.alignment.heads import HeadMap
from modelkin.alignment.judging import HeldOut
from modelkin.alignment.matching import Choice, turned
from modelkin.alignment.sides import BlockPair, unit
from modelkin.alignment.tokens import ByTokens
from modelkin.records import Json

Order = Literal["identity", "permutation", "subset", "none"]
IN_PLACE = 0.9  # share of those found that must stand at their own number
SHUFFLED = 0.25  # of steps that go down: half of them where chance numbered, none where nobody did
STANDS_ELSEWHERE = 0.25
SAME_VALUES = 0.5  # of the way from chance to all
FEWEST_RECOGNISED = 16
ROUTED_ALIKE = 0.3  # cosine; routers are trained on by the side of their experts and keep more than that


def summary(alignment: Alignment) -> Json:
    """For `Comparison.alignment`. Every number stands beside what it would be between strangers."""
    return {
        "route": alignment.route,
        "hidden": alignment.hidden,
        "neurons": neuron_order(alignment),
        "heads": head_order(alignment),
        "experts": expert_order(alignment),
        "layers": layer_order(alignment),
        "layer_map": [list(pair) for pair in alignment.layers],
        "held_out": {
            "layers": [_layer(found) for found in alignment.held_out],
            "strangers": "two ways of looking agree on about one neuron of a block, three on none; of so many random "
            "directions the best has about the cosine given as chance",
        },
        "tokens": None if alignment.tokens is None else _tokens(alignment.tokens),
        "reasons": list(alignment.reasons),
    }


def disguises(alignment: Alignment) -> tuple[str, ...]:
    """What of b had to be put back to find a in it, in words; empty where everything stands in its place.

    Said only of what was recognised and stands elsewhere. Layers dropped or repeated in their order are a change of
    shape and no disguise, and so are axes or neurons left out of theirs. Nor are gains moved into matrices, neurons
    scaled and values mixed inside heads: quantisers do that in good faith.
    """
    said = (
        _hidden_words(alignment),
        "neurons renumbered" if _neurons_moved(alignment) else "",
        "heads renumbered" if _heads_moved(alignment) else "",
        "experts renumbered" if _experts_moved(alignment) else "",
        "layers moved" if steps_back(alignment.layers, alignment.a.layers) else "",
    )
    return tuple(filter(None, said))


def _hidden_words(alignment: Alignment) -> str:
    rotation = alignment.rotation
    if rotation is None or alignment.hidden == "identity":
        return ""
    if alignment.hidden == "rotation":
        return "hidden axes are a rotation of A's"
    if alignment.hidden == "rectangular":
        narrowed = rotation.shape[1] < rotation.shape[0]
        return f"hidden axes are a rotation of {'some of A' if narrowed else 'A'}'s{'' if narrowed else ' and others'}"
    rows, columns = np.nonzero(rotation)
    moved = _shuffled(rows[np.argsort(columns)])
    signs = "signs of hidden axes flipped" if bool((rotation < 0).any()) else ""
    return " and ".join(filter(None, ("hidden axes renumbered" if moved else "", signs)))


def _shuffled(places: np.ndarray) -> bool:
    """Whether numbers do not ascend: of numbers in an order of chance every second is below the one before it."""
    return len(places) > 1 and float(np.mean(np.diff(places) < 0)) > SHUFFLED


def _neurons_moved(alignment: Alignment) -> bool:
    """In some layer: those recognised are out of their order. Experts cut from one MLP are dealt what they get."""
    return any(
        _shuffled(choice.views[0][np.flatnonzero(choice.two)])
        for cell in alignment.cells
        for pair, choice in cell.blocks
        if int(choice.two.sum()) >= FEWEST_RECOGNISED and not _cut(alignment, pair)
    )


def _cut(alignment: Alignment, pair: BlockPair) -> bool:
    sizes = alignment.a.shape(pair.a.slots()[1])[0], alignment.b.shape(pair.b.slots()[1])[0]
    return max(pair.a.expert, pair.b.expert) >= 0 and sizes[0] != sizes[1]


def _heads_moved(alignment: Alignment) -> bool:
    """Of those on which two ways of looking agree, a quarter at least stands elsewhere, whichever the others are.

    Of few heads two ways agree on half by chance: what they write must be the same, too.
    """
    if not alignment.heads or median(_alike(m) for m in alignment.heads) < SAME_VALUES:
        return False
    found = [(m.heads, m.heads_agreed) for m in alignment.heads] + [
        (m.groups, m.groups_agreed) for m in alignment.heads
    ]
    if head_order(alignment) not in ("permutation", "subset"):
        return False
    agreed = sum(count for _, count in found)
    in_place = sum(there == here for order, _ in found for here, there in enumerate(order))
    same = all(len(m.heads) == max(m.heads, default=-1) + 1 for m in alignment.heads)
    return same and agreed - in_place >= STANDS_ELSEWHERE * agreed > 0


def _alike(found: HeadMap) -> float:
    """How much of the value space of a group is that of its counterpart: 0 by chance, 1 if all."""
    return (found.overlap - found.chance) / max(1e-9, 1 - found.chance)


def _experts_moved(alignment: Alignment) -> bool:
    """In some layer an expert is recognised under another number: by its router row and by most of its neurons.

    Neurons alone do not tell: experts that are copies of one MLP are recognised in each other.
    """
    if alignment.a.facts.experts != alignment.b.facts.experts:
        return False
    return any(
        pair.a.expert != pair.b.expert
        and min(pair.a.expert, pair.b.expert) >= 0
        and 2 * choice.two.sum() > choice.asked
        and _routed_alike(alignment, pair)
        for cell in alignment.cells
        for pair, choice in cell.blocks
    )


def _routed_alike(alignment: Alignment, pair: BlockPair) -> bool:
    """Whether the router rows of two experts agree: between strangers the best of a few hundred has 4 / √d."""
    left, right = router(alignment.a, pair.a.layer), router(alignment.b, pair.b.layer)
    if left is None or right is None or alignment.rotation is None:
        return False
    mine, theirs = unit(left)[pair.a.expert], turned(unit(right), alignment.rotation)[pair.b.expert]
    return float(mine @ theirs) > max(ROUTED_ALIKE, 4 / math.sqrt(len(mine)))


def steps_back(layers: Sequence[tuple[str, str | None]], names: Sequence[str]) -> bool:
    """The way steps back to a layer of a that it had left out. Back to one that it passed is a repetition.

    layers: (layer of b, layer of a or None) in the order of b; `names`: the layers of a in theirs.
    """
    place = {name: i for i, name in enumerate(names)}
    way = [place[a] for _, a in layers if a is not None]
    return any(there < here and there not in way[:i] for i, (here, there) in enumerate(pairwise(way), start=1))


def neuron_order(alignment: Alignment) -> Order:
    """How the neurons of b stand beside those of a, inside the layers that were found."""
    pairs = [(block, choice) for cell in alignment.cells for block, choice in cell.blocks]
    if not pairs:
        return "none"
    places = np.concatenate([_in_place(block, choice) for block, choice in pairs])
    if places.size and float(np.mean(places)) >= IN_PLACE:
        return "identity"
    sizes = {(alignment.a.shape(p.a.slots()[1])[0], alignment.b.shape(p.b.slots()[1])[0]) for p, _ in pairs}
    return "permutation" if all(mine == theirs for mine, theirs in sizes) else "subset"


def _in_place(pair: BlockPair, choice: Choice) -> np.ndarray:
    agreed = np.flatnonzero(choice.two)
    mine, theirs = pair.span_a or (0, 0), pair.span_b or (0, 0)
    return np.asarray(choice.views[0][agreed] + mine[0] == agreed + theirs[0])


def head_order(alignment: Alignment) -> Order:
    """How its heads do. None where fewer than half of them are recognised by what they ask and what they write."""
    asked, agreed = sum(len(m.heads) for m in alignment.heads), sum(m.heads_agreed for m in alignment.heads)
    if not asked or 2 * agreed < asked:
        return "none"
    orders = [order for found in alignment.heads for order in (found.groups, found.heads)]
    if any(-1 in order for order in orders):
        return "subset"
    return "identity" if all(order == tuple(range(len(order))) for order in orders) else "permutation"


def expert_order(alignment: Alignment) -> Literal["identity", "permutation", "subset", "one MLP", "none"]:
    """How its experts do; `one MLP` where those of one model continue the MLP of the other."""
    pairs = [block for cell in alignment.cells for block, _ in cell.blocks]
    if any((pair.a.expert < 0) != (pair.b.expert < 0) for pair in pairs):
        return "one MLP"
    maps = [cell.experts for cell in alignment.cells if cell.experts is not None]
    if not maps:
        return "none"
    if alignment.a.facts.experts != alignment.b.facts.experts:
        return "subset"
    return "identity" if all(a == b for found in maps for a, b in found) else "permutation"


def layer_order(alignment: Alignment) -> Literal["identity", "moved", "none"]:
    if not alignment.found:
        return "none"
    same = all(a is None or a == b for b, a in alignment.layers)
    return "identity" if same and len(alignment.a.layers) == len(alignment.b.layers) else "moved"


def _layer(found: HeldOut) -> Json:
    return {
        "a": found.a,
        "b": found.b,
        "n": found.n,
        "blocks": len(found.sizes),
        "two": found.two,
        "three": found.three,
        "likeness": round(found.likeness, 4),
        "chance": round(found.chance, 4),
        "tried": found.tried,
    }


def _tokens(found: ByTokens) -> Json:
    return {
        "n": found.n,
        "held_out": round(found.held_out, 4),
        "chance": round(found.chance, 4),
        "spread": round(found.spread, 4),
        "axes": round(found.axes, 4),
        "strangers": "tokens that mean the same stand alike in unrelated models too: 0.6 to 0.7 in small ones trained "
        "on the same text, so this tells how the stream was turned and is no evidence by itself",
    }
