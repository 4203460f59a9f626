"""Why a cosine of positive vectors says little: three dimensions to look at, then many against the closed form."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin import __version__
from modelkin.metrics import centred_cosine_similarity, cosine_similarity, expected_cosine, pair_moments
from modelkin.records.survey import Study, Table, Value
from modelkin.studies import Settings
from modelkin.studies.columns import number, numbers

V1, V2 = (0.95, 0.70, 0.72), (0.70, 1.05, 0.72)  # the published example
DIMENSIONS = (64, 512, 4096)
MEANS = ((0.1, 0.5), (0.5, 1.0), (1.0, 2.0), (1.0, 1.0))
SPREADS = (1.0, 0.5, 0.2, 0.1)
PAIRS = 400
BLOCK = 100  # pairs of vectors in memory at once
CURVE = np.geomspace(0.03, 30, 121)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Cosines and correlations of pairs of random vectors, and the share of positive values on either side."""

    cosines: Floats
    pearsons: Floats
    positive: tuple[float, float]


def study(settings: Settings) -> Study:
    began = time.perf_counter()
    tables = (_vectors(), _angles(), _synthetic(np.random.default_rng(settings.seed)), _curve())
    return Study(
        modelkin=__version__,
        name="cosine-bias",
        title="Why the cosine of positive vectors is near one",
        text=_text(tables[1], tables[2]),
        seed=settings.seed,
        tables=tables,
        seconds=time.perf_counter() - began,
    )


def cosine_spread(*, mean_a: float, std_a: float, mean_b: float, std_b: float, n: int) -> float:
    """The standard deviation of the cosine of two independent normal vectors of n values, to first order in 1/n.

    The delta method on cos = P / sqrt(A B) with P, A, B the means of xy, x² and y².
    """
    a, b = mean_a**2 + std_a**2, mean_b**2 + std_b**2
    product = mean_a * mean_b
    var_p = a * b - product**2
    var_a, var_b = (2 * s**4 + 4 * m**2 * s**2 for m, s in ((mean_a, std_a), (mean_b, std_b)))
    cov_a, cov_b = 2 * product * std_a**2, 2 * product * std_b**2
    cov_ab = 0.0
    slope = (1.0, -product / (2 * a), -product / (2 * b))
    covariance = np.array([[var_p, cov_a, cov_b], [cov_a, var_a, cov_ab], [cov_b, cov_ab, var_b]])
    variance = float(np.array(slope) @ covariance @ np.array(slope)) / (a * b)
    return math.sqrt(max(variance, 0.0) / n)


def _vectors() -> Table:
    rows: list[tuple[Value, ...]] = []
    for name, vector in (("V1", V1), ("V2", V2)):
        mean = math.fsum(vector) / len(vector)
        rows.append((name, *vector, mean, *(value - mean for value in vector)))
    return Table(
        name="vectors",
        title="Two vectors of three positive values",
        caption=f"{len(rows)} vectors of {len(V1)} values as given, their means, and the values less their own mean.",
        strangers="any two vectors with positive values lie in one corner of space; their differences from the mean "
        "may point anywhere",
        columns=("vector", "x", "y", "z", "mean", "centred_x", "centred_y", "centred_z"),
        rows=tuple(rows),
    )


def _angles() -> Table:
    a, b = np.array(V1), np.array(V2)
    found = (("as stored", cosine_similarity(a, b)), ("mean taken away", centred_cosine_similarity(a, b)))
    chance = pair_moments(a, b).parts().from_means
    expected = (chance, 0.0)
    return Table(
        name="angles",
        title="The angle between them, before and after",
        caption="The cosine of the two vectors as they are and after each one's own mean is taken away (Pearson's r), "
        "with the angle it stands for.",
        strangers=f"as stored {chance:.3f}, from means and standard deviations alone; with the mean taken away 0",
        columns=("when", "cosine", "angle_degrees", "expected_cosine", "expected_angle_degrees"),
        rows=tuple(
            (when, cosine, _degrees(cosine), alone, _degrees(alone))
            for (when, cosine), alone in zip(found, expected, strict=True)
        ),
    )


def _degrees(cosine: float) -> float:
    return math.degrees(math.acos(cosine))


def _synthetic(rng: np.random.Generator) -> Table:
    rows = tuple(
        _synthetic_row(dimension, means, spread, rng)
        for dimension in DIMENSIONS
        for means in MEANS
        for spread in SPREADS
    )
    return Table(
        name="synthetic",
        title="Independent random vectors against the closed form",
        caption=f"{PAIRS} pairs of independent normal vectors for each of {len(rows)} settings: {len(DIMENSIONS)} "
        f"dimensions, {len(MEANS)} pairs of means, {len(SPREADS)} standard deviations. `expected_cosine` comes from "
        "means and standard deviations, `expected_std` from these and the dimension.",
        strangers="the closed form for the cosine, Pearson 0 ± 1/sqrt(dimension − 1); all pairs here are such",
        columns=(
            "dimension",
            "mean_a",
            "mean_b",
            "std",
            "pairs",
            "positive_a",
            "positive_b",
            "cosine_mean",
            "cosine_std",
            "cosine_min",
            "cosine_max",
            "expected_cosine",
            "expected_std",
            "pearson_mean",
            "pearson_std",
            "expected_pearson_std",
        ),
        rows=rows,
    )


def _synthetic_row(
    dimension: int, means: tuple[float, float], spread: float, rng: np.random.Generator
) -> tuple[float | int, ...]:
    mean_a, mean_b = means
    drawn = _drawn(dimension, means, spread, rng)
    moments = {"mean_a": mean_a, "std_a": spread, "mean_b": mean_b, "std_b": spread}
    return (
        dimension,
        mean_a,
        mean_b,
        spread,
        PAIRS,
        *drawn.positive,
        float(drawn.cosines.mean()),
        float(drawn.cosines.std()),
        float(drawn.cosines.min()),
        float(drawn.cosines.max()),
        expected_cosine(**moments),
        cosine_spread(**moments, n=dimension),
        float(drawn.pearsons.mean()),
        float(drawn.pearsons.std()),
        1 / math.sqrt(dimension - 1),
    )


def _drawn(dimension: int, means: tuple[float, float], spread: float, rng: np.random.Generator) -> Drawn:
    cosines, pearsons, positive = [], [], np.zeros(2)
    for _ in range(PAIRS // BLOCK):
        a, b = (mean + spread * rng.standard_normal((BLOCK, dimension)) for mean in means)
        cosines.append(_row_cosines(a, b))
        positive += np.count_nonzero(a > 0), np.count_nonzero(b > 0)
        pearsons.append(_row_cosines(a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)))
    share = positive / (PAIRS * dimension)
    return Drawn(np.concatenate(cosines), np.concatenate(pearsons), (float(share[0]), float(share[1])))


def _row_cosines(a: Floats, b: Floats) -> Floats:
    """Row by row.  (pairs, d) twice -> (pairs,)."""
    dot, square_a, square_b = (np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (a, a), (b, b)))
    return np.asarray(dot / np.sqrt(square_a * square_b))


def _curve() -> Table:
    return Table(
        name="curve",
        title="The closed form",
        caption=f"The cosine that two vectors of one coefficient of variation have without any common pattern, for "
        f"{CURVE.size} ratios of mean to standard deviation from {CURVE[0]:g} to {CURVE[-1]:g}: 1 / (1 + CV²).",
        strangers="exactly this, up to chance",
        columns=("mean_over_std", "expected_cosine"),
        rows=tuple(
            (ratio, expected_cosine(mean_a=ratio, std_a=1.0, mean_b=ratio, std_b=1.0)) for ratio in CURVE.tolist()
        ),
    )


def _text(angles: Table, synthetic: Table) -> str:
    (cosine, pearson), (angle, opened) = numbers(angles, "cosine"), numbers(angles, "angle_degrees")
    means, closed = numbers(synthetic, "cosine_mean"), numbers(synthetic, "expected_cosine")
    worst = max(abs(mean - alone) for mean, alone in zip(means, closed, strict=True))
    gains = {"dimension": DIMENSIONS[-1], "mean_a": 1.0, "mean_b": 1.0, "std": SPREADS[-1]}
    names = ("cosine_mean", "cosine_std", "pearson_mean", "pearson_std")
    like = [number(synthetic, name, **gains) for name in names]
    return (
        f"A cosine measures the angle between two arrows from zero. The arrows V1 = {V1} and V2 = {V2} are high where "
        f"the other is low, yet their cosine is {cosine:.3f}, an angle of {angle:.1f} degrees: all their values are "
        "positive, so both point into the same corner of space. Take away from each its own mean, and only the pattern "
        f"is left: the cosine, now called Pearson's r, is {pearson:.3f}, an angle of {opened:.0f} degrees.\n\n"
        "In many dimensions the effect is not weaker but exact. For vectors without any common pattern the cosine is "
        "what their means and standard deviations make it, cos = 1 / sqrt((1 + CV_a²)(1 + CV_b²)), where CV is the "
        f"standard deviation divided by the mean. In {len(synthetic.rows)} settings the mean cosine of {PAIRS} "
        f"simulated pairs never lies further than {worst:.4f} from it. More dimensions do not lower the cosine; they "
        f"only pin it down: random vectors of {DIMENSIONS[-1]} values with mean 1 and standard deviation {SPREADS[-1]} "
        f"have a cosine of {like[0]:.4f} ± {like[1]:.4f} and a Pearson correlation of {like[2]:.4f} ± {like[3]:.4f}. "
        "The gains of norm layers are such vectors. A high cosine between them is what strangers have."
    )
