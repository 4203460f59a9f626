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


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix on the residual stream as leftᵀ·right, both (r, d)."""

    left: Floats
    right: Floats


@dataclass(frozen=True, eq=False)
class Neurons:
    """Rows (n, d) of one MLP or expert: what opens each neuron, what it reads, where it writes. No gate: None."""

    gate: Floats | None
    up: Floats
    down: Floats

    @property
    def views(self) -> tuple[Floats, ...]:
        """Every way to recognise a neuron, the most telling first."""
        return tuple(rows for rows in (self.gate, self.up, self.down) if rows is not None)


def attention(anatomy: Anatomy, layer: str) -> tuple[Factors, Factors] | None:
    """What queries ask of keys, and what values write: QK and OV, each summed over the heads.

    Queries of one key group are added up, and so are their outputs: the sum over heads of qᵀk is the sum over groups of
    (Σq)ᵀk. None where the layer has no plain attention.
    """
    slots = [_slot(role, layer) for role in (Role.Q, Role.K, Role.V, Role.O)]
    size = anatomy.facts.head_dim
    if not size or any(slot not in anatomy.slots for slot in slots):
        return None
    q, k, v, o = anatomy.read_many([(slot, None) for slot in slots])
    if any(len(rows) % size for rows in (q, k, v)) or len(q) % len(k) or len(v) != len(k) or o.shape[1] != len(q):
        return None
    gain = _reader_gain(anatomy, layer, Role.INPUT_NORM, q.shape[1])
    out = _writer_gain(anatomy, layer, Role.ATTN_OUT_NORM, len(o))
    groups, heads = len(k) // size, len(q) // len(k)
    asked = q.reshape(groups, heads, size, -1).sum(axis=1).reshape(len(k), -1)
    written = o.T.reshape(groups, heads, size, -1).sum(axis=1).reshape(len(k), -1)
    return Factors(_read(anatomy, asked, gain), _read(anatomy, k, gain)), Factors(
        written * out, _read(anatomy, v, gain)
    )


def neurons(anatomy: Anatomy, layer: str, expert: int | None = None, shared: bool = False) -> Neurons | None:
    """All neurons of the MLP of a layer, of one expert, or of its shared expert."""
    roles = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN) if shared else (Role.GATE, Role.UP, Role.DOWN)
    gate, up, down = (_slot(role, layer, expert) for role in roles)
    if up not in anatomy.slots or down not in anatomy.slots:
        return None
    wanted = [slot for slot in (up, down, gate) if slot in anatomy.slots]
    rows = anatomy.read_many([(slot, None) for slot in wanted])
    if rows[1].shape != rows[0].shape[::-1]:
        return None
    gain = _reader_gain(anatomy, layer, Role.POST_NORM, rows[0].shape[1])
    return Neurons(
        gate=_read(anatomy, rows[2], gain) if len(rows) == 3 else None,
        up=_read(anatomy, rows[0], gain),
        down=np.ascontiguousarray(rows[1].T) * _writer_gain(anatomy, layer, Role.MLP_OUT_NORM, len(rows[1])),
    )


def _slot(role: Role, name: str, expert: int | None = None) -> Slot:
    stack, _, layer = name.rpartition(".")
    return Slot(role, layer=int(layer), expert=expert, stack=stack)


def _reader_gain(anatomy: Anatomy, layer: str, role: Role, width: int) -> Floats:
    """Parallel blocks have one norm for both readers."""
    for slot in (_slot(role, layer), _slot(Role.INPUT_NORM, layer)):
        if slot in anatomy.slots and anatomy.shape(slot) == (width,):
            return anatomy.read(slot)
    return np.ones(width, dtype=np.float32)


def _writer_gain(anatomy: Anatomy, layer: str, role: Role, width: int) -> Floats:
    slot = _slot(role, layer)
    fits = slot in anatomy.slots and anatomy.shape(slot) == (width,)
    return anatomy.read(slot) if fits else np.ones(width, dtype=np.float32)


def _read(anatomy: Anatomy, rows: Floats, gain: Floats) -> Floats:
    """Rows as they meet the stream: a LayerNorm takes the mean out of it, so what a row says to the mean is void."""
    folded = rows * gain
    return folded - folded.mean(axis=1, keepdims=True) if anatomy.facts.norm == "layer" else folded
