"""Do the assumptions hold? Statistics of one model that exchangeable indices would not show.

They are necessary and not sufficient: a model may pass and still have its axes pinned. Two-sided, drawn, for deciding
whether a question keeps its grade; `statistic` is the effect itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from modelkin.records import Null, Significance
from modelkin.stats.arrays import Floats, Indices, average_ranks, finite, rank_scores, unit_rows
from modelkin.stats.montecarlo import kept, stopped_pvalue

MOST_DRAWS = 9999  # p < 1e-3 must be well within reach
INDEX_DRAWS, INDEX_ROWS = 1000, 64  # p < 1e-3 just within reach; rows of a set that are looked at
LAGS = (1, 2, 4, 8, 16)  # and half the width
REPEATED = 0.3  # median correlation of rows at equal index from which two sets of one model count as copies


def hidden_autocorrelation(vectors: ArrayLike, rng: np.random.Generator, most: int = MOST_DRAWS) -> Significance:
    """Do hidden axes at some distance resemble each other? Fixed position tables make them.  (vectors, d).

    The mean over vectors of the autocorrelation of rank scores, and of their squares: waves of any phase, and codes of
    a few large axes, are neighbours in size alone. At LAGS and half the width, for a table may alternate two kinds of
    axes or put them in halves. The statistic is the largest of all, in size; its null permutes the hidden axes of all
    vectors together. Vectors without variance do not count.
    """
    values = rank_scores(vectors)
    parts = [unit_rows(part) for part in (values, values**2)]
    scores = np.concatenate([part[np.any(part != 0, axis=1)] for part in parts])
    counts = [int(np.count_nonzero(np.any(part != 0, axis=1))) for part in parts if np.any(part)]
    scores, width = np.ascontiguousarray(scores.T), scores.shape[1]
    if width < 3 or not counts:
        return _nothing("no vector with any variance over three hidden axes", width)
    lags = sorted({lag for lag in (*LAGS, width // 2) if lag < width - 1})
    starts = np.cumsum([0, *counts[:-1]])

    def statistic(rows: Floats) -> float:
        found = [np.add.reduceat(lagged(rows, lag), starts) / counts for lag in lags]
        every = np.concatenate(found)
        return float(every[np.argmax(np.abs(every))])

    def draw() -> float:
        return statistic(np.take(scores, rng.permutation(width), axis=0))

    text = (
        f"largest rank autocorrelation along {width} hidden axes, lags {', '.join(map(str, lags))}, permuted together"
    )
    return _judged(statistic(scores), draw, most, text, width)


def lagged(rows: Floats, lag: int) -> Floats:
    """The autocorrelation at a lag of every column with Σz = 0 and Σz² = 1, less its mean over all orders."""
    width = len(rows)
    # Not a product of the linear algebra library: that wakes its threads for every draw, for too little work.
    products = np.einsum("ij,ij->j", rows[lag:], rows[:-lag])
    return np.asarray(products + (width - lag) / (width * (width - 1)), dtype=np.float64)


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


def index_meaning(
    sets: Sequence[ArrayLike],
    rng: np.random.Generator,
    most: int = INDEX_DRAWS,
    kinds: Sequence[int] | None = None,
) -> Significance:
    """Do rows at equal index of different sets of one model know each other?  [(n, p), …], a set a layer or a head.

    With `kinds`, one a set, only sets of one kind are compared: what an identity gives to head 0 is not what it gives
    to head 1, but the same in every layer.

    Where training alone filled them they do not. Where a formula fixes what an index reads (bands, blocks, masks, an
    identity to start from) they do. For every two sets: how far the correlation at equal index, as it is and squared,
    lies above that of rows in any order, in standard deviations. Squared too, for what has its inputs in common need
    not weigh them with equal signs. The statistic is the larger of the two medians over all pairs of sets; its null
    permutes the rows of every set. Layers that were repeated are a minority of the pairs, and are left out; where most
    pairs are that much alike nobody can tell copies from a formula.
    """
    rows = [finite(array, 2, "rows") for array in sets]
    same = [i for i, array in enumerate(rows) if array.shape[1] == rows[0].shape[1]]
    units = _of_one_shape([rows[i] for i in same])
    of = [0 if kinds is None else kinds[i] for i in same]
    pairs = [(i, j) for j in range(len(units)) for i in range(j) if of[i] == of[j]]
    if not pairs or units.shape[1] < 2:
        return _nothing("fewer than two sets of rows of one shape", 0)
    tables = np.array([units[i] @ units[j].T for i, j in pairs], dtype=np.float64)
    alike = np.median(np.diagonal(tables, axis1=1, axis2=2), axis=1) > REPEATED
    if np.count_nonzero(alike) < len(pairs) / 2:
        tables, pairs = tables[~alike], [pair for pair, same in zip(pairs, alike, strict=True) if not same]
    scores = np.stack([_scored(tables), _scored(tables**2)])
    first, second = np.array(pairs).T
    places = np.arange(len(pairs))[:, None]

    def statistic(orders: Indices) -> float:
        return float(np.max(np.median(scores[:, places, orders[first], orders[second]].sum(axis=2), axis=1)))

    plain: Indices = np.tile(np.arange(units.shape[1]), (len(units), 1))
    observed = statistic(plain)
    p, draws = stopped_pvalue(observed, lambda: statistic(rng.permuted(plain, axis=1)), most)
    text = f"likeness of rows at equal index in {len(pairs)} pairs of sets, rows permuted: {len(draws)} draws"
    null = Null(text, kept(draws))
    return Significance(statistic=observed, log10_pvalue=math.log10(p), null=null, n=units.shape[1], exact=False)


def _of_one_shape(sets: Sequence[Floats]) -> NDArray[np.float32]:
    """Sets of one width as unit rows, as many of each as the smallest has.  -> (sets, n, p).

    Indices at which a set has a row without variance go: where neurons were left empty says nothing of the others.
    """
    if len(sets) < 2:
        return np.zeros((len(sets), 0, 0), np.float32)
    count = min(len(array) for array in sets)
    units = np.array([unit_rows(array[:count]) for array in sets], dtype=np.float32)
    return units[:, np.any(units != 0, axis=2).all(axis=0)][:, :INDEX_ROWS]


def _scored(tables: Floats) -> Floats:
    """Such that the sum over a diagonal has mean 0 and variance 1 when rows are permuted.  (pairs, n, n) twice."""
    count = tables.shape[1]
    whole = tables.mean(axis=(1, 2), keepdims=True)
    centred = tables - tables.mean(axis=1, keepdims=True) - tables.mean(axis=2, keepdims=True) + whole
    spread = np.sqrt(np.sum(centred**2, axis=(1, 2), keepdims=True) / (count - 1))
    return np.asarray(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0))


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
