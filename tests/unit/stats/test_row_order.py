"""Whether rows follow their index inside one set: silent on rows in any order, loud where a formula fills them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from modelkin.stats import Traits, likeness_of, places_of, row_order, traits
from modelkin.stats.arrays import unit_rows

Floats = NDArray[np.float64]
ROWS, WIDTH = 16, 64
INDEX, COLUMN = np.arange(ROWS)[:, None], np.arange(WIDTH)


def noise(seed: int, sets: int = 1, rows: int = ROWS, width: int = WIDTH) -> Floats:
    return np.random.default_rng(seed).normal(size=(sets, rows, width))


def asked(sets: Floats, seed: int = 0) -> float:
    return row_order([traits([rows]) for rows in sets], np.random.default_rng(seed)).pvalue


FORMULAS: dict[str, Callable[[int], Floats]] = {
    "identity": lambda _: 3.0 * (INDEX == COLUMN),
    "another shift in every layer": lambda layer: 3.0 * ((INDEX + 7 * layer) % WIDTH == COLUMN),
    "strides": lambda _: 3.0 * (INDEX * 3 == COLUMN),
    "backwards": lambda _: 3.0 * (WIDTH - 1 - INDEX == COLUMN),
    "cosines": lambda _: np.cos(np.pi * (COLUMN + 0.5) * (INDEX + 1) / WIDTH),
    "waves of any phase": lambda layer: np.cos(2 * np.pi * COLUMN * (INDEX + 1) / WIDTH + layer + 5 * INDEX**2),
    "walsh functions": lambda _: hadamard(WIDTH)[:ROWS].astype(np.float64),
}


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
@pytest.mark.parametrize("trained", [0.01, 0.3], ids=["barely trained", "trained"])
def test_a_formula_is_noticed_in_one_layer_in_all_and_in_one_of_many(
    formula: Callable[[int], Floats], trained: float
) -> None:
    rows = noise(1, sets=24)
    filled = np.array([trained * layer + formula(i) for i, layer in enumerate(rows)])
    assert asked(filled[:1]) < 1e-3
    assert asked(filled[:6]) < 1e-3
    assert asked(np.concatenate([filled[:1], rows[1:]])) < 1e-3


@pytest.mark.parametrize(
    "weights",
    [
        lambda index, column: np.abs(index * 1.0 - column) <= 4,
        lambda index, column: index // 8 == column // 8,
        lambda index, column: index // 16 == column // 16,
    ],
    ids=["bands", "blocks of 8", "blocks of 16"],
)
def test_bands_and_blocks_of_large_numbers_are_noticed(weights: Callable[[Floats, Floats], Floats]) -> None:
    """There are no zeros here: outside the band numbers are smaller, and not by much."""
    rows = noise(2, rows=64) * (0.4 + weights(np.arange(64)[:, None], COLUMN))
    assert asked(rows) < 1e-3


def test_rows_sorted_by_the_place_of_their_largest_number_are_noticed() -> None:
    rows = noise(3, rows=64)
    assert asked(rows) > 0.01
    assert asked(np.array([layer[np.argsort(np.abs(layer).argmax(axis=1))] for layer in rows])) < 1e-3


def test_what_large_columns_would_hide_is_noticed() -> None:
    rows = 0.3 * noise(4) + 3.0 * (INDEX == COLUMN)
    rows[..., 40] += 50 * noise(5)[..., 0]
    rows[..., 41] += 30
    assert asked(rows) < 1e-3


def test_one_of_several_parts_is_enough() -> None:
    parts = noise(6, sets=3)
    parts[1] = 0.3 * parts[1] + 3.0 * (INDEX == COLUMN)
    assert row_order([traits(list(parts))], np.random.default_rng(0)).pvalue < 1e-3


def strange(rng: np.random.Generator) -> list[Floats]:
    """Few directions, outlier columns, zeros, dead and equal rows, rows of very different size."""
    sets = rng.normal(size=(3, 20, 4)) @ rng.normal(size=(4, 24)) + 0.3 * rng.normal(size=(3, 20, 24))
    sets[:, :, 5] *= 20
    sets *= rng.random(sets.shape) < 0.7
    sets[:, :3], sets[:, 4] = 0.0, sets[:, 5]
    sets *= np.exp(rng.normal(size=(3, 20, 1)))
    return [rows[rng.permutation(20)] for rows in sets]


@pytest.mark.parametrize("made", [strange, lambda rng: list(rng.normal(size=(2, 12, 16)))], ids=["strange", "noise"])
def test_rows_in_any_order_have_uniform_p(made: Callable[[np.random.Generator], list[Floats]]) -> None:
    rng = np.random.default_rng(7)
    pvalues = np.array([row_order([traits([x]) for x in made(rng)], rng, most=39).pvalue for _ in range(150)])
    for level in (0.05, 0.25, 0.5):
        assert np.mean(pvalues <= level + 1e-9) == pytest.approx(level, abs=3.5 * math.sqrt(level / 150))


def test_against_all_orders_of_few_rows() -> None:
    """The scale of the looks depends on the draws; with one fixed look it does not."""
    rng = np.random.default_rng(8)
    units = unit_rows(rng.normal(size=(6, 9)))
    likeness = likeness_of(units)
    likeness[1] = 0
    rows = Traits(np.zeros((4, 1, 6), dtype=np.intp), likeness)
    lengths = {lag: math.sqrt(6 - lag) for lag in (1, 2, 3, 4)}
    every = np.array(
        [
            [max(0, np.trace(likeness[0][np.ix_(order, order)], lag) / lengths[lag]) ** 2 for lag in lengths]
            for order in permutations(range(6))
        ]
    )
    scaled = np.max((every - every.mean(axis=0)) / np.maximum(every.std(axis=0), 1), axis=1)
    exact = float(np.mean(scaled >= scaled[0] - 1e-9))
    found = [row_order([rows], rng, most=500).pvalue for _ in range(30)]
    assert np.mean(found) == pytest.approx(exact, rel=0.3)
    assert 0.02 < exact < 0.9


def test_copies_of_a_set_count_once() -> None:
    """Else what is chance in one layer would be beyond chance in eight copies of it."""
    alarms = 0
    for seed in range(30):
        rows = noise(100 + seed)
        copies = rows + 0.05 * noise(200 + seed, sets=8)
        alarms += row_order([traits([x]) for x in copies], np.random.default_rng(seed), most=39).pvalue <= 0.05
    assert alarms <= 6  # of 30 at 5 %; more has a chance of 1 in 1,600


def test_places_in_every_basis_against_the_definition() -> None:
    waves = np.cos(2 * np.pi * COLUMN * (INDEX + 1) / WIDTH + 0.3)
    cosines = np.cos(np.pi * (COLUMN + 0.5) * (INDEX + 1) / WIDTH)
    walsh = hadamard(WIDTH)[1 : ROWS + 1].astype(np.float64)
    spikes = 1.0 * (INDEX + 1 == COLUMN)
    for i, rows in enumerate([spikes, cosines, waves, walsh]):
        np.testing.assert_array_equal(places_of([rows])[i, 0], np.arange(1, ROWS + 1))


def test_rows_left_out_and_too_few_rows() -> None:
    rows = noise(9)[0]
    rows[3], rows[5] = 0, rows[6]
    assert traits([rows]).n == ROWS - 3
    for sets in ([], [traits([noise(9)[0][:3]])], [traits([np.ones((8, 4))])], [traits([np.zeros((0, 4))])]):
        found = row_order(sets, np.random.default_rng(0))
        assert (found.pvalue, found.n) == (1.0, 0)


def test_the_same_chance_gives_the_same_answer() -> None:
    sets = [traits([rows]) for rows in noise(10, sets=3)]
    first, second = (row_order(sets, np.random.default_rng(11)) for _ in "ab")
    assert first == second
    assert not first.exact
