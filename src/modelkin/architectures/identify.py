"""names -> roles: which family a checkpoint belongs to, and its anatomy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkin.architectures.anatomy import Anatomy
from modelkin.architectures.checks import check_anatomy
from modelkin.architectures.config import Dimensions, holds, read_dimensions, text_part
from modelkin.architectures.facts import gather_facts
from modelkin.architectures.family import (
    UNKNOWN,
    Family,
    family_of_class,
    family_of_type,
    known_families,
    load_family,
)
from modelkin.architectures.placing import Names, Placing
from modelkin.architectures.templates import Placed, Table
from modelkin.architectures.tying import settle_head
from modelkin.records import Role, Slot, TensorRef

if TYPE_CHECKING:
    from modelkin.checkpoint import Checkpoint

ROLE_ORDER = {role: index for index, role in enumerate(Role)}
STRAYS = 0.05  # the share of names that a guess by names may leave over
MAX_NOTES = 200
_TURN = threading.Lock()
MAX_PATTERNS = 1_000  # real models have some dozens


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
    placing = Placing(checkpoint.tensors, family, table, measured(dims, checkpoint.tensors, names, table))
    placing.run(names, checkpoint.layout.packed)
    tied = settle_head(placing, dims, checkpoint.read_many)
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


def choose_family(config: Mapping[str, Any], names: Names) -> tuple[Family, list[str]]:
    """By the config's model type or class; where that is missing or does not fit, by the names."""
    model_type, classes = config.get("model_type"), config.get("architectures")
    claims = [model_type] if isinstance(model_type, str) and model_type else []
    named = family_of_type(claims[0]) if claims else None
    for word in classes if isinstance(classes, list) and named is None else []:
        if isinstance(word, str):
            claims.append(word)
            named = named or family_of_class(word)
    if named is not None and _fits(named, config, names):
        return named, []
    if claims and named is None:
        note = f"unknown architecture {', '.join(claim[:80] for claim in claims[:3])}: placed by common suffixes"
        return load_family(UNKNOWN), [note]
    guess, others = guess_family(names)
    if named is not None and guess is None:
        return named, [f"the config says {named.name}, but few names fit that"]
    if named is not None and guess is not None:
        return guess, [f"the config says {named.name}, but the names are those of {guess.name}"]
    if guess is None:
        return load_family(UNKNOWN), ["no config and no family that fits the names: placed by common suffixes"]
    alike = f"; they fit {', '.join(others)} as well" if others else ""
    return guess, [f"family {guess.name} guessed by names{alike}"]


def guess_family(names: Names) -> tuple[Family | None, list[str]]:
    """The family that places the most with (nearly) none left, and others that do as well."""
    scores: list[tuple[bool, int, int, int, int, str]] = []
    for family in known_families() if len(names.patterns) <= MAX_PATTERNS else ():
        table = Table(family, names.patterns)
        if not all(table.stores(mark) for mark in family.marks):
            continue
        placed, left = _counts(table, names)
        if placed and left <= STRAYS * (placed + left):
            # Marks make a family the narrower claim; among equals the one with more model types is the commoner.
            claim = (-left, placed, len(family.marks), len(family.model_types), family.name)
            scores.append((family.by_name, *claim))
    scores.sort(reverse=True)
    if not scores or not scores[0][0]:
        return None, []
    others = [name for _, *score, name in scores[1:] if score[:3] == list(scores[0][1:4])]
    return load_family(scores[0][-1]), others


def fitted(family: Family, config: Mapping[str, Any], names: Names) -> tuple[Family, Table]:
    """A family with the changes whose conditions hold, and its table."""
    table = Table(family, names.patterns)
    for change in family.when:
        met = holds(change, config, family.defaults)
        if met and (change.stored is None or table.stores(change.stored)):
            family = family.changed(change)
    return family, Table(family, names.patterns)


def measured(dims: Dimensions, tensors: Mapping[str, TensorRef], names: Names, table: Table) -> Dimensions:
    """What stacked experts need and shapes tell: the hidden size off a gain, the orientation off the down matrix."""
    for pattern, sample in names.firsts.items():
        found = table.place(pattern, names.sample(pattern))
        if not isinstance(found, Placed):
            continue
        shape, rule = tensors[sample].shape, found.rule
        if dims.hidden is None and rule.roles == (Role.INPUT_NORM,) and len(shape) == 1:
            dims = dims._replace(hidden=shape[0])
        if rule.spec.stacked and rule.roles == (Role.DOWN,) and len(shape) == 3 and shape[1] != shape[2]:
            dims = dims._replace(stacked_shape=shape[1:])
    return dims


def layer_names(layers: Mapping[str, set[int]]) -> tuple[str, ...]:
    stacks = sorted(layers, key=lambda stack: (stack != "encoder", stack))
    return tuple(Slot(Role.Q, layer, None, stack).layer_name for stack in stacks for layer in sorted(layers[stack]))


def _fits(family: Family, config: Mapping[str, Any], names: Names) -> bool:
    """Whether at least half of the names that are anybody's have a place."""
    placed, left = _counts(fitted(family, config, names)[1], names)
    return placed >= left


def _counts(table: Table, names: Names) -> tuple[int, int]:
    placed = left = 0
    for pattern, count in names.patterns.items():
        found = table.place(pattern, names.sample(pattern))
        placed += count if isinstance(found, Placed) else 0
        left += count if found is None else 0
    return placed, left


def _order(slot: Slot) -> tuple[bool, str, int, int, int]:
    layer, expert = slot.layer, slot.expert
    return (
        slot.stack == "decoder",
        slot.stack,
        -1 if layer is None else layer,
        ROLE_ORDER[slot.role],
        -1 if expert is None else expert,
    )
