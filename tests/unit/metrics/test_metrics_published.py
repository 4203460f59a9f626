"""Published numbers of Solar-Open-100B (a), GLM-4.5-Air (b) and Phi-3.5-MoE come out of the moments alone.

The gains themselves are not needed: vectors built to the published means, standard deviations and correlation have,
to the stated precision, the published cosine, distances and coefficients of variation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkin.metrics import (
    PairMoments,
    centred_cosine_similarity,
    cosine_minus_one_similarity,
    cosine_parts,
    cosine_similarity,
    cv_distance,
    expected_cosine,
    l2_distance,
    pair_moments,
    rel_l2_to_a_distance,
    rel_l2_to_b_distance,
)

Array = NDArray[np.float64]


class Gains(NamedTuple):
    """4096 gains a vector. Moments, r and cosine: layernorm_sanity.csv of ANLGBOY/solar-vs-glm-sanity-check (float32).
    rel_rmse: solar_vs_glm_detailed.csv of sionic-ai/solar-vs-glm (float64, other code, another read)."""

    mean_a: float
    std_a: float
    mean_b: float
    std_b: float
    r: float
    cosine: float
    rel_rmse: float


PUBLISHED = {
    "layer 0 input": Gains(0.016252458095550537, 0.04056622087955475, 0.010871960781514645, 0.027050044387578964,
                           -0.013287880457937717, 0.1272473931312561, 1.129272615889417),
    "layer 0 post": Gains(0.14563041925430298, 0.06360136717557907, 0.06551524251699448, 0.025237208232283592,
                          -0.009045319631695747, 0.85386061668396, 0.663863659348885),
    "layer 1 input": Gains(0.07319767773151398, 0.0534512996673584, 0.03881349414587021, 0.07965884357690811,
                           -0.02250363864004612, 0.3418121933937073, 1.134666765625833),
    "layer 10 input": Gains(0.23573653399944305, 0.04095647484064102, 0.49698755145072937, 0.04654686897993088,
                            0.009186744689941406, 0.981094479560852, 1.1219305385974117),
    "layer 20 input": Gains(0.321994423866272, 0.03161871060729027, 0.6478511095046997, 0.05503112077713013,
                            0.018073048442602158, 0.9917915463447571, 1.0257838202349527),
    "layer 20 post": Gains(0.46747350692749023, 0.03577572479844093, 1.3790206909179688, 0.10277063399553299,
                           0.012136164121329784, 0.994395911693573, 1.9579601049607969),
    "layer 30 input": Gains(0.29378122091293335, 0.03251666575670242, 0.7746694087982178, 0.05821703374385834,
                            0.035622794181108475, 0.9914291501045227, 1.6420538229020047),
    "layer 45 post": Gains(0.974858283996582, 0.06684352457523346, 2.0449390411376953, 0.09642986953258514,
                           0.001180990249849856, 0.996553897857666, 1.1016630957238494),
}  # fmt: skip
# cv_diff at two of them: solar_glm_phi_metrics.csv, hyunwoongko/solar-vs-glm-vs-phi (float32).
CV_DIFF = {"layer 10 input": 0.08008032292127609, "layer 20 post": 0.0020055994391441345}

every_vector = pytest.mark.parametrize("gains", PUBLISHED.values(), ids=PUBLISHED.keys())


def vectors(gains: Gains, n: int = 4096) -> tuple[Array, Array]:
    """Two vectors with exactly these moments."""
    raw = np.random.default_rng(0).standard_normal((n, 2))
    u, v = np.linalg.qr(raw - raw.mean(axis=0))[0].T * math.sqrt(n)
    pattern = gains.r * u + math.sqrt(1 - gains.r**2) * v
    return gains.mean_a + gains.std_a * u, gains.mean_b + gains.std_b * pattern


@every_vector
def test_published_moments_give_the_published_cosine(gains: Gains) -> None:
    cov = gains.r * gains.std_a * gains.std_b
    parts = PairMoments(4096, gains.mean_a, gains.mean_b, gains.std_a**2, gains.std_b**2, cov).parts()
    assert parts.cosine == pytest.approx(gains.cosine, abs=1.7e-7)


@every_vector
def test_vectors_of_published_moments_have_the_published_numbers(gains: Gains) -> None:
    a, b = vectors(gains)
    assert cosine_similarity(a, b) == pytest.approx(gains.cosine, abs=1.7e-7)
    assert centred_cosine_similarity(a, b) == pytest.approx(gains.r, abs=1e-12)
    assert rel_l2_to_a_distance(a, b) == pytest.approx(gains.rel_rmse, rel=2e-7)


@every_vector
def test_the_means_alone_explain_the_cosine_to_two_digits(gains: Gains) -> None:
    a, b = vectors(gains)
    expected = expected_cosine(mean_a=gains.mean_a, std_a=gains.std_a, mean_b=gains.mean_b, std_b=gains.std_b)
    parts = cosine_parts(a, b)
    assert parts.from_means == pytest.approx(expected, abs=1e-12)
    assert abs(gains.cosine - expected) < 0.016
    assert parts.from_pattern == pytest.approx(gains.r * parts.reach, abs=1e-12)


@pytest.mark.parametrize("name", CV_DIFF)
def test_coefficients_of_variation_differ_as_published(name: str) -> None:
    assert cv_distance(*vectors(PUBLISHED[name])) == pytest.approx(CV_DIFF[name], abs=1e-7)


def test_l2_of_layer_10_is_as_published() -> None:
    """17.1803 in chahero/solar-vs-glm-critique, table exp6-2."""
    assert l2_distance(*vectors(PUBLISHED["layer 10 input"])) == pytest.approx(17.1803, abs=5e-5)


def test_random_vectors_around_one_have_the_published_cosine() -> None:
    """N(1, 0.1) at 4096: cosine 0.9901, L2 9.05 over 1000 draws (same, exp6-1)."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 0.1, (2, 4096))
    assert expected_cosine(mean_a=1, std_a=0.1, mean_b=1, std_b=0.1) == pytest.approx(0.9901, abs=5e-5)
    assert cosine_similarity(a, b) == pytest.approx(0.9901, abs=1e-3)
    assert l2_distance(a, b) == pytest.approx(9.0468, abs=0.5)
    assert abs(centred_cosine_similarity(a, b)) < 0.06


def test_which_array_divides_decides_the_published_order() -> None:
    """rel_l2 of layer 20 post gains was published as Solar-GLM 1.96 and GLM-Phi 0.64, each relative to the first.

    Relative to the larger vector, GLM in both, the two pairs are as good as equally far (0.66 and 0.64).
    """
    a, b = vectors(PUBLISHED["layer 20 post"])
    assert rel_l2_to_a_distance(a, b) == pytest.approx(1.9579601287841797, rel=2e-7)
    assert rel_l2_to_b_distance(a, b) == pytest.approx(0.6638278, rel=1e-6)
    # |phi| / |glm| from the published cosine and rel_l2: x² − 2 x cos + 1 = rel²; gains of Phi are the smaller ones.
    cosine, relative = 0.9951683282852173, 0.6400062441825867
    size = cosine - math.sqrt(cosine**2 - 1 + relative**2)
    glm, phi = np.array([1.0, 0.0]), size * np.array([cosine, math.sqrt(1 - cosine**2)])
    assert rel_l2_to_a_distance(glm, phi) == pytest.approx(relative, rel=1e-9)
    assert rel_l2_to_b_distance(glm, phi) == pytest.approx(1.764, abs=1e-3)


def test_minus_one_and_minus_mean_are_different_numbers() -> None:
    """At layer 20 the gains of one model lie below one and those of the other above: −0.98 where r is 0.01."""
    gains = PUBLISHED["layer 20 post"]
    a, b = vectors(gains)
    moments = pair_moments(a - 1, b - 1)
    assert cosine_minus_one_similarity(a, b) == pytest.approx(moments.parts().cosine, abs=1e-12)
    assert cosine_minus_one_similarity(a, b) < -0.95
    assert centred_cosine_similarity(a, b) == pytest.approx(gains.r, abs=1e-12)
