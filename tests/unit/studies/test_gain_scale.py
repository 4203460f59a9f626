from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from modelkin.demo import NAMES
from modelkin.report.study_figures import study_figures
from modelkin.studies import STUDIES, gain_scale
from modelkin.studies.columns import number, numbers
from modelkin.studies.gain_scale import apart, growth
from modelkin.studies.gains import bundled_gains


def test_scale_and_pattern_make_the_vector_again() -> None:
    vector = np.random.default_rng(0).normal(0.3, 0.05, 500)
    scale, pattern = apart(vector)
    assert scale == pytest.approx(np.sqrt(np.mean(vector**2)))
    assert scale * (pattern + np.mean(vector / scale)) == pytest.approx(vector)
    assert pattern.mean() == pytest.approx(0, abs=1e-12)
    assert apart(7 * vector)[1] == pytest.approx(pattern)  # the pattern knows no scale


def test_growth_finds_the_slope_that_was_put_in() -> None:
    depth = np.linspace(0, 1, 40)
    rng = np.random.default_rng(1)
    values = np.exp(0.7 * depth + 0.05 * rng.standard_normal(40))
    slope = growth(depth, values, rng)
    assert slope.low < 0.7 < slope.high
    assert slope.value == pytest.approx(np.polyfit(depth, np.log(values), 1)[0])
    # by least squares its standard error is 0.05 / sqrt(Σ (x − mean)²) = 0.0267; the interval is four of those wide
    assert slope.high - slope.low == pytest.approx(4 * 0.0267, rel=0.35)


def test_an_interval_covers_as_often_as_it_says() -> None:
    """At 30 layers percentile intervals cover a little less than 95 %: between 85 % and 99 % of 300."""
    depth = np.linspace(0, 1, 30)
    rng = np.random.default_rng(2)
    slopes = [growth(depth, np.exp(0.1 * rng.standard_normal(30)), rng) for _ in range(300)]
    assert 0.85 < np.mean([slope.low < 0 < slope.high for slope in slopes]) < 0.99


def test_bundled_models_and_the_published_lengths() -> None:
    study = STUDIES["gain-scale"].run()
    layers, slopes, published = study.tables
    assert {row[0] for row in layers.rows} == set(NAMES)
    assert numbers(slopes, "growth", model="cobalt") == []  # three layers are too few for a line
    solar = number(published, "l2", model="Solar-Open-100B", role="input_norm", layer=0)
    assert solar == pytest.approx(2.80, abs=0.005)  # as printed
    post = number(published, "l2", model="Solar-Open-100B", role="post_norm", layer=0)
    assert post == pytest.approx(10.17, abs=0.005)
    assert max(numbers(published, "l2", model="GLM-4.5-Air")) == pytest.approx(148.7, abs=0.05)


def test_a_model_whose_gains_are_all_one_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a scale and no pattern, so not every quantity has a slope."""
    pytest.importorskip("matplotlib")
    trained, other = bundled_gains(("dune", "grove"))
    ones = {role: {name: np.ones_like(old) for name, old in layers.items()} for role, layers in other.vectors.items()}
    models = (dataclasses.replace(other, vectors=ones), trained)
    for some in (["a", "b"], ["a"]):
        monkeypatch.setattr(gain_scale, "read_gains", lambda names, _reading: models[: len(names)])
        study = STUDIES["gain-scale"].run(some)
        slopes = study.tables[1]
        assert numbers(slopes, "growth", model="grove", quantity="scale") == pytest.approx([1, 1])
        assert numbers(slopes, "growth", model="grove", quantity="pattern") == []
        assert "gain-scale-slopes" in study_figures(study)
