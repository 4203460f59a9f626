"""What else is as alike: layers of one model, drawn and shuffled vectors, and groups of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import numpy as np

from modelkin.records import Role, Table, Value
from modelkin.survey.cells import listed, mean_std
from modelkin.survey.labels import EVERY
from modelkin.survey.matrices import pairwise
from modelkin.survey.reading import Collected, Model
from modelkin.survey.vectors import Doubles, Places, Stack, divided

NUMBERS = ("cosine_mean", "cosine_std", "pearson_mean", "pearson_std", "l2_mean", "l2_std")
LAST = ("expected_cosine", "width")  # what means and spreads alone give for the same pairs, and how long vectors are


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
        name, own = (label, stack.role.value, stack.width), stack.from_mean[places] ** 2
        for baseline, distance, numbers in _between_layers(stack, places):
            yield _row(*name, baseline, distance, numbers)
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


def _between_layers(stack: Stack, places: Places) -> Iterator[tuple[str, int | None, Measured]]:
    """The first layer with each other, then every distance."""
    square = np.ix_(places, places)
    share = stack.from_mean[places]
    tables = stack.cosines[square], stack.pearsons[square], _distances(stack.rows[places]), np.outer(share, share)
    depth = places.size
    if depth > 1:
        yield "layer-0", None, _measured([table[0, 1:] for table in tables])
    for distance in range(1, depth):
        yield "layer-0", distance, _measured([table[0, distance : distance + 1] for table in tables])
    for distance in range(1, depth):
        yield "equal-distance", distance, _measured([np.diagonal(table, distance) for table in tables])


def _measured(values: Sequence[Doubles]) -> Measured:
    cosine, pearson, distance, expected = values
    return cosine, pearson, distance, expected


def _distances(rows: Doubles) -> Doubles:
    """|a − b| of every two rows, from their differences: a product would lose what near-equal rows differ by."""
    found = np.zeros((len(rows), len(rows)))
    for n, row in enumerate(rows):
        found[n, n + 1 :] = np.linalg.norm(rows[n + 1 :] - row, axis=1)
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
        found = pairwise(stack.rows[here])
        labels, share = [stack.owners[n] for n in here], stack.from_mean[here]
        for one, other in combinations_with_replacement(members, 2):
            cells = _between(labels, members[one], members[other])
            if cells.any() and (EVERY not in (one, other) or one == other):
                numbers = [mean_std(found[metric][cells]) for metric in ("cosine", "centred_cosine", "l2")]
                spreads = [value for _, *pair in numbers for value in pair]
                last = mean_std(np.outer(share, share)[cells])[1], stack.width
                yield (stack.role.value, layer, one, other, int(cells.sum()), *spreads, *last)


def _between(labels: Sequence[str], one: set[str], other: set[str]) -> np.ndarray:
    """Which pairs, each counted once, have a model of one group and a model of the other."""
    first, second = (np.array([label in group for label in labels]) for group in (one, other))
    either = np.outer(first, second) | np.outer(second, first)
    return np.asarray(np.triu(either, 1))
