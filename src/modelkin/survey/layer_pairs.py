"""Layers of two models beside each other, facing and all with all, with what strangers would show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Matrix, Table, Value
from modelkin.survey.cells import cell, cells, counted, grid, listed, mean_std, turned
from modelkin.survey.labels import safe
from modelkin.survey.reading import Collected, Model
from modelkin.survey.shifts import Shifted, adjusted, at_layers, at_offsets, of_sums, pvalue, shifted
from modelkin.survey.vectors import Doubles, Places, Stack, divided, exchangeable

CURVES = (
    *("a", "b", "known", "role", "layer_a", "layer_b", "n", "cosine", "expected_cosine", "pearson", "spearman"),
    *("cosine_minus_one", "mean_abs", "l2", "rel_l2_to_a", "rel_l2_to_b", "rel_rmse", "p99_abs", "cv", "pearson_p"),
)
LAYER_PAIRS = (
    *("a", "b", "known", "role", "metric", "diagonal_mean", "diagonal_std", "off_mean", "off_std", "off_expected"),
    *("dominance", "dominance_p", "best_offset", "best_offset_mean", "best_offset_p", "early_mean", "late_mean"),
    *("decay", "diagonal_p", "diagonal_null_std"),
)
METRICS = ("cosine", "pearson")


@dataclass(frozen=True, eq=False)
class Null:
    """Every model of a stack whose axes may be renumbered, with its vectors ready for it: by metric and label.

    A cosine is what the means make of it plus the inner product of these vectors, so only the second part moves.
    """

    parts: dict[str, dict[str, Shifted]]

    def both(self, metric: str, a: str, b: str) -> tuple[Shifted, Shifted] | None:
        ready = self.parts[metric]
        return (ready[a], ready[b]) if a in ready and b in ready else None


@dataclass(frozen=True, eq=False)
class Beside:
    """Two models of a stack. `i` and `j` are places in the stack; `facing_*` are places among the layers of each."""

    stack: Stack
    a: Model
    b: Model
    known: str | None
    null: Null
    i: Places
    j: Places
    facing_a: Places
    facing_b: Places

    @cached_property
    def renumbered(self) -> Doubles | None:
        """Pearson of all facing layers in every renumbering, (renumberings, facing): 0 where a layer has none."""
        both = self.null.both("pearson", self.a.label, self.b.label)
        return at_layers(*both, self.facing_a, self.facing_b) if both else None


def renumberings(null: Null) -> int:
    """In how many orders of the axes every pair is looked at; 0 where no pair may be."""
    return max((it.spectra.shape[0] * it.width for it in null.parts["pearson"].values()), default=0)


def null_of(collected: Collected, stack: Stack, purpose: str = "") -> Null:
    allowed = exchangeable(collected, stack)
    labels = [label for label in stack.labels if allowed[label]]
    if len(labels) < 2:
        return Null({metric: {} for metric in METRICS})
    other, deepest = sorted(len(stack.places(label)) for label in labels)[-2:]
    room = deepest + other // 2  # every offset leaves half of the shallower model, so no more can run into each other
    purpose = f"{purpose or stack.role} {stack.width}"
    numbering = collected.rng(purpose).permutation(stack.width)
    parts: dict[str, dict[str, Shifted]] = {metric: {} for metric in METRICS}
    for label in labels:
        # Every model is renumbered in its own way.
        places, rng = stack.places(label), collected.rng(f"{purpose} {label}")
        patterns = shifted(stack.patterns[places], numbering, room, rng)
        parts["pearson"][label], parts["cosine"][label] = patterns, patterns.scaled(stack.from_pattern[places])
    return Null(parts)


def pairs(collected: Collected, stack: Stack, null: Null) -> Iterator[Beside]:
    """Every two models of the stack, in the order given."""
    for a, b in collected.pairs():
        if a.label in stack.labels and b.label in stack.labels:
            first, second = stack.facing(a.label, b.label)
            i, j = stack.places(a.label), stack.places(b.label)
            if first.size:
                places = np.searchsorted(i, first), np.searchsorted(j, second)
                yield Beside(stack, a, b, collected.relation(a, b), null, i, j, *places)


def curve_rows(it: Beside) -> list[tuple[Value, ...]]:
    """One row a pair of facing layers."""
    stack, i, j = it.stack, it.i[it.facing_a], it.j[it.facing_b]
    first, second = stack.rows[i], stack.rows[j]
    difference = first - second
    l2 = np.linalg.norm(difference, axis=1)
    to_a, to_b = divided(l2, stack.l2[i]), divided(l2, stack.l2[j])
    numbers: list[Doubles] = [
        stack.cosines[i, j],
        stack.from_mean[i] * stack.from_mean[j],
        stack.pearsons[i, j],
        _products(stack.ranks, i, j),
        _products(stack.deviations, i, j),
        np.abs(difference).mean(axis=1),
        l2,
        to_a,
        to_b,
        to_a,
        np.abs(stack.p99[i] - stack.p99[j]),
        np.abs(stack.cv[i] - stack.cv[j]),
        facing_pvalues(it),
    ]
    count = len(i)
    names = [[stack.layers[n] for n in places] for places in (i, j)]
    head: list[list[Value]] = [[text] * count for text in (it.a.label, it.b.label, it.known, stack.role.value)]
    return turned([*head, *names, [stack.width] * count, *(cells(column) for column in numbers)])


def layer_pair_rows(it: Beside) -> list[tuple[Value, ...]]:
    return [_layer_pair_row(it, metric) for metric in METRICS]


def matrices(it: Beside) -> list[Matrix]:
    """All layers of a with all layers of b."""
    stack = it.stack
    rows, columns = (tuple(stack.layers[n] for n in places) for places in (it.i, it.j))
    found = []
    for metric in METRICS:
        values = _table(stack, metric)[np.ix_(it.i, it.j)]
        expected = float(np.nanmean(_expected(stack, metric)[np.ix_(it.i, it.j)])) if np.isfinite(values).any() else 0.0
        strangers = f"{expected:.4f} on average, from means and spreads alone" if metric == "cosine" else "0 on average"
        found.append(
            Matrix(
                name=f"layers.{safe(it.a.label)}.{safe(it.b.label)}.{stack.role}.{metric}",
                title=f"{metric} of {stack.role}, all layers of {it.a.label} with all of {it.b.label}",
                caption=f"Rows: {counted(len(rows), 'layer')} of {it.a.label}; columns: {len(columns)} of "
                f"{it.b.label}; all {stack.width:,} values of every vector.",
                strangers=strangers,
                metric=metric,
                role=stack.role,
                rows=rows,
                columns=columns,
                values=grid(values),
                diagonal=len(rows) == len(columns),
            )
        )
    return found


def tables(curves: list[tuple[Value, ...]], summary: list[tuple[Value, ...]], renumberings: int) -> list[Table]:
    roles = listed(list(dict.fromkeys(str(row[3]) for row in curves)))
    count = len({(row[0], row[1]) for row in curves})
    p_text = (
        f"p-values are shares of {renumberings:,} renumberings of the hidden axes, the same one for all layers, so "
        f"none is below {1 / max(1, renumberings):.2g}"
        if renumberings
        else "there are no p-values: no two models have hidden axes that may be renumbered"
    )
    return [
        Table(
            name="curves",
            title="Facing layers, metric by metric",
            caption=f"{counted(count, 'pair')} of models, {counted(len(curves), 'pair')} of facing layers, {roles}; "
            "every value of every vector is used. Layers are counted from the start in the lower half and from the "
            "end in the upper half. `rel_rmse` is `rel_l2_to_a` under its other name; pearson_p is adjusted for all "
            f"layers; {p_text}.",
            strangers="cosine equals expected_cosine up to chance; pearson, spearman are 0 ± 1/√n; distances and cv "
            "follow the scale and say nothing either way",
            columns=CURVES,
            rows=tuple(curves),
        ),
        Table(
            name="layer-pairs",
            title="All layers with all layers",
            caption="The diagonal holds facing layers, off it are all other pairs; off_expected is the mean cosine "
            "off the diagonal that means and spreads alone give. best_offset (layer of b minus layer of a) has the "
            "highest mean of those that keep at least half of the shallower model; its p is adjusted for all "
            "offsets. decay is early_mean minus late_mean, of facing layers in the lower and upper half. "
            "`diagonal_null_std` is how far diagonal_mean scatters when the hidden axes are renumbered. "
            f"{p_text[0].upper()}{p_text[1:]}.",
            strangers="off_mean equals off_expected; dominance is what scales alone make of it for the cosine, and 0 "
            "for Pearson; p-values are uniform",
            columns=LAYER_PAIRS,
            rows=tuple(summary),
        ),
    ]


def _products(units: Doubles, i: Places, j: Places) -> Doubles:
    return np.asarray(np.clip(np.einsum("ij,ij->i", units[i], units[j]), -1, 1))


def facing_pvalues(it: Beside) -> Doubles:
    """Adjusted for all facing layers of the role; NaN where there is none."""
    found = np.full(it.facing_a.size, np.nan)
    usable = np.isfinite(it.stack.pearsons[it.i[it.facing_a], it.j[it.facing_b]])
    if it.renumbered is not None and usable.any():
        found[usable] = adjusted(it.renumbered[:, usable])
    return found


def _table(stack: Stack, metric: str) -> Doubles:
    return stack.cosines if metric == "cosine" else stack.pearsons


def _expected(stack: Stack, metric: str) -> Doubles:
    """What the part that no renumbering moves gives: the product of the shares of the means, or nothing."""
    share = stack.from_mean if metric == "cosine" else np.where(np.isnan(stack.patterns[:, 0]), np.nan, 0.0)
    return np.outer(share, share)


def _layer_pair_row(it: Beside, metric: str) -> tuple[Value, ...]:
    square = np.ix_(it.i, it.j)
    values, expected = _table(it.stack, metric)[square], _expected(it.stack, metric)[square]
    on = np.zeros(values.shape, dtype=bool)
    on[it.facing_a, it.facing_b] = True
    facing = values[it.facing_a, it.facing_b]
    _, diagonal, diagonal_std = mean_std(facing)
    off_count, off, off_std = mean_std(values[~on])
    half = (len(facing) + 1) // 2
    early, late = mean_std(facing[:half])[1], mean_std(facing[half:])[1]
    offset, offset_mean, offset_p = _best_offset(it, metric, values, expected)
    diagonal_p, dominance_p, scatter = _diagonal_nulls(it, metric, values, on)
    return (
        *(it.a.label, it.b.label, it.known, it.stack.role.value, metric, diagonal, diagonal_std, off, off_std),
        mean_std(expected[~on])[1],
        None if diagonal is None or off is None else diagonal - off,
        dominance_p if off_count else None,
        *(offset, offset_mean, offset_p, early, late),
        None if early is None or late is None else early - late,
        *(diagonal_p, scatter),
    )


def _diagonal_nulls(
    it: Beside, metric: str, values: Doubles, on: NDArray[np.bool_]
) -> tuple[float | None, float | None, float | None]:
    """p of the mean over facing layers, p of how far it stands above the mean of the rest, and how renumbered axes
    scatter the first: layers share their axes, so their mean scatters more than that of independent layers would."""
    both = it.null.both(metric, it.a.label, it.b.label)
    known = np.isfinite(values)
    if both is None or it.renumbered is None or not (known & on).any():
        return None, None, None
    usable = known[it.facing_a, it.facing_b]
    i, j = it.i[it.facing_a], it.j[it.facing_b]
    lengths = it.stack.from_pattern[i] * it.stack.from_pattern[j] if metric == "cosine" else np.ones(usable.size)
    facing = it.renumbered @ np.where(usable, lengths, 0.0)
    inside, outside = int(usable.sum()), int((known & ~on).sum())
    scatter = cell(np.std(facing[1:] / inside))  # the first is as it is
    if not outside:
        return pvalue(facing / inside), None, scatter
    # The means of what does not move differ on and off the diagonal, but by the same amount in every renumbering.
    return pvalue(facing / inside), pvalue(facing / inside - (of_sums(*both) - facing) / outside), scatter


def _best_offset(
    it: Beside, metric: str, values: Doubles, expected: Doubles
) -> tuple[int | None, float | None, float | None]:
    """The shift of layers with the highest mean, and how often renumbered axes reach such a mean at any shift."""
    deep, other = values.shape
    if any("." in it.stack.layers[n] for n in (*it.i, *it.j)):
        return None, None, None  # an encoder and a decoder are not one row of layers
    least = (min(deep, other) + 1) // 2
    offsets = np.arange(least - deep, other - least + 1, dtype=np.intp)
    known = np.isfinite(values)
    counts, sums, still = (_along_diagonals(cells)[offsets + deep - 1] for cells in (known, values, expected))
    usable = counts > 0
    if not usable.any():
        return None, None, None
    means = np.where(usable, sums, -np.inf) / np.maximum(counts, 1)
    best = int(np.argmax(means))
    both = it.null.both(metric, it.a.label, it.b.label)
    found = int(offsets[best]), cell(means[best])
    if both is None:
        return *found, None
    drawn = (at_offsets(*both, offsets[usable]) + still[usable]) / counts[usable]
    return *found, pvalue(drawn.max(axis=1))


def _along_diagonals(cells: NDArray[Any]) -> Doubles:
    """The sum along every diagonal, from the lowest left corner on; cells without a value count nothing."""
    deep, other = cells.shape
    place = np.arange(other) - np.arange(deep)[:, None] + deep - 1
    weights = np.nan_to_num(cells.astype(np.float64)).ravel()
    return np.asarray(np.bincount(place.ravel(), weights, deep + other - 1), dtype=np.float64)
