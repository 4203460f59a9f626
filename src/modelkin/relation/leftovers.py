"""Mixtures of which a part is not given, or that were changed afterwards: something is left over, and who had part?

Relatives explain some of each other without any mixture, so that a part is explained says nothing. Two things look as
if numbers were mixed. Seen from a mixture its parents lie in opposed directions, where drift in directions of its own
makes angles right or less (cosines down to -0.31 in the zoo, by what relatives learnt alike). And a mixture gives one
weight to every matrix, where many trainings move each its own way. But steps of one training that follow each other go
the same way, in every matrix alike: the checkpoint between two others shows both (cosine -0.77, weights that vary by a
fiftieth). So this tells a possibility and no more; and as weights sum to one, what is missing falls to those that are
given, so that no weight can be known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelkin.records import Slot
from modelkin.records.relation import Merge
from modelkin.relation.products import OBTUSE, Doubles, Products, most_opposed, only, single, solved
from modelkin.relation.reading import LINEAR

FEWEST_TENSORS = 12
LEAST, MOST = 0.1, 0.95  # weights that are spoken of; nearer to one it is the same model, changed a little
IDLE = 0.03
OPPOSED = -0.5  # cosine that mixing makes, or training that goes straight on
EVEN = 0.03  # spread of a weight over the matrices, beside the weight itself or what it lacks to one
SIZES = 0.5, 2.0  # of a model that was mixed in, beside the one that is known
SPREAD = 0.25  # of these sizes
EVENLY = "the weight is nearly the same in every matrix (it varies by {:.1%} of itself)"
OPPOSITE = "seen from it two of the models lie in opposed directions (cosine {:.2f})"
UNKNOWN_PART = "what none of those given explains is as large in every matrix as if another model had been mixed in"


def mixed_in_part(product: str, names: Sequence[str], by_tensor: dict[Slot, Products]) -> Merge | None:
    """Sources that it may be a mixture of, although something is left over; None where nothing looks so."""
    matrices = {slot: p for slot, p in by_tensor.items() if slot.role in LINEAR and p.raw_total > 0}
    if len(matrices) < FEWEST_TENSORS:
        return None
    return _several(product, names, matrices) or _diluted(product, names, matrices)


def _several(product: str, names: Sequence[str], matrices: dict[Slot, Products]) -> Merge | None:
    used = _not_idle(list(matrices.values()), len(names))
    if len(used) < 2:
        return None
    some = {slot: only(p, used) for slot, p in matrices.items()}
    weights = np.array([solved([p]) for p in some.values()])
    spreads = np.array([unevenness(column) for column in weights.T])
    cosine, pair = most_opposed(list(some.values()), len(used))
    even = [i for i in range(len(used)) if spreads[i] <= EVEN]
    if cosine > OBTUSE or (cosine > OPPOSED and not even):
        return None
    told = _but_the_middle(list(some.values()), even or list(pair), len(used))
    marks = [OPPOSITE.format(cosine)] if cosine <= OPPOSED else []
    marks += [EVENLY.format(spreads[even].max())] if even else []
    overall = solved(list(some.values()))
    left = sum(p.left_over(overall[1:]) for p in some.values())
    nearest = min(single(list(some.values()), i, len(used)) for i in range(len(used)))
    return Merge(
        merged=product,
        sources=tuple(names[used[i]] for i in told),
        method="unknown",
        weights=(),
        layers=(),
        gain=1 - left / nearest,
        unexplained=left / nearest,
        missing_parent=True,
        marks=tuple(marks),
    )


def _but_the_middle(products: Sequence[Products], found: list[int], count: int) -> list[int]:
    """All but the source that lies nearest to the others: weights sum to one, so it takes the share of what is missing.

    It may be the origin that all have in common, or any model near to that, and have no part. Of two the later one.
    """
    if len(found) < 2:
        return found
    squares = np.zeros((count, count))
    for p in products:
        steps = np.pad(p.steps, ((1, 0), (1, 0)))
        squares += (np.diag(steps)[:, None] + np.diag(steps)[None, :] - 2 * steps) / p.raw_total
    away = squares.sum(axis=1)
    middle = min(found, key=lambda i: (round(float(away[i] / away.max()), 9), -i))
    return [i for i in found if i != middle]


def _not_idle(products: Sequence[Products], count: int) -> list[int]:
    used = list(range(count))
    while len(used) > 1:
        weights = np.abs(solved([only(p, used) for p in products]))
        if weights.min() >= IDLE:
            break
        used.pop(int(np.argmin(weights)))
    return used


def unevenness(weights: Doubles) -> float:
    """How much a weight varies from matrix to matrix, by quartiles, beside how far it is from none and from all."""
    low, middle, high = np.quantile(weights, [0.25, 0.5, 0.75])
    return float((high - low) / 1.35 / min(middle, 1 - middle)) if LEAST <= middle <= MOST else np.inf


def _diluted(product: str, names: Sequence[str], matrices: dict[Slot, Products]) -> Merge | None:
    """One source in the same share everywhere, and beside it something of a model's size that none of them explains.

    A mean with a stranger: every matrix shrinks by one factor, and the rest is as large as the share that it lacks.
    """
    products = list(matrices.values())
    slopes = np.array([p.raw_y / np.maximum(np.diag(p.raw), 1e-300) for p in products])
    source = int(np.argmax(np.median(slopes, axis=0)))
    here = slopes[:, source]
    if unevenness(here) > EVEN or float(np.median(here)) > MOST:
        return None
    known = np.array([p.raw[source, source] for p in products])
    rest = np.array([p.raw_total for p in products]) - here**2 * known
    sizes = np.sqrt(np.maximum(rest, 0) / known) / (1 - here)
    low, middle, high = np.quantile(np.log(np.maximum(sizes, 1e-9)), [0.25, 0.5, 0.75])
    if not np.log(SIZES[0]) <= middle <= np.log(SIZES[1]) or high - low > SPREAD:
        return None
    distance = single(products, source, len(names))
    return Merge(
        merged=product,
        sources=(names[source],),
        method="unknown",
        weights=(),
        layers=(),
        gain=1 - float(rest.sum()) / distance,
        unexplained=float(rest.sum()) / distance,
        missing_parent=True,
        marks=(EVENLY.format(unevenness(here)), UNKNOWN_PART),
    )
