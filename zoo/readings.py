"""What is kept of a model as what a question reads: so that questions can be asked of the zoo without its weights."""

from __future__ import annotations

from modelkin.architectures.family import load_family
from modelkin.records import Cut, Portrait, Role, Slot
from modelkin.sampling.readings import Floats, Readings
from zoo.measured import Sample

ROWS = (Role.GATE, Role.UP)


def readings(sample: Sample) -> Readings:
    """Gains and biases on the residual stream, and the rows of gate and up that the quick questions want."""
    arrays: dict[Cut, Floats] = {}
    for key in sample.arrays:
        slot = slot_of(key)
        if slot is None:
            continue
        if slot.role in ROWS:
            rows = sample.rows(slot.role.value, slot.layer or 0, slot.expert)
            arrays[Cut(slot, sample.offset, sample.offset + len(rows))] = rows
        else:
            arrays[Cut(slot)] = sample.vector(key)
    return Readings(portrait(sample), arrays)


def slot_of(key: str) -> Slot | None:
    """`3.gate.1` is the gate of expert 1 in layer 3; None for what the quick questions do not read."""
    parts = key.split(".")
    layer = int(parts.pop(0)) if parts[0].isdigit() else None
    role = Role(parts[0])
    if role in (Role.ROUTER, Role.EMBEDDING):
        return None
    return Slot(role, layer=layer, expert=int(parts[1]) if len(parts) > 1 else None)


def portrait(sample: Sample) -> Portrait:
    shape, family = sample.truth["shape"], load_family(sample.truth["family"])
    return Portrait(
        family=family.name,
        layers=tuple(str(i) for i in range(shape["layers"])),
        hidden=shape["hidden"],
        neurons=shape["neurons"],
        heads=None,
        kv_heads=None,
        head_dim=None,
        experts=shape["experts"] or None,
        norm=family.facts.norm,
        gain_offset=sample.gain_offset,
        positions=family.facts.positions,
        tied=False,
        exchangeable_hidden=family.facts.exchangeable_hidden,
        why=family.why,
    )
