"""The way of b's layers through those of a, by what any two of them showed under one rotation.

Layers of one model are no strangers to each other: under a true rotation a layer shares up to a seventh of its neurons
with its neighbours, in models without gates, and no chance explains that. It is not what a continued layer shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.stats import holm
from modelkin.stats.layer_path import cell_scores, layer_path

LayerPair = tuple[str, str]  # a layer of a, a layer of b
RIVAL = 0.75  # of what the best layer of a shows for one of b: less, and the order of layers must not decide for it
CONTINUED = 0.25  # of what the surest two layers show: less is what neighbours share


@dataclass(frozen=True)
class Shown:
    """How sure two layers are (log10 p), and how alike: agreed on by two ways, and by three, as shares, added up."""

    log10_pvalue: float
    alike: float


def layer_map(cells: Mapping[LayerPair, Shown], a: Sequence[str], b: Sequence[str]) -> list[str | None]:
    """For every layer of b the layer of a that it continues, or None. Cells that were not looked at count for none."""
    if not a or not b:
        return [None] * len(b)
    adjusted = dict(zip(cells, holm([shown.log10_pvalue for shown in cells.values()]), strict=True))
    scores = cell_scores([adjusted.get((x, y), 0.0) for x in a for y in b], len(a))
    alike = np.array([[cells[x, y].alike if (x, y) in cells else 0.0 for y in b] for x in a])
    alike[np.isneginf(scores)] = 0.0
    weak = (alike < RIVAL * alike.max(axis=0)) | (alike < CONTINUED * alike.max())
    path = layer_path(np.where(weak, -np.inf, scores))
    return [None if place is None else a[place] for place in path]
