"""A layer in the coordinates of the residual stream: gains folded into what reads it, heads summed where they may move.

Whoever disguises a model without changing what it says may rotate the residual stream, move gains between norms and
matrices, renumber heads and neurons, and change the basis inside a head. None of these touches the products below, but
for the rotation, which turns all of them in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.records import Role, Slot

Floats = NDArray[np.float32]
Span = tuple[int, int]  # neurons [start, stop)
MLP_ROLES = (Role.GATE, Role.UP, Role.DOWN)
SHARED_ROLES = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN)


class Unfit(ValueError):
    """Why a part of a model cannot take part, as a sentence."""


@dataclass(frozen=True, order=True)
class Block:
    """A set of neurons that may be renumbered: the MLP of a layer, one of its experts, or its shared expert."""

    layer: str
    expert: int = -1  # -1: not one of several
    shared: bool = False

    def slots(self) -> tuple[Slot, Slot, Slot]:
        """Gate, up and down."""
        expert = None if self.expert < 0 else self.expert
        gate, up, down = (slot_of(r, self.layer, expert) for r in (SHARED_ROLES if self.shared else MLP_ROLES))
        return gate, up, down


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix on the residual stream as leftᵀ·right, both (r, d)."""

    left: Floats
    right: Floats


@dataclass(frozen=True, eq=False)
class Neurons:
    """Rows (n, d) of one block: what opens each neuron, what it reads, where it writes. No gate: None."""

    gate: Floats | None
    up: Floats
    down: Floats


def slot_of(role: Role, layer: str, expert: int | None = None) -> Slot:
    """A slot by the name of its layer, `3` or `encoder.3`."""
    stack, _, number = layer.rpartition(".")
    return Slot(role, layer=int(number), expert=expert, stack=stack)


def blocks(anatomy: Anatomy, layer: str) -> list[Block]:
    """The blocks of a layer whose shapes are those of neurons on the stream: the shared expert last."""
    experts = range(anatomy.facts.experts or 0)
    named = [Block(layer), *(Block(layer, expert) for expert in experts), Block(layer, shared=True)]
    return [block for block in named if _fits(anatomy, block)]


def _fits(anatomy: Anatomy, block: Block) -> bool:
    gate, up, down = block.slots()
    if up not in anatomy.slots or down not in anatomy.slots:
        return False
    shape = anatomy.shape(up)
    gated = gate not in anatomy.slots or anatomy.shape(gate) == shape
    return len(shape) == 2 and min(shape) > 0 and anatomy.shape(down) == shape[::-1] and gated


def gated(anatomy: Anatomy, block: Block) -> bool:
    return block.slots()[0] in anatomy.slots


def neurons(anatomy: Anatomy, block: Block, span: Span | None = None) -> Neurons:
    """All neurons of a block, or those of a span."""
    gate, up, down = block.slots()
    rows = None if span is None else slice(*span)
    readers = [slot for slot in (up, gate) if slot in anatomy.slots]
    found = anatomy.read_many([*((slot, rows) for slot in readers), (down, None, span)])
    gain = reader_gain(anatomy, block.layer, Role.POST_NORM, found[0].shape[1])
    out = _writer_gain(anatomy, block.layer, Role.MLP_OUT_NORM, len(found[-1]))
    _check_finite(anatomy, block.layer, (*found, gain, out))
    return Neurons(
        gate=_on_stream(anatomy, found[1], gain) if len(readers) == 2 else None,
        up=_on_stream(anatomy, found[0], gain),
        down=_on_stream(anatomy, np.ascontiguousarray(found[-1].T), out),
    )


@dataclass(frozen=True, eq=False)
class Heads:
    """Rows of q, k, v and columns of o on the stream, (heads or groups, head size, d)."""

    q: Floats
    k: Floats
    v: Floats
    o: Floats


def heads(anatomy: Anatomy, layer: str) -> Heads | None:
    """Plain or grouped attention; None where the layer has another kind, or none."""
    slots = attention_slots(anatomy, layer)
    if slots is None:
        return None
    size = anatomy.facts.head_dim or 0
    q, k, v, o = anatomy.read_many([(slot, None) for slot in slots])
    gain = reader_gain(anatomy, layer, Role.INPUT_NORM, q.shape[1])
    out = _writer_gain(anatomy, layer, Role.ATTN_OUT_NORM, len(o))
    _check_finite(anatomy, layer, (q, k, v, o, gain, out))
    read = [_on_stream(anatomy, part, gain) for part in (q, k, v)]
    written = _on_stream(anatomy, np.ascontiguousarray(o.T), out)
    return Heads(*(part.reshape(-1, size, part.shape[1]) for part in (*read, written)))


def attention_slots(anatomy: Anatomy, layer: str) -> tuple[Slot, ...] | None:
    slots = tuple(slot_of(role, layer) for role in (Role.Q, Role.K, Role.V, Role.O))
    size = anatomy.facts.head_dim
    if not size or any(slot not in anatomy.slots or len(anatomy.shape(slot)) != 2 for slot in slots):
        return None
    q, k, v, o = (anatomy.shape(slot) for slot in slots)
    whole = k[0] and not q[0] % size and not k[0] % size and not q[0] % k[0]
    return slots if whole and v == k and q[1] == k[1] and o == q[::-1] else None


def attention(anatomy: Anatomy, layer: str) -> tuple[Factors, Factors] | None:
    """What queries ask of keys, and what values write: QK and OV, each summed over the heads.

    Queries of one key group are added up, and so are their outputs: the sum over heads of qᵀk is the sum over groups of
    (Σq)ᵀk. None where the layer has no plain attention.
    """
    found = heads(anatomy, layer)
    if found is None:
        return None
    groups, size, width = found.k.shape
    asked, written = (part.reshape(groups, -1, size, width).sum(axis=1) for part in (found.q, found.o))
    flat = [part.reshape(-1, width) for part in (asked, found.k, written, found.v)]
    return Factors(flat[0], flat[1]), Factors(flat[2], flat[3])


def router(anatomy: Anatomy, layer: str) -> Floats | None:
    """What chooses each expert, less what all choices have in common: a softmax does not see that.  (experts, d)"""
    slot = slot_of(Role.ROUTER, layer)
    if slot not in anatomy.slots or len(anatomy.shape(slot)) != 2:
        return None
    rows = anatomy.read(slot)
    gain = reader_gain(anatomy, layer, Role.POST_NORM, rows.shape[1])
    _check_finite(anatomy, layer, (rows, gain))
    folded = _on_stream(anatomy, rows, gain)
    return np.asarray(folded - folded.mean(axis=0))


def reader_gain(anatomy: Anatomy, layer: str, role: Role, width: int) -> Floats:
    """What the stream is multiplied by before it is read. Parallel blocks have one norm for both readers."""
    for slot in (slot_of(role, layer), slot_of(Role.INPUT_NORM, layer)):
        if slot in anatomy.slots and anatomy.shape(slot) == (width,):
            return anatomy.read(slot)
    return np.ones(width, dtype=np.float32)


def _writer_gain(anatomy: Anatomy, layer: str, role: Role, width: int) -> Floats:
    slot = slot_of(role, layer)
    fits = slot in anatomy.slots and anatomy.shape(slot) == (width,)
    return anatomy.read(slot) if fits else np.ones(width, dtype=np.float32)


def _on_stream(anatomy: Anatomy, rows: Floats, gain: Floats) -> Floats:
    """Rows as they meet the stream: LayerNorms take the mean out of it, so what a row says to the mean is void."""
    folded = rows * gain
    if anatomy.facts.norm == "layer":
        folded -= folded.mean(axis=1, keepdims=True)
    return folded


def _check_finite(anatomy: Anatomy, layer: str, arrays: tuple[Floats, ...]) -> None:
    if not all(bool(np.isfinite(array).all()) for array in arrays):
        raise Unfit(f"layer {layer} of {anatomy.checkpoint.id} holds values that are not finite")
