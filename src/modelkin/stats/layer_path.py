"""The likeliest way of one model's layers through those of another: which layer does each continue? [Viterbi 1967]"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
CERTAIN = 40.0  # beyond this a cell is certain, and the order of the layers decides between certain ones
# In units of log10 p. A layer found is worth 6 or more and costs at most 5 to enter and to leave, so none is passed by.
ALPHA = -6.0
SKIP, BACK, NEW, DRIFT, MOST_DRIFT = 1.0, 1.5, 1.0, 0.01, 1.0


def cell_scores(log10_pvalues: Sequence[float], rows: int) -> Table:
    """(layers of a, layers of b): -log10 p, corrected for all cells already, where that may count, else -inf."""
    adjusted = np.array(log10_pvalues, dtype=np.float64)
    scores = np.where(adjusted <= ALPHA, np.minimum(-adjusted, CERTAIN), -np.inf)
    return np.asarray(scores.reshape(rows, -1), dtype=np.float64)


def layer_path(scores: Table) -> list[int | None]:
    """For every layer of b the layer of a that it continues, or None: the greatest score less the costs of the way."""
    costs = _costs(len(scores))
    gains = np.vstack([scores, np.zeros(scores.shape[1])])
    best, came = gains[:, 0], []
    for gain in gains[:, 1:].T:
        ways = best[:, None] - costs
        came.append(np.argmax(ways, axis=0))
        best = np.max(ways, axis=0) + gain
    states = [int(np.argmax(best))]
    for step in reversed(came):
        states.append(int(step[states[-1]]))
    return [state if state < len(scores) else None for state in reversed(states)]


def _costs(layers: int) -> Table:
    """From the layer that the one before continues, to the next: one on is free; the last state is a new layer."""
    ahead = np.arange(layers)[None, :] - np.arange(layers)[:, None] - 1
    drift = np.minimum(DRIFT * np.abs(ahead), MOST_DRIFT)
    costs = np.full((layers + 1, layers + 1), NEW)
    costs[:layers, :layers] = np.select([ahead > 0, ahead < 0], [SKIP + drift, BACK + drift], 0.0)
    costs[layers, layers] = 0.0
    return costs
