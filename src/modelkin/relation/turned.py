"""Which of two models was turned: a rotation drawn by chance makes hidden axes like any other directions.

Training and gains leave their marks along the axes: some are read or written more than others, or all of them are more
alike than directions between them. So among the axes of a trained model the weights on each differ by far more, or far
less, than among directions drawn at random, whose law is known: for rows X with M = XᵀX and a random unit vector u,
uᵀMu has variance 2 (tr M² - (tr M)²/d) / (d (d + 2)). After a random rotation the axes are such directions, exactly. A
rotation that was computed from the weights, as into principal axes, leaves axes special in another way. But whoever
turns the stream must move its gains into the matrices first: only axes with gains of their own were never turned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from modelkin.alignment import Alignment
from modelkin.alignment.folding import Block, Unfit, blocks, neurons, reader_gain, slot_of
from modelkin.architectures import Anatomy
from modelkin.records import Role, Slot
from modelkin.records.relation import AxesFacts
from modelkin.relation.reading import Floats, spread

LAYERS, ROWS = 4, 1024
FEWEST_AXES = 32
SMALLEST = 1e-300  # no p is zero
VARIED = 1e-3  # of the largest gain: rounding of equal ones leaves less
NORMS = (Role.INPUT_NORM, Role.POST_NORM, Role.FINAL_NORM)
TURNED = ("rotation", "rectangular")


def axes_facts(alignment: Alignment) -> AxesFacts | None:
    """None unless one stream is a dense turn of the other, and there are matrices to tell by on both sides."""
    if alignment.hidden not in TURNED:
        return None
    found = [axes_pvalue(side) for side in (alignment.a, alignment.b)]
    if found[0] is None or found[1] is None:
        return None
    return AxesFacts(
        pvalue_a=found[0][0],
        matrices_a=found[0][1],
        pvalue_b=found[1][0],
        matrices_b=found[1][1],
        gains_a=has_gains(alignment.a),
        gains_b=has_gains(alignment.b),
    )


def has_gains(anatomy: Anatomy) -> bool:
    """Whether the gains of some layer differ from axis to axis, which no dense turn leaves room for."""
    gains = (anatomy.read(slot) for slot in anatomy.slots if slot.role in NORMS and np.prod(anatomy.shape(slot)))
    return any(float(np.ptp(gain)) > VARIED * float(np.abs(gain).max()) for gain in gains)


def axes_pvalue(anatomy: Anatomy) -> tuple[float, int] | None:
    """Bonferroni's bound over the matrices, which one rotation turns together; and how many there are."""
    centred = anatomy.facts.norm == "layer"  # such a norm lets only rotations pass that leave the mean in place
    told = [spread_pvalue(rows, fixes_mean=centred) for rows in _matrices(anatomy)]
    known = [p for p in told if p is not None]
    return (min(1.0, max(SMALLEST, len(known) * min(known))), len(known)) if known else None


def spread_pvalue(rows: Floats, fixes_mean: bool = False) -> float | None:
    """rows: (n, d) on the stream -> two-sided p of the spread of the d axes' weights under a random rotation.

    `fixes_mean`: of rotations that leave the mean of the axes as it is. The spread of d weights is taken for a
    chi-square, with the degrees of freedom that independent directions would leave it; axes stand at right angles, so
    theirs varies less, and p is on the safe side. None where all directions are alike, or where values are not finite.
    """
    x = rows.astype(np.float64)
    if fixes_mean:
        x -= x.mean(axis=1, keepdims=True)
    axes = x.shape[1]
    if axes < FEWEST_AXES or not np.isfinite(x).all():
        return None
    weights = np.sum(x**2, axis=0)
    free = axes - 1 if fixes_mean else axes
    two, four = _central_powers(x, free)
    if two <= 1e-9 * weights.sum() ** 2 / free:
        return None
    kurtosis = 12 * four / two**2  # of one direction's weight; twelve where one direction holds all
    expected = 2 * two / (free * (free + 2)) * (free / axes) ** 2
    degrees = free / (1 + kurtosis / 2)
    ratio = float(np.mean((weights - weights.mean()) ** 2)) / expected * degrees
    return min(1.0, 2 * float(min(chi2.cdf(ratio, degrees), chi2.sf(ratio, degrees))))


def _central_powers(x: NDArray[np.float64], free: int) -> tuple[float, float]:
    """Sums of the second and the fourth powers of M's eigenvalues about their mean, from traces alone."""
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    square = gram @ gram
    one, two, three, four = np.trace(gram), np.sum(gram**2), np.sum(square * gram), np.sum(square**2)
    mean = one / free
    return float(two - mean * one), float(four - 4 * mean * three + 6 * mean**2 * two - 3 * free * mean**4)


def _matrices(anatomy: Anatomy) -> Iterator[Floats]:
    """Rows on the stream with gains folded in, (n, d), one matrix at a time: tokens, then some layers."""
    embedding = Slot(Role.EMBEDDING)
    if embedding in anatomy.slots:
        rows = anatomy.read(embedding, spread(anatomy.shape(embedding)[0], ROWS))
        yield np.asarray(rows - rows.mean(axis=0))
    for name in (anatomy.layers[i] for i in spread(len(anatomy.layers), LAYERS)):
        yield from _attention(anatomy, name)
        for block in blocks(anatomy, name)[:1]:
            yield from _neurons(anatomy, block)


def _neurons(anatomy: Anatomy, block: Block) -> Iterator[Floats]:
    try:
        found = neurons(anatomy, block, (0, min(ROWS, anatomy.shape(block.slots()[1])[0])))
    except Unfit:  # values that are not finite tell nothing of axes; that they are there is told elsewhere
        return
    yield from (part for part in (found.gate, found.up, found.down) if part is not None)


def _attention(anatomy: Anatomy, layer: str) -> Iterator[Floats]:
    values, outputs = slot_of(Role.V, layer), slot_of(Role.O, layer)
    if values in anatomy.slots:
        rows = anatomy.read(values, spread(anatomy.shape(values)[0], ROWS))
        yield np.asarray(rows * reader_gain(anatomy, layer, Role.INPUT_NORM, rows.shape[1]))
    if outputs in anatomy.slots:
        columns = (0, min(ROWS, anatomy.shape(outputs)[1]))
        yield np.ascontiguousarray(anatomy.read_many([(outputs, None, columns)])[0].T)
