from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import poisson

from modelkin.alignment import HeldOut
from modelkin.questions.controls import (
    CAP,
    ENOUGH,
    ControlClass,
    Controls,
    Counts,
    PairClass,
    counts_of,
    shipped,
    structural,
)

FACING = PairClass(True, 0, "facing layers")


def layer(two: int, three: int = 0, tried: int = 1, sizes: tuple[int, ...] = (224,)) -> HeldOut:
    return HeldOut(a="0", b="0", sizes=sizes, two=two, three=three, likeness=0.2, chance=0.3, tried=tried)


def strangers(count: int = ENOUGH, seed: int = 0) -> ControlClass:
    rng = np.random.default_rng(seed)
    pairs = tuple(Counts(int(two), 0, 6) for two in rng.poisson(6, count))
    return ControlClass(of=FACING, models=60, widths=(128, 256), layers=(4, 10), pairs=pairs)


def test_the_share_of_controls_is_a_valid_p() -> None:
    rng = np.random.default_rng(1)
    known = strangers(2000)
    scores = [Counts(int(two), 0, 6).score for two in rng.poisson(6, 4000)]
    pvalues = np.array([10 ** known.log10_pvalue(score) for score in scores])
    for level in (0.5, 0.1, 0.02):
        allowed = level + 3 * math.sqrt(level * (1 - level) * (1 / 4000 + 1 / 2000))
        assert np.mean(pvalues <= level) <= allowed
    assert known.log10_pvalue(100.0) == pytest.approx(math.log10(1 / 2001))


def test_controls_reach_as_far_as_their_models_and_no_further() -> None:
    known = strangers()
    assert known.covers([(128, 6), (256, 10)])
    assert not known.covers([(128, 6), (512, 6)])
    assert not known.covers([(128, 12), (128, 6)])
    assert not strangers(ENOUGH - 1).covers([(128, 6), (128, 6)])


def test_beyond_them_counts_of_all_layers_are_held_against_poisson() -> None:
    found = structural([layer(3), layer(5), layer(4)], (2.0, 0.5))
    assert found == pytest.approx(math.log10(2 * poisson.sf(11, 6.0)))
    assert structural([layer(224, 224)] * 6, (2.0, 0.5)) < CAP
    three = structural([layer(3, 3), layer(3, 3)], (2.0, 0.5))
    assert three == pytest.approx(math.log10(2 * poisson.sf(5, 1.0)))


def test_where_a_layer_is_the_best_of_many_the_surest_pays_for_all() -> None:
    found = structural([layer(3, tried=6), layer(20, tried=6)], (2.0, 0.5))
    assert found == pytest.approx(math.log10(2 * 2 * 6 * poisson.sf(19, 2.0)))


@pytest.mark.parametrize("tried", [1, 6])
def test_strangers_are_not_convicted_by_poisson(tried: int) -> None:
    """Counts of one a set on average, best of as many as were tried, against a mean of twice that."""
    rng = np.random.default_rng(2)
    drawn = rng.poisson(1.0, (3000, 6, tried)).max(axis=2)
    found = [structural([layer(int(two), tried=tried) for two in pair], (2.0, 0.5)) for pair in drawn]
    assert np.mean(np.array(found) <= -3) <= 1e-3 + 3 * math.sqrt(1e-3 / 3000)


def test_experts_are_sets_of_their_own() -> None:
    assert counts_of([layer(7, 2, sizes=(64, 64, 64, 64)), layer(1)]) == Counts(8, 2, 5)


def test_the_largest_mean_of_a_route_counts_one_more_than_was_seen() -> None:
    known = Controls((strangers(),))
    two, three = known.means("facing layers") or (0.0, 0.0)
    assert two == (max(pair.two for pair in strangers().pairs) + 1) / 6
    assert three == 1 / 6
    assert known.means("any two layers") is None


def test_the_shipped_controls_are_of_strangers() -> None:
    known, digest = shipped()
    assert len(digest) == 64
    assert known.of(FACING) is not None
    for each in known.classes:
        assert all(pair.two <= 20 * pair.sets for pair in each.pairs)
        assert each.widths[0] <= each.widths[1]
