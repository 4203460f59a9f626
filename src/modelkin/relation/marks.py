"""What a method of merging leaves behind in single entries.

TIES drops the smallest changes of every parent, DARE drops changes by lot and enlarges the rest: both leave entries of
the base untouched, to the bit. A mean or a great circle leaves none, but for coincidences of rounding.

Models without part in it must not be named, so parents are chosen by what only they explain. A DARE merge is linear in
its parents' changes on average, so least squares gives every other model a weight of none, however alike the changes
are. Entries of a TIES merge are those of its parents to the bit, so a model is left out if the others explain all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as every
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Slot
from modelkin.records.relation import MergeMethod
from modelkin.relation.elementwise import spacing
from modelkin.relation.reading import LINEAR, Weights, spread

UNTOUCHED = 0.05  # least share of entries of any tensor that are the base's, where the parents have other values
EMPTIED = 0.1  # share of zeros
MOST_TENSORS, MOST_ROWS = 24, 512
MOST_ENTRIES = 1 << 15
MOST_PARENTS = 5  # there are two to this power of atoms; of more models those that weigh most are tried
FEWEST_PARENTS = 2  # one alone is as well a model that was trained on from the product
SMALLEST_WEIGHT = 0.03
SIGMAS = 5.0
ROUNDING = 4.0  # times what rounding leaves over, which is all that the atoms of all parents leave
EXACT = 1e-3  # of the squares of all changes, where numbers are so fine that the weights are not
COARSE = 0.02  # where rounding alone may leave more than this, nothing can be told
# Least share of entries that are nobody's own and yet what the parents' changes give: 0.04 or more in three of the
# zoo's merges by TIES, 0.7 by DARE. A common parent of models that were each changed in some places has values of one
# or the other nearly everywhere; and where it has not, no sum of their changes gives them.
COMPUTED = 0.01
BY_CHANCE = 0.1  # of what the same atoms leave of the steps of other entries: many atoms come near to anything
ROUNDS = 5

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Marks:
    """A method that drops changes, which source is the base, which the parents, and what these weigh."""

    method: MergeMethod
    base: int
    parents: tuple[int, ...]
    weights: tuple[float, ...]  # of the parents
    density: float | None
    explained: float
    told: tuple[str, ...]


class Entries(NamedTuple):
    """Entries of the merge as steps from the base, and the changes of other models at the same places.

    `rounding`: the square that rounding leaves at each place. `tensors`: which tensor it belongs to.
    """

    step: Doubles  # (n,)
    changes: Doubles  # (models, n)
    rounding: Doubles  # (n,)
    tensors: NDArray[np.intp]  # (n,)

    def of(self, models: Sequence[int]) -> Entries:
        """For some of the models, where any of them differs from the base."""
        changes = self.changes[list(models)]
        here = np.any(changes != 0, axis=0)
        return Entries(self.step[here], changes[:, here], self.rounding[here], self.tensors[here])

    def is_exact(self, left: float) -> bool:
        """Beside the distance to the nearest model: where one lies near already, being nearer says nothing."""
        away = [float(np.sum(self.step**2)), *(float(np.sum((self.step - change) ** 2)) for change in self.changes)]
        rounding = ROUNDING * float(self.rounding.sum())
        return rounding <= COARSE * min(away) and left <= max(EXACT * min(away), rounding)


class Fit(NamedTuple):
    """Weights of the parents, and the sum of squares that they leave over."""

    weights: Doubles
    left: float


def marks_of(product: Weights, sources: Sequence[Weights], slots: Sequence[Slot]) -> Marks | None:
    some = [slot for slot in slots if slot.role in LINEAR]
    chosen = [some[i] for i in spread(len(some), MOST_TENSORS)]
    if not chosen:
        return None
    parts = [_entries(product, sources, slot, MOST_ENTRIES // len(chosen)) for slot in chosen]
    y, xs, rounding = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
    return marked(y, xs, rounding, np.repeat(np.arange(len(parts)), [part[0].size for part in parts]))


def _entries(product: Weights, sources: Sequence[Weights], slot: Slot, most: int) -> tuple[Doubles, Doubles, Doubles]:
    shape = product.shape(slot)
    rows = slice(0, max(1, min(shape[0], MOST_ROWS, most // shape[1])))
    y = product.read(slot, rows)
    rounding = spacing(y, product.dtype(slot)).astype(np.float64) ** 2 / 12
    xs = np.array([w.read(slot, rows).ravel() for w in sources], dtype=np.float64)
    return y.ravel().astype(np.float64), xs, rounding.ravel()


def marked(y: Doubles, xs: Doubles, rounding: Doubles, tensors: NDArray[np.intp]) -> Marks | None:
    """y: (n,) entries of the merge, xs: (sources, n) of its sources. None: nothing was dropped, entry by entry."""
    differ = np.any(xs != xs[:1], axis=0)
    if not differ.any():
        return None
    same = (xs == y)[:, differ]
    # In every tensor: whole ones that are another model's were not dropped entry by entry.
    untouched = np.min([same[:, tensors[differ] == i].mean(axis=1) for i in np.unique(tensors[differ])], axis=0)
    # A model that was emptied has entries of the product, and any relative of it explains what it lacks.
    may_be_base = (untouched >= UNTOUCHED) & (untouched < 1) & (np.mean(xs == 0, axis=1) < EMPTIED)
    # A parent that weighs much may have as many entries as the base: the one that explains most is it. A child of the
    # base that changed few has nearly as many, too, and explains as much once the base counts among the parents.
    found = [_read_from(int(i), y, xs, rounding, tensors) for i in np.flatnonzero(may_be_base)]
    told = (marks for marks in found if marks is not None)
    return max(told, key=lambda marks: (-len(marks.parents), marks.explained), default=None)


def _read_from(base: int, y: Doubles, xs: Doubles, rounding: Doubles, tensors: NDArray[np.intp]) -> Marks | None:
    others = [i for i in range(len(xs)) if i != base]
    entries = Entries(y - xs[base], xs[others] - xs[base], rounding, tensors)
    models = _weightiest(entries)
    return _trimmed(base, others, entries, models) or _by_lot(base, others, entries, models)


def _weightiest(entries: Entries) -> list[int]:
    """All models, or those whose changes take the largest part."""
    parts = np.abs(_least_squares(entries)) * np.linalg.norm(entries.changes, axis=1)
    return sorted(int(i) for i in np.argsort(-parts)[:MOST_PARENTS])


# TIES.


def _trimmed(base: int, others: Sequence[int], entries: Entries, models: list[int]) -> Marks | None:
    """What changed is the mean of those parents whose change was large enough and of the elected sign."""
    parents = _without_idle(entries, models)
    if parents is None or len(parents) < FEWEST_PARENTS:
        return None
    some = entries.of(parents)
    stayed = some.step == 0
    if not stayed.any() or stayed.all():
        return None
    fit = trimmed_fit(some)
    if not _is_computed(some, fit, _means(fit.weights)):
        return None
    size = np.abs(some.changes).max(axis=0)
    ratio = float(size[stayed].mean() / size[~stayed].mean())
    share = f"{stayed.mean():.0%} of the entries are those of the base, to the bit"
    told = f"where an entry stayed, the parents' changes are {ratio:.2f} times those elsewhere: small ones were trimmed"
    return Marks(
        "ties",
        base,
        tuple(others[i] for i in parents),
        tuple(map(float, fit.weights)),
        trimmed_density(some),
        1 - fit.left / float(np.sum(some.step**2)),
        (share, told),
    )


def _without_idle(entries: Entries, models: list[int]) -> list[int] | None:
    """Models without which something is left over. None where all of them together leave more than rounding."""
    if not _explains(entries, models):
        return None
    used = list(models)
    while len(used) > 1:
        without = [[i for i in used if i != idle] for idle in used]
        left = [trimmed_fit(entries.of(rest)).left for rest in without]
        best = without[int(np.argmin(left))]
        if not _explains(entries, best):
            return used
        used = best
    return used


def _explains(entries: Entries, models: Sequence[int]) -> bool:
    """Whether some models leave nothing over: neither where they differ from the base nor elsewhere."""
    some = entries.of(models)
    elsewhere = float(np.sum(entries.step**2) - np.sum(some.step**2))
    return entries.is_exact(trimmed_fit(some).left + elsewhere)


def trimmed_fit(entries: Entries) -> Fit:
    """Weights by taking in turn the nearest atom for every entry, and the weights that fit those with several parents.

    The mean of one parent is its change, whatever it weighs. Begun at several places: far from the true weights a mean
    of two looks like one of them.
    """
    count = len(entries.changes)
    if count == 1:
        return Fit(np.ones(1), float(np.minimum(entries.step**2, (entries.step - entries.changes[0]) ** 2).sum()))
    heavy = [np.where(np.arange(count) == i, 4.0, 1.0) for i in range(count)]
    found = [_refined(entries, start / start.sum()) for start in (np.ones(count), *heavy)]
    return min(found, key=lambda fit: fit.left)


def _refined(entries: Entries, weights: Doubles) -> Fit:
    best = Fit(weights, np.inf)
    for _ in range(ROUNDS):
        nearest, left = nearest_atoms(entries.step, entries.changes, _means(weights))
        if left >= best.left:
            break
        best = Fit(weights, left)
        on = _patterns(len(weights))[nearest].T
        several = on.sum(axis=0) > 1
        off = (on * (entries.changes - entries.step))[:, several]
        # Weights under which the mean is the step: those that the rows of `off` are orthogonal to.
        vector = np.linalg.eigh(off @ off.T)[1][:, 0]
        weights = np.maximum(vector / vector.sum() if abs(vector.sum()) > 1e-9 else weights, 1e-6)
        weights = weights / weights.sum()
    return best


def _means(weights: Doubles) -> list[Doubles]:
    """The mean of every choice of parents."""
    choices = [on * weights for on in _patterns(len(weights))]
    return [choice / choice.sum() if choice.any() else choice for choice in choices]


def trimmed_density(entries: Entries) -> float:
    """The share of each parent's changes that was kept: the one at which as many entries stay as did."""
    stayed = float(np.mean(entries.step == 0))
    ranks = np.empty_like(entries.changes)
    for tensor in np.unique(entries.tensors):
        here = entries.tensors == tensor
        sizes = np.abs(entries.changes[:, here])
        ranks[:, here] = (np.argsort(np.argsort(sizes, axis=1), axis=1) + 1) / sizes.shape[1]
    # An entry stays if the change of every parent is among the dropped, which are the lowest ranks.
    return 1 - float(np.quantile(ranks.max(axis=0), stayed))


# DARE.


def _by_lot(base: int, others: Sequence[int], entries: Entries, models: list[int]) -> Marks | None:
    """Every change was kept by lot and divided by the density, so least squares finds its weight on average."""
    used = _with_weight(entries, models)
    if len(used) < FEWEST_PARENTS:
        return None
    some = entries.of(used)
    stayed = some.step == 0
    if not stayed.any() or stayed.all():
        return None
    fit = dropped_fit(some)
    elsewhere = float(np.sum(entries.step**2) - np.sum(some.step**2))
    if not entries.is_exact(fit.left + elsewhere):
        return None
    if not _is_computed(some, fit, [on * fit.weights for on in _patterns(len(used))]):
        return None
    density = _dropped_density(some, fit.weights)
    size = np.abs(some.changes).max(axis=0)
    ratio = float(size[stayed].mean() / size[~stayed].mean())
    explained = 1 - fit.left / float(np.sum(some.step**2))
    share = f"{stayed.mean():.0%} of the entries are those of the base, to the bit"
    told = f"where an entry stayed, changes of the parents are {ratio:.2f} times as large as elsewhere: dropped by lot"
    atom = f"{explained:.0%} of the change lies on the atoms of density {density:.2f}"
    parents, weights = tuple(others[i] for i in used), fit.weights * density
    return Marks("dare", base, parents, tuple(map(float, weights)), density, explained, (share, told, atom))


def _with_weight(entries: Entries, models: Sequence[int]) -> list[int]:
    """Models whose weight cannot be none. Of those whose may, the one is left out first that is missed least."""
    used = list(models)
    while len(used) >= FEWEST_PARENTS:
        some = entries.of(used)
        weights = np.abs(_least_squares(some))
        idle = np.flatnonzero((weights < SMALLEST_WEIGHT) | (weights < SIGMAS * _errors(some)))
        if not idle.size:
            break
        without = [[model for model in used if model != used[i]] for i in idle]
        used = min(without, key=lambda rest: dropped_fit(entries.of(rest)).left if rest else np.inf)
    return used


def dropped_fit(entries: Entries) -> Fit:
    """Weights over the density: the nearest atom for every entry and the scales that fit these, in turn."""
    stayed = min(0.99, float(np.mean(entries.step == 0)))
    scales = _least_squares(entries) / (1 - stayed ** (1 / len(entries.changes)))
    best = Fit(scales, np.inf)
    patterns = _patterns(len(scales))
    for _ in range(ROUNDS):
        nearest, left = nearest_atoms(entries.step, entries.changes, [on * scales for on in patterns])
        if left >= best.left:
            break
        best = Fit(scales, left)
        kept = patterns[nearest].T * entries.changes
        scales = np.asarray(np.linalg.lstsq(kept @ kept.T, kept @ entries.step, rcond=None)[0])
    return best


def _dropped_density(entries: Entries, scales: Doubles) -> float:
    """From the entries that stayed, which is all changes dropped.

    Counted in the half where all changes are largest beside rounding: small ones vanish also where they were kept.
    """
    kept = np.abs(scales[:, None] * entries.changes).min(axis=0) / np.sqrt(np.maximum(entries.rounding, 1e-300))
    stayed = entries.step[kept >= np.quantile(kept, 0.5)] == 0
    return float(1 - stayed.mean() ** (1 / len(scales)))


def _least_squares(entries: Entries) -> Doubles:
    changes = entries.changes
    return np.asarray(np.linalg.lstsq(changes @ changes.T, changes @ entries.step, rcond=None)[0])


def _errors(entries: Entries) -> Doubles:
    """Standard errors of the weights that least squares finds."""
    changes, off = entries.changes, entries.step - _least_squares(entries) @ entries.changes
    inverse = np.linalg.pinv(changes @ changes.T)
    return np.asarray(np.sqrt(np.maximum(np.diag(inverse) * float(off @ off) / max(1, off.size - 1), 0)))


# Both.


def _patterns(count: int) -> Doubles:
    """Every choice of parents, none first."""
    return np.array(list(every((0.0, 1.0), repeat=count)))


def _is_computed(entries: Entries, fit: Fit, choices: Sequence[Doubles]) -> bool:
    """Whether the atoms give what they do not give to others, and give values that none of the models has."""
    if fit.left > BY_CHANCE * _by_chance(entries, choices):
        return False
    new = (entries.step != 0) & np.all(entries.step != entries.changes, axis=0)
    if np.mean(new) < COMPUTED:
        return False
    left = nearest_atoms(entries.step[new], entries.changes[:, new], choices)[1]
    return left <= max(EXACT * float(np.sum(entries.step[new] ** 2)), ROUNDING * float(entries.rounding[new].sum()))


def _by_chance(entries: Entries, choices: Sequence[Doubles]) -> float:
    """What is left over where entries are given what their neighbours have beyond the nearest model.

    Many atoms that all lie near the product come near to its neighbours' values as well.
    """
    models = [np.zeros_like(entries.step), *entries.changes]
    near = min(models, key=lambda model: float(np.sum((entries.step - model) ** 2)))
    return nearest_atoms(near + np.roll(entries.step - near, 1), entries.changes, choices)[1]


def nearest_atoms(step: Doubles, changes: Doubles, choices: Sequence[Doubles]) -> tuple[NDArray[np.intp], float]:
    """For each entry the mixture of the changes that lies nearest, and the squares that are left over by all.

    Mixtures of unrelated changes explain some of it too, a quarter or so, and never nearly all.
    """
    left, nearest = np.full(step.shape, np.inf), np.zeros(step.shape, dtype=np.intp)
    for i, choice in enumerate(choices):
        off = (step - choice @ changes) ** 2
        closer = off < left
        left[closer], nearest[closer] = off[closer], i
    return nearest, float(left.sum())
