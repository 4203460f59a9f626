"""An alignment in the words and numbers that a record keeps."""

from __future__ import annotations

from typing import Literal

import numpy as np

from modelkin.alignment.aligning import Alignment
from modelkin.alignment.judging import HeldOut
from modelkin.alignment.matching import Choice
from modelkin.alignment.sides import BlockPair
from modelkin.alignment.tokens import ByTokens
from modelkin.records import Json

Order = Literal["identity", "permutation", "subset", "none"]
IN_PLACE = 0.9  # share of those found that must stand at their own number


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
