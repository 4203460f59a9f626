"""What else is as alike: layers of one model, drawn and shuffled vectors, and groups of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Role, Table, Value
from modelkin.survey.cells import cells, listed, mean_std, turned
from modelkin.survey.labels import EVERY
from modelkin.survey.reading import Collected, Model
from modelkin.survey.vectors import Doubles, Places, Stack, divided

NUMBERS = ("cosine_mean", "cosine_std", "pearson_mean", "pearson_std", "l2_mean", "l2_std")
LAST = ("expected_cosine", "width")  # what means and spreads alone give for the same pairs, and how long vectors are


Name = tuple[str, str, int]  # model, role, width
Summary = tuple[Doubles, Doubles, Doubles]  # by distance: how many, mean, std
Measured = tuple[Doubles, Doubles, Doubles, Doubles]  # cosine, Pearson, distance, expected cosine of the same pairs


def baseline_table(collected: Collected, stacks: Sequence[Stack]) -> Table:
    rows = [row for stack in stacks for row in _of_stack(collected, stack)]
    rows += _input_against_post(stacks)
    return Table(
        name="baselines",
        title="What else is as alike",
        caption="Inside each model. layer-0: the first layer with the layer at that distance, and with all others "
        "where the distance is empty. equal-distance: all pairs of layers at that distance. input-vs-post: two norms "
        "of one layer. random-normal: every vector with one drawn with its mean and std; shuffled: with its own "
        "values in another order; means-only: the same without drawing, from mean and std. expected_cosine is what "
        f"means and spreads alone give for the very pairs of that row. Seed {collected.seed}.",
        strangers="the cosine is expected_cosine: one that does not exceed it is no likeness, however near 1; Pearson "
        "is 0 ± 1/√width; random-normal, shuffled and means-only are strangers of every vector with its own mean",
        columns=("model", "role", "baseline", "distance", "n", *NUMBERS, *LAST),
        rows=tuple(rows),
    )


def group_table(collected: Collected, stacks: Sequence[Stack]) -> Table:
    rows = [row for stack in stacks for row in _group_rows(collected.models, stack)]
    derived = [f"{pair.a} and {pair.b}" for pair in collected.known if pair.relation == "derived"]
    said = f" Known to be derived, and still counted: {listed(derived)}." if derived else ""
    return Table(
        name="groups",
        title="Groups of models, layer by layer",
        caption="Every two models of the two groups at the same layer, mean and population std over the pairs; group "
        f"`{EVERY}` holds every model. expected_cosine is what means and spreads alone give for the same pairs.{said}",
        strangers="a mean cosine of expected_cosine, near 1 in every group, and a mean Pearson of 0",
        columns=("role", "layer", "group_a", "group_b", "n", *NUMBERS, *LAST),
        rows=tuple(rows),
    )


def _of_stack(collected: Collected, stack: Stack) -> Iterator[tuple[Value, ...]]:
    rng = collected.rng(f"baselines {stack.role} {stack.width}")
    for label in stack.labels:
        places = stack.places(label)
        name: Name = (label, stack.role.value, stack.width)
        own = stack.from_mean[places] ** 2
        yield from _between_layers(stack, places, name)
        drawn = stack.mean[places, None] + stack.std[places, None] * rng.standard_normal((places.size, stack.width))
        mixed = rng.permuted(stack.rows[places], axis=1)
        yield _row(*name, "random-normal", 0, (*_beside(stack.rows[places], drawn), own))
        yield _row(*name, "shuffled", 0, (*_beside(stack.rows[places], mixed), own))
        yield _row(*name, "means-only", 0, _means_only(stack, places))


def _row(
    label: str, role: str, width: int, baseline: str, distance: int | None, numbers: Measured
) -> tuple[Value, ...]:
    cosine, *others, expected = numbers
    n, *spreads = mean_std(cosine)
    spreads += [value for some in others for value in mean_std(some)[1:]]
    return (label, role, baseline, distance, n, *spreads, mean_std(expected)[1], width)


def _between_layers(stack: Stack, places: Places, name: Name) -> Iterator[tuple[Value, ...]]:
    """The first layer with all others and with each, then every distance."""
    square = np.ix_(places, places)
    share = stack.from_mean[places]
    tables = stack.cosines[square], stack.pearsons[square], _distances(stack.rows[places]), np.outer(share, share)
    if places.size > 1:
        cosine, pearson, distance, expected = (table[0, 1:] for table in tables)
        first = cosine, pearson, distance, expected
        yield _row(*name, "layer-0", None, first)
        yield from _by_distance(name, "layer-0", [_alone(some) for some in first])
        yield from _by_distance(name, "equal-distance", [_along_diagonals(table) for table in tables])


def _alone(values: Doubles) -> Summary:
    return np.isfinite(values).astype(np.float64), values, np.where(np.isfinite(values), 0.0, np.nan)


def _along_diagonals(table: Doubles) -> Summary:
    """Over every diagonal above the main one, nearest first; cells without a value are left out."""
    depth = len(table)
    i, j = np.triu_indices(depth, 1)
    values, at = table[i, j], j - i - 1
    known = np.isfinite(values)

    def summed(some: NDArray[Any]) -> Doubles:
        return np.asarray(np.bincount(at, some, depth - 1), dtype=np.float64)

    count = summed(known)
    mean = divided(summed(np.where(known, values, 0.0)), count)
    moved = np.where(known, values - mean[at], 0.0)
    return count, mean, np.sqrt(divided(summed(moved**2), count))


def _by_distance(name: Name, baseline: str, found: Sequence[Summary]) -> list[tuple[Value, ...]]:
    """A row a distance; the last of `found` is the expected cosine, of which the mean alone is shown."""
    label, role, width = name
    *measured, (_, expected, _) = found
    count = measured[0][0].astype(int).tolist()
    fixed: list[list[Value]] = [[value] * len(count) for value in (label, role, baseline)]
    spreads = [cells(column) for _, *both in measured for column in both]
    distances = list(range(1, len(count) + 1))
    return turned([*fixed, distances, count, *spreads, cells(expected), [width] * len(count)])


def _distances(rows: Doubles) -> Doubles:
    """|a − b| of every two rows, from their differences: a product would lose what near-equal rows differ by."""
    found = np.zeros((len(rows), len(rows)))
    for n, row in enumerate(rows):
        difference = rows[n + 1 :] - row
        found[n, n + 1 :] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return found + found.T


def _input_against_post(stacks: Sequence[Stack]) -> Iterator[tuple[Value, ...]]:
    for before in (stack for stack in stacks if stack.role is Role.INPUT_NORM):
        for after in (stack for stack in stacks if stack.role is Role.POST_NORM and stack.width == before.width):
            for label in before.labels:
                both = [
                    (n, place)
                    for n in before.places(label)
                    if (place := after.place(label, before.layers[n])) is not None
                ]
                if both:
                    i, j = (list(side) for side in zip(*both, strict=True))
                    name, expected = f"{before.role} and {after.role}", before.from_mean[i] * after.from_mean[j]
                    numbers = (*_beside(before.rows[i], after.rows[j]), expected)
                    yield _row(label, name, before.width, "input-vs-post", 0, numbers)


def _beside(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Cosine, Pearson and distance of row n of a and row n of b."""
    left, right = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    for centred, rows in ((left, a), (right, b)):
        centred[np.ptp(rows, axis=1) == 0] = 0.0
    return _cosine(a, b), _cosine(left, right), np.linalg.norm(a - b, axis=1)


def _cosine(a: Doubles, b: Doubles) -> Doubles:
    return divided(np.einsum("ij,ij->i", a, b), np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _means_only(stack: Stack, places: Places) -> Measured:
    """The expectation for a copy whose values are in any order: E|a − πa|² = 2 n s²."""
    share, std = stack.from_mean[places], stack.std[places]
    pearson = np.where(std > 0, 0.0, np.nan)
    return share**2, pearson, std * np.sqrt(2 * stack.width), share**2


def _group_rows(models: Sequence[Model], stack: Stack) -> Iterator[tuple[Value, ...]]:
    members = {EVERY: {model.label for model in models}}
    for model in models:
        for name in model.groups:
            members.setdefault(name, set()).add(model.label)
    for layer in dict.fromkeys(stack.layers):
        here = [n for n, name in enumerate(stack.layers) if name == layer]
        if len(here) < 2:
            continue
        square = np.ix_(here, here)
        found = stack.cosines[square], stack.pearsons[square], _distances(stack.rows[here])
        labels, share = [stack.owners[n] for n in here], stack.from_mean[here]
        for one, other in combinations_with_replacement(members, 2):
            chosen = _between(labels, members[one], members[other])
            if chosen.any() and (EVERY not in (one, other) or one == other):
                numbers = [mean_std(table[chosen]) for table in found]
                spreads = [value for _, *pair in numbers for value in pair]
                last = mean_std(np.outer(share, share)[chosen])[1], stack.width
                yield (stack.role.value, layer, one, other, int(chosen.sum()), *spreads, *last)


def _between(labels: Sequence[str], one: set[str], other: set[str]) -> np.ndarray:
    """Which pairs, each counted once, have a model of one group and a model of the other."""
    first, second = (np.array([label in group for label in labels]) for group in (one, other))
    either = np.outer(first, second) | np.outer(second, first)
    return np.asarray(np.triu(either, 1))
