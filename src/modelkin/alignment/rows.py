"""May the neurons of a model be recognised by chance alone? Two things that a formula leaves in their rows.

Ways of looking that are one: where what opens a neuron and what it reads hold the same numbers, two looks agree on
whatever they choose. Rows that hold nearly all of their size in few places: identities, bands, blocks and masks tell
which row is which by where it reads. Either makes strangers recognise each other if both have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Neurons, Unfit, blocks, neurons
from modelkin.alignment.sides import evenly, unit
from modelkin.architectures import Anatomy

Floats = NDArray[np.float32]
LAYERS, ROWS = 4, 256
LARGEST = 8  # one part in so many of a row: of normal numbers it holds less than half of the size
TIED, FEW_PLACES = 0.6, 0.8  # trained models have 0.1 to 0.35, and 0.5


@dataclass(frozen=True)
class RowFacts:
    """Medians over the neurons of some layers: cosine of the two looks, and size in the largest places of a row."""

    tied: float
    few_places: float

    @property
    def tells_by_chance(self) -> bool:
        return self.tied > TIED or self.few_places > FEW_PLACES


def row_facts(anatomy: Anatomy) -> RowFacts | None:
    """None where nothing could be read."""
    found = [facts for layer in evenly(list(anatomy.layers), LAYERS) if (facts := _of_layer(anatomy, layer))]
    if not found:
        return None
    return RowFacts(float(np.median([f.tied for f in found])), float(np.median([f.few_places for f in found])))


def _of_layer(anatomy: Anatomy, layer: str) -> RowFacts | None:
    known = blocks(anatomy, layer)
    if not known:
        return None
    try:
        rows = neurons(anatomy, known[0], (0, min(ROWS, anatomy.shape(known[0].slots()[1])[0])))
    except Unfit:
        return None
    return RowFacts(_tied(rows), max(_few_places(part) for part in (rows.gate, rows.up) if part is not None))


def _tied(rows: Neurons) -> float:
    """Of what the two ways of looking read: gate and up, or, without a gate, up and down."""
    first, second = (rows.up, rows.down) if rows.gate is None else (rows.gate, rows.up)
    return float(np.median(np.abs(np.einsum("ij,ij->i", unit(first), unit(second)))))


def _few_places(rows: Floats) -> float:
    sizes = np.sort(rows.astype(np.float64) ** 2, axis=1)[:, ::-1]
    whole = sizes.sum(axis=1)
    held = sizes[:, : max(1, rows.shape[1] // LARGEST)].sum(axis=1)
    return float(np.median(np.divide(held, whole, out=np.zeros_like(whole), where=whole > 0)))
