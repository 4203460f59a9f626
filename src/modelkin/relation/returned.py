"""A disguised model turned back as far as un-mixing needs it: MLPs alone, beside a mixture and not beside one model.

A rewritten model was turned until it lay as near as possible to one other. That moves it towards that one, by a part of
what sets the two apart, and hides what else it was mixed from. So it is turned again, and the free factors of its
neurons chosen again, beside the mixture of all sources that explains it best, and so on in turn. Gains are folded into
what reads behind them, on every side, for a turned model has no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.alignment import Rewritten, align, rewritten
from modelkin.architectures.anatomy import Facts
from modelkin.records import Role, Slot
from modelkin.relation.products import added, empty, solved
from modelkin.relation.reading import Floats, Weights, in_layer, spread

Doubles = NDArray[np.float64]
Named = tuple[str, Weights]
Target = Callable[[Slot], Doubles | None]
READERS = (Role.GATE, Role.UP, Role.SHARED_GATE, Role.SHARED_UP)
WRITERS = (Role.DOWN, Role.SHARED_DOWN)
SCALED = {Role.UP: Role.GATE, Role.SHARED_UP: Role.SHARED_GATE}  # free to be scaled where something opens the neuron
BEFORE = {Role.DOWN: Role.UP, Role.SHARED_DOWN: Role.SHARED_UP}
NORMS = (Role.POST_NORM, Role.INPUT_NORM)  # parallel blocks read behind the first
ROUNDS = 3  # each leaves a hundredth of what the one before left, with some fifty rows an axis
ENOUGH = 64  # rows an axis that a turn is found by
SOME_ROWS = 64  # of a layer, by which it is seen whose coordinates a candidate has
IN_PLACE = 0.3  # correlation of relatives that stand in one place
FINE = ("F32", "F64")


class OfItsShape:
    """What reads like the model it is made from, but for its values."""

    whole: Weights

    @property
    def facts(self) -> Facts:
        return self.whole.facts

    @property
    def layers(self) -> tuple[str, ...]:
        return self.whole.layers

    def shape(self, slot: Slot) -> tuple[int, ...]:
        return self.whole.shape(slot)


@dataclass(frozen=True, eq=False)
class Folded(OfItsShape):
    """The MLPs of a model, gains multiplied into what reads behind them."""

    whole: Weights
    slots: Mapping[Slot, Any]

    def dtype(self, slot: Slot) -> str:
        return self.whole.dtype(slot)

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        gain = gain_before(self.whole, slot)
        return self.whole.read(slot, rows) if gain is None else np.asarray(self.whole.read(slot, rows) * gain)


@dataclass(eq=False)
class Returned(OfItsShape):
    """The MLPs of a turned model in the coordinates of another, folded, turned by `turn` beyond what was found before.

    `beside`: whose gains its readers were written with. `factors`: by the slot of what feeds the neurons.
    """

    whole: Rewritten
    beside: Weights
    slots: Mapping[Slot, Any]
    turn: Doubles
    factors: dict[Slot, Doubles] = field(default_factory=dict)

    def dtype(self, slot: Slot) -> str:
        """What it may have been rounded to: a mixture is often stored as its sources are before it is turned."""
        stored = self.whole.alignment.b.dtype(slot)
        return self.beside.dtype(slot) if stored in FINE and slot in self.beside.slots else stored

    def as_found(self, slot: Slot) -> Doubles:
        """Folded, before anything was turned again; with its factors."""
        gain = gain_before(self.whole, slot)  # its own where they kept their places
        gain = gain_before(self.beside, self.there(slot)) if gain is None else gain
        values = self.whole.read(slot).astype(np.float64) * (1 if gain is None else gain)
        factors = self.factors.get(fed_by(slot))
        if factors is None:
            return np.asarray(values)
        return np.asarray(values / factors if slot.role in WRITERS else values * factors[:, None])

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        found = self.as_found(slot)
        turned = self.turn.T @ found if slot.role in WRITERS else found @ self.turn
        return np.asarray(turned if rows is None else turned[rows], dtype=np.float32)

    def there(self, slot: Slot) -> Slot:
        """Its readers were written with the gains of the layer that this one continues."""
        layer = self.whole.alignment.continued().get(slot.layer_name)
        return slot if layer is None else msgspec.structs.replace(slot, layer=int(layer.rpartition(".")[2]))


def fed_by(slot: Slot) -> Slot:
    """The slot that a neuron's free factor goes by."""
    return msgspec.structs.replace(slot, role=BEFORE.get(slot.role, slot.role))


def gain_before(weights: Weights, slot: Slot) -> Floats | None:
    """The gains that the stream is multiplied by before this reads it."""
    norms = [Slot(role, layer=slot.layer, stack=slot.stack) for role in NORMS if slot.role in READERS]
    known = [norm for norm in norms if norm in weights.slots and len(weights.shape(norm)) == 1]
    return weights.read(known[0]) if known else None


# Whose coordinates.


class Placed(NamedTuple):
    """A pair and further models in the coordinates of these; one of the pair turned back, where it was disguised."""

    a: Weights
    b: Weights
    candidates: Sequence[Named]


def placed(a: Named, b: Named, candidates: Sequence[Named]) -> Placed:
    """As they are, unless b had to be rewritten in the coordinates of a.

    Candidates have the coordinates of a, or those of b as it is stored; then it is a that is turned back.
    """
    found = _rewritten_one(a[1], b[1], candidates)
    if found is None:
        return Placed(a[1], b[1], candidates)
    product, beside = found
    turned_b = product is b[1]
    name = a[0] if turned_b else b[0]
    again = turned_again(product, beside, [(name, beside), *candidates])
    if again is None:
        return Placed(a[1], b[1], candidates)
    returned, (other, *folded) = again
    return Placed(other[1], returned, folded) if turned_b else Placed(returned, other[1], folded)


def _rewritten_one(a: Weights, b: Weights, candidates: Sequence[Named]) -> tuple[Rewritten, Weights] | None:
    """Which of the two is turned back, and the other; None where neither was turned, or no candidate stands there."""
    if not isinstance(b, Rewritten):
        return None
    if any(_stands_beside(third, a) for _, third in candidates):
        return b, a
    stored = b.alignment.b
    if not any(_stands_beside(third, stored) for _, third in candidates):
        return None
    back = align(stored, b.alignment.a, np.random.default_rng(0))
    return None if back.rotation is None else (rewritten(back), stored)


def _stands_beside(third: Weights, other: Weights) -> bool:
    found = []
    for slot in _mlp(other):
        if slot in third.slots and third.shape(slot) == other.shape(slot):
            x, y = (w.read(slot, spread(w.shape(slot)[0], SOME_ROWS)).astype(np.float64) for w in (third, other))
            found.append(float(np.vdot(x, y)) / max(1e-300, float(np.linalg.norm(x) * np.linalg.norm(y))))
    return bool(found) and float(np.median(found)) >= IN_PLACE


def _mlp(weights: Weights) -> list[Slot]:
    return [slot for slot in weights.slots if slot.role in (*READERS, *WRITERS) and np.prod(weights.shape(slot))]


# Turning again.


def turned_again(product: Rewritten, beside: Weights, sources: Sequence[Named]) -> tuple[Returned, list[Named]] | None:
    """The product beside the mixture of the sources that it is nearest to, and the sources, all folded.

    `beside`: the model in whose coordinates the product was rewritten. None where the product has no MLP.
    """
    slots = {slot: product.slots[slot] for slot in _mlp(product)}
    if not slots:
        return None
    folded: list[Named] = [(name, Folded(w, {slot: w.slots[slot] for slot in _mlp(w)})) for name, w in sources]
    found = Returned(product, beside, slots, np.eye(product.facts.hidden or 0))
    _fitted(found, _continued(found))
    alike = _stand_alike(found, folded)
    for _ in range(ROUNDS):
        _fitted(found, _mixture(found, folded) if alike else _nearest_layers(found, folded))
    return found, folded


def _continued(found: Returned) -> Target:
    """Every slot beside the one that it continues, by the layer map."""
    model = Folded(found.beside, found.beside.slots)

    def target(slot: Slot) -> Doubles | None:
        there = found.there(slot)
        fits = there in model.slots and model.shape(there) == found.shape(slot)
        return model.read(there).astype(np.float64) if fits else None

    return target


def _stand_alike(found: Returned, sources: Sequence[Named]) -> bool:
    """Whether all have the same slots and layers stand at their own places; layers that were stacked do not."""
    same = all(slot in w.slots and w.shape(slot) == found.shape(slot) for slot in found.slots for _, w in sources)
    return same and all(found.there(slot) == slot for slot in found.slots)


def _mixture(found: Returned, sources: Sequence[Named]) -> Target:
    """The mixture that every slot is nearest to, with weights of its own."""

    def target(slot: Slot) -> Doubles:
        products, parts = empty(len(sources)), [w.read(slot) for _, w in sources]
        added(products, found.read(slot), parts, found.dtype(slot))
        own = solved([products])
        return np.asarray(sum(weight * part.astype(np.float64) for weight, part in zip(own, parts, strict=True)))

    return target


def _nearest_layers(found: Returned, sources: Sequence[Named]) -> Target:
    """Every layer beside the one that it is nearest to, of any source: layers may have been stacked."""
    known = [(w, layer) for _, w in sources for layer in w.layers]
    chosen: dict[str, tuple[Weights, str] | None] = {}

    def nearest(slot: Slot) -> tuple[Weights, str] | None:
        mine = found.read(slot)
        away = [
            (float(np.linalg.norm(mine - w.read(in_layer(slot, layer)))), place)
            for place, (w, layer) in enumerate(known)
            if in_layer(slot, layer) in w.slots and w.shape(in_layer(slot, layer)) == mine.shape
        ]
        return known[min(away)[1]] if away else None

    def target(slot: Slot) -> Doubles | None:
        if slot.layer_name not in chosen:
            chosen[slot.layer_name] = nearest(slot)
        there = chosen[slot.layer_name]
        if there is None or in_layer(slot, there[1]) not in there[0].slots:
            return None
        return there[0].read(in_layer(slot, there[1])).astype(np.float64)

    return target


def _fitted(found: Returned, target: Target) -> None:
    """One turn for the whole stream and a factor for every neuron: those that bring it nearest to the target."""
    if found.whole.axes.hidden == "rotation":
        found.turn = _turn(found, target)
    for slot in [slot for slot in found.slots if slot.role in SCALED]:
        before = found.factors.get(slot, np.ones(found.shape(slot)[0]))
        found.factors[slot] = before * _factors(found, target, slot)


def _turn(found: Returned, target: Target) -> Doubles:
    """By Procrustes, from a part of the rows where there are many."""
    width, rows = len(found.turn), 0
    cross = np.zeros((width, width))
    slots = list(found.slots)
    for slot in (slots[i] for i in np.random.default_rng(0).permutation(len(slots))):
        mine, theirs = found.as_found(slot), target(slot)
        if theirs is not None:
            cross += mine @ theirs.T if slot.role in WRITERS else mine.T @ theirs
            rows += mine.size // width
        if rows >= ENOUGH * width:
            break
    if not rows or not np.isfinite(cross).all():
        return found.turn
    u, _, vt = np.linalg.svd(cross)
    return np.asarray(u @ vt)


def _factors(found: Returned, target: Target, up: Slot) -> Doubles:
    """What each neuron's input must be multiplied by, and its output divided; one where nothing opens it."""
    gate = msgspec.structs.replace(up, role=SCALED[up.role])
    down = next((slot for slot in found.slots if slot.role in WRITERS and fed_by(slot) == up), None)
    ones = np.ones(found.shape(up)[0])
    if gate not in found.slots or down is None:
        return ones
    read, written = target(up), target(down)
    if read is None or written is None:
        return ones
    sides = ((found.read(up).astype(np.float64), read), (found.read(down).astype(np.float64).T, written.T))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale, back = (np.sum(mine * theirs, axis=1) / np.sum(mine**2, axis=1) for mine, theirs in sides)
        sizes = np.sum(read**2, axis=1), np.sum(written**2, axis=0)
        log = (sizes[0] * np.log(scale) - sizes[1] * np.log(back)) / (sizes[0] + sizes[1])
    return np.where(np.isfinite(log), np.exp(log), ones)
