"""Numbers that look like evidence, have been published as evidence, and are none; each with the reason beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics import CosineParts, Unmeasurable, centred_cosine_similarity, cosine_parts
from modelkin.records import Json, NotEvidence, Role, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.readings import Readings

Floats = NDArray[np.float32]
Beside = tuple[Role, Floats, Floats]
# Entries of a config that name a place or a version and say nothing of the model.
NAMES = frozenset({"transformers_version", "name_or_path"})
SHORTEST_PROFILE = 3


def not_evidence(
    a: Readings, b: Readings, config_a: Mapping[str, Any], config_b: Mapping[str, Any], tokenizer: Json | None = None
) -> tuple[NotEvidence, ...]:
    """What was read, seen with eyes that we do not trust. `tokenizer` is what `tokenizer_facts` found, if it was asked.

    A measure whose tensors were not read, or which has no value for them, is left out.
    """
    gains = _gains(a, b)
    found = (_gain_cosine(gains), _spread_profile(gains), _configs(config_a, config_b), _tokenizers(tokenizer))
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


def _gain_cosine(gains: Sequence[Beside]) -> NotEvidence | None:
    parts = [part for part in (_parts(left, right) for _, left, right in gains) if part is not None]
    if not parts:
        return None
    reach = _mean([part.reach for part in parts])
    return NotEvidence(
        measure=f"raw cosine of norm gains, mean of {len(parts)} vectors",
        value=_mean([part.cosine for part in parts]),
        expected_from_means_alone=_mean([part.from_means for part in parts]),
        why="Gains are nearly all positive, so any two models have a cosine near 1: means and variances alone give the "
        f"expected value, and their whole pattern, alike or not, can move it by at most {reach:.2g}.",
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
        measure=f"correlation over depth of the spread of norm gains, mean of {len(likeness)} kinds of norm",
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
