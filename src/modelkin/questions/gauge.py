"""Do the models look like one another renumbered or rotated? What survives that is compared; it cannot convict.

Renumbering the hidden axes leaves every norm vector the same numbers in another order; rotating them leaves all angles
between token embeddings as they were. Two signs, from rows that other questions have read:

- gains: the distance of two sorted vectors, in units of what two draws of d numbers from one law are apart. One law is
  the most that strangers can have in common, so they come out at 1 or above; a renumbered copy comes out near 0.
- angles: the correlation, over pairs of shared tokens, of the cosines between their embeddings. What makes tokens
  alike in every model, such as being frequent, lies in few directions: without the leading ones of each model the
  angles of strangers have little in common, and those of a copy still nearly all.

Each is a sign only where the same rows are not alike in their places: that is asked elsewhere, and counted exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Answer, Evidence, LayerFinding, Null, Role, Unanswered
from modelkin.sampling.facing import facing
from modelkin.sampling.readings import Readings

ID = "gauge"
# Of 4,000 pairs of trained strangers none came below 0.64 in the first, or above 0.44 in the second.
SAME_NUMBERS, SAME_ANGLES = 0.3, 0.8
LEADING = 16  # directions that are left out of the angles
IN_PLACE = 0.5  # a median correlation at equal index from which on nothing need have been rearranged
FEWEST_VECTORS, FEWEST_TOKENS, FEWEST_AXES = 3, 64, 32
MOST_OF_ONE_VALUE = 0.5  # a vector that is mostly one number has too few others to be recognised by
NULL = Null("two models of one recipe have gains of one law at most, and angles between tokens as the text makes them")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sign:
    """One thing that renumbering or rotating does not change: how alike it is, and what strangers have."""

    name: str
    value: float
    n: int
    seen: bool
    observed: str
    strangers: str


def rearranged(a: Readings, b: Readings) -> Answer:
    """`statistic` is the number of signs, of `n` that could be looked for; `effect` of a finding is 1 where one is."""
    signs = [sign for sign in (_gains(a, b), _angles(a, b)) if sign is not None]
    if not signs:
        return Unanswered(ID, "neither norm gains nor embeddings of shared tokens were read of both models")
    return Evidence(
        question=ID,
        index_set="none",
        grade=None,
        statistic=float(sum(sign.seen for sign in signs)),
        pvalue=None,
        log10_pvalue=None,
        null=NULL,
        n=len(signs),
        effect=None,
        observed="; ".join(sign.observed for sign in signs),
        strangers="; ".join(sign.strangers for sign in signs),
        per_layer=tuple(
            LayerFinding(sign.name, sign.name, sign.value, sign.n, None, float(sign.seen)) for sign in signs
        ),
    )


def sorted_distance(a: Floats, b: Floats) -> float:
    """Of two vectors (d,): ∫ |F_a − F_b|, of what it is on average for two draws of d numbers from their common law.

    For the mean F of both, F_a − F_b has the variance 2 F (1 − F) / d at each point, and is nearly normal there.
    """
    every = np.sort(np.concatenate([a, b]))
    below_a, below_b = (np.searchsorted(np.sort(side), every[:-1], "right") / len(side) for side in (a, b))
    steps, law = np.diff(every), (below_a + below_b) / 2
    by_chance = float(steps @ np.sqrt(law * (1 - law))) * 2 / math.sqrt(math.pi * len(a))
    return float(steps @ np.abs(below_a - below_b)) / by_chance


def alike_angles(a: Floats, b: Floats) -> float:
    """Rows of the same tokens, (tokens, d_a) and (tokens, d_b): the correlation of their cosines, pair by pair."""
    above = np.triu_indices(len(a), 1)
    left, right = ((rows @ rows.T)[above] for rows in (_directions(_uncommon(a)), _directions(_uncommon(b))))
    return float(np.corrcoef(left, right)[0, 1])


def _gains(a: Readings, b: Readings) -> Sign | None:
    pairs = _vectors(a, b)
    if len(pairs) < FEWEST_VECTORS:
        return None
    apart = float(np.median([sorted_distance(x, y) for x, y in pairs]))
    in_place = float(np.median([np.corrcoef(x, y)[0, 1] for x, y in pairs]))
    return Sign(
        name="norm gains",
        value=apart,
        n=len(pairs),
        seen=apart <= SAME_NUMBERS and in_place < IN_PLACE,
        observed=f"norm gains sorted by size: distance {apart:.2f} (a renumbered copy: near 0)",
        strangers="norm gains: distance 0.6 or more",
    )


def _angles(a: Readings, b: Readings) -> Sign | None:
    tokens = _tokens(a, b)
    if tokens is None:
        return None
    left, right = tokens
    angles = alike_angles(left, right)
    alike = np.einsum("ij,ij->i", _directions(left), _directions(right)) if left.shape == right.shape else np.zeros(1)
    return Sign(
        name="token angles",
        value=angles,
        n=len(left),
        seen=angles >= SAME_ANGLES and float(np.median(alike)) < IN_PLACE,
        observed=f"angles between {len(left):,} shared tokens: agreement {angles:.2f} (a rotated copy: near 1)",
        strangers="angles: agreement 0.5 or less",
    )


def _vectors(a: Readings, b: Readings) -> list[tuple[Floats, Floats]]:
    """Gains on the residual stream that face each other and are not mostly one number."""
    mine, theirs = _of_stream(a), _of_stream(b)
    beside = dict(facing(a.portrait.layers, b.portrait.layers)) | {"": ""}
    pairs = []
    for (role, name), vector in mine.items():
        other = theirs.get((role, beside.get(name, "?")))
        if other is not None and other.shape == vector.shape and _varied(vector) and _varied(other):
            pairs.append((vector, other))
    return pairs


def _of_stream(readings: Readings) -> dict[tuple[Role, str], Floats]:
    width = (readings.portrait.hidden,)
    found = ((cut.slot, array) for cut, array in readings.arrays.items() if cut.slot.role.is_gain)
    return {
        (slot.role, slot.layer_name): array.astype(np.float64)
        for slot, array in found
        if array.shape == width and array.size >= FEWEST_AXES and np.all(np.isfinite(array))
    }


def _varied(vector: Floats) -> bool:
    _, counts = np.unique(vector, return_counts=True)
    return int(counts.max()) <= MOST_OF_ONE_VALUE * len(vector)


def _tokens(a: Readings, b: Readings) -> tuple[Floats, Floats] | None:
    """Embeddings of the same tokens, those with a direction in both; None where too few were read."""
    left, right = _listed(a), _listed(b)
    if left is None or right is None or len(left) != len(right):
        return None
    clear = _has_direction(left) & _has_direction(right)
    return (left[clear], right[clear]) if int(clear.sum()) >= FEWEST_TOKENS else None


def _listed(readings: Readings) -> Floats | None:
    """Rows are listed one by one for tokens alone."""
    wanted = (rows for cut, rows in readings.arrays.items() if cut.rows and cut.slot.role is Role.EMBEDDING)
    found = next(wanted, None)
    return None if found is None else found.astype(np.float64)


def _has_direction(rows: Floats) -> NDArray[np.bool_]:
    numbers = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    return np.asarray(np.ptp(numbers, axis=1) > 0, dtype=np.bool_)


def _uncommon(rows: Floats) -> Floats:
    """Without the leading directions of the rows, centred over tokens; a rotation of the rows rotates what is left."""
    centred = rows - rows.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred - (left[:, :LEADING] * sizes[:LEADING]) @ right[:LEADING])


def _directions(rows: Floats) -> Floats:
    """Of length one, centred over tokens: what all have in common makes any two alike."""
    centred = rows - rows.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0))
