"""Signs of rearranged weights: copies that were renumbered or rotated show them, trained strangers do not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm, wasserstein_distance

from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled, truth
from modelkin.questions.gauge import SAME_ANGLES, SAME_NUMBERS, alike_angles, rearranged, sorted_distance
from modelkin.records import Cut, Evidence, Role, Slot, Unanswered
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.sources.local import LocalSource

Floats = NDArray[np.float32]
TOKENS = tuple(range(0, 600, 5))


@pytest.fixture(scope="module")
def trained() -> dict[str, Readings]:
    """Gains and some embeddings of the bundled models that have one tokenizer."""
    found = {}
    for name in ("dune", "grove", "ember"):
        anatomy = identify(open_checkpoint(LocalSource(bundled()[name])))
        gains = [Cut(slot) for slot in anatomy.slots if slot.role.is_gain]
        cuts = [*gains, Cut(Slot(Role.EMBEDDING), rows=TOKENS)]
        found[name] = Readings(portrait(anatomy), read(anatomy, cuts))
    return found


def changed(readings: Readings, gains: NDArray[np.intp] | None, turn: NDArray[np.float64], noise: float) -> Readings:
    """The gains renumbered, the embeddings turned, both with noise of that share of their spread."""
    rng = np.random.default_rng(5)
    arrays = {}
    for cut, array in readings.arrays.items():
        moved = array @ turn if array.ndim == 2 else array if gains is None else array[gains]
        arrays[cut] = (moved + noise * array.std() * rng.normal(size=array.shape)).astype(np.float32)
    return Readings(readings.portrait, arrays)


def renumbered(readings: Readings, noise: float = 0.0) -> Readings:
    order = np.random.default_rng(4).permutation(readings.portrait.hidden or 0)
    return changed(readings, order, np.eye(len(order))[:, order], noise)


def rotated(readings: Readings, noise: float = 0.0) -> Readings:
    turn, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(readings.portrait.hidden or 0,) * 2))
    ones = {cut: np.ones_like(array) if array.ndim == 1 else array for cut, array in readings.arrays.items()}
    return changed(Readings(readings.portrait, ones), None, turn, noise)


def asked(a: Readings, b: Readings) -> Evidence:
    found = rearranged(a, b)
    assert isinstance(found, Evidence)
    return found


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_renumbered_copy_shows_both_signs(trained: dict[str, Readings], noise: float) -> None:
    found = asked(trained["dune"], renumbered(trained["dune"], noise))
    assert (found.statistic, found.n) == (2.0, 2)
    assert [finding.effect for finding in found.per_layer] == [1.0, 1.0]
    assert (found.grade, found.pvalue, found.log10_pvalue) == (None, None, None)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_rotated_copy_shows_in_its_angles(trained: dict[str, Readings], noise: float) -> None:
    found = asked(trained["dune"], rotated(trained["dune"], noise))
    assert {finding.b: finding.effect for finding in found.per_layer}["token angles"] == 1.0


def test_trained_strangers_show_none_by_a_wide_margin(trained: dict[str, Readings]) -> None:
    for a, b in itertools.combinations(trained.values(), 2):
        found = asked(a, b)
        gains, angles = (finding.statistic for finding in found.per_layer)
        assert found.statistic == 0
        assert gains > 2 * SAME_NUMBERS
        assert angles < SAME_ANGLES - 0.3


def test_every_number_stands_beside_what_it_is_between_strangers(trained: dict[str, Readings]) -> None:
    answer = rearranged(*list(trained.values())[:2])
    assert isinstance(answer, Evidence)
    observed, strangers = answer.observed.split("; "), answer.strangers.split("; ")
    assert len(observed) == len(strangers) == 2
    words = (("norm gains", "distance"), ("angles", "agreement"))
    for mine, theirs, (name, unit) in zip(observed, strangers, words, strict=True):
        assert mine.startswith(name)
        assert theirs.startswith(f"{name}: {unit}")
        assert f"{unit} " in mine


def test_what_stands_in_its_place_was_not_rearranged(trained: dict[str, Readings]) -> None:
    found = asked(trained["dune"], trained["dune"])
    assert found.statistic == 0
    assert [finding.statistic for finding in found.per_layer] == pytest.approx([0.0, 1.0])


def test_the_sorted_distance_is_scipys_in_units_of_chance() -> None:
    """|F_a − F_b| of draws from F is √(2/π) of its standard deviation √(2 F (1 − F) / d) on average."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(2.0, 0.5, size=4000), rng.normal(2.0, 0.5, size=4000)
    law, _ = quad(lambda x: math.sqrt(norm.cdf(x) * norm.sf(x)), -12, 12)
    by_chance = 0.5 * law * math.sqrt(2 / math.pi) * math.sqrt(2 / 4000)
    assert sorted_distance(a, b) == pytest.approx(wasserstein_distance(a, b) / by_chance, rel=0.02)


@pytest.mark.parametrize("digits", [None, 1])
def test_draws_of_one_law_lie_one_apart(digits: int | None) -> None:
    """Also where gains are rounded to few different numbers."""
    rng = np.random.default_rng(2)
    draws = [rng.normal(1.0, 0.3, size=(2, 256)) for _ in range(400)]
    apart = [sorted_distance(*(pair if digits is None else pair.round(digits))) for pair in draws]
    assert np.mean(apart) == pytest.approx(1.0, abs=0.08)
    assert np.median([np.median(apart[i : i + 9]) for i in range(0, 396, 9)]) > 0.6
    assert min(np.median(apart[i : i + 9]) for i in range(0, 396, 9)) > SAME_NUMBERS


def test_angles_do_not_change_under_rotation_and_do_under_noise() -> None:
    rng = np.random.default_rng(3)
    rows, turn = rng.normal(size=(80, 48)), np.linalg.qr(rng.normal(size=(48, 48)))[0]
    assert alike_angles(rows, 2.5 * rows @ turn + 1.0) == pytest.approx(1.0)
    assert abs(alike_angles(rows, rng.normal(size=(80, 48)))) < 0.1


def test_what_is_common_to_all_text_does_not_make_angles_alike() -> None:
    """Frequent and rare tokens, and a dozen other traits, known to both models and turned differently in each."""
    rng = np.random.default_rng(6)
    traits = rng.normal(size=(200, 12)) * 5
    a, b = (traits @ rng.normal(size=(12, 96)) / 10 + rng.normal(size=(200, 96)) for _ in range(2))
    plain = [np.corrcoef(rows - rows.mean(axis=0))[np.triu_indices(200, 1)] for rows in (a, b)]
    assert np.corrcoef(*plain)[0, 1] > 0.6
    assert abs(alike_angles(a, b)) < 0.2


def test_gains_that_are_mostly_one_number_and_missing_rows_are_no_sign(trained: dict[str, Readings]) -> None:
    gains = {cut: np.ones_like(array) for cut, array in trained["dune"].arrays.items() if array.ndim == 1}
    for array in gains.values():
        array[:9] = 1.5
    flat, moved = (Readings(trained["dune"].portrait, dict(gains)) for _ in range(2))
    moved = Readings(moved.portrait, {cut: array[::-1] for cut, array in moved.arrays.items()})
    assert isinstance(rearranged(flat, moved), Unanswered)
    assert isinstance(rearranged(flat, Readings(flat.portrait, {})), Unanswered)


def test_numbers_that_are_not_finite_are_left_out(trained: dict[str, Readings]) -> None:
    strange = {cut: array.copy() for cut, array in trained["dune"].arrays.items()}
    for array in strange.values():
        if array.ndim == 2:
            array[3] = np.nan
    found = asked(trained["dune"], Readings(trained["dune"].portrait, strange))
    assert {finding.b: finding.n for finding in found.per_layer}["token angles"] == len(TOKENS) - 1


def test_a_comparison_carries_it_from_standard_on() -> None:
    assert not any(truth()["models"][name]["parents"] for name in ("dune", "grove"))
    a, b = (str(bundled()[name]) for name in ("dune", "grove"))
    quick, standard = (compare(a, b, CompareOptions(budget)) for budget in ("quick", "standard"))
    assert "gauge" not in [answer.question for answer in quick.answers]
    assert [answer.question for answer in standard.answers[-3:-1]] == ["gauge", "coverage"]
    assert (quick.verdict.outcome, standard.verdict.outcome) == ("undecided", "unrelated")
