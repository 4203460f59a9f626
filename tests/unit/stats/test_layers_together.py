"""Many layers as one: exact sum, best layer, Fisher."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, poisson

from modelkin.stats import Layers, RollCall, neurons, neurons_over_layers, over_layers, roll_call, total_fixed_points
from modelkin.stats.roll_call import count_significance


def call(fixed: int, n: int) -> RollCall:
    return RollCall(fixed, n, 0, (), count_significance(fixed, n))


def drawn(rng: np.random.Generator, layers: int, n: int) -> Layers:
    return over_layers([call(int(np.sum(rng.permutation(n) == np.arange(n))), n) for _ in range(layers)])


def test_the_sum_is_held_against_its_exact_law() -> None:
    result = total_fixed_points([3, 4, 2], [64, 64, 64])
    assert result.statistic == 9
    assert result.pvalue == pytest.approx(poisson.sf(8, 3), rel=1e-9)
    assert result.exact


def test_one_layer_is_not_called_many() -> None:
    text = total_fixed_points([3], [64]).null.text
    assert "64 numbers, hidden and given back in one layer, one finds itself" in text
    assert "in 2 layers apart, one a layer finds itself" in total_fixed_points([3, 1], [64, 64]).null.text


def test_all_three_are_super_uniform_between_strangers() -> None:
    rng = np.random.default_rng(1)
    results = [drawn(rng, 6, 16) for _ in range(1500)]
    for name in ("total", "best", "fisher", "significance"):
        pvalues = np.array([getattr(result, name).pvalue for result in results])
        for level in (0.005, 0.02, 0.1, 0.4):  # 3 standard errors above the level
            assert np.mean(pvalues <= level) <= level + 3 * math.sqrt(level / 1500), name


def test_the_exact_sum_has_its_own_levels() -> None:
    """Where the discrete law allows a level, it is met and not merely kept."""
    rng = np.random.default_rng(2)
    level = float(poisson.sf(9, 6))
    pvalues = [drawn(rng, 6, 16).total.pvalue for _ in range(1500)]
    assert np.mean(np.array(pvalues) <= level * 1.001) == pytest.approx(level, abs=3.5 * math.sqrt(level / 1500))


def test_the_e_value_of_layers_has_mean_at_most_one() -> None:
    rng = np.random.default_rng(3)
    evalues = [10 ** (drawn(rng, 3, 8).significance.log10_evalue or 0.0) for _ in range(1000)]
    assert np.mean(evalues) <= 1 + 3 * np.std(evalues) / math.sqrt(1000)


def test_one_kept_layer_is_found_although_the_sum_drowns() -> None:
    result = over_layers([call(16, 16), *[call(1, 16)] * 27])
    assert result.layer == 0
    assert result.total.log10_pvalue > -3
    assert result.best.log10_pvalue == pytest.approx(math.log10(28) - math.lgamma(17) / math.log(10))
    assert result.significance.log10_pvalue < -11


def test_a_little_in_every_layer_is_found_although_no_layer_says_much() -> None:
    result = over_layers([call(4, 64)] * 28)
    assert result.best.pvalue > 0.5
    assert result.significance.log10_pvalue < -30


def test_fisher_against_scipy() -> None:
    result = over_layers([call(3, 20), call(0, 20), call(5, 20)])
    assert result.fisher.pvalue == pytest.approx(chi2.sf(result.fisher.statistic, 6))


def test_layers_where_nobody_was_asked_cost_nothing() -> None:
    assert over_layers([call(9, 9), call(0, 0)]).best.log10_pvalue == call(9, 9).significance.log10_pvalue
    assert over_layers([call(0, 0), call(0, 0)]).significance.pvalue == 1.0


def test_relatives_multiply() -> None:
    assert over_layers([call(64, 64)] * 6).total.log10_pvalue == pytest.approx(-6 * math.lgamma(65) / math.log(10))


def test_neurons_take_the_better_of_gate_and_up() -> None:
    rng = np.random.default_rng(4)
    gates = [rng.normal(size=(16, 40)) for _ in range(3)]
    layers = [neurons(gate, gate, *rng.normal(size=(2, 16, 40)), rng) for gate in gates]
    both = neurons_over_layers(layers)
    assert both.significance.log10_pvalue == pytest.approx(both.gate.significance.log10_pvalue + math.log10(2))
    assert both.gate.fixed == 48


def test_no_layers_and_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="no layers"):
        over_layers([])
    with pytest.raises(ValueError, match="between 0 and its size"):
        total_fixed_points([5], [4])


def test_the_picture_shows_the_sum() -> None:
    rng = np.random.default_rng(5)
    rows = [rng.normal(size=(32, 16)) for _ in range(8)]
    result = over_layers([roll_call(one, two, rng) for one, two in zip(rows[:4], rows[4:], strict=True)])
    assert np.mean(result.total.null.sample) == pytest.approx(4, abs=0.2)
