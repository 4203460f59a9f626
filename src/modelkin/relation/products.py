"""Inner products of a mixture with what it may be a mixture of: all that least squares needs of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from modelkin.relation.elementwise import spacing
from modelkin.relation.reading import Floats

Doubles = NDArray[np.float64]
ROUNDING = 4.0  # times what rounding explains: more than that is left over for another reason
OBTUSE = -0.1  # cosine that mixing makes, or training on the same text


@dataclass
class Products:
    """Of one tensor with sources x_i and the mixture y: inner products of x_i - x_0 and y - x_0, and of x_i and y."""

    steps: Doubles
    towards: Doubles
    total: float = 0.0
    raw: Doubles = field(default_factory=lambda: np.zeros((0, 0)))
    raw_y: Doubles = field(default_factory=lambda: np.zeros(0))
    raw_total: float = 0.0
    rounding: float = 0.0
    values: int = 0

    def left_over(self, weights: Doubles) -> float:
        """|y - Σ w x|² for weights that sum to one; those of the sources after the first are given."""
        return float(self.total - 2 * weights @ self.towards + weights @ self.steps @ weights)

    def least(self) -> float:
        """What is left over by weights of this tensor's own, whatever they sum to: of a mean as of a great circle."""
        own, further = self._beyond_one()
        return max(0.0, self.left_over(own[1:]) - float(further @ (self.raw_y - self.raw @ own)))

    def excess(self) -> float:
        """By how much the best weights of this tensor sum to more than one."""
        return float(self._beyond_one()[1].sum())

    def _beyond_one(self) -> tuple[Doubles, Doubles]:
        """The best weights that sum to one, and what the best without that condition have more.

        In two steps, for sources lie so near to each other that raw products alone would lose their differences.
        """
        own = solved([self])
        return own, np.asarray(np.linalg.lstsq(self.raw, self.raw_y - self.raw @ own, rcond=1e-13)[0])


def empty(count: int) -> Products:
    return Products(
        np.zeros((count - 1, count - 1)), np.zeros(count - 1), raw=np.zeros((count, count)), raw_y=np.zeros(count)
    )


def added(products: Products, y: Floats, sources: Sequence[Floats], form: str) -> None:
    flat = [x.astype(np.float64).ravel() for x in sources]
    target = y.astype(np.float64).ravel()
    away = np.array([x - flat[0] for x in flat[1:]]).reshape(len(flat) - 1, target.size)
    step = target - flat[0]
    products.steps += away @ away.T
    products.towards += away @ step
    products.total += float(step @ step)
    stacked = np.array(flat)
    products.raw += stacked @ stacked.T
    products.raw_y += stacked @ target
    products.raw_total += float(target @ target)
    products.values += target.size
    products.rounding += float(np.sum(spacing(y, form).astype(np.float64) ** 2)) / 12


def solved(products: Sequence[Products]) -> Doubles:
    """Weights of all sources, summing to one, by least squares over some tensors."""
    steps = sum((p.steps for p in products), np.zeros_like(products[0].steps))
    towards = sum((p.towards for p in products), np.zeros_like(products[0].towards))
    rest = np.linalg.lstsq(steps, towards, rcond=1e-10)[0]
    return np.array([1 - rest.sum(), *rest])


def only(p: Products, used: Sequence[int]) -> Products:
    """The same for some of the sources, with the first of them as origin."""
    raw, raw_y = p.raw[np.ix_(used, used)], p.raw_y[list(used)]
    # Differences were summed exactly; raw products would lose them where sources are close.
    steps, towards = np.pad(p.steps, ((1, 0), (1, 0))), np.array([0.0, *p.towards])
    first, rest = used[0], list(used[1:])
    moved = np.array(
        [[steps[i, j] - steps[i, first] - steps[first, j] + steps[first, first] for j in rest] for i in rest]
    ).reshape(len(rest), len(rest))
    target = np.array([towards[i] - towards[first] - steps[i, first] + steps[first, first] for i in rest])
    total = p.total - 2 * towards[first] + steps[first, first]
    return Products(moved, target, total, raw, raw_y, p.raw_total, p.rounding, p.values)


def single(products: Sequence[Products], source: int, count: int) -> float:
    """What is left over by one source alone: its squared distance."""
    weights = np.zeros(count)
    weights[source] = 1.0
    return sum(p.left_over(weights[1:]) for p in products)


def left_by_any(products: Sequence[Products]) -> float:
    """What is left over by the best weights of every tensor."""
    return sum(p.least() for p in products)


def most_opposed(products: Sequence[Products], count: int) -> tuple[float, tuple[int, int]]:
    """The cosine at the mixture between two of the sources, every matrix in units of its own size."""
    inner = np.zeros((count, count))
    for p in products:
        steps, towards = np.pad(p.steps, ((1, 0), (1, 0))), np.array([0.0, *p.towards])
        inner += (steps - towards[:, None] - towards[None, :] + p.total) / p.raw_total
    size = np.sqrt(np.maximum(np.diag(inner), 1e-300))
    return min((float(inner[i, j] / (size[i] * size[j])), (i, j)) for i, j in combinations(range(count), 2))
