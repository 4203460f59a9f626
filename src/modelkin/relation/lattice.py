"""Is a tensor on the grid of a quantiser, and of which?

Codes of few bits are counted: a group that shares one scale holds at most 2^bits different values, whatever the stored
format rounds them to. Eight bits are too many to count in a row, so there the steps are checked: every value is a whole
number of them. Between strangers, and for any tensor that was only trained, neither happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from modelkin.records.relation import Lattice

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
SAMPLE_ROWS = 64
WIDTHS = (256, 128, 64, 32)
ACROSS = " across rows"
FEW = 16  # values of a four-bit code
FEWEST_VALUES, FEWEST_GROUPS = 20, 16  # non-zero values of a group, groups, that say anything
MOST_CODES = 256
STEPS = 20  # whole numbers up to which storing in 8 bits of precision leaves a step recognisable
STORED = 2.0**-8  # what storing in bfloat16 may move a value, beside its size; the scale is such a value too
PASSED = 0.995
FEWEST_CHECKED = 200
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]) / 6


def lattice(rows: Floats) -> Lattice | None:
    """rows: (r, c), some consecutive rows of a matrix -> the grid that they lie on, or None."""
    sample = rows[:SAMPLE_ROWS].astype(np.float64)
    return _few_codes(sample) or _eight_bits(sample)


def nearest_share(rows: Floats, other: Floats, found: Lattice) -> float:
    """Share of the other tensor's values whose nearest value of the grid is the one stored: all, if it was rounded."""
    hits = total = 0
    pairs = zip(_grouped(rows[:SAMPLE_ROWS], found.group), _grouped(other[:SAMPLE_ROWS], found.group), strict=True)
    for group, source in pairs:
        levels = np.unique(group)
        if len(levels) > 1:
            nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, source)]
            hits += int(np.count_nonzero(nearest == group))
            total += group.size
    return hits / total if total else 0.0


def cells_off(rows: Floats, other: Floats, found: Lattice) -> Floats:
    """How far the other's values lie from the grid values stored, in half cells; NaN where a group has one value."""
    grid, source = (side[:SAMPLE_ROWS].astype(np.float64) for side in (rows, other))
    half = half_cells(grid, found)
    told = half > 0
    return np.asarray(np.where(told, (source - grid) / np.where(told, half, 1), np.nan), dtype=np.float32)


def grid_noise(rows: Floats, found: Lattice) -> float:
    """What rounding to this grid leaves, beside the size of the values: an even spread over every cell."""
    sample = rows[:SAMPLE_ROWS].astype(np.float64)
    size = float(np.mean(sample**2))
    return float(np.sqrt(np.mean(half_cells(sample, found) ** 2) / 3 / size)) if size else 0.0


def half_cells(rows: NDArray[np.floating], found: Lattice) -> Doubles:
    """(m, n) -> for every value half the width of the cell that it stands for; none where a group has one value."""
    flat, half = rows.ravel(), np.zeros(rows.size)
    places = np.arange(rows.size, dtype=np.float64).reshape(rows.shape)
    for group in _grouped(places, found.group):
        index = group.astype(np.intp)
        half[index] = _half_cell(flat[index].astype(np.float64), found)
    return half.reshape(rows.shape)


def _half_cell(part: Doubles, found: Lattice) -> Doubles | float:
    levels = np.unique(part)
    if len(levels) < 2:
        return 0.0
    if found.name == "int8" and found.group != "tensor":  # so many steps that most are not taken
        return min((_symmetric(part), _of_range(part)), key=lambda step: _off_steps(part, step)) / 2
    gaps = np.diff(levels)
    if found.name.startswith("int"):
        return float(np.median(gaps)) / 2
    return np.asarray((np.append(gaps, gaps[-1]) + np.insert(gaps, 0, gaps[0]))[np.searchsorted(levels, part)] / 4)


def _grouped(rows: NDArray[np.floating], group: str) -> Iterator[NDArray[np.floating]]:
    if group == "tensor":
        yield rows.ravel()
    elif group == "row":
        yield from rows
    else:
        width = int(group.removesuffix(ACROSS))
        # Groups start anew with every row, or run on where a scheme takes the whole tensor as one line.
        inside = rows if group.endswith(ACROSS) else rows[:, : rows.shape[1] // width * width]
        flat = inside.ravel()
        yield from flat[: flat.size // width * width].reshape(-1, width)


def _groupings(columns: int) -> Iterator[str]:
    """The widest first."""
    yield from ("tensor", "row")
    for width in WIDTHS:
        if width <= columns:
            yield str(width)
        if columns % width:
            yield f"{width}{ACROSS}"


def _few_codes(rows: Doubles) -> Lattice | None:
    """The widest group in which at most 16 values occur."""
    for group in _groupings(rows.shape[1]):
        told, counts = _counted(rows, group)
        values = sum(int(np.count_nonzero(part)) for part in told)
        if len(counts) >= (1 if group == "tensor" else FEWEST_GROUPS) and sum(counts) <= 0.75 * values:
            return Lattice(_code(told), group, max(counts))
    return None


def _counted(rows: Doubles, group: str) -> tuple[list[NDArray[np.floating]], list[int]]:
    """Groups that say anything and the different values of each; nothing as soon as one has too many."""
    told, counts = [], []
    for part in _grouped(rows, group):
        if np.count_nonzero(part) < FEWEST_VALUES:
            continue
        told.append(part)
        counts.append(len(np.unique(part)))
        if counts[-1] > FEW:
            return [], []
    return told, counts


def _code(groups: list[NDArray[np.floating]]) -> str:
    """Which sixteen values: those of normal quantiles, of four-bit floats, of equal steps, or others."""
    scaled = [part / np.abs(part).max() for part in groups]
    values = np.concatenate([np.unique(part) for part in scaled])
    # The sign of the largest is the block's own: NF4 is not symmetric.
    if all(_on(part, nf4_levels()) or _on(-part, nf4_levels()) for part in scaled):
        return "nf4"
    if _on(values, np.concatenate([FP4, -FP4])):
        return "fp4"
    return "int4" if all(_equal_steps(np.unique(part)) for part in groups) else "codes"


def _on(values: NDArray[np.floating], levels: Doubles) -> bool:
    return bool(np.all(np.abs(values[:, None] - levels[None, :]).min(axis=1) <= 2 * STORED))


def _equal_steps(levels: NDArray[np.floating]) -> bool:
    """Some number of equal steps, at most 15, from the lowest to the highest meets all that lie between."""
    span, blurred = levels[-1] - levels[0], STORED * float(np.abs(levels).max())
    for steps in range(max(1, len(levels) - 1), FEW):
        times = (levels - levels[0]) / span * steps
        if np.all(np.abs(times - np.round(times)) <= min(0.2, 3 * blurred / span * steps + 1e-6)):
            return True
    return False


def nf4_levels() -> Doubles:
    """Normal quantiles, eight above zero, seven below, and zero. [Dettmers et al. 2023]"""
    outermost = 1 - (1 / 32 + 1 / 30) / 2
    above, below = (ndtri(np.linspace(outermost, 0.5, n))[:-1] for n in (9, 8))
    levels = np.sort(np.concatenate([above, [0.0], -below]))
    return np.asarray(levels / np.abs(levels).max())


def _eight_bits(rows: Doubles) -> Lattice | None:
    codes = len(np.unique(rows))
    if codes <= MOST_CODES and rows.size >= 8 * MOST_CODES:
        return Lattice("fp8" if _is_fp8(rows.ravel()) else "int8", "tensor", codes)
    for group in ("row", *(str(width) for width in WIDTHS[::-1] if width < rows.shape[1])):
        for step in (_symmetric, _of_range):
            if _whole_steps((part, step(part)) for part in _grouped(rows, group)):
                return Lattice("int8", group, max(len(np.unique(part)) for part in _grouped(rows, group)))
    return None


def _symmetric(part: NDArray[np.floating]) -> float:
    return float(np.abs(part).max()) / 127


def _of_range(part: NDArray[np.floating]) -> float:
    return float(max(part.max(), 0) - min(part.min(), 0)) / 255


def _off_steps(part: NDArray[np.floating], step: float) -> float:
    """How far values of few steps lie from whole numbers of them (mean): a quarter, if it is not their step."""
    times = np.abs(part[part != 0]) / step
    times = times[times < STEPS]
    return float(np.mean(np.abs(times - np.round(times)))) if times.size else 1.0


def _whole_steps(groups: Iterable[tuple[NDArray[np.floating], float]]) -> bool:
    """Nearly all values of up to 20 steps are whole numbers of them, as exactly as they are stored."""
    checked = passed = 0
    for part, step in groups:
        if step <= 0:
            continue
        times = np.abs(part[part != 0]) / step
        times = times[times < STEPS]
        off = np.abs(times - np.round(times))
        checked += times.size
        passed += int(np.count_nonzero((off <= 2 * STORED * times + 1e-4) & (times > 0.5)))
        if checked >= FEWEST_CHECKED // 4 and passed < 0.5 * checked:  # by chance a sixth passes
            return False
        if checked >= FEWEST_CHECKED and passed < PASSED * checked:
            return False
    return checked >= FEWEST_CHECKED and passed >= PASSED * checked


def _is_fp8(values: NDArray[np.floating]) -> bool:
    """Three bits of fraction under some scale: the largest value tells which."""
    sizes = np.unique(np.abs(values[values != 0]))
    if not sizes.size:
        return False  # zeros lie on every grid
    for eighths in range(8, 16):
        scaled = sizes / sizes[-1] * eighths / 8
        fraction = np.frexp(scaled)[0] * 16  # a whole number from 8 to 15
        if np.all(np.abs(fraction - np.round(fraction)) <= 2 * STORED * fraction):
            return True
    return False
