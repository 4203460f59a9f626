"""May the rows of a set stand in any order? Three things that a formula leaves behind, and training does not.

Zeros in the same places: a mask that belongs to the architecture, bands or blocks tell the index of a row by what it
does not read. Of two models that both hold many zeros, the zeros of rows at equal index must not agree better than
those of rows in any other order. They do agree where one model continues another that was pruned, too: but then the
numbers between them agree as well, which a mask does not bring about.

An index that means something: in one model rows at equal index of different layers must not know each other; and inside
one set of rows, what a row holds must not follow from its index. One model whose indices mean nothing is enough, for
then the law holds whatever the other is like; so both must fail. A table of numbers that look like noise, the same in
both models and another in every layer, is noticed by none of these.

Every text says what must hold, so that it can be read after "this does not hold:".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from modelkin.questions.gains import ALARM, evenly
from modelkin.records import Assumption, Significance
from modelkin.stats import Traits, importance_order, index_meaning, row_order, traits
from modelkin.stats.arrays import unit_rows

MANY = 0.01  # share of zeros in both models from which on their places are looked at
FEWEST_SIZES = 8  # rows of different size in a set, below which nobody can tell whether they are sorted
MOST_SETS, MOST_KINDS = 8, 2  # of a model, of each kind, evenly spaced: 28 pairs
DOUBTED = -3.0  # log10 of the p from which on it is worth asking whether rows follow their index
MOST_FOLLOWED, MOST_PARTS = 32, 4  # sets of a model, and descriptions of a row, that are asked
OWN_ZEROS = "the zeros of rows at equal index stand in places of their own"
FEWEST_SIGNS, SAME_SIGNS = 200, 0.75  # numbers between the zeros; half of them have one sign between strangers


class Zeros(msgspec.Struct, frozen=True):
    """Zeros of rows at equal index: of a, of b, in how many numbers.

    `excess`: how many more stand in one place than if the rows stood in any order, which varies by `variance`. `same`
    of the `both` places that are zero in neither model hold numbers of one sign.
    """

    a: int = 0
    b: int = 0
    numbers: int = 0
    excess: float = 0.0
    variance: float = 0.0
    same: int = 0
    both: int = 0

    def __add__(self, other: Zeros) -> Zeros:
        return Zeros(
            *(x + y for x, y in zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True))
        )


def zeros(left: ArrayLike, right: ArrayLike) -> Zeros:
    """Of rows (n, p) of a and of b, those without variance left out. Places are compared where both have many zeros."""
    first, second = np.asarray(left), np.asarray(right)
    alive = (np.ptp(first, axis=1) > 0) & (np.ptp(second, axis=1) > 0) if first.size else np.zeros(0, np.bool_)
    first, second = first[alive], second[alive]
    mine, theirs = first == 0, second == 0
    counts = int(mine.sum()), int(theirs.sum()), int(first.size)
    if len(first) < 2 or min(counts[:2]) < MANY * counts[2]:
        return Zeros(*counts)
    table = (mine.astype(np.float32) @ theirs.T.astype(np.float32)).astype(np.float64)
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    signs = np.sign(first[~mine & ~theirs]) == np.sign(second[~mine & ~theirs])
    variance = float(np.sum(centred**2)) / (len(table) - 1)
    return Zeros(*counts, float(np.trace(centred)), variance, int(signs.sum()), int(signs.size))


def zeros_apart(found: Iterable[Zeros]) -> tuple[Assumption, ...]:
    """Nothing to say where one of the models has hardly any zeros."""
    total = sum(found, Zeros())
    if not total.numbers or min(total.a, total.b) < MANY * total.numbers:
        return ()
    p = float(ndtr(-total.excess / math.sqrt(total.variance))) if total.variance > 0 else 1.0
    if p >= ALARM:
        return (Assumption(f"{OWN_ZEROS} (p = {p:.2g})", True),)
    share = total.same / max(1, total.both)
    alike = total.both >= FEWEST_SIGNS and share >= SAME_SIGNS
    told = f"{share:.0%} of the numbers between them have one sign in both models (strangers: 50%)"
    text = f"{OWN_ZEROS}, or the numbers between them are those of a relative" if alike else OWN_ZEROS
    return (Assumption(f"{text} (more zeros in common than in any other order: p = {p:.1g}; {told})", alike),)


def described(parts: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Rows of several matrices that belong to one neuron each, one after the other, all of length one."""
    return np.concatenate([unit_rows(np.asarray(part, np.float64)) for part in parts], axis=1)


def in_no_order(
    a: Sequence[NDArray[np.floating]], b: Sequence[NDArray[np.floating]], rng: np.random.Generator
) -> Assumption:
    """The law holds if the neurons of one model may be renumbered; sorted by size in both they may not."""
    text = "neurons stand in any order of size, in one model at least"
    if min(_most_alive(sets) for sets in (a, b)) < FEWEST_SIZES:
        return Assumption(f"{text} (too few rows to tell)")
    checks = [importance_order(sets, rng) for sets in (a, b)]
    of_each = zip("AB", checks, strict=True)
    shown = " and ".join(f"{check.statistic:.2f} in {who}, p = {check.pvalue:.2g}" for who, check in of_each)
    return Assumption(f"{text} (rank correlation of row norm and index {shown})", _held(checks))


def _most_alive(sets: Sequence[NDArray[np.floating]]) -> int:
    return max(len(np.unique(np.linalg.norm(rows, axis=1))) for rows in sets)


def index_means_nothing(
    a: Sequence[NDArray[np.floating]],
    b: Sequence[NDArray[np.floating]],
    rng: np.random.Generator,
    kinds: Sequence[int] | None = None,
) -> Assumption:
    """Sets of rows of each model, one a layer: the same part of the model in all of them.

    `kinds` tells several parts of a layer apart, its heads: only sets of one kind have anything that a formula repeats.
    Where there is but one of each, as in a model of one layer, all are compared.
    """
    text = "rows stand in no order that the architecture fixes, in one model at least"
    if min(len(a), len(b)) < 2:
        return Assumption(f"{text} (too few layers to tell)")
    checks = [index_meaning(some, rng, kinds=of) for some, of in (_compared(sets, kinds) for sets in (a, b))]
    if not all(check.n for check in checks):
        return Assumption(f"{text} (too few rows to tell)")
    return Assumption(f"{text} (likeness of rows at equal index of different layers: {_shown(checks)})", _held(checks))


def _compared(
    sets: Sequence[NDArray[np.floating]], kinds: Sequence[int] | None
) -> tuple[list[NDArray[np.floating]], list[int]]:
    """Some sets of each of some kinds that come several times; of all sets where none does. And their kinds."""
    of = [0] * len(sets) if kinds is None else list(kinds)
    several = [kind for kind in dict.fromkeys(of) if of.count(kind) > 1]
    if not several:
        of, several = [0] * len(sets), [0]
    by_kind = [[i for i, kind in enumerate(of) if kind == asked] for asked in evenly(several, MOST_KINDS)]
    chosen = [i for places in by_kind for i in evenly(places, MOST_SETS)]
    return [sets[i] for i in chosen], [of[i] for i in chosen]


def follow_no_index(a: Sequence[Traits], b: Sequence[Traits], rng: np.random.Generator) -> Assumption:
    """Sets of rows of each model, whatever the layer: those in which most rows were found are enough."""
    text = "what a row holds is independent of its index, in one model at least"
    checks = [row_order(sets, rng) for sets in (a, b)]
    if not all(check.n for check in checks):
        return Assumption(f"{text} (too few rows to tell)")
    return Assumption(f"{text} (steps from row to row, likeness of neighbours: {_shown(checks)})", _held(checks))


def most_found(fixed: Sequence[float]) -> list[int]:
    """Where to ask: the sets in which most rows found themselves, for these make the case. By their numbers."""
    return sorted(range(len(fixed)), key=lambda i: -fixed[i])[:MOST_FOLLOWED]


def traits_by_width(rows: NDArray[np.floating], width: int) -> Traits:
    """Of rows that consist of several descriptions of one width each, one after the other: of some of these."""
    parts = np.split(rows, rows.shape[1] // width, axis=1) if rows.shape[1] % width == 0 else [rows]
    return traits(evenly(parts, MOST_PARTS))


def _shown(checks: Sequence[Significance]) -> str:
    return " and ".join(f"p = {check.pvalue:.2g} in {who}" for who, check in zip("AB", checks, strict=True))


def _held(checks: Sequence[Significance]) -> bool:
    return any(check.pvalue >= ALARM for check in checks)
