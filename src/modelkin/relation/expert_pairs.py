"""Which expert of one model goes on in which expert of the other, where both have some in a layer.

Experts that were left out or put in move the numbers of all that follow. So every expert of b takes the one of a whose
first matrices are most like its own, in some of their rows; and keeps it if these rows also find themselves in it one
by one, which between strangers one does, whichever expert was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelkin.records import Role, Slot
from modelkin.relation.inheritance import rows_found
from modelkin.relation.reading import ExpertMap, Floats, LayerMap, Weights, in_layer, spread

ROWS = 32  # of an expert
FEWEST_FOUND = 10  # by chance 1/10! at most, for every expert that is asked
TIED = 1e-4  # cosines that are the same: experts that are copies of one MLP have no number of their own


def expert_map(a: Weights, b: Weights, layers: LayerMap, rng: np.random.Generator) -> ExpertMap:
    """By layer of b, for its experts those of a; only layers where these are not simply the same numbers."""
    found: dict[str, Mapping[int, int]] = {}
    for name_b, name_a in layers:
        mine, theirs = ([] if name_a is None else experts_in(a, name_a)), experts_in(b, name_b)
        if name_a is None or not mine or not theirs:
            continue
        pairs = _paired(a, b, (name_a, mine), (name_b, theirs), rng)
        if pairs is not None and (mine != theirs or any(e != other for e, other in pairs.items())):
            found[name_b] = pairs
    return found


def experts_in(weights: Weights, layer: str) -> list[int]:
    """Numbers of the experts of a layer."""
    ups = [slot for slot in weights.slots if slot.role is Role.UP and slot.expert is not None]
    return sorted(slot.expert for slot in ups if slot.layer_name == layer and slot.expert is not None)


def moved_experts(a: Weights, b: Weights, layers: LayerMap, experts: ExpertMap) -> bool:
    """Whether experts have other numbers in a layer of which both have as many."""
    continued = dict(layers)
    return any(len(experts_in(a, continued[name] or "")) == len(experts_in(b, name)) for name in experts)


def _paired(
    a: Weights, b: Weights, in_a: tuple[str, Sequence[int]], in_b: tuple[str, Sequence[int]], rng: np.random.Generator
) -> dict[int, int] | None:
    """None where nothing speaks against the numbers: rows of other shapes, or as many experts, chosen more than once.

    Where both have as many, an expert that finds none keeps its number if no other has taken that: it was replaced.
    """
    (name_a, mine), (name_b, theirs) = in_a, in_b
    left, right = _sampled(a, name_a, mine), _sampled(b, name_b, theirs)
    if left is None or right is None or left.shape[1:] != right.shape[1:]:
        return None
    likeness = _flat(right) @ _flat(left).T
    pairs = {}
    for row, expert in enumerate(theirs):
        best = _best(likeness[row], mine, expert)
        if rows_found(left[best], right[row], Role.GATE, rng)[1] >= min(FEWEST_FOUND, left.shape[1]):
            pairs[expert] = mine[best]
    if mine != theirs:
        return pairs
    if len(set(pairs.values())) < len(pairs):
        return None
    return {e: e for e in theirs if e not in pairs.values()} | pairs


def _best(likeness: Floats, numbers: Sequence[int], own: int) -> int:
    """The place of the expert that is most like; among equals that of the same number."""
    best = int(np.argmax(likeness))
    if own in numbers and likeness[numbers.index(own)] >= likeness[best] - TIED:
        return numbers.index(own)
    return best


def _sampled(weights: Weights, layer: str, experts: Sequence[int]) -> Floats | None:
    """Some rows of every expert: of what it reads, and of what opens it if it has that. None where they differ in size.

    Few rows of each: of hundreds of experts together they are no more than a tensor.
    """
    roles = [role for role in (Role.UP, Role.GATE) if in_layer(Slot(role, expert=experts[0]), layer) in weights.slots]
    slots = [[in_layer(Slot(role, expert=expert), layer) for role in roles] for expert in experts]
    shapes = {weights.shape(slot) if slot in weights.slots else () for some in slots for slot in some}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        return None
    rows = spread(next(iter(shapes))[0], ROWS)
    return np.stack([np.hstack([weights.read(slot, rows) for slot in some]) for some in slots])


def _flat(rows: Floats) -> Floats:
    """Every expert as one direction, without the row that all of its neurons have in common."""
    centred = (rows - rows.mean(axis=1, keepdims=True)).reshape(len(rows), -1)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(size > 0, size, 1), dtype=np.float32)
