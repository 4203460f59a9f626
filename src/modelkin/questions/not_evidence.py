"""Numbers that look like evidence, have been published as evidence, and are none; each with the reason beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics import CosineParts, Unmeasurable, centred_cosine_similarity, cosine_parts, spectral_distance
from modelkin.records import Cut, Json, NotEvidence, Role, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.readings import Readings

Floats = NDArray[np.float32]
Beside = tuple[Role, Floats, Floats]
Block = tuple[Slot, NDArray[np.float64], NDArray[np.float64]]  # rows of a and of b, turned into small matrices
# Entries of a config that name a place or a version and say nothing of the model.
NAMES = frozenset({"transformers_version", "name_or_path"})
SHORTEST_PROFILE = 3
NEAR_ONE = 0.8  # a cosine of gains; below, one of the models has gains of both signs
READERS = frozenset({Role.GATE, Role.UP, Role.SHARED_GATE, Role.SHARED_UP})
MOST_ROWS, MOST_BLOCKS = 16, 8


def not_evidence(
    a: Readings, b: Readings, config_a: Mapping[str, Any], config_b: Mapping[str, Any], tokenizer: Json | None = None
) -> tuple[NotEvidence, ...]:
    """What was read, seen with eyes that we do not trust. `tokenizer` is what `tokenizer_facts` found, if it was asked.

    A measure whose tensors were not read, or which has no value for them, is left out.
    """
    gains = _gains(a, b)
    found = (
        _gain_cosine(gains),
        _spread_profile(gains),
        _spectra(_blocks(a, b)),
        _configs(config_a, config_b),
        _tokenizers(tokenizer),
    )
    return tuple(entry for entry in found if entry is not None)


def _gains(a: Readings, b: Readings) -> list[Beside]:
    """Gain vectors that face each other, by depth: role, of a, of b."""
    beside = dict(facing(a.portrait.layers, b.portrait.layers)) | {"": ""}
    theirs = {(slot.role, slot.layer_name): vector for slot, vector in _vectors(b)}
    pairs = []
    for slot, vector in _vectors(a):
        other = theirs.get((slot.role, beside.get(slot.layer_name, "?")))
        if other is not None and other.shape == vector.shape:
            pairs.append((slot.role, vector, other))
    return pairs


def _vectors(readings: Readings) -> list[tuple[Slot, Floats]]:
    found = {cut.slot: array for cut, array in readings.arrays.items() if cut.slot.role.is_gain and array.ndim == 1}
    depth = {name: place for place, name in enumerate(readings.portrait.layers)}
    return sorted(found.items(), key=lambda item: (item[0].role.value, depth.get(item[0].layer_name, -1)))


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _gain_cosine(gains: Sequence[Beside]) -> NotEvidence | None:
    parts = [part for part in (_parts(left, right) for _, left, right in gains) if part is not None]
    if not parts:
        return None
    reach = _mean([part.reach for part in parts])
    expected = _mean([part.from_means for part in parts])
    return NotEvidence(
        measure=f"raw cosine of norm gains, mean of {_many(len(parts), 'vector')}",
        value=_mean([part.cosine for part in parts]),
        expected_from_means_alone=expected,
        why=_why_cosine(expected, reach),
    )


def _why_cosine(expected: float, reach: float) -> str:
    if expected >= NEAR_ONE:
        return (
            "Gains are nearly all positive, so any two models have a cosine near 1: means and variances alone give the "
            f"expected value, and their whole pattern, alike or not, can move it by at most {reach:.2g}."
        )
    return (
        "It is near 1 where gains are positive; these were moved into other weights or have both signs. Means and "
        f"variances alone give the expected value, and their whole pattern can move it by at most {reach:.2g}."
    )


def _parts(left: Floats, right: Floats) -> CosineParts | None:
    try:
        return cosine_parts(left, right)
    except Unmeasurable:
        return None


def _spread_profile(gains: Sequence[Beside]) -> NotEvidence | None:
    """Correlation over depth of the standard deviation of gains, mean over roles."""
    profiles: dict[Role, list[tuple[float, float]]] = {}
    for role, left, right in gains:
        if np.all(np.isfinite(left)) and np.all(np.isfinite(right)):
            profiles.setdefault(role, []).append((_std(left), _std(right)))
    long = [np.array(profile) for profile in profiles.values() if len(profile) >= SHORTEST_PROFILE]
    likeness = [value for value in map(_correlation, long) if value is not None]
    if not likeness:
        return None
    return NotEvidence(
        measure=f"correlation over depth of the spread of norm gains, mean of {_many(len(likeness), 'kind')} of norm",
        value=_mean(likeness),
        expected_from_means_alone=None,
        why="Spread changes smoothly with depth in the same way in most models trained alike, and a dozen smooth "
        "numbers correlate by themselves.",
    )


def _correlation(profile: NDArray[np.float64]) -> float | None:
    try:
        return centred_cosine_similarity(profile[:, 0], profile[:, 1])
    except Unmeasurable:
        return None


def _std(vector: Floats) -> float:
    return float(np.std(vector, dtype=np.float64))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _blocks(a: Readings, b: Readings) -> list[Block]:
    """Equal rows of projections that face each other, by depth; a few of them show what all show."""
    beside = dict(facing(a.portrait.layers, b.portrait.layers))
    theirs = {(cut.start, cut.stop, cut.columns, cut.slot): rows for cut, rows in _matrices(b)}
    pairs = []
    for cut, rows in _matrices(a):
        name = beside.get(cut.slot.layer_name)
        if name is None:
            continue
        other = theirs.get((cut.start, cut.stop, cut.columns, _at(cut.slot, name)))
        if other is not None and other.shape == rows.shape:
            pairs.append((cut.slot, rows, other))
    step = max(1, len(pairs) // MOST_BLOCKS)
    return [(slot, _core(left), _core(right)) for slot, left, right in pairs[::step][:MOST_BLOCKS]]


def _matrices(readings: Readings) -> list[tuple[Cut, Floats]]:
    found = [(cut, rows) for cut, rows in readings.arrays.items() if cut.start is not None and rows.ndim == 2]
    shown = [(cut, rows) for cut, rows in found if cut.slot.role in READERS and np.all(np.isfinite(rows))]
    return sorted(shown, key=lambda item: str(item[0]))


def _at(slot: Slot, name: str) -> Slot:
    stack, _, layer = name.rpartition(".")
    return Slot(slot.role, int(layer), slot.expert, stack)


def _core(rows: Floats) -> NDArray[np.float64]:
    """A small diagonal matrix with the same singular values."""
    some = rows[:MOST_ROWS].astype(np.float64)
    squares = np.linalg.eigvalsh(some @ some.T)
    return np.asarray(np.diag(np.sqrt(np.maximum(squares, 0))), dtype=np.float64)


def _spectra(blocks: Sequence[Block]) -> NotEvidence | None:
    """Beside it what layers at different depths give, which nobody takes for copies of each other."""
    seen = [_spectral_likeness(left, right) for _, left, right in blocks]
    apart = [
        _spectral_likeness(left, right)
        for (slot, left, _), (other, _, right) in product(blocks, blocks)
        if slot.role is other.role and slot.layer_name != other.layer_name and left.shape == right.shape
    ]
    found, expected = ([value for value in values if value is not None] for values in (seen, apart))
    if not found:
        return None
    return NotEvidence(
        measure=f"cosine of singular values of facing MLP rows, mean of {_many(len(found), 'block')}",
        value=_mean(found),
        expected_from_means_alone=_mean(expected) if expected else None,
        why="Singular values fall alike in all matrices that were trained alike, so strangers' nearly coincide; layers "
        "of the two models at different depths give the expected value.",
    )


def _spectral_likeness(left: NDArray[np.float64], right: NDArray[np.float64]) -> float | None:
    """The cosine of two lists of singular values is 1 − distance² / 2, as both have length one."""
    try:
        return 1 - spectral_distance(left, right) ** 2 / 2
    except Unmeasurable:
        return None


def _configs(a: Mapping[str, Any], b: Mapping[str, Any]) -> NotEvidence | None:
    keys = {key for key in a.keys() | b.keys() if not key.startswith("_") and key not in NAMES}
    if not a or not b or not keys:
        return None
    equal = sum(key in a and key in b and a[key] == b[key] for key in keys)
    return NotEvidence(
        measure="entries of config.json that are equal",
        value=f"{equal} of {len(keys)}",
        expected_from_means_alone=None,
        why="Sizes and settings are published and copied freely: a model trained from random weights can have all of "
        "them in common with another, and a derived one can differ.",
    )


def _tokenizers(tokenizer: Json | None) -> NotEvidence | None:
    if tokenizer is None:
        return None
    return NotEvidence(
        measure="tokens in common, share of all (Jaccard)",
        value=float(tokenizer["jaccard"]),
        expected_from_means_alone=None,
        why="A tokenizer can be adopted or replaced without touching a weight, and tokenizers trained on like text "
        "share most of their common words.",
    )
