"""Numbers that a formula makes, or may make: two strangers hold them to the byte, so their equality says nothing.

What checkpoints carry beside weights (sinusoids and rotary tables, Fourier and wavelet kernels, windows, filter banks,
grids of coordinates, decay tables, Hadamard and other fixed rotations) shows at least one of these, and trained
weights show none:

- along one of its axes each number follows from the few before it, as those of any sum of few waves or powers do;
- the numbers that are not zero lie together in bands, and most are zero;
- all are whole, or all are multiples of one step;
- the rows are perpendicular to one another far beyond chance.

A tensor is looked at in its stored shape, without axes of length one: a kernel (n, 1, k) is a table of n rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

LINES, LENGTH = 64, 1024  # of every axis so many lines, and of these so many numbers, are looked at
SHORTEST, SHORTEST_WAVE = 8, 24  # numbers in a line that can show a smooth run, and in one that can show a wave
ORDER = 4  # numbers that may foretell the next: two waves
FORETOLD = 0.9  # the share of a line's variance, or the correlation of neighbours, that only formulas reach
FORETOLD_SHARE = 0.25  # of the lines of an axis
MOSTLY_ZERO, TOGETHER = 0.5, 0.6
FEWEST_ROWS, PERPENDICULAR = 16, 0.1  # cosines of rows, of what they are by chance

Floats = NDArray[np.float32]
Lines = NDArray[np.float64]


def is_formula(array: Floats) -> bool:
    """Whether a tensor, or the beginning of one, looks as if a formula had made it. Not finite counts as zero."""
    table = array.reshape([size for size in array.shape if size > 1])
    if table.size < SHORTEST:
        return False
    numbers = np.where(np.isfinite(table), table, 0)
    return (
        _is_stepped(numbers)
        or any(_is_foretold(lines) for lines in _axes(numbers))
        or _is_banded(numbers)
        or _is_perpendicular(numbers.reshape(len(numbers), -1))
    )


def unfolded(block: Floats, shape: Sequence[int]) -> Floats:
    """The first rows of a tensor of `shape`, read as a matrix, with as many of its axes as they fill."""
    axes = list(shape) if len(shape) > 1 else [1, *shape]
    while len(axes) > 2:
        inside = int(np.prod(axes[1:]))
        if block.size >= inside:
            return block.reshape(-1)[: block.size // inside * inside].reshape(-1, *axes[1:])
        axes = axes[1:]  # not even one of the first axis was read
    return block


def _axes(numbers: Floats) -> Iterator[Lines]:
    """For every axis lines along it, (lines, numbers), spread over the others; none that is zero all along."""
    for axis, size in enumerate(numbers.shape):
        if size < SHORTEST:
            continue
        flat = np.moveaxis(numbers, axis, -1)[..., :LENGTH].reshape(-1, min(size, LENGTH))
        chosen = flat[np.unique(np.linspace(0, len(flat) - 1, min(len(flat), LINES)).astype(np.intp))]
        yield chosen[np.any(chosen != 0, axis=1)].astype(np.float64)


def _is_foretold(lines: Lines) -> bool:
    if not len(lines):
        return False
    foretold = _is_smooth(lines)
    if lines.shape[1] >= SHORTEST_WAVE:
        foretold |= _is_wave(lines)
    return float(foretold.mean()) > FORETOLD_SHARE


def _is_smooth(lines: Lines) -> NDArray[np.bool_]:
    """Neighbouring numbers correlate almost fully; of a constant line they do by definition."""
    upper, lower = (part - part.mean(axis=1, keepdims=True) for part in (lines[:, :-1], lines[:, 1:]))
    size = np.sqrt((upper**2).sum(axis=1) * (lower**2).sum(axis=1))
    likeness = np.divide((upper * lower).sum(axis=1), size, out=np.ones(len(lines)), where=size > 0)
    return np.asarray(np.abs(likeness) > FORETOLD)


def _is_wave(lines: Lines) -> NDArray[np.bool_]:
    """Least squares of every number on the ORDER before it: a wave of any frequency leaves nothing over.

    Scaled to variance one, so that the little that keeps the normal equations solvable is little for every line.
    """
    centred = lines - lines.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    windows = np.lib.stride_tricks.sliding_window_view(scaled, ORDER + 1, axis=1)
    products = np.einsum("ltp,ltq->lpq", windows, windows, optimize=True)
    before, across, total = products[:, :-1, :-1], products[:, :-1, -1], products[:, -1, -1]
    solved = np.linalg.solve(before + 1e-9 * lines.shape[1] * np.eye(ORDER), across[..., None])[..., 0]
    return np.asarray((total > 0) & (np.einsum("lp,lp->l", solved, across) > FORETOLD * total))


def _is_stepped(numbers: Floats) -> bool:
    """Whole numbers, or evenly spaced ones, as indices and coordinates are."""
    different = np.unique(numbers.reshape(-1)[: LINES * LENGTH]).astype(np.float64)
    steps = np.diff(different)
    whole = bool(np.all(different == np.round(different)))
    return whole or len(different) < SHORTEST or float(np.ptp(steps)) <= 0.01 * float(steps.mean())


def _is_banded(numbers: Floats) -> bool:
    """Most numbers are zero, and one that is not has neighbours along an axis that are not either."""
    filled = numbers != 0
    if float(filled.mean()) >= MOSTLY_ZERO:
        return False
    for axis, size in enumerate(filled.shape):
        along = np.moveaxis(filled, axis, 0)
        beside = along[:-1] & along[1:]
        if size >= SHORTEST and along[:-1].any() and beside.sum() > TOGETHER * along[:-1].sum():
            return True
    return False


def _is_perpendicular(matrix: Floats) -> bool:
    """Rows, or columns where those are fewer: by chance their cosines are 1 / √width."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    rows = wide[:LINES].astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    units = rows[lengths > 0] / lengths[lengths > 0, None]
    if len(units) < FEWEST_ROWS:
        return False
    cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
    return float(np.sqrt(np.mean(cosines**2) * rows.shape[1])) < PERPENDICULAR
