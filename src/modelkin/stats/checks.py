"""Do the assumptions hold? Statistics of one model that exchangeable indices would not show.

They are necessary and not sufficient: a model may pass and still have its axes pinned. Two-sided, drawn, for deciding
whether a question keeps its grade; `statistic` is the effect itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from modelkin.records import Null, Significance
from modelkin.stats.arrays import Floats, average_ranks, finite, rank_scores, unit_rows
from modelkin.stats.montecarlo import kept, stopped_pvalue

MOST_DRAWS = 9999  # p < 1e-3 must be well within reach


def hidden_autocorrelation(vectors: ArrayLike, rng: np.random.Generator, most: int = MOST_DRAWS) -> Significance:
    """Do neighbours on the hidden index resemble each other? Fixed position tables make them.  (vectors, d).

    The mean over vectors of the lag-1 autocorrelation of rank scores; its null permutes the hidden axes of all vectors
    together. Vectors without variance do not count.
    """
    scores = unit_rows(rank_scores(vectors))
    scores = np.ascontiguousarray(scores[np.any(scores != 0, axis=1)].T)
    if len(scores) < 3 or not scores.size:
        return _nothing("no vector with any variance over three hidden axes", len(scores))
    centre = -1 / len(scores)  # the mean of Σ z_i z_{i+1} over all orders, for Σz = 0 and Σz² = 1

    def statistic(rows: Floats) -> float:
        # Not a product of the linear algebra library: that wakes its threads for every draw, for too little work.
        return float(np.einsum("ij,ij->", rows[1:], rows[:-1]) / rows.shape[1]) - centre

    def draw() -> float:
        return statistic(np.take(scores, rng.permutation(len(scores)), axis=0))

    text = f"lag-1 rank autocorrelation along {len(scores)} hidden axes, permuted together"
    return _judged(statistic(scores), draw, most, text, len(scores))


def importance_order(layers: Sequence[ArrayLike], rng: np.random.Generator, most: int = MOST_DRAWS) -> Significance:
    """Are neurons sorted by size? Nested and pruned feed-forward layers are.  [(n, p), …], one matrix a layer.

    The mean over layers of the rank correlation (Spearman) of row norm and index; its null permutes the rows of every
    layer. A trend inside the rows that were read is seen; a step outside them is not.
    """
    norms = [np.linalg.norm(finite(rows, 2, "rows"), axis=1) for rows in layers]
    alive = [values for values in norms if values.size > 2 and np.ptp(values) > 0]
    if not alive:
        return _nothing("no layer with rows of different size", sum(values.size for values in norms))
    ranks = [unit_rows(average_ranks(values[None, :]))[0] for values in alive]
    order = [unit_rows(np.arange(values.size, dtype=np.float64)[None, :])[0] for values in alive]

    def statistic(sides: Sequence[Floats]) -> float:
        return math.fsum(float(a @ b) for a, b in zip(sides, order, strict=True)) / len(order)

    text = f"rank correlation of row norm and index, mean of {len(alive)} layers, rows permuted"
    size = sum(values.size for values in alive)
    return _judged(statistic(ranks), lambda: statistic([rng.permutation(side) for side in ranks]), most, text, size)


def _judged(observed: float, draw: Callable[[], float], most: int, text: str, n: int) -> Significance:
    signed: list[float] = []

    def size() -> float:
        signed.append(draw())
        return abs(signed[-1])

    p, _ = stopped_pvalue(abs(observed), size, most)
    null = Null(f"{text}: {len(signed)} draws, two-sided", kept(signed))
    return Significance(statistic=observed, log10_pvalue=math.log10(p), null=null, n=n, exact=False)


def _nothing(why: str, n: int) -> Significance:
    return Significance(statistic=0.0, log10_pvalue=0.0, null=Null(why), n=n, exact=False)
