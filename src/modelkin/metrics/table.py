"""METRICS: every number from two arrays, in report order, with its range and what leaves it unchanged.

The invariances are claims: tests/contracts/test_metrics.py carries out each one that is listed, and shows for each one
that is not listed that it does change the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from modelkin.metrics.difference import (
    changed_distance,
    l2_distance,
    mean_abs_distance,
    rel_l2_to_a_distance,
    rel_l2_to_b_distance,
)
from modelkin.metrics.direction import (
    centred_cosine_similarity,
    cosine_minus_one_similarity,
    cosine_similarity,
    spearman_similarity,
)
from modelkin.metrics.distribution import cv_distance, p99_abs_distance
from modelkin.metrics.geometry import linear_cka_similarity, unbiased_cka_similarity
from modelkin.metrics.inputs import Array
from modelkin.metrics.spectrum import spectral_distance


class Invariance(Enum):
    """Done to both arrays: JOINTLY the same to each, else to each its own. Rows of a vector are its values."""

    PERMUTE_JOINTLY = "one order of the rows for both"
    PERMUTE = "an order of the rows for each"
    SIGN_JOINTLY = "the same rows of both negated"
    NEGATE_JOINTLY = "both negated"
    NEGATE = "either negated"
    SCALE_JOINTLY = "both times one positive number"
    SCALE = "each times a positive number"
    SHIFT_JOINTLY = "one number added to both"
    SHIFT = "a number added to each"
    RESHAPE_VALUES = "an increasing function of its values for each"
    ROTATE_ROWS_JOINTLY = "one orthogonal matrix from the left for both, mixing rows"
    ROTATE_ROWS = "an orthogonal matrix from the left for each"
    ROTATE_COLUMNS = "an orthogonal matrix from the right for each, mixing columns"


class Shapes(Enum):
    """Which two shapes go together."""

    EQUAL = "one shape, any number of axes"
    ROWS = "two axes each, as many rows"
    MATRICES = "two axes each"
    ANY = "any two shapes"


@dataclass(frozen=True, slots=True)
class Metric:
    """`range` holds every value (an infinite end is open); of an array with itself a similarity is 1, a distance 0."""

    function: Callable[[Array, Array], float]
    range: tuple[float, float]
    symmetric: bool
    invariant_to: frozenset[Invariance]
    about: str
    shapes: Shapes = Shapes.EQUAL
    also: tuple[str, ...] = ()  # names under which the same number has been published


_I = Invariance
_SIGNS = {_I.SIGN_JOINTLY, _I.NEGATE_JOINTLY}
_NEGATE = {_I.NEGATE, _I.NEGATE_JOINTLY}
_SCALE = {_I.SCALE, _I.SCALE_JOINTLY}
_SHIFT = {_I.SHIFT, _I.SHIFT_JOINTLY}
_PERMUTE = {_I.PERMUTE, _I.PERMUTE_JOINTLY}
_JOINTLY = _I.PERMUTE_JOINTLY
_ROTATE = {_I.ROTATE_ROWS, _I.ROTATE_ROWS_JOINTLY, _I.ROTATE_COLUMNS}

METRICS: Mapping[str, Metric] = MappingProxyType({
    "cosine_similarity": Metric(
        cosine_similarity, (-1, 1), True, frozenset({_JOINTLY, _I.ROTATE_ROWS_JOINTLY} | _SIGNS | _SCALE),
        "angle between all values; near 1 for any positive arrays, so read beside the cosine expected from means alone",
        also=("cosine",)),
    "centred_cosine_similarity": Metric(
        centred_cosine_similarity, (-1, 1), True, frozenset({_JOINTLY, _I.NEGATE_JOINTLY} | _SCALE | _SHIFT),
        "Pearson's r: the cosine after each mean is taken away; a few outliers can carry it",
        also=("pearson", "centered_cosine")),
    "spearman_similarity": Metric(
        spearman_similarity, (-1, 1), True,
        frozenset({_JOINTLY, _I.NEGATE_JOINTLY, _I.RESHAPE_VALUES} | _SCALE | _SHIFT),
        "Pearson's r of the ranks; no outlier can carry it", also=("spearman",)),
    "cosine_minus_one_similarity": Metric(
        cosine_minus_one_similarity, (-1, 1), True, frozenset({_JOINTLY}),
        "cosine of the deviations from one; not a centred cosine"),
    "mean_abs_distance": Metric(
        mean_abs_distance, (0, math.inf), True, frozenset({_JOINTLY, _I.SHIFT_JOINTLY} | _SIGNS),
        "mean size of the differences; follows the scale", also=("mean_abs_diff",)),
    "l2_distance": Metric(
        l2_distance, (0, math.inf), True,
        frozenset({_JOINTLY, _I.SHIFT_JOINTLY, _I.ROTATE_ROWS_JOINTLY} | _SIGNS),
        "norm of the difference; follows the scale and the size of the arrays", also=("l2",)),
    "rel_l2_to_a_distance": Metric(
        rel_l2_to_a_distance, (0, math.inf), False,
        frozenset({_JOINTLY, _I.SCALE_JOINTLY, _I.ROTATE_ROWS_JOINTLY} | _SIGNS),
        "norm of the difference beside that of a; larger when a is the smaller one", also=("rel_l2", "rel_rmse")),
    "rel_l2_to_b_distance": Metric(
        rel_l2_to_b_distance, (0, math.inf), False,
        frozenset({_JOINTLY, _I.SCALE_JOINTLY, _I.ROTATE_ROWS_JOINTLY} | _SIGNS),
        "norm of the difference beside that of b; larger when b is the smaller one"),
    "p99_abs_distance": Metric(
        p99_abs_distance, (0, math.inf), True, frozenset({_I.SIGN_JOINTLY} | _PERMUTE | _NEGATE),
        "difference of the two 99 % quantiles of the size of values, not a quantile of differences",
        shapes=Shapes.ANY, also=("p99_abs_diff",)),
    "cv_distance": Metric(
        cv_distance, (0, math.inf), True, frozenset(_PERMUTE | _NEGATE | _SCALE),
        "difference of the coefficients of variation; meaningless where a mean is near zero",
        shapes=Shapes.ANY, also=("cv_diff",)),
    "changed_distance": Metric(
        changed_distance, (0, 1), True, frozenset({_JOINTLY, _I.SCALE_JOINTLY, _I.SHIFT_JOINTLY} | _SIGNS),
        "share of places that hold another value"),
    "linear_cka_similarity": Metric(
        linear_cka_similarity, (0, 1), True, frozenset({_JOINTLY, _I.ROTATE_COLUMNS} | _NEGATE | _SCALE | _SHIFT),
        "likeness of the geometry of rows; near 1 between strangers with fewer rows than columns",
        shapes=Shapes.ROWS, also=("cka",)),
    "unbiased_cka_similarity": Metric(
        unbiased_cka_similarity, (-1, 1), True, frozenset({_JOINTLY, _I.ROTATE_COLUMNS} | _NEGATE | _SCALE | _SHIFT),
        "the same without the bias: zero on average between independent arrays",
        shapes=Shapes.ROWS, also=("ucka",)),
    "spectral_distance": Metric(
        spectral_distance, (0, math.sqrt(2)), True,
        frozenset({_I.SIGN_JOINTLY} | _PERMUTE | _NEGATE | _SCALE | _ROTATE),
        "distance of the normalised singular values; spectra of strangers look alike", shapes=Shapes.MATRICES),
})  # fmt: skip
