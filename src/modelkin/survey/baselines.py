"""What else is as alike: layers of one model, drawn and shuffled vectors, and groups of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import numpy as np

from modelkin.records import Role, Table, Value
from modelkin.survey.cells import listed, mean_std
from modelkin.survey.matrices import pairwise
from modelkin.survey.reading import Collected, Model
from modelkin.survey.vectors import Doubles, Places, Stack, divided

NUMBERS = ("cosine_mean", "cosine_std", "pearson_mean", "pearson_std", "l2_mean", "l2_std")
EVERY = "all"  # the group that every model is in

Triple = tuple[Doubles, Doubles, Doubles]


def baseline_table(collected: Collected, stacks: Sequence[Stack]) -> Table:
    rows = [row for stack in stacks for row in _of_stack(collected, stack)]
    rows += _input_against_post(stacks)
    return Table(
        name="baselines",
        title="What else is as alike",
        caption="Inside each model. layer-0: the first layer with the layer at that distance, and with all others "
        "where the distance is empty. equal-distance: all pairs of layers at that distance. input-vs-post: two norms "
        "of one layer. random-normal: every vector with one drawn with its mean and std; shuffled: with its own "
        f"values in another order; means-only: the same without drawing, from mean and std. Seed {collected.seed}.",
        strangers="random-normal, shuffled and means-only are what strangers with these means and spreads show: a "
        "cosine that does not exceed them is no likeness, however near 1",
        columns=("model", "role", "baseline", "distance", "n", *NUMBERS),
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
        f"`{EVERY}` holds every model.{said}",
        strangers="a mean cosine near 1 in every group, and a mean Pearson of 0",
        columns=("role", "layer", "group_a", "group_b", "n", *NUMBERS),
        rows=tuple(rows),
    )


def _of_stack(collected: Collected, stack: Stack) -> Iterator[tuple[Value, ...]]:
    rng = collected.rng(f"baselines {stack.role} {stack.width}")
    for label in stack.labels:
        places = stack.places(label)
        name = (label, stack.role.value)
        for baseline, distance, numbers in _between_layers(stack, places):
            yield _row(*name, baseline, distance, numbers)
        drawn = stack.mean[places, None] + stack.std[places, None] * rng.standard_normal((places.size, stack.width))
        mixed = rng.permuted(stack.rows[places], axis=1)
        yield _row(*name, "random-normal", 0, _beside(stack.rows[places], drawn))
        yield _row(*name, "shuffled", 0, _beside(stack.rows[places], mixed))
        yield _row(*name, "means-only", 0, _means_only(stack, places))


def _row(label: str, role: str, baseline: str, distance: int | None, numbers: Triple) -> tuple[Value, ...]:
    n, *cosine = mean_std(numbers[0])
    return (label, role, baseline, distance, n, *cosine, *mean_std(numbers[1])[1:], *mean_std(numbers[2])[1:])


def _between_layers(stack: Stack, places: Places) -> Iterator[tuple[str, int | None, Triple]]:
    """The first layer with each other, then every distance."""
    square = np.ix_(places, places)
    tables = stack.cosines[square], stack.pearsons[square], _distances(stack.rows[places])
    depth = places.size
    if depth > 1:
        yield "layer-0", None, _triple([table[0, 1:] for table in tables])
    for distance in range(1, depth):
        yield "layer-0", distance, _triple([table[0, distance : distance + 1] for table in tables])
    for distance in range(1, depth):
        yield "equal-distance", distance, _triple([np.diagonal(table, distance) for table in tables])


def _triple(values: Sequence[Doubles]) -> Triple:
    first, second, third = values
    return first, second, third


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
                    name = f"{before.role} and {after.role}"
                    yield _row(label, name, "input-vs-post", 0, _beside(before.rows[i], after.rows[j]))


def _beside(a: Doubles, b: Doubles) -> Triple:
    """Cosine, Pearson and distance of row n of a and row n of b."""
    left, right = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    for centred, rows in ((left, a), (right, b)):
        centred[np.ptp(rows, axis=1) == 0] = 0.0
    return _cosine(a, b), _cosine(left, right), np.linalg.norm(a - b, axis=1)


def _cosine(a: Doubles, b: Doubles) -> Doubles:
    return divided(np.einsum("ij,ij->i", a, b), np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _means_only(stack: Stack, places: Places) -> Triple:
    """The expectation for a copy whose values are in any order: E|a − πa|² = 2 n s²."""
    share, std = stack.from_mean[places], stack.std[places]
    pearson = np.where(std > 0, 0.0, np.nan)
    return share**2, pearson, std * np.sqrt(2 * stack.width)


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
        labels = [stack.owners[n] for n in here]
        for one, other in combinations_with_replacement(members, 2):
            cells = _between(labels, members[one], members[other])
            if cells.any() and (EVERY not in (one, other) or one == other):
                numbers = [mean_std(found[metric][cells]) for metric in ("cosine", "centred_cosine", "l2")]
                spreads = [value for _, *pair in numbers for value in pair]
                yield (stack.role.value, layer, one, other, int(cells.sum()), *spreads)


def _between(labels: Sequence[str], one: set[str], other: set[str]) -> np.ndarray:
    """Which pairs, each counted once, have a model of one group and a model of the other."""
    first, second = (np.array([label in group for label in labels]) for group in (one, other))
    either = np.outer(first, second) | np.outer(second, first)
    return np.asarray(np.triu(either, 1))
