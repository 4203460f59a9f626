"""A narrower model as a part of a wider one: which hidden axes, neurons and key groups it kept.

Axes are looked for twice, by the columns of the embedding on one half of the shared tokens and on the other: between
strangers the two choose the same for one axis. Neurons and groups follow from the axes. Where the hidden axes were also
disguised, alignment has found the axes, and both models are read on those of the narrower: what the other has beside
them was cut off or put in, and is no change of what both have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from modelkin.alignment import Rewritten, rewritten
from modelkin.alignment.axes import WRITERS as STREAM_WRITERS
from modelkin.alignment.axes import gain_before, of_width, onto
from modelkin.architectures import Anatomy
from modelkin.architectures.anatomy import Facts
from modelkin.records import Role, Slot
from modelkin.relation.reading import Floats, Indices, LayerMap, Tokens, Weights, in_layer, spread

EMBEDDING = Slot(Role.EMBEDDING)
MOST_TOKENS = 4096
FEWEST_TOKENS = 64
FOUND = 0.5  # of the axes, to go on with
MOST_ASSIGNED = 4096  # beyond, every row takes the nearest
READERS = frozenset({Role.Q, Role.K, Role.V, Role.GATE, Role.UP, Role.ROUTER, Role.EMBEDDING, Role.HEAD})
WRITERS = frozenset({Role.O, Role.DOWN})
BY_GROUP = {Role.Q: 0, Role.K: 0, Role.V: 0, Role.O: 1}
BY_NEURON = {Role.GATE: 0, Role.UP: 0, Role.DOWN: 1}


@dataclass(frozen=True, eq=False)
class Narrowing:
    """`axes[j]`: the hidden axis of the wider model that is axis j of the narrower; `found` of them were chosen twice.

    `neurons` and `groups` by layer of the wider model.
    """

    axes: Indices
    found: int
    neurons: Mapping[str, Indices]
    groups: Mapping[str, Indices]


def other_width(b: Weights) -> Rewritten | None:
    """b, if it was rewritten beside a model of another width."""
    return b if isinstance(b, Rewritten) and len(set(b.axes.rotation.shape)) > 1 else None


def of_own_width(b: Weights) -> Weights:
    """b as wide as it is stored: all of its parameters are counted, also those that the other has no place for."""
    turned = other_width(b)
    return b if turned is None else rewritten(turned.alignment, own_axes=True)


def on_common_axes(a: Weights, b: Weights) -> tuple[Weights, Weights]:
    """Both on the axes of the narrower. A wider b was rewritten on those of a, and that is all of them."""
    turned = other_width(b)
    if turned is None or turned.axes.rotation.shape[0] < turned.axes.rotation.shape[1]:
        return a, b
    return OnAxesOf(turned.alignment.a, turned.axes.rotation), of_own_width(b)


def narrowing(wide: Weights, narrow: Weights, layers: LayerMap, tokens: Tokens | None) -> Narrowing | None:
    """`layers`: (layer of the narrower, of the wider); `tokens.a` are rows of the wider. None: it is no part of it.

    Without tokens both stand on the same axes already.
    """
    if EMBEDDING not in wide.slots or EMBEDDING not in narrow.slots:
        return None
    width = narrow.shape(EMBEDDING)[1]
    axes, found = np.arange(width, dtype=np.intp), width
    if tokens is not None:
        if len(tokens.a) < FEWEST_TOKENS or width > wide.shape(EMBEDDING)[1]:
            return None
        axes, found = _axes(wide, narrow, tokens)
    if found < FOUND * len(axes):
        return None
    beside = [(mine, theirs) for theirs, mine in layers if mine is not None]
    neurons = {
        mine: rows for mine, theirs in beside if (rows := _neurons(wide, narrow, mine, theirs, axes)) is not None
    }
    groups = {mine: some for mine, theirs in beside if (some := _groups(wide, narrow, mine, theirs, axes)) is not None}
    return Narrowing(axes, found, neurons, groups)


def _axes(wide: Weights, narrow: Weights, tokens: Tokens) -> tuple[Indices, int]:
    chosen = spread(len(tokens.a), MOST_TOKENS)
    mine, theirs = wide.read(EMBEDDING, tokens.a[chosen]), narrow.read(EMBEDDING, tokens.b[chosen])
    halves = [_assigned(theirs[part::2].T, mine[part::2].T) for part in (0, 1)]
    return _assigned(theirs.T, mine.T), int(np.sum(halves[0] == halves[1]))


def _assigned(rows: Floats, among: Floats) -> Indices:
    """For every row the one that is most like it, one to one where that can be afforded."""
    likeness = _unit(rows) @ _unit(among).T
    if len(among) > MOST_ASSIGNED or len(rows) > len(among):
        return np.asarray(np.argmax(likeness, axis=1), dtype=np.intp)
    return np.asarray(linear_sum_assignment(-likeness)[1], dtype=np.intp)


def _unit(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(size > 0, size, 1))


def _neurons(wide: Weights, narrow: Weights, mine: str, theirs: str, axes: Indices) -> Indices | None:
    up_wide, up_narrow = in_layer(Slot(Role.UP), mine), in_layer(Slot(Role.UP), theirs)
    if up_wide not in wide.slots or up_narrow not in narrow.slots:
        return None
    return _assigned(narrow.read(up_narrow), wide.read(up_wide)[:, axes])


def _groups(wide: Weights, narrow: Weights, mine: str, theirs: str, axes: Indices) -> Indices | None:
    """Key groups by their keys and values; None where both have as many."""
    size, slots = wide.facts.head_dim, [in_layer(Slot(role), mine) for role in (Role.K, Role.V)]
    others = [in_layer(slot, theirs) for slot in slots]
    if not size or narrow.facts.head_dim != size or any(slot not in wide.slots for slot in slots):
        return None
    if any(slot not in narrow.slots for slot in others) or wide.shape(slots[0])[0] == narrow.shape(others[0])[0]:
        return None
    left = np.hstack([wide.read(slot)[:, axes].reshape(-1, size * len(axes)) for slot in slots])
    right = np.hstack([narrow.read(slot).reshape(-1, size * len(axes)) for slot in others])
    return _assigned(right, left)


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a model, read through the same interface."""

    whole: Weights

    @property
    def facts(self) -> Facts:
        return self.whole.facts

    @property
    def slots(self) -> Mapping[Slot, Any]:
        return self.whole.slots

    @property
    def layers(self) -> tuple[str, ...]:
        return self.whole.layers

    def dtype(self, slot: Slot) -> str:
        return self.whole.dtype(slot)


@dataclass(frozen=True, eq=False)
class OnAxesOf(Part):
    """A wider model on the axes of a narrower one, gains multiplied into its readers."""

    whole: Anatomy
    rotation: Floats  # (axes of the wider, of the narrower)

    def shape(self, slot: Slot) -> tuple[int, ...]:
        return of_width(slot, self.whole.shape(slot), self.rotation.shape[1])

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        gain = gain_before(self.whole, slot, slot.layer_name or None)
        if slot.role in STREAM_WRITERS:  # whose rows are the axes
            whole = onto(self.rotation, slot, self.whole.read(slot), gain)
            return whole if rows is None else whole[rows]
        return onto(self.rotation, slot, self.whole.read(slot, rows), gain)


@dataclass(frozen=True, eq=False)
class Narrowed(Part):
    """The wider model cut to what the narrower one kept."""

    kept: Narrowing

    def shape(self, slot: Slot) -> tuple[int, ...]:
        cuts = self._cuts(slot)
        return tuple(len(cuts[i]) if i in cuts else size for i, size in enumerate(self.whole.shape(slot)))

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        cuts = self._cuts(slot)
        whole = self.whole.read(slot, rows if 0 not in cuts else None)
        for axis, index in cuts.items():
            whole = np.take(whole, index, axis=axis)
        return whole[rows] if rows is not None and 0 in cuts else whole

    def _cuts(self, slot: Slot) -> dict[int, Indices]:
        """Which entries remain along which axis."""
        cuts: dict[int, Indices] = {}
        if slot.role in READERS:
            cuts[1] = self.kept.axes
        elif slot.role in WRITERS or self._on_stream(slot):
            cuts[0] = self.kept.axes
        if slot.role in BY_NEURON and slot.layer_name in self.kept.neurons and slot.expert is None:
            cuts[BY_NEURON[slot.role]] = self.kept.neurons[slot.layer_name]
        if slot.role in BY_GROUP and slot.layer_name in self.kept.groups:
            axis = BY_GROUP[slot.role]
            groups = self.kept.groups[slot.layer_name]
            count = self.whole.shape(in_layer(Slot(Role.K), slot.layer_name))[0] // (self.facts.head_dim or 1)
            size = self.whole.shape(slot)[axis] // count
            cuts[axis] = (groups[:, None] * size + np.arange(size)).ravel()
        return cuts

    def _on_stream(self, slot: Slot) -> bool:
        """Gains and biases of the residual stream, told by their length."""
        told = slot.role.is_gain or slot.role.is_bias
        return told and self.whole.shape(slot) == (self.whole.shape(EMBEDDING)[1],)
