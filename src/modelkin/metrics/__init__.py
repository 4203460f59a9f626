"""Numbers from arrays, and nothing else: no files, no layers, no chance. METRICS lists those of two arrays.

Names end in `_similarity` (rises with likeness) or `_distance` (falls); other names are statistics or records. Sums run
in float64 whatever the dtype, inputs are never written to, and what has no value raises `Unmeasurable` with the reason.
"""

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
from modelkin.metrics.distribution import coefficient_of_variation, cv_distance, p99_abs, p99_abs_distance
from modelkin.metrics.geometry import linear_cka_similarity, unbiased_cka_similarity
from modelkin.metrics.inputs import NotFinite, ShapeMismatch, Undefined, Unmeasurable
from modelkin.metrics.moments import CosineParts, PairMoments, cosine_parts, expected_cosine, pair_moments
from modelkin.metrics.spectrum import singular_values, spectral_distance
from modelkin.metrics.table import METRICS, Invariance, Metric, Shapes
from modelkin.metrics.ulps import UlpChange, ulp_change

__all__ = [
    "METRICS",
    "CosineParts",
    "Invariance",
    "Metric",
    "NotFinite",
    "PairMoments",
    "ShapeMismatch",
    "Shapes",
    "UlpChange",
    "Undefined",
    "Unmeasurable",
    "centred_cosine_similarity",
    "changed_distance",
    "coefficient_of_variation",
    "cosine_minus_one_similarity",
    "cosine_parts",
    "cosine_similarity",
    "cv_distance",
    "expected_cosine",
    "l2_distance",
    "linear_cka_similarity",
    "mean_abs_distance",
    "p99_abs",
    "p99_abs_distance",
    "pair_moments",
    "rel_l2_to_a_distance",
    "rel_l2_to_b_distance",
    "singular_values",
    "spearman_similarity",
    "spectral_distance",
    "ulp_change",
    "unbiased_cka_similarity",
]
