"""Un-mixing: one model as a weighted mean of others, layer by layer.

Weights come from least squares under the condition that they sum to one, which makes the choice of an origin (a common
base) irrelevant and lets the base itself be one of the sources. Tensors are read in blocks and only their products are
kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from modelkin.records import Slot
from modelkin.records.relation import Merge, MergeWeights
from modelkin.relation.elementwise import spacing
from modelkin.relation.marks import Marks, marks_of
from modelkin.relation.origins import layer_origins
from modelkin.relation.reading import BLOCK, Floats, Weights

Doubles = NDArray[np.float64]
Named = tuple[str, Weights]
GAIN = 0.6  # of the way to the nearest source; see Merge for what others reach
SMALLEST_WEIGHT = 0.03
NEGATIVE = -0.1  # a mixture has no negative parts, but for noise
UNEXPLAINED = 0.1
ROUNDING = 4.0  # times what rounding explains
BETTER = 0.5  # of what the straight line leaves over, for a great circle to be believed
CURVED = 1e-3  # squared angle over eight: by how much the chord of a great circle is shorter than the arc


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

    def left_over(self, weights: Doubles) -> float:
        """|y - Σ w x|² for weights that sum to one; those of the sources after the first are given."""
        return float(self.total - 2 * weights @ self.towards + weights @ self.steps @ weights)


def empty(count: int) -> Products:
    return Products(
        np.zeros((count - 1, count - 1)), np.zeros(count - 1), raw=np.zeros((count, count)), raw_y=np.zeros(count)
    )


def added(products: Products, y: Floats, sources: Sequence[Floats], form: str) -> None:
    flat = [x.astype(np.float64).ravel() for x in sources]
    target = y.astype(np.float64).ravel()
    away = np.array([x - flat[0] for x in flat[1:]]).reshape(len(flat) - 1, -1)
    step = target - flat[0]
    products.steps += away @ away.T
    products.towards += away @ step
    products.total += float(step @ step)
    stacked = np.array(flat)
    products.raw += stacked @ stacked.T
    products.raw_y += stacked @ target
    products.raw_total += float(target @ target)
    products.rounding += float(np.sum(spacing(y, form).astype(np.float64) ** 2)) / 12


def solved(products: Sequence[Products]) -> Doubles:
    """Weights of all sources, summing to one, by least squares over some tensors."""
    steps = sum((p.steps for p in products), np.zeros_like(products[0].steps))
    towards = sum((p.towards for p in products), np.zeros_like(products[0].towards))
    rest = np.linalg.lstsq(steps, towards, rcond=1e-10)[0]
    return np.array([1 - rest.sum(), *rest])


def unmixed(product: Named, sources: Sequence[Named]) -> Merge | None:
    """The product as a mixture of the sources; None where two or more of them do not explain it better than one."""
    if len(sources) < 2:
        return None
    stacked = layer_origins(product, sources)
    if stacked is not None:
        return stacked
    by_tensor = _read(product[1], sources)
    if not by_tensor:
        return None
    marks = marks_of(product[1], [weights for _, weights in sources], list(by_tensor))
    if marks is not None:
        return _dropping(product[0], [name for name, _ in sources], marks)
    used = _curved(list(by_tensor.values())) or _needed(list(by_tensor.values()), len(sources))
    if used is None:
        return None
    return _merge(product[0], [sources[i][0] for i in used], {s: _only(p, used) for s, p in by_tensor.items()})


def _dropping(product: str, names: Sequence[str], marks: Marks) -> Merge:
    """TIES or DARE: weights are those of the parents' changes to the base, for the model as a whole."""
    others = [name for i, name in enumerate(names) if i != marks.base]
    return Merge(
        merged=product,
        sources=tuple(others),
        base=names[marks.base],
        method=marks.method,
        weights=marks.weights,
        layers=(),
        gain=marks.explained,
        unexplained=1 - marks.explained,
        missing_parent=False,
        marks=marks.told,
        density=marks.density,
    )


def _read(product: Weights, sources: Sequence[Named]) -> dict[Slot, Products]:
    """Matrices that every model has in one shape; embeddings only where all vocabularies have one size.

    Those that hold values which are not finite explain nothing, and are left out.
    """
    found = {}
    for slot in product.slots:
        shape = product.shape(slot)
        if (
            len(shape) < 2
            or not np.prod(shape)
            or any(slot not in w.slots or w.shape(slot) != shape for _, w in sources)
        ):
            continue
        products, form = empty(len(sources)), product.dtype(slot)
        step = max(1, BLOCK // (shape[1] * (len(sources) + 1)))
        for start in range(0, shape[0], step):
            rows = None if step >= shape[0] else slice(start, min(start + step, shape[0]))
            added(products, product.read(slot, rows), [w.read(slot, rows) for _, w in sources], form)
        if np.isfinite(products.raw_total + products.raw.sum()):
            found[slot] = products
    return found


def _only(p: Products, used: Sequence[int]) -> Products:
    """The same for some of the sources, with the first of them as origin."""
    raw, raw_y = p.raw[np.ix_(used, used)], p.raw_y[list(used)]
    # Differences were summed exactly; raw products would lose them where sources are close.
    steps, towards = _with_zero(p.steps), np.array([0.0, *p.towards])
    first, rest = used[0], list(used[1:])
    moved = np.array(
        [[steps[i, j] - steps[i, first] - steps[first, j] + steps[first, first] for j in rest] for i in rest]
    ).reshape(len(rest), len(rest))
    target = np.array([towards[i] - towards[first] - steps[i, first] + steps[first, first] for i in rest])
    total = p.total - 2 * towards[first] + steps[first, first]
    return Products(moved, target, total, raw, raw_y, p.raw_total, p.rounding)


def _with_zero(matrix: Doubles) -> Doubles:
    return np.pad(matrix, ((1, 0), (1, 0)))


def _single(products: Sequence[Products], source: int, count: int) -> float:
    weights = np.zeros(count)
    weights[source] = 1.0
    return sum(p.left_over(weights[1:]) for p in products)


def _needed(products: Sequence[Products], count: int) -> list[int] | None:
    """Sources with a weight worth speaking of, if they are two or more and mixing pays."""
    used = list(range(count))
    while len(used) > 1:
        some = [_only(p, used) for p in products]
        weights = solved(some)
        worst = int(np.argmin(np.abs(weights)))
        if abs(weights[worst]) >= SMALLEST_WEIGHT:
            break
        used.pop(worst)
    if len(used) < 2 or float(weights.min()) < NEGATIVE:
        return None
    nearest = min(_single(some, i, len(used)) for i in range(len(used)))
    left = sum(p.left_over(weights[1:]) for p in some)
    return used if nearest > 0 and 1 - left / nearest >= GAIN else None


def _curved(products: Sequence[Products]) -> list[int] | None:
    """Two sources on a great circle through the mixture: to a straight mean it seems as if the base was taken off."""
    weights = solved(products)
    used = sorted(int(i) for i in np.argsort(-weights)[:2])
    some = [_only(p, used) for p in products]
    circle = great_circle(some)
    if circle is None:
        return None
    nearest = min(_single(some, i, 2) for i in range(2))
    left = sum(p.left_over(weights[1:]) for p in products)
    return used if circle[1] <= left * ROUNDING and 1 - circle[1] / nearest >= GAIN else None


def _merge(product: str, sources: Sequence[str], by_tensor: dict[Slot, Products]) -> Merge:
    products, count = list(by_tensor.values()), len(sources)
    weights, lines, method = solved(products), _by_layer(by_tensor), "linear"
    nearest = min(_single(products, i, count) for i in range(count))
    left = sum(p.left_over(weights[1:]) for p in products)
    circle = great_circle(products) if count == 2 else None
    if circle is not None:
        weights, left, method = np.array([1 - circle[0], circle[0]]), circle[1], "slerp"
        lines = _circle_by_layer(by_tensor)
    unexplained = left / nearest if nearest else 0.0
    missing = unexplained > UNEXPLAINED and left > ROUNDING * sum(p.rounding for p in products)
    return Merge(
        merged=product,
        sources=tuple(sources),
        method="unknown" if missing else "slerp" if method == "slerp" else "linear",
        weights=tuple(map(float, weights)),
        layers=lines,
        gain=1 - unexplained,
        unexplained=unexplained,
        missing_parent=missing,
        marks=("norms follow a great circle, not its chord",) if circle is not None else (),
        condition=float(np.linalg.cond(sum((p.steps for p in products), np.zeros_like(products[0].steps)))),
    )


def _by_layer(by_tensor: dict[Slot, Products]) -> tuple[MergeWeights, ...]:
    lines = []
    for name, products in _grouped(by_tensor).items():
        weights = solved(products)
        nearest = min(_single(products, i, len(weights)) for i in range(len(weights)))
        left = sum(p.left_over(weights[1:]) for p in products)
        lines.append(MergeWeights(name, tuple(map(float, weights)), left / nearest if nearest else 0.0))
    return tuple(lines)


def _circle_by_layer(by_tensor: dict[Slot, Products]) -> tuple[MergeWeights, ...]:
    lines = []
    for name, products in _grouped(by_tensor).items():
        t, left = along_circle(products)
        nearest = min(_single(products, i, 2) for i in range(2))
        lines.append(MergeWeights(name, (1 - t, t), left / nearest if nearest else 0.0))
    return tuple(lines)


def _grouped(by_tensor: dict[Slot, Products]) -> dict[str, list[Products]]:
    groups: dict[str, list[Products]] = {}
    for slot, products in by_tensor.items():
        groups.setdefault(slot.layer_name, []).append(products)
    return groups


def great_circle(products: Sequence[Products]) -> tuple[float, float] | None:
    """(t, what is left over) if the way from the first source to the second follows the circle rather than the chord.

    Where the two are nearly parallel both are the same, and nothing can be said.
    """
    if not any(_angle(p) ** 2 / 8 > CURVED for p in products):
        return None
    t, left = along_circle(products)
    straight = sum(p.left_over(solved(products)[1:]) for p in products)
    return (t, left) if left < BETTER * straight else None


def along_circle(products: Sequence[Products]) -> tuple[float, float]:
    found = minimize_scalar(lambda t: sum(_off_circle(p, t) for p in products), bounds=(0, 1), method="bounded")
    return float(found.x), max(0.0, float(found.fun))


def _angle(p: Products) -> float:
    size = math.sqrt(p.raw[0, 0] * p.raw[1, 1])
    return math.acos(min(1.0, max(-1.0, p.raw[0, 1] / size))) if size else 0.0


def _off_circle(p: Products, t: float) -> float:
    """|y - s0 a - s1 b|², from the products. Parallel tensors follow the chord."""
    angle = _angle(p)
    if angle < math.acos(0.9995):
        return p.left_over(np.array([t]))
    s = np.array([math.sin((1 - t) * angle), math.sin(t * angle)]) / math.sin(angle)
    return float(p.raw_total - 2 * s @ p.raw_y + s @ p.raw @ s)
