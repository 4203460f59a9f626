"""One metric over all models, or over all layers of one: the seven metrics that are in use, with their twins named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Matrix, Role
from modelkin.survey.cells import counted, grid
from modelkin.survey.labels import safe
from modelkin.survey.reading import BY_TOKEN, Collected, Model
from modelkin.survey.vectors import Doubles, divided

STRANGERS = {
    "cosine": "the product of mean/√(mean² + std²) of the two, near 1 for any gains; 0 for matrices",
    "centred_cosine": "0 ± 1/√n; this is Pearson's r",
    "mean_abs": "follows the scales of the two: says nothing either way",
    "rel_l2": "follows the scales of the two, and is larger beside the smaller one: says nothing either way",
    "cv": "near 0: two strangers may spread alike; without meaning where a mean is near 0",
    "p99_abs": "near 0 or not: strangers may be of like size",
    "l2": "follows the scales of the two: says nothing either way",
}
TITLES = {
    "cosine": "cosine",
    "centred_cosine": "cosine after each mean is taken away (Pearson's r)",
    "mean_abs": "mean |difference|",
    "rel_l2": "|difference| / |row|",
    "cv": "|difference of the coefficients of variation|",
    "p99_abs": "|difference of the 99 % quantiles of |value||",
    "l2": "|difference|",
}
BLOCK = 1 << 16  # columns held in float64 at a time

Found = dict[str, Doubles]


def pairwise(rows: NDArray[np.floating]) -> Found:
    """Every metric of every two rows, (n, d) -> (n, n) each; NaN where it has no value.

    Matrices come flattened, as long as several million: sums run in float64, a block of columns at a time.
    """
    count, width = rows.shape
    first = rows[:, :1].astype(np.float64)
    shift = np.zeros((count, 1))
    for block in _blocks(rows):
        shift += (block - first).sum(axis=1, keepdims=True)
    mean = first + shift / width
    raw, centred, absolute, square = (np.zeros((count, count)) for _ in range(4))
    for block in _blocks(rows):
        raw += block @ block.T
        _add_differences(block, absolute, square)
        block -= first
        block -= shift / width
        centred += block @ block.T
    l2 = np.sqrt(square + square.T)
    own = np.sqrt(np.diagonal(raw))
    spread = np.sqrt(np.diagonal(centred) / width)
    variation = divided(spread, np.abs(mean[:, 0]))
    p99 = _p99(rows)
    return {
        "cosine": _ratio(raw),
        "centred_cosine": _ratio(centred),
        "mean_abs": (absolute + absolute.T) / width,
        "rel_l2": divided(l2, np.broadcast_to(own[:, None], l2.shape)),
        "cv": np.abs(variation[:, None] - variation),
        "p99_abs": np.abs(p99[:, None] - p99),
        "l2": l2,
    }


def model_matrices(collected: Collected) -> list[Matrix]:
    """Models at one layer each, for every role and chosen layer; then every model at a layer of its own."""
    found: list[Matrix] = []
    for role in collected.roles:
        for layer in _at(collected, role):
            members = [(model, layer) for model in collected.models]
            found += _matrices(f"models.{role}.{safe(layer)}", f"layer {layer}", role, members)
        found += _matrices(f"mixed.{role}", "a layer of its own each", role, _mixed(collected, role), mixed=True)
    return found


def within_matrices(collected: Collected) -> list[Matrix]:
    """Layers of one model with each other: of vectors all, or those asked for; of matrices those that were read."""
    found: list[Matrix] = []
    for model in collected.models:
        for role in collected.roles:
            layers = [name for name in model.layers(role) if not collected.narrowed or name in collected.layers]
            members = [(model, layer) for layer in layers]
            found += _matrices(f"within.{safe(model.label)}.{role}", f"inside {model.label}", role, members)
    return found


def _blocks(rows: NDArray[np.floating]) -> Iterator[Doubles]:
    for start in range(0, rows.shape[1], BLOCK):
        yield rows[:, start : start + BLOCK].astype(np.float64)


def _add_differences(block: Doubles, absolute: Doubles, square: Doubles) -> None:
    for n, row in enumerate(block[:-1]):
        difference = block[n + 1 :] - row
        absolute[n, n + 1 :] += np.abs(difference).sum(axis=1)
        square[n, n + 1 :] += np.einsum("ij,ij->i", difference, difference)


def _p99(rows: NDArray[np.floating]) -> Doubles:
    """The 99 % quantile of |value| of every row; long rows one at a time, for they are copied."""
    few = max(1, BLOCK // max(1, rows.shape[1]))
    parts = [rows[start : start + few].astype(np.float64) for start in range(0, len(rows), few)]
    return np.concatenate([np.quantile(np.abs(part), 0.99, axis=1) for part in parts])


def _ratio(products: Doubles) -> Doubles:
    length = np.sqrt(np.diagonal(products))
    return np.clip(divided(products, np.outer(length, length)), -1, 1)


def _at(collected: Collected, role: Role) -> Iterable[str]:
    """Chosen layers that at least two models have; the place outside all layers where the role stands there."""
    having = Counter(name for model in collected.models for name in model.layers(role))
    shared = [name for name, models in having.items() if models > 1]
    return [name for name in shared if name in collected.layers or not name.rpartition(".")[2].isdigit()]


def _mixed(collected: Collected, role: Role) -> list[tuple[Model, str]]:
    """Each model at the layer asked for; else spread over the depth, the first model lowest."""
    models = [model for model in collected.models if model.layers(role)]
    if collected.mixed:
        return [(model, collected.mixed[model.label]) for model in models if model.label in collected.mixed]
    steps = len(models) + 1
    spread = [(model, model.layers(role)[len(model.layers(role)) * n // steps]) for n, model in enumerate(models, 1)]
    return spread if role not in BY_TOKEN else []


def _matrices(
    name: str, where: str, role: Role, members: Sequence[tuple[Model, str]], *, mixed: bool = False
) -> Iterator[Matrix]:
    """One matrix a metric over everything that has this role there; cells are empty between different shapes."""
    arrays = [(model, layer, model.array(role, layer)) for model, layer in members]
    present = [(model, layer, array) for model, layer, array in arrays if array is not None]
    if len(present) < 2:
        return
    shapes = [model.shape(role, layer) for model, layer, _ in present]
    values = _over_shapes(shapes, [array for _, _, array in present])
    inside = name.startswith("within.")
    titles = [layer if inside else f"{model.label}@{layer}" if mixed else model.label for model, layer, _ in present]
    caption = f"{where[0].upper()}{where[1:]}: {counted(len(present), 'tensor')}, {_how_much(shapes, present)}."
    for metric, table in values.items():
        yield Matrix(
            name=f"{name}.{metric}",
            title=f"{role}, {where}: {TITLES[metric]}",
            caption=caption + (" The row is the denominator." if metric == "rel_l2" else ""),
            strangers=STRANGERS[metric],
            metric=metric,
            role=role,
            rows=tuple(titles),
            columns=tuple(titles),
            values=grid(table),
        )


def _over_shapes(shapes: Sequence[tuple[int, ...]], arrays: Sequence[NDArray[np.float32]]) -> Found:
    values = {metric: np.full((len(arrays), len(arrays)), np.nan) for metric in STRANGERS}
    for shape in dict.fromkeys(shapes):
        here = [n for n, other in enumerate(shapes) if other == shape]
        rows = np.stack([arrays[n].ravel() for n in here])
        rows[~np.isfinite(rows).all(axis=1)] = np.nan
        for metric, table in pairwise(rows).items():
            values[metric][np.ix_(here, here)] = table
    return values


def _how_much(shapes: Sequence[tuple[int, ...]], present: Sequence[tuple[Model, str, NDArray[np.float32]]]) -> str:
    read, whole = sum(array.size for _, _, array in present), sum(int(np.prod(shape)) for shape in shapes)
    if read == whole:
        return "every value used"
    return f"{read:,} of {whole:,} values: one block of rows, the same in all of one shape"
