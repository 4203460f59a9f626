"""Layers repeated, left out or put in between, by the layer map and by what the layers without a counterpart are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.records import Kind, Role, Side, Slot
from modelkin.relation.branching import unparted_layers
from modelkin.relation.inheritance import rows_found
from modelkin.relation.reading import FacingSlots, Floats, LayerMap, Weights, as_stored, in_layer

ROWS = 64
FEWEST_FOUND = 8  # of 64 rows; between two layers of any model about one is found
# Share of neurons that find one neuron by what they read and by what they write. Of doubles in the zoo all do, masked
# or not; between two layers of one model that are none 0.23 at most, in a GPT-2. What neurons write tells nothing by
# itself: in half of the zoo's families a quarter to three quarters of them write what some neuron of the next layer
# does, to a cosine of 0.6.
SAME_NEURONS = 0.5


@dataclass(frozen=True)
class Depth:
    """A change of depth, and which of the two was made by it, if one can be told."""

    kind: Kind
    child: Side
    why: str
    tells_order: bool = True
    doubles: tuple[tuple[str, str], ...] = ()  # layers of the child beside none of the other, and which they double


def depth_change(
    a: Weights, b: Weights, layers: LayerMap, rng: np.random.Generator, renumbered: bool = False
) -> Depth | None:
    """None where every layer has one counterpart, or where too little is known.

    `renumbered`: neurons may stand in another order in every layer, so doubles are looked for at any place.
    """
    used = Counter(name for _, name in layers if name is not None)
    repeated = sum(count - 1 for count in used.values())
    alone_a = [name for name in a.layers if name not in used]
    facing = dict(layers)  # without the layers of b of which nothing is known: they were not left out
    alone_b = [name for name in b.layers if facing.get(name) is None]
    if repeated:
        why = f"{_layers(repeated)} of B continue{'s' * (repeated == 1)} a layer of A that another continues too"
        copies = {of: [name for name, each in layers if each == of] for of, count in used.items() if count > 1}
        alike = unparted_layers(a, b, copies)
        # Layers of b that a lacks, or the reverse, are those of siblings.
        told = alike and not alone_a and not alone_b
        return Depth("depth-upscale", "b", why if alike else f"{why}: {_parted('b')}", tells_order=told)
    if not used or bool(alone_a) == bool(alone_b):
        return None
    weights, alone = (a, alone_a) if alone_a else (b, alone_b)
    child: Side = "a" if alone_a else "b"
    rest = [name for name in weights.layers if name not in alone]
    stored = as_stored(weights)  # layers of one model share its axes, whatever was made of them
    doubles = [(name, _double(stored, name, rest, renumbered, rng)) for name in alone]
    known = tuple((name, of) for name, of in doubles if of is not None)
    doubled = [n for n, of in doubles if of is not None or _double(stored, n, alone, renumbered, rng) is not None]
    other: Side = "b" if child == "a" else "a"
    one, less = child.upper(), other.upper()
    if len(doubled) * 2 >= len(alone):
        verb = "is a double" if len(doubled) == 1 else "are doubles"
        why = f"{_layers(len(doubled))} of {one} {verb} of others of its own"
        # Layers that the other lacks, doubled or not, show that it is no source: both may come from a third.
        missing = len(alone) - len(known)
        if missing:
            why += f"; {_layers(missing)} of {one} that {less} lacks"
            return Depth("depth-upscale", child, why, tells_order=False, doubles=known)
        faced = [(name, of) for name, of in layers if of is not None]
        small, large, across = (b, a, {of: n for n, of in faced}) if child == "a" else (a, b, dict(faced))
        alike = unparted_layers(small, large, _copies(known, across))
        return Depth("depth-upscale", child, why if alike else f"{why}: {_parted(child)}", alike, known)
    why = f"{one} has {_layers(len(alone))} that {less} lacks: left out in {less}, or put in between in {one}"
    return Depth("depth-prune", other, why, tells_order=False)


def doubled_slots(a: Weights, b: Weights, layers: LayerMap, depth: Depth | None) -> list[FacingSlots]:
    """Slots of doubles beside those of the layer that they are copies of, which faces another of its copies already.

    A map from b to a holds them where b is the larger; so that both orders tell the same they are wanted in the other.
    """
    found = []
    to_a, to_b = dict(layers), {of: name for name, of in layers}
    for name, of in () if depth is None else depth.doubles:
        name_a, name_b = (name, to_b.get(of)) if depth is not None and depth.child == "a" else (to_a.get(of), name)
        assert name_a is not None  # doubles are of layers that face one
        for slot in (each for each in b.slots if each.layer is not None and each.layer_name == name_b):
            other = in_layer(slot, name_a)
            if other in a.slots and a.shape(other) == b.shape(slot):
                found.append(FacingSlots(other, slot))
    return found


def _copies(doubles: Sequence[tuple[str, str]], across: Mapping[str, str]) -> dict[str, list[str]]:
    """By layer of the smaller model all layers of the larger that are copies of it."""
    copies: dict[str, list[str]] = {}
    for name, of in doubles:
        copies.setdefault(across[of], [of]).append(name)
    return copies


def _parted(child: Side) -> str:
    other = "A" if child == "b" else "B"
    return f"no longer alike, so that they were repeated in {child.upper()} or left out in {other}, and nothing tells"


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def _double(
    weights: Weights, name: str, among: Sequence[str], renumbered: bool, rng: np.random.Generator
) -> str | None:
    """Which of these layers, but itself, this one doubles."""
    for other in among:
        if other == name:
            continue
        if _has_rows_of(weights, name, other, rng) or (renumbered and _has_neurons_of(weights, name, other)):
            return other
    return None


def _has_rows_of(weights: Weights, name: str, other: str, rng: np.random.Generator) -> bool:
    """Whether rows of this layer stand in another layer of the same model, at their own places."""
    mine, theirs = (in_layer(Slot(Role.UP), each) for each in (name, other))
    if not _alike(weights, mine, theirs):
        return False
    rows, there = (weights.read(slot, slice(0, ROWS)) for slot in (mine, theirs))
    return rows_found(there, rows, Role.UP, rng)[1] >= FEWEST_FOUND


def _has_neurons_of(weights: Weights, name: str, other: str) -> bool:
    """Whether another layer of the model has neurons that read and write what neurons of this one do, at any place.

    Neither is changed, but for its size, by whoever scales neurons, nor by gains once they are multiplied in.
    """
    mine, theirs = ([in_layer(Slot(role), each) for role in (Role.UP, Role.DOWN)] for each in (name, other))
    if not all(_alike(weights, one, two) for one, two in zip(mine, theirs, strict=True)):
        return False
    here = _read_by(weights, mine[0])[:ROWS], _directions(weights.read(mine[1]).T)[:ROWS]
    there = _read_by(weights, theirs[0]), _directions(weights.read(theirs[1]).T)
    by_reading, by_writing = (np.abs(x @ y.T).argmax(axis=1) for x, y in zip(here, there, strict=True))
    return float(np.mean(by_reading == by_writing)) > SAME_NEURONS


def _read_by(weights: Weights, up: Slot) -> Floats:
    """What neurons read of the stream, as directions. Parallel blocks have one norm for both readers."""
    rows = weights.read(up)
    norms = (in_layer(Slot(role), up.layer_name) for role in (Role.POST_NORM, Role.INPUT_NORM))
    gain = next((n for n in norms if n in weights.slots and weights.shape(n) == rows.shape[1:]), None)
    return _directions(rows if gain is None else rows * weights.read(gain))


def _alike(weights: Weights, one: Slot, other: Slot) -> bool:
    return one in weights.slots and other in weights.slots and weights.shape(one) == weights.shape(other)


def _directions(rows: Floats) -> Floats:
    """Unit rows, without their mean, of which layer norms show nothing."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(size > 0, size, 1))
