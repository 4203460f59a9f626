"""The numbers that the 182 sigma argument is made of, for the published pair and for any other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.errors import NothingComparable
from modelkin.metrics import expected_cosine, pair_moments
from modelkin.records import Role
from modelkin.reference.published import chosen
from modelkin.reference.recomputed import cohens_d
from modelkin.sampling.facing import facing
from modelkin.stats import hidden_axes, joint_permutation
from modelkin.studies.gains import Floats, ModelGains
from modelkin.studies.published import MODELS, Moments, published_moments

OTHERS = 4  # layers that the argument looks at, besides the first
FEWEST = 3
WITHIN_FIRST, ACROSS, ACROSS_FIRST, WITHIN = "within, layer 0", "across", "across, layer 0", "within, no layer 0"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cosine, and what the means and standard deviations alone make of it."""

    group: str
    layer_a: str
    layer_b: str
    cosine: float
    expected: float


@dataclass(frozen=True, slots=True)
class Argument:
    """The cosines of one pair of models, `a` being the supposed parent, whose layers are the baseline."""

    a: str
    b: str
    cells: tuple[Cell, ...]

    def values(self, *groups: str, expected: bool = False) -> list[float]:
        return [cell.expected if expected else cell.cosine for cell in self.cells if cell.group in groups]

    def mean(self, *groups: str, expected: bool = False) -> float:
        return float(np.mean(self.values(*groups, expected=expected)))

    def sigma(self, against: str = WITHIN_FIRST, *groups: str, expected: bool = False) -> float | None:
        """Cohen's d of the cosines across models against those within one; none where neither side varies."""
        over = self.values(*(groups or (ACROSS,)), expected=expected)
        under = self.values(against, expected=expected)
        return cohens_d(over, under) if np.ptp(over) or np.ptp(under) else None


@dataclass(frozen=True, slots=True)
class Axes:
    """What the pattern says: the mean rank correlation of all facing gains with its joint p, and the roll call."""

    vectors: int
    correlation: float
    joint_p: float
    fixed: int
    n: int
    log10_p: float


def published_argument() -> Argument:
    """Solar-Open-100B beside GLM-4.5-Air, from published cosines, means and standard deviations."""
    child, parent = MODELS["A"], MODELS["B"]
    moments = {(one.model, one.layer): one for one in published_moments() if one.role == "input_norm"}

    def cell(group: str, a: tuple[str, str], b: tuple[str, str], cosine: str) -> Cell:
        alone = _expected(moments[a[0], int(a[1])], moments[b[0], int(b[1])])
        return Cell(group, a[1], b[1], float(cosine), alone)

    claimed = chosen("claim_tables", quantity="cosine", tensor="input_layernorm")
    within = [row for row in claimed if row["model_a"] == row["model_b"] == "GLM"]
    across = [row for row in claimed if row["model_a"] != row["model_b"]]
    fair = chosen("baseline_tables", table="exp2", model_a="GLM", model_b="GLM", statistic="value")
    cells = [
        *(cell(WITHIN_FIRST, (parent, r["layer_a"]), (parent, r["layer_b"]), r["printed_value"]) for r in within),
        *(
            cell(
                ACROSS if row["printed_value"] else ACROSS_FIRST,  # layer 0 was computed and left out
                (parent, row["layer_b"]),
                (child, row["layer_a"]),
                row["printed_value"] or row["recomputed_value"],
            )
            for row in across
        ),
        *(cell(WITHIN, (parent, row["layer_a"]), (parent, row["layer_b"]), row["value"]) for row in fair),
    ]
    return Argument(parent, child, tuple(cells))


def published_controls() -> list[tuple[str, str, float]]:
    """Cosines of layer 10 of every pair of four models that were trained apart."""
    found = chosen("baseline_tables", table="exp3", metric="cosine", statistic="value")
    return [(row["model_a"], row["model_b"], float(row["value"])) for row in found]


def argument(a: ModelGains, b: ModelGains) -> Argument:
    """The same cosines for two models: the first layer and four others, spread over the depth."""
    role, beside = _role_and_layers(a, b)
    first, rest = beside[0], beside[1:]
    chosen_layers = [rest[i] for i in _spread(len(rest), OTHERS)]
    mine, theirs = a.vectors[role], b.vectors[role]
    own = [layer for layer, _ in chosen_layers]
    cells = [
        *(_cell(WITHIN_FIRST, (first[0], mine[first[0]]), (layer, mine[layer])) for layer in own),
        *(_cell(ACROSS, (x, mine[x]), (y, theirs[y])) for x, y in chosen_layers),
        _cell(ACROSS_FIRST, (first[0], mine[first[0]]), (first[1], theirs[first[1]])),
        *(_cell(WITHIN, (x, mine[x]), (y, mine[y])) for x, y in itertools.combinations(own, 2)),
    ]
    return Argument(a.label, b.label, tuple(cells))


def axes(a: ModelGains, b: ModelGains, rng: np.random.Generator) -> Axes | None:
    """All gains that both have, in facing layers, at once: the hidden axes are one index set for the whole model.

    A constant vector has no pattern and is left out; none where nothing else is there.
    """
    beside = facing(a.layers, b.layers)
    places = [
        (role, x, y)
        for role in a.vectors
        if role in b.vectors
        for x, y in beside
        if x in a.vectors[role] and y in b.vectors[role]
        if np.ptp(a.vectors[role][x]) and np.ptp(b.vectors[role][y])
    ]
    if not places:
        return None
    left = np.array([a.vectors[role][x] for role, x, _ in places])
    right = np.array([b.vectors[role][y] for role, _, y in places])
    joint, call = joint_permutation(left, right, rng), hidden_axes(left, right, rng)
    found = joint.significance
    log10_p = call.significance.log10_pvalue
    return Axes(len(places), found.statistic, found.pvalue, call.fixed, call.n, log10_p)


def four_against_four(over: Sequence[float], under: Sequence[float]) -> float:
    """The exact p of a permutation test of two means: the share of all ways to deal the numbers that do as well."""
    values, size = np.array([*over, *under]), len(over)
    sums = [math.fsum(values[list(dealt)]) for dealt in itertools.combinations(range(values.size), size)]
    seen = math.fsum(over)
    return sum(total >= seen - 1e-12 for total in sums) / len(sums)


def _role_and_layers(a: ModelGains, b: ModelGains) -> tuple[Role, list[tuple[str, str]]]:
    """The first norm that enough facing layers have, without layers of zeros: these have no cosine."""
    if a.width != b.width:
        raise NothingComparable(f"the argument needs models of one width, found {a.width} and {b.width}", where=b.label)
    for role in a.vectors:
        mine, theirs = (_with_length(model.vectors.get(role, {})) for model in (a, b))
        beside = [(x, y) for x, y in facing(a.layers, b.layers) if x in mine and y in theirs]
        if len(beside) > FEWEST:
            return role, beside
    raise NothingComparable(
        f"the argument needs one norm in more than {FEWEST} facing layers, not counting layers of zeros", where=b.label
    )


def _with_length(layers: Mapping[str, Floats]) -> set[str]:
    return {layer for layer, vector in layers.items() if vector.any()}


def _spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` places, evenly, the last among them."""
    if count <= wanted:
        return list(range(count))
    return [(i + 1) * count // wanted - 1 for i in range(wanted)]


def _cell(group: str, a: tuple[str, Floats], b: tuple[str, Floats]) -> Cell:
    parts = pair_moments(a[1], b[1]).parts()
    return Cell(group, a[0], b[0], parts.cosine, parts.from_means)


def _expected(a: Moments, b: Moments) -> float:
    return expected_cosine(mean_a=a.mean, std_a=a.std, mean_b=b.mean, std_b=b.std)
