from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.records import Study
from modelkin.report.study_figures import study_figures
from modelkin.studies import STUDIES
from modelkin.studies.columns import number, numbers
from modelkin.studies.rounding import FORMATS, Format, exactly, measured, rounded, step, uniform_noise

KINDS = {kind.name: kind for kind in FORMATS}

pytestmark = pytest.mark.xdist_group("rounding")  # what the fixture makes takes long, so one worker makes it


@pytest.fixture(scope="module")
def study() -> Study:
    return STUDIES["precision"].run()


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_a_step_is_two_to_the_significand(kind: Format) -> None:
    assert step(1.0, kind) == 2.0 ** (1 - kind.significand)
    assert step(-1.5, kind) == 2.0 ** (1 - kind.significand)
    assert step(3.0, kind) == 2.0 ** (2 - kind.significand)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("mean", "in_steps"), [(1.3, 0.4), (1.9, 3.0), (0.0, 2.0), (-0.7, 0.2), (2.0, 1.0)])
def test_the_closed_form_is_what_rounding_does(kind: Format, mean: float, in_steps: float) -> None:
    """One vector of 400,000 values: r² is known to 2 r (1 − r²) / sqrt(n) < 0.0013; four of those."""
    std = in_steps * step(1.0, kind)
    values = mean + std * np.random.default_rng(0).standard_normal(400_000)
    found, closed = measured(values, rounded(values, kind)), exactly(mean, std, kind)
    assert found.survived == pytest.approx(closed.survived, abs=0.005)
    assert found.noise == pytest.approx(closed.noise, rel=0.05)


def test_many_steps_under_the_pattern_make_uniform_noise() -> None:
    kind = KINDS["BF16"]
    ulp = step(1.5, kind)
    closed, rule = exactly(1.5, 3 * ulp, kind), uniform_noise(3 * ulp, ulp)
    assert closed.noise == pytest.approx(ulp**2 / 12, rel=1e-6)
    assert closed.survived == pytest.approx(rule.survived, rel=1e-6)


def test_a_small_pattern_drowns_between_two_numbers_and_keeps_its_sign_on_the_edge() -> None:
    """On the edge rounding tells above from below: r² of a normal and its sign is 2/π."""
    kind = KINDS["BF16"]
    ulp = step(1.5, kind)
    assert exactly(1.5, 0.02 * ulp, kind).survived < 1e-100
    assert exactly(1.5 + ulp / 2, 0.02 * ulp, kind).survived == pytest.approx(2 / math.pi)


def test_a_constant_that_comes_back_has_lost_its_pattern() -> None:
    values = 1 + 1e-6 * np.random.default_rng(0).standard_normal(64)
    assert measured(values, rounded(values, KINDS["F8_E5M2"])).survived == 0


def test_measured_and_expected_agree_over_the_sweep(study: Study) -> None:
    table = study.tables[0]
    found, closed = (np.array(numbers(table, name)) for name in ("survived", "expected"))
    assert np.abs(found - closed).max() < 0.02
    assert found.min() < 0.01 < 0.99 < found.max()


def test_half_is_lost_at_a_quarter_to_a_third_of_a_step_in_every_format(study: Study) -> None:
    table = study.tables[2]
    measured_at, expected_at = (numbers(table, f"std_in_ulps_{name}") for name in ("measured", "expected"))
    assert expected_at == pytest.approx([0.2822] * 4, abs=2e-3)
    assert measured_at == pytest.approx(expected_at, abs=0.01)
    assert numbers(table, "std_in_ulps_rule_of_thumb") == pytest.approx([1 / math.sqrt(12)] * 4, abs=1e-3)


def test_minus_one_helps_near_one_only_and_apart_always(study: Study) -> None:
    def survived(stored: str, scale: float) -> float:
        scales = sorted(set(numbers(study.tables[0], "scale")), key=lambda it: abs(it - scale))
        return number(study.tables[0], "survived", format="F8_E4M3", stored_as=stored, scale=scales[0])

    assert survived("gain minus one", 1.0) > 0.9 > 0.3 > survived("gain", 1.0)
    assert survived("gain minus one", 0.125) < survived("gain", 0.125)
    assert survived("scale × pattern", 0.125) == pytest.approx(survived("scale × pattern", 64), abs=1e-3)


def test_what_was_stored_in_bf16_survives_bf16(study: Study) -> None:
    table = study.tables[4]
    lossless = [row for row in table.rows if row[3:5] == ("BF16", "gain")]
    assert lossless
    assert all(row[-1] == "yes" for row in lossless)
    assert set(numbers(table, "survived", format="BF16", stored_as="gain")) == {1.0}


def test_its_pictures_are_drawn(study: Study) -> None:
    pytest.importorskip("matplotlib")
    assert list(study_figures(study)) == ["precision-sweep", "precision-threshold", "precision-published"]
