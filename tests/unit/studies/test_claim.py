from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest

from modelkin.demo import bundled
from modelkin.errors import NothingComparable
from modelkin.records import Study
from modelkin.report.study_figures import study_figures
from modelkin.studies import STUDIES, claim
from modelkin.studies.claim_cells import (
    ACROSS,
    ACROSS_FIRST,
    WITHIN,
    WITHIN_FIRST,
    argument,
    four_against_four,
    published_argument,
)
from modelkin.studies.columns import number, numbers
from modelkin.studies.gains import ModelGains, bundled_gains


def steps(study: Study, which: str) -> dict[str, str]:
    return {str(row[3]): str(row[6]) for row in study.tables[0].rows if row[0] == which}


@pytest.fixture(scope="module")
def strangers() -> Study:
    return STUDIES["claim"].run()


@pytest.fixture(scope="module")
def relatives() -> Study:
    return STUDIES["claim"].run([str(bundled()[name]) for name in ("dune", "heath")])


def test_the_published_sigma_comes_out() -> None:
    it = published_argument()
    assert it.sigma() == pytest.approx(181.94, abs=0.005)
    assert it.mean(ACROSS) == pytest.approx(0.988988, abs=1e-6)
    assert it.mean(WITHIN_FIRST) == pytest.approx(0.376941, abs=1e-6)


def test_each_repair_undoes_it() -> None:
    it = published_argument()
    assert it.mean(ACROSS, ACROSS_FIRST) == pytest.approx(0.816639, abs=1e-6)
    assert it.sigma(WITHIN_FIRST, ACROSS, ACROSS_FIRST) == pytest.approx(1.80, abs=0.01)
    assert it.mean(WITHIN) == pytest.approx(0.9979, abs=1e-6)
    fair = it.sigma(WITHIN)
    assert fair is not None
    assert fair < 0
    alone = it.sigma(expected=True)
    assert alone is not None
    assert alone > 181.94


def test_four_against_four_never_go_below_one_in_seventy() -> None:
    assert four_against_four([5, 6, 7, 8], [1, 2, 3, 4]) == pytest.approx(1 / 70)
    assert four_against_four([1, 1], [1, 1]) == 1
    assert four_against_four([4, 2], [3, 1]) == pytest.approx(2 / 6)  # 4+3 and 4+2 of six pairs


def test_on_strangers_every_step_fails(strangers: Study) -> None:
    asked = steps(strangers, "asked")
    assert asked.pop("the claim in sigma") == "not tested"
    assert len(asked) == 7
    assert set(asked.values()) == {"fails"}
    published = steps(strangers, "published")
    assert [name for name, stands in published.items() if stands == "stands"] == []
    assert published["roll call"] == "not tested"


def test_on_relatives_the_pattern_stands_and_sigma_is_still_no_probability(relatives: Study) -> None:
    asked = steps(relatives, "asked")
    assert asked["the means alone"] == "stands"
    assert asked["joint permutation"] == asked["roll call"] == "stands"
    assert asked["sigma read as a probability"] == "fails"
    assert "does not say who came first" in relatives.text


@pytest.mark.parametrize("seed", range(5))
def test_strangers_are_never_said_to_share_axes(seed: int) -> None:
    study = STUDIES["claim"].run([str(bundled()[name]) for name in ("grove", "birch")], seed=seed)
    assert steps(study, "asked")["roll call"] == "fails"
    assert "share hidden axes" not in study.text


def test_axes_that_are_pinned_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models with fixed positions agree in their axes without being related."""
    pinned = [dataclasses.replace(model, pinned="positions are fixed") for model in bundled_gains(("dune", "heath"))]
    monkeypatch.setattr(claim, "read_gains", lambda _models, _reading: pinned)
    study = STUDIES["claim"].run(["a", "b"])
    assert steps(study, "asked")["roll call"] == steps(study, "asked")["joint permutation"] == "not tested"
    assert "positions are fixed" in study.text
    assert "share hidden axes" not in study.text


def test_the_pair_in_question_is_not_its_own_control(relatives: Study) -> None:
    rows = relatives.tables[2].rows
    assert sum({row[0], row[1]} == {"dune", "heath"} for row in rows) == 1
    assert number(relatives.tables[2], "chose_their_own", known="asked") == 128


def test_controls_know_strangers_from_relatives_by_the_roll_call_alone(strangers: Study) -> None:
    table = strangers.tables[2]
    assert max(numbers(table, "chose_their_own", known="independent")) <= 5
    assert min(numbers(table, "chose_their_own", known="derived")) >= 50
    # by sigma they overlap: some pair of strangers has more than some pair of relatives
    assert max(numbers(table, "sigma", known="independent")) > min(numbers(table, "sigma", known="derived"))


def test_cosine_and_expectation_differ_by_the_pattern_only() -> None:
    a, b = bundled_gains(("dune", "grove"))
    it = argument(a, b)
    role = next(iter(a.vectors))
    cell = next(cell for cell in it.cells if cell.group == ACROSS)
    x, y = a.vectors[role][cell.layer_a], b.vectors[role][cell.layer_b]
    assert cell.cosine == pytest.approx(float(x @ y / np.linalg.norm(x) / np.linalg.norm(y)))
    assert cell.cosine - cell.expected == pytest.approx(
        float(np.cov(x, y, bias=True)[0, 1] * x.size / np.linalg.norm(x) / np.linalg.norm(y))
    )


def with_vector(model: ModelGains, value: float, *layers: str) -> ModelGains:
    """Some layers of every norm, or all, set to one value."""
    vectors = {
        role: {name: np.full_like(old, value) if name in layers or not layers else old for name, old in those.items()}
        for role, those in model.vectors.items()
    }
    return dataclasses.replace(model, vectors=vectors)


def run_on(monkeypatch: pytest.MonkeyPatch, *models: ModelGains) -> Study:
    monkeypatch.setattr(claim, "read_gains", lambda _models, _reading: models)
    return STUDIES["claim"].run(["a", "b"])


def test_a_layer_of_zeros_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = bundled_gains(("dune", "heath"))
    study = run_on(monkeypatch, with_vector(a, 0.0, "0"), b)
    assert "0" not in {row[3] for row in study.tables[1].rows if row[0] == "asked"}
    assert "layer 0 of dune (input_norm)" in study.text
    assert steps(study, "asked")["roll call"] == "stands"


def test_gains_that_are_all_one_have_no_pattern_and_zeros_no_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = bundled_gains(("dune", "heath"))
    study = run_on(monkeypatch, with_vector(a, 1.0), b)
    assert steps(study, "asked")["roll call"] == "not tested"
    assert "has no pattern" in study.text
    if find_spec("matplotlib"):
        assert study_figures(study)
    with pytest.raises(NothingComparable, match="zeros"):
        run_on(monkeypatch, with_vector(a, 0.0), with_vector(b, 1.0))


def test_the_step_that_can_never_stand_says_so(relatives: Study) -> None:
    says = next(str(row[7]) for row in relatives.tables[0].rows if row[3] == "sigma read as a probability")
    assert "0.0143" in says
    assert "cannot stand" in says


def test_models_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(NothingComparable, match="facing layers"):
        STUDIES["claim"].run([str(bundled()[name]) for name in ("dune", "ember")])
