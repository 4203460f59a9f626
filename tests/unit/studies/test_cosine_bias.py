from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.records import Study
from modelkin.studies import STUDIES
from modelkin.studies.columns import numbers
from modelkin.studies.cosine_bias import PAIRS, cosine_spread


@pytest.fixture(scope="module")
def study() -> Study:
    return STUDIES["cosine-bias"].run()


def test_the_published_angles_come_out(study: Study) -> None:
    cosine, pearson = numbers(study.tables[1], "cosine")
    angle, opened = numbers(study.tables[1], "angle_degrees")
    assert (round(cosine, 3), round(angle, 1)) == (0.955, 17.2)
    assert (round(pearson, 3), round(opened)) == (-0.602, 127)


def test_simulated_cosines_lie_where_the_closed_form_says(study: Study) -> None:
    """Every mean within 4.5 standard errors (48 settings), and a bias of order 1/d, at most 1/64, for curvature."""
    table = study.tables[2]
    mean, expected, spread, dimension = (
        np.array(numbers(table, name)) for name in ("cosine_mean", "expected_cosine", "expected_std", "dimension")
    )
    assert np.all(np.abs(mean - expected) < 4.5 * spread / math.sqrt(PAIRS) + 0.25 / dimension)


def test_the_spread_of_the_cosine_is_predicted_too(study: Study) -> None:
    """A standard deviation of 400 values is known to 1/sqrt(800) = 3.5 %: 4.5 of those, and 5 % for first order."""
    table = study.tables[2]
    ratio = np.array(numbers(table, "cosine_std")) / np.array(numbers(table, "expected_std"))
    assert np.all(np.abs(np.log(ratio)) < 4.5 * 0.035 + 0.05)


def test_without_means_the_spread_is_that_of_a_correlation() -> None:
    spread = cosine_spread(mean_a=0.0, std_a=2.0, mean_b=0.0, std_b=0.3, n=400)
    assert spread == pytest.approx(1 / math.sqrt(400))


def test_no_more_dimensions_lower_the_cosine(study: Study) -> None:
    settings = {"mean_a": 1.0, "mean_b": 1.0, "std": 0.1}
    assert numbers(study.tables[2], "cosine_mean", **settings) == pytest.approx([1 / 1.01] * 3, abs=1e-3)


def test_the_text_is_made_of_the_numbers(study: Study) -> None:
    for shown in ("0.955", "17.2 degrees", "-0.602", "127 degrees", "0.9901 ± 0.0002"):
        assert shown in study.text
