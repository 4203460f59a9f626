"""Which family a checkpoint belongs to: by its config, else by its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from modelkin.architectures.config import holds
from modelkin.architectures.family import (
    UNKNOWN,
    Family,
    Traits,
    family_of_class,
    family_of_type,
    known_families,
    load_family,
)
from modelkin.architectures.placing import Names
from modelkin.architectures.templates import Placed, Table

STRAYS = 0.05  # the share of names that a guess by names may leave over
MAX_PATTERNS = 1_000  # real models have some dozens
DOUBTED = {  # what a guess does not know where its candidates differ
    "norm": "the norm is not known",
    "norm_placement": "where the norms stand is not known",
    "stream_norm": "what the norms scale is not known",
    "positions": "the positions are not known",
    "gain_offset": "gains as stored",
}


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
    if guess is None:
        return load_family(UNKNOWN), ["no config and no family that fits the names: placed by common suffixes"]
    guess, doubts = doubted(guess, [load_family(name) for name in others], config, names)
    if named is not None:
        return guess, [f"the config says {named.name}, but the names are those of {guess.name}", *doubts]
    alike = f"; they fit {', '.join(others)} as well" if others else ""
    return guess, [f"family {guess.name} guessed by names{alike}", *doubts]


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


def doubted(
    guess: Family, others: Sequence[Family], config: Mapping[str, Any], names: Names
) -> tuple[Family, list[str]]:
    """A guess that knows only what is so in every family that fits the names as well."""
    guess, rivals = fitted(guess, config, names)[0], [fitted(other, config, names)[0] for other in others]
    notes, changes = [], dict[str, Any]()
    for field, loss in DOUBTED.items():
        said = getattr(guess.facts, field)
        rival = next((other for other in rivals if getattr(other.facts, field) != said), None)
        if rival is not None:
            verb = "store them differently" if field == "gain_offset" else "differ"
            notes.append(f"{loss}: {guess.name} and {rival.name} {verb}")
            changes[field] = UNKNOWN
    if any(other.facts.activation != guess.facts.activation for other in rivals):
        changes["activation"] = None
    if not all(other.facts.exchangeable_hidden for other in rivals):
        changes["exchangeable_hidden"] = False
    facts: Traits = msgspec.structs.replace(guess.facts, **changes)
    return msgspec.structs.replace(guess, facts=facts), notes


def fitted(family: Family, config: Mapping[str, Any], names: Names) -> tuple[Family, Table]:
    """A family with the changes whose conditions hold, and its table."""
    table = Table(family, names.patterns)
    for change in family.when:
        met = holds(change, config, family.defaults)
        if met and (change.stored is None or table.stores(change.stored)):
            family = family.changed(change)
    return family, Table(family, names.patterns)


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
