"""What has no counterpart: layers that no roll call matched, and tensors of a kind that only one of the two has.

A roll call compares rows as they stand, and gains that were moved into the matrices hide them: nothing is left of a
likeness that a scale of its own on every column cannot undo. So where as many layers of either model are left without
a counterpart between two that have one, they are asked once more, with the free numbers chosen alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelkin.alignment import Rewritten
from modelkin.records import Role, Slot
from modelkin.relation.elementwise import half_step
from modelkin.relation.inheritance import COMPUTED, FREELY
from modelkin.relation.reading import LINEAR, LayerMap, Weights, as_stored, in_layer
from modelkin.relation.refitting import left_over

ROWS = 64  # of every matrix; a scale a column and a row leave of as many rows of a stranger nearly all
MOST = 0.5  # of the matrices of a layer


def completed(a: Weights, b: Weights, layers: LayerMap) -> LayerMap:
    """The map with the layers that are the other's but for free numbers. What was rewritten has them chosen alike."""
    if isinstance(b, Rewritten):
        return layers
    found = {name_b: name_a for name_b, name_a in _beside(a.layers, layers) if _goes_on(a, b, name_a, name_b)}
    return tuple((name_b, found.get(name_b, name_a)) for name_b, name_a in layers)


def _beside(layers_a: Sequence[str], layers: LayerMap) -> Iterator[tuple[str, str]]:
    """(layer of b, layer of a) where as many of both have no counterpart between the same two that have one."""
    places = {name: place for place, name in enumerate(layers_a)}
    used = {name for _, name in layers}
    before, alone = -1, list[str]()
    for name_b, name_a in (*layers, (None, None)):
        if name_b is not None and name_a is None:
            alone.append(name_b)
            continue
        after = len(layers_a) if name_a is None else places[name_a]
        between = layers_a[before + 1 : after]
        if len(between) == len(alone) and not used.intersection(between):
            yield from zip(alone, between, strict=True)
        before, alone = after, []


def has_more(a: Weights, b: Weights, layers: LayerMap) -> bool:
    """Whether a layer, or what lies outside of all, has biases, gains or other tensors in one model alone.

    A head is told apart by its table, and experts, with the router that chooses them, by their neurons.
    """
    beside = [(name_b, name_a) for name_b, name_a in layers if name_a is not None]
    mine, theirs = _roles(a), _roles(as_stored(b))
    outside = mine.get("", frozenset()) ^ theirs.get("", frozenset())
    inside = [mine.get(name_a, frozenset()) ^ theirs.get(name_b, frozenset()) for name_b, name_a in beside]
    return bool(outside - {Role.HEAD} or any(more - {Role.ROUTER} for more in inside))


def _roles(weights: Weights) -> dict[str, frozenset[Role]]:
    """By layer; those outside of all by no name."""
    found: dict[str, set[Role]] = {}
    for slot in weights.slots:
        found.setdefault("" if slot.layer is None else slot.layer_name, set()).add(slot.role)
    return {name: frozenset(roles) for name, roles in found.items()}


def _goes_on(a: Weights, b: Weights, name_a: str, name_b: str) -> bool:
    """Whether most matrices of a layer of b are those of a layer of a, scaled or mixed where that does not matter."""
    asked = [slot for slot in b.slots if slot.layer_name == name_b and slot.role in LINEAR]
    same = sum(_is_scaled(a, b, in_layer(slot, name_a), slot) for slot in asked)
    return same > MOST * len(asked)


def _is_scaled(a: Weights, b: Weights, slot_a: Slot, slot_b: Slot) -> bool:
    if slot_a not in a.slots or a.shape(slot_a) != b.shape(slot_b):
        return False
    size = a.facts.head_dim or 1
    some = slice(0, max(ROWS // size, 1) * size)  # whole heads
    mine, theirs = a.read(slot_a, some), b.read(slot_b, some)
    step = max(COMPUTED, half_step(a.dtype(slot_a)), half_step(b.dtype(slot_b)))
    return left_over(mine, theirs, slot_b.role, a.facts.head_dim) <= FREELY * step
