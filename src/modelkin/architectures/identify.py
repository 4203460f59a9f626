"""names -> roles: which family a checkpoint belongs to, and its anatomy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from modelkin.architectures.anatomy import Anatomy
from modelkin.architectures.checks import check_anatomy
from modelkin.architectures.choosing import choose_family, fitted
from modelkin.architectures.config import read_dimensions, text_part
from modelkin.architectures.facts import gather_facts
from modelkin.architectures.family import Family, known_families
from modelkin.architectures.placing import Names, Placing
from modelkin.architectures.plausible import Sample, measured
from modelkin.architectures.templates import Placed, Table
from modelkin.architectures.tying import settle_head
from modelkin.records import Role, Slot, TensorRef

if TYPE_CHECKING:
    from modelkin.checkpoint import Checkpoint

ROLE_ORDER = {role: index for index, role in enumerate(Role)}
MAX_NOTES = 200
_TURN = threading.Lock()


def identify(checkpoint: Checkpoint) -> Anatomy:
    """The anatomy of a checkpoint, from its config and its tensor table.

    No weight is read, but for a few rows where the config calls two stored tensors one (see `tying`).
    """
    # Two models opened side by side take turns: the first is back at its network reads while the second computes.
    with _TURN:
        return _identify(checkpoint)


def _identify(checkpoint: Checkpoint) -> Anatomy:
    config = text_part(checkpoint.config)
    names = Names(checkpoint.tensors)
    family, notes = choose_family(config, names)
    family, table = fitted(family, config, names)
    dims, complaints = read_dimensions(config, family)
    placing = Placing(checkpoint.tensors, family, table, measured(dims, samples(checkpoint.tensors, names, table)))
    placing.run(names, checkpoint.layout.packed)
    tied = settle_head(placing, dims, config.get("architectures"), checkpoint.read_many)
    facts = gather_facts(placing, config, dims, tied)
    notes = [*notes, *complaints, *placing.notes, *check_anatomy(placing, dims, facts.hidden)]
    return Anatomy(
        checkpoint,
        facts,
        dict(sorted(placing.slots.items(), key=lambda item: _order(item[0]))),
        tuple(placing.unmapped),
        placing.apart,
        tuple(notes[:MAX_NOTES]),
        layer_names(placing.layers),
    )


def families() -> tuple[Family, ...]:
    """Every family that is mapped, by name."""
    return known_families()


def samples(tensors: Mapping[str, TensorRef], names: Names, table: Table) -> list[Sample]:
    """One tensor of every pattern that has a place."""
    found = ((table.place(pattern, names.sample(pattern)), name) for pattern, name in names.firsts.items())
    return [(placed, tensors[name]) for placed, name in found if isinstance(placed, Placed)]


def layer_names(layers: Mapping[str, set[int]]) -> tuple[str, ...]:
    stacks = sorted(layers, key=lambda stack: (stack != "encoder", stack))
    return tuple(Slot(Role.Q, layer, None, stack).layer_name for stack in stacks for layer in sorted(layers[stack]))


def _order(slot: Slot) -> tuple[bool, str, int, int, int]:
    layer, expert = slot.layer, slot.expert
    return (
        slot.stack == "decoder",
        slot.stack,
        -1 if layer is None else layer,
        ROLE_ORDER[slot.role],
        -1 if expert is None else expert,
    )
