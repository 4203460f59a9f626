"""Pictures of vectors: principal components, ridges, a surface, and bars of a few dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from modelkin.records import Table, Value
from modelkin.survey.bins import BINS, histogram
from modelkin.survey.cells import cell, cells, counted, listed, turned
from modelkin.survey.layer_pairs import Beside
from modelkin.survey.reading import Collected, Model, slot_of
from modelkin.survey.vectors import Doubles, Stack, divided

COMPONENTS = 3
SURFACE = 100  # dimensions
BARS = (13, 13, 12, 12)  # dimensions of each quartile
QUARTILES = (
    *("a", "b", "known", "role", "layer_a", "layer_b", "chosen_by", "dimension", "quartile"),
    *("value_a", "value_b", "minus_mean_a", "minus_mean_b"),
)


@dataclass(frozen=True, eq=False)
class Components:
    """Scores (rows, at most 3), and the share of the variance that each component holds."""

    scores: Doubles
    shares: Doubles


def products_of(rows: Doubles) -> tuple[Doubles, Doubles]:
    """Inner products of rows (n, d) less the mean row: of rows as they are, and of rows without their own means.

    A row is its own mean and a rest that sums to nothing, so the first are the second and a product of numbers.
    """
    own = rows.mean(axis=1)
    rest = rows - own[:, None]
    rest -= rest.mean(axis=0)
    centred, moved = rest @ rest.T, own - own.mean()
    return centred + rows.shape[1] * np.outer(moved, moved), centred


def components(products: Doubles) -> Components:
    """Principal components of rows by their inner products (n, n); the largest score of each is made positive."""
    last = [max(0, len(products) - COMPONENTS), len(products) - 1]
    values, vectors = eigh(products, subset_by_index=last)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    scores = vectors * np.sqrt(values)
    largest = np.take_along_axis(scores, np.abs(scores).argmax(axis=0)[None, :], axis=0)
    scores = scores * np.where(largest < 0, -1.0, 1.0)
    total = float(np.trace(products))
    return Components(scores, values / total if total else values * np.nan)


def pca_tables(collected: Collected, stacks: Sequence[Stack]) -> list[Table]:
    """All vectors of all roles together, of the width that most vectors have; as they are, and without their means."""
    widths = [stack.width for stack in stacks for _ in stack.layers]
    width = max(dict.fromkeys(widths), key=widths.count)
    chosen = [stack for stack in stacks if stack.width == width]
    rows = np.concatenate([stack.rows for stack in chosen])
    names = [key for stack in chosen for key in _keys(stack)]
    usable = np.isfinite(rows[:, 0])
    if usable.sum() < 2:
        return []
    if width != max(widths) or width != min(widths):
        collected.leave_out(f"principal components are those of the vectors with {width} values; others are left out")
    kept = [name for name, use in zip(names, usable, strict=True) if use]
    scores: list[tuple[Value, ...]] = []
    explained: list[tuple[Value, ...]] = []
    for centred, products in zip(("no", "yes"), products_of(rows[usable]), strict=True):
        found = components(products)
        padded = np.full((len(kept), COMPONENTS), np.nan)
        padded[:, : found.scores.shape[1]] = found.scores
        scores += [(centred, *name, *cells(row)) for name, row in zip(kept, padded, strict=True)]
        parts = zip(found.shares, _correlations(found.scores, np.linalg.norm(rows[usable], axis=1)), strict=True)
        explained += [
            (centred, number, cell(share), cell(with_scale)) for number, (share, with_scale) in enumerate(parts, 1)
        ]
    about = f"{counted(len(kept), 'vector')} of {width:,} values, {listed([stack.role.value for stack in chosen])}"
    return [
        Table(
            name="pca",
            title="Principal components of the layers' vectors",
            caption=f"{about}, all together; `centred` says whether each vector's own mean was taken away first.",
            strangers="without centring the first component is the layer's scale, in every model alike; centred, "
            "models that share nothing lie apart",
            columns=("centred", "model", "role", "layer", "pc1", "pc2", "pc3"),
            rows=tuple(scores),
        ),
        Table(
            name="pca-explained",
            title="What the components hold",
            caption=f"{about}; share of all variance, and correlation of the scores with the vectors' lengths.",
            strangers="a first component that holds most and follows the length is scale, not kinship",
            columns=("centred", "component", "share", "correlation_with_layer_scale"),
            rows=tuple(explained),
        ),
    ]


def ridge_table(collected: Collected, stacks: Sequence[Stack]) -> Table:
    models = {model.label: model for model in collected.models}
    rows = [row for stack in stacks for row in _ridges(stack, models)]
    return Table(
        name="ridges",
        title="How the values of each layer are spread",
        caption=f"Densities over at most {BINS} equal bins from the smallest to the largest value of every vector, "
        "each a whole number of steps of its number format wide; nothing is clipped.",
        strangers="ridges that look alike: they show scale and spread, not order",
        columns=("model", "role", "layer", "left", "right", "density"),
        rows=tuple(rows),
    )


def surface_table(stacks: Sequence[Stack]) -> Table:
    columns: list[list[Value]] = [[], [], [], [], []]
    for stack in stacks:
        shown = min(SURFACE, stack.width)
        for key, row in zip(_keys(stack), stack.rows[:, :shown], strict=True):
            for column, name in zip(columns, key, strict=False):
                column.extend([name] * shown)
            columns[3].extend(range(shown))
            columns[4].extend(cells(row))
    return Table(
        name="surface",
        title="The first dimensions, layer by layer",
        caption=f"The first {SURFACE} dimensions (all where there are fewer) of every vector: chosen by number, not "
        "sampled.",
        strangers="ridges along the depth, habits of each model, lie at other dimensions",
        columns=("model", "role", "layer", "dimension", "value"),
        rows=tuple(turned(columns)),
    )


def quartile_rows(collected: Collected, it: Beside) -> list[tuple[Value, ...]]:
    """Fifty dimensions at the facing layers of highest cosine, drawn evenly from the quartiles of the pair's mean."""
    stack, i, j = it.stack, it.i[it.facing_a], it.j[it.facing_b]
    cosines = stack.cosines[i, j]
    if not np.isfinite(cosines).any():
        return []
    best = int(np.nanargmax(cosines))
    a, b = stack.rows[i[best]], stack.rows[j[best]]
    rng = collected.rng(f"quartiles {it.a.label} {it.b.label} {stack.role}")
    chosen, quartiles = _sampled((a + b) / 2, rng)
    names = (stack.layers[i[best]], stack.layers[j[best]])
    head = (it.a.label, it.b.label, it.known, stack.role.value, *names, f"highest cosine of {cosines.size}")
    values = (a[chosen], b[chosen], a[chosen] - stack.mean[i[best]], b[chosen] - stack.mean[j[best]])
    tails = turned([chosen.tolist(), quartiles, *(cells(column) for column in values)])
    return [(*head, *tail) for tail in tails]


def quartile_table(collected: Collected, rows: Sequence[tuple[Value, ...]]) -> Table:
    return Table(
        name="quartiles",
        title="A few dimensions of the most similar layer",
        caption=f"{sum(BARS)} dimensions a pair (all where there are fewer), {' + '.join(map(str, BARS))} from the "
        f"quartiles of the mean of the two vectors, seed {collected.seed}. The layer is the one of highest raw cosine "
        "of all facing layers: the best case, chosen by looking. minus_mean takes away the mean over all dimensions, "
        "not over those shown.",
        strangers="bars of like height before the mean is taken away, and without relation after",
        columns=QUARTILES,
        rows=tuple(rows),
    )


def _keys(stack: Stack) -> list[tuple[str, str, str]]:
    return [(label, stack.role.value, layer) for label, layer in zip(stack.owners, stack.layers, strict=True)]


def _correlations(scores: Doubles, length: Doubles) -> Doubles:
    moved, other = scores - scores.mean(axis=0), length - length.mean()
    return divided(other @ moved, np.linalg.norm(moved, axis=0) * np.linalg.norm(other))


def _ridges(stack: Stack, models: Mapping[str, Model]) -> Iterator[tuple[Value, ...]]:
    for key, row in zip(_keys(stack), stack.rows, strict=True):
        if np.isfinite(row[0]):
            label, _, layer = key
            anatomy = models[label].anatomy
            offset = (anatomy.facts.gain_offset or 0.0) if stack.role.is_gain else 0.0
            density, edges = histogram(row, anatomy.dtype(slot_of(stack.role, layer)), offset)
            bars = zip(edges[:-1].tolist(), edges[1:].tolist(), density.tolist(), strict=True)
            yield from ((*key, left, right, height) for left, right, height in bars)


def _sampled(values: Doubles, rng: np.random.Generator) -> tuple[NDArray[np.intp], list[int]]:
    """Places, in order within each quartile, and the quartile of each (1 to 4)."""
    parts = np.array_split(np.argsort(values, kind="stable"), len(BARS))
    drawn = [
        np.sort(rng.choice(part, min(most, part.size), replace=False)) for part, most in zip(parts, BARS, strict=True)
    ]
    return np.concatenate(drawn), [number for number, part in enumerate(drawn, 1) for _ in part]
