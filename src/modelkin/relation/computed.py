"""Of models that lie on one line, or in one plane: which was computed from the others?

A mean of two lies between them; but so does a model from which another was moved on, away from a third: a task taken
off, a fine-tune carried further. Values cannot tell these apart, their rounding can. Whoever was computed last was
rounded last, so that what the others foretell lies in its own cell, half a step of its number format to either side,
and all over it. Foretold from a rounded mean, a source is missed by more than its cell; foretold from a rounded source,
what lies between fills its cell in part. Sums with several roundings, and what was changed afterwards, fit nobody: then
nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Slot
from modelkin.relation.elementwise import FRACTION, spacing
from modelkin.relation.reading import LINEAR, Weights, spread

Doubles = NDArray[np.float64]
MOST_TENSORS, MOST_ENTRIES = 24, 1 << 14
FEWEST = 500  # entries that were rounded at all
EDGE = 0.02  # of a step: what the error of the weights may add to a half
IDLE = 0.05  # of a step, up to which nothing was rounded
# Of values that differ, the share that was rounded: about a half or more in a mean. Few, where one was changed in few
# places after another had been computed to the bit.
ROUNDED = 0.3
# Share of values out of their cells. Whoever is last has next to none (0.0001 in each of the zoo's eight merges by
# SLERP), a source of weight w has 1 - w of them beside a mean of two.
FEW, MANY = 0.002, 0.02
# Root mean square of the residuals over that of a filled cell: 1 or more for who is last, for where changes are of few
# steps residuals take few places and those lie far out; for a model between, the weight of who is last.
FILLED, PARTLY = 0.93, 0.88
TIES, EVEN = 0.15, 0.9  # many values half-way between two: those are rounded to the even one of them
FINER = 3  # bits of the fraction that make one format much finer than another
COARSE = ("BF16", "F16")
SUBNORMAL = {"F16": 2.0**-24}
STEPS = 40
HELD = (0.0, 1e-4, 1e-3, 0.01, 0.1)  # how much those values that lie in their cells hold the weights where they are


@dataclass
class Tally:
    """How well what the others foretell lies in the cells of one model, over the entries of all tensors."""

    entries: int = 0
    missed: int = 0
    squares: float = 0.0
    ties: int = 0
    even: int = 0

    def add(self, off: Doubles, values: Doubles, step: Doubles, halves: bool) -> None:
        """`off`: by how many steps the values are off. `halves`: whether sums may lie half-way to the bit."""
        self.entries += off.size
        self.missed += int(np.count_nonzero(np.abs(off) > 0.5 + EDGE))
        self.squares += float(np.sum(np.minimum(off**2, 1.0)))
        tie = halves & (np.abs(np.abs(off) - 0.5) <= EDGE)
        self.ties += int(np.count_nonzero(tie))
        self.even += int(np.count_nonzero(np.round(values[tie] / step[tie]) % 2 == 0))

    @property
    def fits(self) -> bool:
        return self.missed <= FEW * self.entries and self.filled >= FILLED and self.is_even

    @property
    def misfits(self) -> bool:
        return self.missed >= MANY * self.entries or self.filled <= PARTLY or not self.is_even

    @property
    def filled(self) -> float:
        return float(np.sqrt(12 * self.squares / max(1, self.entries)))

    @property
    def is_even(self) -> bool:
        return self.ties < TIES * self.entries or self.even >= EVEN * self.ties


def computed_last(models: Sequence[Weights], slots: Sequence[Slot]) -> int | None:
    """The one of the models that was computed from the others; None where none or several may have been."""
    some = [slot for slot in slots if slot.role in LINEAR]
    chosen = [some[i] for i in spread(len(some), MOST_TENSORS)]
    tables = [_entries(models, slot) for slot in chosen]
    forms = [
        [_held(values, model.dtype(slot)) for values, model in zip(table, models, strict=True)]
        for table, slot in zip(tables, chosen, strict=True)
    ]
    return last_of(tables, forms)


def last_of(tables: Sequence[Doubles], forms: Sequence[Sequence[str]]) -> int | None:
    """`tables`: of every tensor (models, entries); `forms`: the number formats of the models there."""
    if not tables or not all(_are_stored(table, own) for table, own in zip(tables, forms, strict=True)):
        return None
    finest = _much_finer(forms)
    if finest is not None and all(_is_foretold(finest, table, own) for table, own in zip(tables, forms, strict=True)):
        return finest
    tallies = [Tally() for _ in forms[0]]
    differ = sum(_counted(tallies, table, own) for table, own in zip(tables, forms, strict=True))
    if tallies[0].entries < max(FEWEST, ROUNDED * differ):
        return None
    fitting = [i for i, tally in enumerate(tallies) if tally.fits]
    others_misfit = all(tally.misfits for i, tally in enumerate(tallies) if i not in fitting)
    if len(fitting) != 1 or not others_misfit or _is_coarser(fitting[0], forms):
        return None
    return fitting[0]


def _is_coarser(last: int, forms: Sequence[Sequence[str]]) -> bool:
    """Whether another is written in finer numbers: it may be a mixture of the same models, and its own rounding, which
    would show that the last was not computed from it, is too small to be seen in the cells of the last."""
    bits = _bits(forms)
    return bool(np.any(bits > bits[last]))


def _bits(forms: Sequence[Sequence[str]]) -> NDArray[np.intp]:
    """Of the fraction, for every model, in the tensor where it has the fewest."""
    bits = np.asarray([[FRACTION.get(form, 0) for form in own] for own in forms], dtype=np.intp)
    return np.asarray(bits.min(axis=0))


def _entries(models: Sequence[Weights], slot: Slot) -> Doubles:
    shape = models[0].shape(slot)
    rows = slice(0, max(1, min(shape[0], MOST_ENTRIES // max(1, shape[1]))))
    return np.array([model.read(slot, rows).ravel() for model in models], dtype=np.float64)


def _held(values: Doubles, form: str) -> str:
    """The coarsest format that holds all values: a file may be written in a finer one than was rounded to."""
    return next((name for name in COARSE if FRACTION.get(form, 0) > FRACTION[name] and _is_held(values, name)), form)


def _is_held(values: Doubles, form: str) -> bool:
    return bool(np.isfinite(values).all() and np.all(np.mod(values, _steps(values, form)) == 0))


def _are_stored(table: Doubles, forms: Sequence[str]) -> bool:
    """Whether all values are numbers of their formats; those of a quantiser, or multiplied by gains, are not."""
    return all(_is_held(values, form) for values, form in zip(table, forms, strict=True))


def _counted(tallies: Sequence[Tally], table: Doubles, forms: Sequence[str]) -> int:
    """Adds what was rounded; how many values differ at all."""
    # Steps below a power of two are half of those above it.
    table = table[:, np.all((table != 0) & (np.abs(np.frexp(table)[0]) != 0.5), axis=0)]
    table = table[:, np.any(table != table[:1], axis=0)]
    if table.shape[1] <= len(table):
        return 0
    steps = np.array([_steps(values, form) for values, form in zip(table, forms, strict=True)])
    found = [_foretold(i, table, steps[i]) for i in range(len(table))]
    was_rounded = np.max([np.abs(off) for off, _ in found], axis=0) > IDLE
    for i, (off, weights) in enumerate(found):
        halves = bool(np.all(np.abs(weights * 16 - np.round(weights * 16)) < 0.01))
        tallies[i].add(off[was_rounded], table[i, was_rounded], steps[i, was_rounded], halves)
    return int(table.shape[1])


def _steps(values: Doubles, form: str) -> Doubles:
    steps = spacing(values.astype(np.float32), form).astype(np.float64)
    return np.maximum(steps, SUBNORMAL.get(form, 0.0))


def _foretold(index: int, table: Doubles, step: Doubles) -> tuple[Doubles, Doubles]:
    """By how many steps each value of one model is off what the others foretell, and the weights of these.

    By weights for which as few as possible are off by more than a half. Least squares alone is led astray where changes
    are of few steps: rounding then goes with them.
    """
    others = np.delete(table, index, axis=0)
    columns = np.array([others[0], *(others[1:] - others[0])]) / step
    wanted = (table[index] - others[0]) / step
    weights = np.asarray(np.linalg.lstsq(columns.T, wanted, rcond=None)[0])
    off, every = wanted - weights @ columns, columns @ columns.T
    for _ in range(STEPS):
        beyond = _beyond(off)
        out = beyond != 0
        if np.mean(np.abs(off) > 0.5 + EDGE) <= FEW / 2:  # further on, weights wander where nothing holds them
            break
        outside, towards = columns[:, out] @ columns[:, out].T, columns[:, out] @ beyond[out]
        moves = [np.linalg.lstsq(outside + held * every, towards, rcond=None)[0] for held in HELD]
        trials = [(off - move @ columns, weights + move) for move in moves]
        best = min(trials, key=lambda trial: _loss(trial[0]))
        if _loss(best[0]) >= _loss(off):
            break
        off, weights = best
    return off, np.array([1 + weights[0] - weights[1:].sum(), *weights[1:]])


def _beyond(off: Doubles) -> Doubles:
    return np.sign(off) * np.maximum(np.abs(off) - 0.5, 0)


def _loss(off: Doubles) -> float:
    return float(np.sum(_beyond(off) ** 2))


def _much_finer(forms: Sequence[Sequence[str]]) -> int | None:
    """The one model that is written in much finer numbers than any other."""
    bits = _bits(forms)
    finest = int(np.argmax(bits))
    rest = np.delete(bits, finest)
    return finest if rest.size and bits[finest] >= rest.max() + FINER else None


def _is_foretold(finest: int, table: Doubles, forms: Sequence[str]) -> bool:
    """Whether the others foretell what is finer than they are: had they been rounded after it, they could not."""
    steps = np.array([_steps(values, form) for values, form in zip(table, forms, strict=True)])
    kept = np.all(table != 0, axis=0) & np.any(table != table[:1], axis=0)
    if np.count_nonzero(kept) <= len(table):
        return False
    table, steps = table[:, kept], steps[:, kept]
    coarse = np.delete(steps, finest, axis=0).min(axis=0)
    between = np.abs(table[finest] / coarse - np.round(table[finest] / coarse)) > EDGE
    off, weights = _foretold(finest, table, coarse)
    return float(between.mean()) > TIES and float(np.max(np.abs(off))) <= EDGE * min(1.0, float(np.abs(weights).min()))
