"""Un-mixing: one model as a weighted mean of others, layer by layer.

Weights come from least squares under the condition that they sum to one, which makes the choice of an origin (a common
base) irrelevant and lets the base itself be one of the sources. Tensors are read in blocks and only their products are
kept. That nothing is left over but rounding says that some models lie on one line, or in one plane; who was computed
from the others, `computed` says. For what is where something is left over, see `leftovers`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelkin.alignment import Rewritten
from modelkin.records import Slot
from modelkin.records.relation import Merge, MergeWeights
from modelkin.relation.circles import Bend, along_circle, bend
from modelkin.relation.computed import computed_last
from modelkin.relation.leftovers import mixed_in_part
from modelkin.relation.marks import Marks, marks_of
from modelkin.relation.origins import layer_origins
from modelkin.relation.products import (
    OBTUSE,
    ROUNDING,
    Products,
    added,
    empty,
    left_by_any,
    most_opposed,
    only,
    single,
    solved,
)
from modelkin.relation.reading import BLOCK, Weights
from modelkin.relation.returned import OfItsShape

Named = tuple[str, Weights]
GAIN = 0.6  # of the way to the nearest source; see Merge for what others reach
SMALLEST_WEIGHT = 0.03
NEGATIVE = -0.1  # a mean has no negative parts, but for noise
EXACT = 1e-3  # of the distance to the nearest source, where numbers are so fine that sums of squares are not
CIRCLE = "norms follow a great circle, not its chord"
EITHER = "a straight line or a great circle: at this angle they are the same to rounding"


def unmixed(product: Named, sources: Sequence[Named]) -> Merge | None:
    """The product as a mixture of the sources; None where two or more of them do not explain it better than one.

    Where rounding shows that one of the sources was computed from the others and the product, it is that one's mixture.
    """
    sources = _different(product, sources)
    if not sources:
        return None
    stacked = layer_origins(product, sources)
    if stacked is not None:
        return stacked
    by_tensor = _read(product[1], sources)
    if not by_tensor:
        return None
    names = [name for name, _ in sources]
    if len(sources) > 1:
        marks = marks_of(product[1], [weights for _, weights in sources], list(by_tensor))
        if marks is not None:
            return _dropping(product[0], names, marks)
        used = _curved(list(by_tensor.values())) or _needed(list(by_tensor.values()), len(sources))
        if used is not None:
            some = {slot: only(p, used) for slot, p in by_tensor.items()}
            found = _on_a_line(product, [sources[i] for i in used], some)
            if found is not None:
                return found
    return mixed_in_part(product[0], names, by_tensor)


def _on_a_line(product: Named, sources: Sequence[Named], by_tensor: dict[Slot, Products]) -> Merge | None:
    """The mixture of whoever was computed last. Where nothing tells, the product's, if it lies between its sources."""
    everyone = [product, *sources]
    last = None if any(isinstance(w, OfItsShape | Rewritten) for _, w in everyone) else _last(everyone, by_tensor)
    if last:
        merged = everyone.pop(last)
        return _merge(merged[0], [name for name, _ in everyone], _read(merged[1], everyone), merged[0])
    products = list(by_tensor.values())
    if last is None and (not _are_opposed(products) or float(solved(products).min()) < NEGATIVE):
        return None
    return _merge(product[0], [name for name, _ in sources], by_tensor, None if last is None else product[0])


def _last(everyone: Sequence[Named], by_tensor: dict[Slot, Products]) -> int | None:
    return computed_last([weights for _, weights in everyone], list(by_tensor))


def _different(product: Named, sources: Sequence[Named]) -> list[Named]:
    """Each once: the product explains itself, and weights of two that are the same could be anything."""
    found: list[Named] = []
    for source in sources:
        if not any(_is_same(source, other) for other in (product, *found)):
            found.append(source)
    return found


def _is_same(one: Named, other: Named) -> bool:
    if one[0] == other[0]:
        return True
    a, b = one[1], other[1]
    if set(a.slots) != set(b.slots) or any(a.shape(slot) != b.shape(slot) for slot in a.slots):
        return False
    return all(np.array_equal(a.read(slot), b.read(slot), equal_nan=True) for slot in a.slots)


def _dropping(product: str, names: Sequence[str], marks: Marks) -> Merge:
    """TIES or DARE: weights are those of the parents' changes to the base, for the model as a whole."""
    return Merge(
        merged=product,
        sources=tuple(names[i] for i in marks.parents),
        base=names[marks.base],
        method=marks.method,
        weights=marks.weights,
        layers=(),
        gain=marks.explained,
        unexplained=1 - marks.explained,
        missing_parent=False,
        marks=marks.told,
        density=marks.density,
        last=product,
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


def _needed(products: Sequence[Products], count: int) -> list[int] | None:
    """Sources with a weight worth speaking of, if they are two or more, mixing pays and nothing is left over.

    Weights may be negative: a task may be taken off, and of changes to a base that weigh more than one together the
    base takes what is too much.
    """
    used = list(range(count))
    while len(used) > 1:
        some = [only(p, used) for p in products]
        weights = solved(some)
        worst = int(np.argmin(np.abs(weights)))
        if abs(weights[worst]) >= SMALLEST_WEIGHT:
            break
        used.pop(worst)
    return used if len(used) > 1 and _is_all(some, len(used)) else None


def _curved(products: Sequence[Products]) -> list[int] | None:
    """Two sources on a great circle through the mixture: to a straight mean it seems as if the base was taken off."""
    used = sorted(int(i) for i in np.argsort(-solved(products))[:2])
    some = [only(p, used) for p in products]
    return used if _is_all(some, 2) and _are_opposed(some) and bend(some) == "circle" else None


def _is_all(products: Sequence[Products], count: int) -> bool:
    """Whether some sources are all that there is: what they leave over is rounding, and any of them alone leaves more.

    Sources may weigh differently in every tensor, as layers do in many published merges.
    """
    left, nearest = left_by_any(products), min(single(products, i, count) for i in range(count))
    allowed = max(ROUNDING * sum(p.rounding for p in products), EXACT * nearest)
    return nearest > 0 and left <= allowed and 1 - left / nearest >= GAIN


def _are_opposed(products: Sequence[Products]) -> bool:
    """A mean of copies that were rounded or got noise comes near to their origin; but seen from it they do not lie in
    opposed directions."""
    return most_opposed(products, len(products[0].raw_y))[0] <= OBTUSE


def _merge(product: str, sources: Sequence[str], by_tensor: dict[Slot, Products], last: str | None) -> Merge:
    products, count = list(by_tensor.values()), len(sources)
    weights = solved(products)
    # Beyond its ends a great circle is not looked for.
    way: Bend = bend(products) if count == 2 and weights.min() >= 0 else "straight"
    nearest = min(single(products, i, count) for i in range(count))
    if way == "circle":
        t, _ = along_circle(products)
        weights = np.array([1 - t, t])
    unexplained = left_by_any(products) / nearest
    return Merge(
        merged=product,
        sources=tuple(sources),
        method="slerp" if way == "circle" else "linear",
        weights=tuple(map(float, weights)),
        layers=_circle_by_layer(by_tensor) if way == "circle" else _by_layer(by_tensor),
        gain=1 - unexplained,
        unexplained=unexplained,
        missing_parent=False,
        marks={"circle": (CIRCLE,), "either": (EITHER,), "straight": ()}[way],
        condition=float(np.linalg.cond(sum((p.steps for p in products), np.zeros_like(products[0].steps)))),
        same_as=("slerp",) if way == "either" else (),
        last=last,
    )


def _by_layer(by_tensor: dict[Slot, Products]) -> tuple[MergeWeights, ...]:
    lines = []
    for name, products in _grouped(by_tensor).items():
        weights = solved(products)
        nearest = min(single(products, i, len(weights)) for i in range(len(weights)))
        left = sum(p.left_over(weights[1:]) for p in products)
        lines.append(MergeWeights(name, tuple(map(float, weights)), left / nearest if nearest else 0.0))
    return tuple(lines)


def _circle_by_layer(by_tensor: dict[Slot, Products]) -> tuple[MergeWeights, ...]:
    lines = []
    for name, products in _grouped(by_tensor).items():
        t, left = along_circle(products)
        nearest = min(single(products, i, 2) for i in range(2))
        lines.append(MergeWeights(name, (1 - t, t), left / nearest if nearest else 0.0))
    return tuple(lines)


def _grouped(by_tensor: dict[Slot, Products]) -> dict[str, list[Products]]:
    groups: dict[str, list[Products]] = {}
    for slot, products in by_tensor.items():
        groups.setdefault(slot.layer_name, []).append(products)
    return groups
