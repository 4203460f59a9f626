"""Stacked layers: for every layer of one model the model and layer that it was taken from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelkin.records import Role, Slot
from modelkin.records.relation import Merge, MergeWeights
from modelkin.relation.reading import Floats, Weights, in_layer

ROWS = 64
NEAR = 0.5  # farthest that a layer may lie from its origin, beside its own size
CLEARLY = 0.5  # of the distance to any layer of the other sources
# Farthest that a layer may lie from where it was taken: rounding to bfloat16 leaves 0.0017. A child of a base that is
# given in part lies as near to that as a light training is long (0.012 in the zoo), and elsewhere to a sibling.
TAKEN = 0.003
Named = tuple[str, Weights]


def layer_origins(product: Named, sources: Sequence[Named]) -> Merge | None:
    """A passthrough: whole layers of two or more sources, each clearly nearer to one of them than to the others."""
    known = [(name, layer, rows) for name, w in sources for layer in w.layers if (rows := _rows(w, layer)) is not None]
    origins, distances = [], []
    for layer in product[1].layers:
        rows = _rows(product[1], layer)
        found = None if rows is None else _origin(rows, known)
        if found is None:
            return None
        origins.append((layer, found[0], found[1]))
        distances.append(found[2])
    names = tuple(name for name, _ in sources if any(name == origin for _, origin, _ in origins))
    if len(names) < 2 or max(distances) > TAKEN:
        return None
    shares = tuple(sum(name == origin for _, origin, _ in origins) / len(origins) for name in names)
    return Merge(
        merged=product[0],
        sources=names,
        method="passthrough",
        weights=shares,
        layers=tuple(
            MergeWeights(layer, tuple(float(name == origin) for name in names), distance)
            for (layer, origin, _), distance in zip(origins, distances, strict=True)
        ),
        gain=1.0,
        unexplained=float(np.mean(distances)),
        missing_parent=False,
        marks=("every layer is clearly nearer to a layer of one source than to any of the others",),
        origins=tuple(origins),
    )


def _rows(weights: Weights, layer: str) -> Floats | None:
    for role in (Role.UP, Role.O):
        for expert in (None, 0):
            slot = in_layer(Slot(role, expert=expert), layer)
            if slot in weights.slots:
                return weights.read(slot, slice(0, min(ROWS, weights.shape(slot)[0])))
    return None


def _origin(rows: Floats, known: Sequence[tuple[str, str, Floats]]) -> tuple[str, str, float] | None:
    size = float(np.linalg.norm(rows))
    near = sorted(
        (float(np.linalg.norm(rows - other)) / size, name, layer)
        for name, layer, other in known
        if other.shape == rows.shape
    )
    if not near or near[0][0] > NEAR:
        return None
    rivals = [distance for distance, name, _ in near if name != near[0][1]]
    if rivals and near[0][0] >= CLEARLY * rivals[0]:  # two that have the very layer are no clear origin either
        return None
    return near[0][1], near[0][2], near[0][0]
