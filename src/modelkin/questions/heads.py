"""Heads as they were read, and the ways of putting those of two models beside each other.

A view is a list of sets of rows, every set with an order of its own; what it counts is exact by one of these rules.

- Value rows inside a head may stand in any order (with the columns of o), apart from those of any other head. It does
  not matter which head of b stands beside which of a, if that was chosen without a look at the values: by number, or by
  the likeness of their keys, one-to-one. Means of several heads of one model beside one head of the other (the way
  grouped attention is made of more heads) are exchangeable too, for the same order may be given to all of them.
- The columns of o have the order of the value rows: a second description of the same rows, of all query heads of
  the group.
- Whole KV groups may be numbered in any order, with their queries, unless positions weigh every head in its own way
  (ALiBi). They are recognised by their keys, which stand in the order of the frequencies where positions rotate them;
  the group moves as a whole.
- Rows of q and k inside a head may be renumbered together where neither positions nor a norm shared by all heads tell
  them apart; else they were not read for this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.questions.experts import Set
from modelkin.questions.question import CannotAsk
from modelkin.records import Role
from modelkin.sampling.facing import facing
from modelkin.sampling.readings import Readings
from modelkin.stats.arrays import unit_rows

Heads = NDArray[np.float32]  # (KV heads, rows of a head, width)
Beside = Iterable[tuple[NDArray[np.float32], NDArray[np.float32]]]
BY_KEYS = ", in heads that their keys chose"
ENOUGH = 16.2  # -ln(1e-7): whole groups that cannot give so much, whatever they show, are not asked


@dataclass(frozen=True, eq=False)
class Layer:
    """Facing layers of a and b: their heads by role, each row described by what belongs to it in its group."""

    names: tuple[str, str]
    a: Mapping[Role, Heads]
    b: Mapping[Role, Heads]


@dataclass(frozen=True, eq=False)
class View:
    """`what` (in the plural) is counted, in heads put beside each other `how`.

    A row is one description of `width` numbers, or several.
    """

    what: str
    how: str
    sets: tuple[Set, ...]
    width: int

    @property
    def places(self) -> list[int]:
        """Which one of its layer a set is: what a formula gives to one head is not what it gives to another."""
        layers = [a for a, _, _, _ in self.sets]
        return [layers[:i].count(layer) for i, layer in enumerate(layers)]


def read_layers(a: Readings, b: Readings, size: int) -> list[Layer]:
    """Facing layers by depth. What holds values that are not finite is left out, and a layer whose values do."""
    mine, theirs = _by_layer(a, size), _by_layer(b, size)
    found = [Layer((x, y), *_both(mine[x], theirs[y])) for x, y in facing(list(mine), list(theirs))]
    sound = [layer for layer in found if Role.V in layer.a]
    if not sound:
        raise CannotAsk("no v of facing layers was read with one width and finite values")
    return sound


def _by_layer(readings: Readings, size: int) -> dict[str, dict[Role, Heads]]:
    found: dict[str, dict[Role, Heads]] = {}
    for cut, array in readings.arrays.items():
        if cut.slot.role in (Role.V, Role.K, Role.Q, Role.O) and array.ndim == 2:
            found.setdefault(cut.slot.layer_name, {})[cut.slot.role] = array
    return {name: _heads(found[name], size) for name in readings.portrait.layers if Role.V in found.get(name, {})}


def _heads(parts: Mapping[Role, NDArray[np.float32]], size: int) -> dict[Role, Heads]:
    groups = len(parts[Role.V]) // size
    turned = {role: part.T if role is Role.O else part for role, part in parts.items()}
    # Several query heads of a group describe one row of its keys, or of its values, one after the other.
    split = {role: part.reshape(groups, -1, size, part.shape[1]) for role, part in turned.items()}
    return {role: part.transpose(0, 2, 1, 3).reshape(groups, size, -1) for role, part in split.items()}


def _both(a: Mapping[Role, Heads], b: Mapping[Role, Heads]) -> tuple[dict[Role, Heads], dict[Role, Heads]]:
    shared = [role for role in a if role in b and a[role].shape[1:] == b[role].shape[1:]]
    sound = [role for role in shared if np.all(np.isfinite(a[role])) and np.all(np.isfinite(b[role]))]
    return {role: a[role] for role in sound}, {role: b[role] for role in sound}


def views(layers: Sequence[Layer], groups: bool) -> list[View]:
    """All that can be counted, whole groups where they may be renumbered.

    How many there are depends on what was read, never on the numbers in it.
    """
    rows: list[tuple[str, str, Role, Callable[[Layer, Role], Beside]]] = [("value rows", "", Role.V, _by_number)]
    pools = all(_ratio(layer) > 1 for layer in layers)
    if pools:
        rows.append(("value rows", f", {_ratio(layers[0])} heads averaged beside one", Role.V, _averaged))
    if _have(layers, Role.K) and max(len(side[Role.V]) for layer in layers for side in (layer.a, layer.b)) > 1:
        rows.append(("value rows", BY_KEYS, Role.V, _by_keys))
    if _have(layers, Role.O):
        rows.append(("columns of o", "", Role.O, _by_number))
    if _have(layers, Role.Q):  # read only where positions do not rotate
        rows += [("key rows", "", Role.K, _by_number), ("query rows", "", Role.Q, _by_number)]
    width = layers[0].a[Role.V].shape[2]
    found = [View(what, how, _sets(layers, role, beside), width) for what, how, role, beside in rows]
    return found + (_groups(layers, pools) if groups else [])


def _sets(layers: Sequence[Layer], role: Role, beside: Callable[[Layer, Role], Beside]) -> tuple[Set, ...]:
    asked = [layer for layer in layers if role in layer.a]
    return tuple((*layer.names, left, right) for layer in asked for left, right in beside(layer, role))


def _have(layers: Sequence[Layer], role: Role) -> bool:
    return any(role in layer.a for layer in layers)


def _ratio(layer: Layer) -> int:
    """How many heads of one model come to one of the other; 0 where that is no whole number."""
    fewer, more = sorted((len(layer.a[Role.V]), len(layer.b[Role.V])))
    return 0 if more % fewer else more // fewer


def _by_number(layer: Layer, role: Role) -> Beside:
    return zip(layer.a[role], layer.b[role], strict=False)  # the first of those that have more


def _averaged(layer: Layer, role: Role) -> Beside:
    count = min(len(layer.a[role]), len(layer.b[role]))
    left, right = (side.reshape(count, -1, *side.shape[1:]).mean(axis=1) for side in (layer.a[role], layer.b[role]))
    return zip(left, right, strict=True)


def _by_keys(layer: Layer, role: Role) -> Beside:
    """Heads whose keys are most alike, one-to-one; by number where no keys were read."""
    if Role.K not in layer.a:
        return _by_number(layer, role)
    left, right = (unit_rows(_flat(side[Role.K])) for side in (layer.a, layer.b))
    chosen = zip(*linear_sum_assignment(left @ right.T, maximize=True), strict=True)
    return [(layer.a[role][i], layer.b[role][j]) for i, j in chosen]


def _flat(heads: Heads) -> NDArray[np.float64]:
    return heads.reshape(len(heads), -1).astype(np.float64)


def _groups(layers: Sequence[Layer], pools: bool) -> list[View]:
    """Whole groups by their keys, where there are enough of them."""
    asked = [layer for layer in layers if Role.K in layer.a]
    sizes = [min(len(layer.a[Role.K]), len(layer.b[Role.K])) for layer in asked]
    if math.fsum(math.lgamma(n + 1) for n in sizes) < ENOUGH:
        return []
    ways = [("", _by_number), (", several averaged beside one", _averaged)]
    width = layers[0].a[Role.V].shape[2]
    return [View("KV groups", how, _group_sets(asked, beside), width) for how, beside in ways[: 2 if pools else 1]]


def _group_sets(layers: Sequence[Layer], beside: Callable[[Layer, Role], Beside]) -> tuple[Set, ...]:
    found = []
    for layer in layers:
        left, right = zip(*beside(layer, Role.K), strict=True)
        found.append((*layer.names, np.array([x.ravel() for x in left]), np.array([x.ravel() for x in right])))
    return tuple(found)
