"""The exact tests on rows of really trained models (committed data; skipped where the zoo is not at hand)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, poisson

from modelkin.stats import (
    hidden_autocorrelation,
    hidden_axes,
    importance_order,
    neurons,
    neurons_over_layers,
    over_layers,
    pair_swap_axes,
    pooled_rows,
    roll_call,
)

measured = pytest.importorskip("zoo.measured")

TWINS = [f"twin-{i:02d}" for i in range(80)]
Samples = Mapping[str, Any]


@pytest.fixture(scope="module")
def samples() -> Samples:
    found: Samples = measured.load()
    return found


def gains(samples: Samples, *names: str) -> list[NDArray[np.float64]]:
    sides = [samples[name].gains() for name in names]
    shared = [key for key in sides[0] if all(key in side for side in sides)]
    return [np.array([side[key] for key in shared], dtype=np.float64) for side in sides]


def layers(samples: Samples, name: str, role: str, rows: int = 32) -> list[NDArray[np.float64]]:
    kept = [layer for layer in range(6) if all(f"{layer}.{part}" in samples[name].arrays for part in ("gate", "up"))]
    return [samples[name].rows(role, layer)[:rows] for layer in kept]


def follows_poisson(counts: list[int]) -> bool:
    expected = np.append(poisson.pmf(range(4), 1), poisson.sf(3, 1)) * len(counts)
    return bool(chisquare(np.bincount(np.minimum(counts, 4), minlength=5), expected).pvalue > 1e-3)


def test_unrelated_twins_find_one_axis_and_win_nothing(samples: Samples) -> None:
    rng = np.random.default_rng(1)
    counts, evalues = [], []
    for i, name in enumerate(TWINS):
        for other in (TWINS[i - 1], TWINS[i - 7]):
            left, right = gains(samples, name, other)
            counts.append(hidden_axes(left, right, rng).fixed)
            evalues.append(10 ** pair_swap_axes(left, right, rng, pairings=4).statistic)
    assert follows_poisson(counts)
    assert max(counts) < 9  # P(K ≥ 9) is below 3e-6 for one pair
    assert np.mean(evalues) <= 1 + 3 * np.std(evalues) / len(evalues) ** 0.5


def test_neurons_of_unrelated_twins_find_one_of_their_number(samples: Samples) -> None:
    rng = np.random.default_rng(2)
    counts = []
    for name, other in pairwise(TWINS[:40]):
        one, two = ([*layers(samples, side, "gate"), *layers(samples, side, "up")] for side in (name, other))
        half = len(one) // 2
        found = [neurons(one[i], two[i], one[half + i], two[half + i], rng) for i in range(half)]
        counts += [layer.gate.fixed for layer in found]
        assert neurons_over_layers(found).significance.pvalue > 1e-6
    assert follows_poisson(counts)


@pytest.mark.parametrize("kind", ["sft", "cpt-heavy", "norms"])
def test_axes_of_a_derivative_find_themselves(samples: Samples, kind: str) -> None:
    child = next(name for name in samples if name.startswith(f"{kind}.twin-") and name.count(".") == 1)
    left, right = gains(samples, child, child.partition(".")[2])
    rng = np.random.default_rng(3)
    assert hidden_axes(left, right, rng).significance.log10_pvalue < -30
    assert pair_swap_axes(left, right, rng).log10_pvalue < -12


def test_rows_of_a_fine_tune_find_themselves_in_every_layer(samples: Samples) -> None:
    child = next(name for name in samples if name.startswith("sft.twin-") and layers(samples, name, "up"))
    rng = np.random.default_rng(4)
    kept = [layer for layer in range(6) if f"{layer}.up" in samples[child].arrays]
    pair = [[samples[name].rows("up", layer) for layer in kept] for name in (child, child.partition(".")[2])]
    pairs = [(one, two[: len(one)]) for one, two in zip(*pair, strict=True)]
    found = over_layers([roll_call(one, two, rng) for one, two in pairs])
    assert found.fixed == found.n
    assert found.significance.log10_pvalue < -12
    pooled = pooled_rows(pairs, rng, draws=99)
    assert pooled.correlation > 0.9
    assert pooled.significance.log10_pvalue < -4  # 32 rows make 16 coins: no e-value beyond 2^16


def test_trained_axes_and_neurons_pass_the_assumption_checks(samples: Samples) -> None:
    rng = np.random.default_rng(5)
    axes = [hidden_autocorrelation(gains(samples, name)[0], rng).pvalue for name in TWINS]
    order = [importance_order(layers(samples, name, "up"), rng).pvalue for name in TWINS]
    for pvalues in (axes, order):
        assert np.mean(np.array(pvalues) < 0.05) < 0.05 + 3.3 * (0.05 / len(TWINS)) ** 0.5
        assert min(pvalues) > 1e-3 / len(TWINS)
