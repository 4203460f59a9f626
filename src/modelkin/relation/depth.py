"""Layers repeated, left out or put in between, by the layer map and by what the layers without a counterpart are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from modelkin.records import Kind, Role, Slot
from modelkin.relation.inheritance import rows_found
from modelkin.relation.reading import Floats, LayerMap, Weights, in_layer

ROWS = 64
FEWEST_FOUND = 8  # of 64 rows; between two layers of any model about one is found
ALIKE, SOME = 0.6, 0.25  # cosine of what two neurons write, and share of neurons that have such a double


@dataclass(frozen=True)
class Depth:
    """A change of depth, and which of the two was made by it, if one can be told."""

    kind: Kind
    child: str  # "a" or "b"
    why: str
    tells_order: bool = True


def depth_change(
    a: Weights, b: Weights, layers: LayerMap, rng: np.random.Generator, renumbered: bool = False
) -> Depth | None:
    """None where every layer has one counterpart, or where too little is known.

    `renumbered`: neurons may stand in another order in every layer, so doubles are looked for at any place.
    """
    used = Counter(name for _, name in layers if name is not None)
    repeated = sum(count - 1 for count in used.values())
    alone_a = [name for name in a.layers if name not in used]
    facing = dict(layers)  # without the layers of b of which nothing is known: they were not left out
    alone_b = [name for name in b.layers if facing.get(name) is None]
    if repeated:
        why = f"{_layers(repeated)} of B continue{'s' * (repeated == 1)} a layer of A that another continues too"
        # Layers of b that a lacks, or the reverse, are those of siblings.
        return Depth("depth-upscale", "b", why, tells_order=not alone_a and not alone_b)
    if not used or bool(alone_a) == bool(alone_b):
        return None
    weights, alone, child = (a, alone_a, "a") if alone_a else (b, alone_b, "b")
    doubled = [
        name for name in alone if _has_double(weights, name, rng) or (renumbered and _writes_alike(weights, name))
    ]
    if len(doubled) * 2 >= len(alone):
        verb = "is a double" if len(doubled) == 1 else "are doubles"
        return Depth("depth-upscale", child, f"{_layers(len(doubled))} of {child.upper()} {verb} of others of its own")
    other = "b" if child == "a" else "a"
    one, less = child.upper(), other.upper()
    why = f"{one} has {_layers(len(alone))} that {less} lacks: left out in {less}, or put in between in {one}"
    return Depth("depth-prune", other, why, tells_order=False)


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def _has_double(weights: Weights, name: str, rng: np.random.Generator) -> bool:
    """Whether rows of this layer stand in another layer of the same model, at their own places."""
    up = in_layer(Slot(Role.UP), name)
    if up not in weights.slots:
        return False
    rows = weights.read(up, slice(0, ROWS))
    for other in weights.layers:
        slot = in_layer(Slot(Role.UP), other)
        if other == name or slot not in weights.slots or weights.shape(slot) != weights.shape(up):
            continue
        if rows_found(weights.read(slot, slice(0, ROWS)), rows, Role.UP, rng)[1] >= FEWEST_FOUND:
            return True
    return False


def _writes_alike(weights: Weights, name: str) -> bool:
    """Whether another layer of the model has neurons that write what neurons of this one do, at whatever place.

    What they write is left alone by gains and, but for its size, by whoever scales neurons.
    """
    down = in_layer(Slot(Role.DOWN), name)
    if down not in weights.slots:
        return False
    mine = _directions(weights.read(down))[:ROWS]
    for other in weights.layers:
        slot = in_layer(Slot(Role.DOWN), other)
        if other == name or slot not in weights.slots or weights.shape(slot) != weights.shape(down):
            continue
        best = np.abs(mine @ _directions(weights.read(slot)).T).max(axis=1)
        if float(np.mean(best > ALIKE)) > SOME:
            return True
    return False


def _directions(down: Floats) -> Floats:
    """Columns of a matrix as unit rows."""
    size = np.linalg.norm(down, axis=0)
    return np.asarray((down / np.where(size > 0, size, 1)).T)
