"""b in the coordinates of a: the same model, with its hidden axes, neurons, heads and experts where a has theirs.

Reads like any other anatomy, so that every question may be asked of a and the rewritten b. What can have no place there
is not among its slots, and `left_out` says why. Rows are made when they are asked for; no more than a layer is held.
Layers keep the numbers that they have in b. Inside a head, queries and keys stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from modelkin.alignment.aligning import Alignment
from modelkin.alignment.axes import WRITERS, Axes, gains_agree, readers_agree
from modelkin.alignment.banks import experts_by_rotation
from modelkin.alignment.folding import Block, Unfit, blocks, neurons
from modelkin.alignment.heads import head_map
from modelkin.alignment.mixing import HeadOrder, head_order_of
from modelkin.alignment.pairing import NeuronOrder, neuron_order
from modelkin.alignment.sides import Side, Sides
from modelkin.alignment.summary import head_order as order_of_heads
from modelkin.alignment.summary import neuron_order as order_of_neurons
from modelkin.architectures import Anatomy
from modelkin.architectures.anatomy import Wanted
from modelkin.architectures.views import Columns, Floats, Rows, View, chosen
from modelkin.errors import NothingComparable
from modelkin.records import Role, Slot

NEURON_ROWS = (Role.GATE, Role.UP, Role.SHARED_GATE, Role.SHARED_UP, Role.GATE_BIAS, Role.UP_BIAS)
SCALED = (Role.UP, Role.SHARED_UP, Role.UP_BIAS)
NEURON_COLUMNS = (Role.DOWN, Role.SHARED_DOWN)
SHARED = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN)
QUERIES, KEYS, VALUES = (Role.Q, Role.Q_BIAS), (Role.K, Role.K_BIAS), (Role.V, Role.V_BIAS)
ROW_BY_ROW = (Role.EMBEDDING, Role.HEAD)  # a token each, in no order of a
EMBEDDING, HEAD = Slot(Role.EMBEDDING), Slot(Role.HEAD)
ROUTING = (Role.ROUTER, Role.ROUTER_BIAS)


@dataclass(frozen=True, eq=False)
class Rewritten(Anatomy):
    """b as a would have it. `left_out` names the slots of b without a place, each with the reason."""

    alignment: Alignment = field(kw_only=True)
    axes: Axes = field(kw_only=True)
    left_out: Mapping[Slot, str] = field(kw_only=True)
    _sides: Sides = field(kw_only=True)
    _neurons: dict[Block, NeuronOrder | None] = field(default_factory=dict, kw_only=True)
    _heads: dict[str, HeadOrder | None] = field(default_factory=dict, kw_only=True)
    _experts: dict[str, dict[int, int]] = field(default_factory=dict, kw_only=True)

    def read_many(self, wanted: Sequence[Wanted], kind: str = "tensor") -> list[Floats]:
        asked = [part if len(part) == 3 else (part[0], part[1], None) for part in wanted]
        return [self._one(slot, rows, columns, kind) for slot, rows, columns in asked]

    def bytes_of(self, wanted: Sequence[Wanted]) -> int:
        """Whole tensors: an order is known only once a layer was looked at."""
        return self.alignment.b.bytes_of([(self._stored(part[0]), None) for part in wanted])

    def view(self, slot: Slot) -> View:
        """One table for embedding and head is read as either: gains that were moved change what the head is."""
        both = slot == HEAD and HEAD not in self.slots and self.facts.tied
        return super().view(EMBEDDING if both else slot)

    def dtype(self, slot: Slot) -> str:
        """Turned numbers lie between those that the file's format can hold."""
        self.view(slot)
        return "F32"

    def _one(self, slot: Slot, rows: Rows, columns: Columns | None, kind: str) -> Floats:
        self.view(slot)  # says so if it has no place here
        stored, order = self._stored(slot), self._rows(slot)
        picked = chosen(rows, self.shape(slot)[0])
        if slot.role in ROW_BY_ROW:
            table = stored if stored in self.slots else EMBEDDING
            (part,) = self.alignment.b.read_many([(table, picked)], kind)
            found = self.axes.read(stored, part, None)
        elif slot.role in WRITERS or order is None:
            (whole,) = self.alignment.b.read_many([(stored, None)], kind)
            found = self.axes.read(stored, self._inside(slot, whole), self._layer_of_a(slot))[picked]
        else:
            (part,) = self.alignment.b.read_many([(stored, order.order[picked])], kind)
            scaled = (part.T * order.factors[picked]).T if slot.role in SCALED else part
            found = self.axes.read(stored, scaled, self._layer_of_a(slot))
        return np.ascontiguousarray(found if columns is None else found[:, slice(*columns)], dtype=np.float32)

    def _inside(self, slot: Slot, whole: Floats) -> Floats:
        """A whole tensor of b with its neurons, heads or experts in the order of a."""
        if slot.role in NEURON_COLUMNS:
            order = self._order(slot)
            return whole if order is None else whole[:, order.order] / order.factors
        if slot.role in ROUTING:
            found = self._expert_map(slot.layer_name)
            return whole[np.argsort([found[e] for e in range(len(whole))])] if _are_all(found, len(whole)) else whole
        heads = self._head_order(slot.layer_name) if slot.role in (*QUERIES, *KEYS, *VALUES, Role.O) else None
        if heads is None:
            return whole
        if slot.role is Role.O:
            return heads.outputs(whole)
        ways = {**dict.fromkeys(QUERIES, heads.queries), **dict.fromkeys(KEYS, heads.keys)}
        return ways.get(slot.role, heads.values)(whole)

    def _rows(self, slot: Slot) -> NeuronOrder | None:
        """The order of a slot's rows, where they are neurons; None where it is read whole."""
        if slot.role not in NEURON_ROWS:
            return None
        plain = np.arange(self.shape(slot)[0])
        return self._order(slot) or NeuronOrder(plain, np.ones(len(plain), dtype=np.float32))

    def _order(self, slot: Slot) -> NeuronOrder | None:
        stored = self._stored(slot)
        expert = -1 if stored.expert is None else stored.expert
        block = Block(slot.layer_name, expert, slot.role in SHARED)
        if block not in self._neurons:
            self._neurons[block] = self._matched(block)
        return self._neurons[block]

    def _matched(self, block: Block) -> NeuronOrder | None:
        """None where neurons stand in the order of a already, or where there is none: no counterpart, or no numbers."""
        there = self._counterpart(block)
        if there is None or order_of_neurons(self.alignment) == "identity":
            return None
        try:
            a, b = neurons(self.alignment.a, there), neurons(self.alignment.b, block)
        except Unfit:
            return None
        return neuron_order(a, b, self.axes.rotation, self._sides.rng)

    def _counterpart(self, block: Block) -> Block | None:
        layer = self.alignment.continued().get(block.layer)
        if layer is None:
            return None
        expert = self._expert_map(block.layer).get(block.expert, block.expert)
        known = blocks(self.alignment.a, layer)
        return next((there for there in (Block(layer, expert, block.shared), Block(layer)) if there in known), None)

    def _head_order(self, layer: str) -> HeadOrder | None:
        if layer not in self._heads:
            self._heads[layer] = self._found_heads(layer)
        return self._heads[layer]

    def _found_heads(self, layer: str) -> HeadOrder | None:
        there = self.alignment.continued().get(layer)
        if there is None or order_of_heads(self.alignment) != "permutation":
            return None
        found = next((each for each in self.alignment.heads if each.b == layer), None)
        found = found or head_map(self._sides, there, layer, self.axes.rotation)  # None where numbers are not finite
        return None if found is None else head_order_of(self.alignment.a, self.alignment.b, found, self.axes.rotation)

    def _expert_map(self, layer: str) -> dict[int, int]:
        """The expert of a that every expert of b continues; empty where there are none, or where one MLP became all."""
        there = self.alignment.continued().get(layer)
        if layer not in self._experts:
            self._experts[layer] = {} if there is None else self._found_experts(there, layer)
        return self._experts[layer]

    def _found_experts(self, there: str, layer: str) -> dict[int, int]:
        try:
            pairs = experts_by_rotation(self._sides, (there, layer), self.axes.rotation)
        except Unfit:
            return {}
        return {b: a for a, b in pairs or ()}

    def _stored(self, slot: Slot) -> Slot:
        """The slot of b that is read for one of the rewritten model: experts have the numbers of a.

        Where a has more of them, those of b keep their own: numbers that b does not have would leave some out.
        """
        found = self._expert_map(slot.layer_name) if slot.expert is not None else {}
        if not _are_all(found, self.alignment.b.facts.experts):
            return slot
        there = next((b for b, a in found.items() if a == slot.expert), slot.expert)
        return msgspec.structs.replace(slot, expert=there)

    def _layer_of_a(self, slot: Slot) -> str | None:
        return self.alignment.continued().get(slot.layer_name)


def _are_all(experts: Mapping[int, int], count: int | None) -> bool:
    """Whether the experts of b are so many of a, under the same numbers in another order."""
    return sorted(experts) == sorted(experts.values()) == list(range(count or 0))


def keeps_gains(alignment: Alignment) -> bool:
    """Whether gains stand where a has them. Else they were moved into matrices, and only both together compare."""
    if alignment.rotation is None:
        return False
    return gains_agree(alignment.a, alignment.b, alignment.rotation, alignment.continued())


def keeps_readers(alignment: Alignment) -> bool:
    """Whether rows that read behind norms are those of a as they stand: gains that differ were not moved into them."""
    return readers_agree(alignment.a, alignment.b, alignment.continued())


def rewritten(alignment: Alignment, own_axes: bool = False) -> Rewritten:
    """b of an alignment in the coordinates of a; or with its neurons, heads and experts there, but on its own axes."""
    b = alignment.b
    if alignment.rotation is None:
        raise NothingComparable("no layer was found, so there are no coordinates to rewrite in", where=b.checkpoint.id)
    axes = Axes(alignment.a, b, alignment.hidden, alignment.rotation, keeps_gains(alignment), own_axes)
    left_out = {slot: reason for slot in b.slots if (reason := axes.unwritable(slot)) is not None}
    slots = {
        slot: msgspec.structs.replace(view, shape=axes.shape(slot))
        for slot, view in b.slots.items()
        if slot not in left_out
    }
    return Rewritten(
        checkpoint=b.checkpoint,
        facts=msgspec.structs.replace(b.facts, hidden=alignment.rotation.shape[1 if own_axes else 0]),
        slots=slots,
        unmapped=b.unmapped,
        apart=b.apart,
        notes=b.notes,
        layers=b.layers,
        alignment=alignment,
        axes=axes,
        left_out=left_out,
        _sides=Sides(Side(alignment.a), Side(b), np.random.default_rng(0)),  # decides between equals alone
    )
