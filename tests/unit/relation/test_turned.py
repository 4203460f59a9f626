"""Axes beside random directions: the law under random rotations, and what it says of special axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkin.relation.turned import _central_powers, spread_pvalue

AXES = 64
Doubles = NDArray[np.float64]
Maker = Callable[[np.random.Generator], NDArray[np.float32]]


def rotation(size: int, rng: np.random.Generator) -> Doubles:
    """Drawn evenly from all of them. [Mezzadri 2007]"""
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return np.asarray(q * np.sign(np.diag(r)))


def rotation_of_the_rest(size: int, rng: np.random.Generator) -> Doubles:
    """Drawn evenly from those that leave the mean of the axes as it is."""
    ones = np.ones((size, 1))
    basis = np.linalg.qr(np.hstack([ones, rng.normal(size=(size, size - 1))]))[0][:, 1:]
    return np.asarray(basis @ rotation(size - 1, rng) @ basis.T + ones @ ones.T / size)


def special(rng: np.random.Generator, rows: int = 100) -> NDArray[np.float32]:
    """Some axes are read more than others."""
    return (rng.normal(size=(rows, AXES)) * np.exp(0.3 * rng.normal(size=AXES))).astype(np.float32)


def spiked(rng: np.random.Generator) -> NDArray[np.float32]:
    """One direction, no axis, holds nearly everything."""
    return (rng.normal(size=(100, AXES)) + 3 * np.outer(rng.normal(size=100), rng.normal(size=AXES))).astype(np.float32)


@pytest.mark.parametrize("make", [special, spiked])
@pytest.mark.parametrize("fixes_mean", [False, True])
def test_after_a_random_rotation_p_is_small_no_more_often_than_it_says(make: Maker, fixes_mean: bool) -> None:
    rng = np.random.default_rng(1)
    rows, draw = make(rng), rotation_of_the_rest if fixes_mean else rotation
    turned = ((rows @ draw(AXES, rng)).astype(np.float32) for _ in range(1500))
    found = np.array([spread_pvalue(each, fixes_mean) for each in turned], dtype=float)
    for level in (0.5, 0.1, 0.02, 0.005):
        allowed = level + 3 * np.sqrt(level * (1 - level) / len(found))  # three standard errors
        assert np.mean(found <= level) <= allowed
    assert np.mean(found <= 0.5) > 0.15  # and it is not one for everything, though on the safe side


def test_expected_spread_is_that_of_drawn_directions() -> None:
    """2 (tr M² - (tr M)²/d) / (d (d + 2)) beside 20,000 unit vectors."""
    rng = np.random.default_rng(2)
    rows = special(rng).astype(np.float64)
    u = rng.normal(size=(20_000, AXES))
    weights = np.sum((rows @ (u / np.linalg.norm(u, axis=1, keepdims=True)).T) ** 2, axis=0)
    two, _ = _central_powers(rows, AXES)
    assert np.var(weights) == pytest.approx(2 * two / (AXES * (AXES + 2)), rel=0.05)


@pytest.mark.parametrize("rows", [30, 100])
def test_powers_are_those_of_eigenvalues(rows: int) -> None:
    x = np.random.default_rng(3).normal(size=(rows, AXES))
    values = np.linalg.eigvalsh(x.T @ x)
    off = values - values.mean()
    assert _central_powers(x, AXES) == pytest.approx((np.sum(off**2), np.sum(off**4)))


def test_axes_that_differ_too_much_or_too_little_are_special() -> None:
    rng = np.random.default_rng(4)
    rows = special(rng)
    assert (spread_pvalue(rows) or 0) < 1e-6
    factor = rng.normal(size=(100, AXES)) @ np.diag(np.linspace(0.2, 2, AXES)) @ rotation(AXES, rng)
    level = (factor / np.linalg.norm(factor, axis=0)).astype(np.float32)
    assert (spread_pvalue(level) or 0) < 1e-6


def test_axes_chosen_by_a_decomposition_are_special_too() -> None:
    rng = np.random.default_rng(6)
    rows = special(rng)
    assert (spread_pvalue(rows @ np.linalg.svd(rows)[2].T) or 0) < 1e-6


def test_renumbering_and_signs_change_nothing() -> None:
    rng = np.random.default_rng(5)
    rows = special(rng)
    moved = rows[:, rng.permutation(AXES)] * rng.choice([-1, 1], AXES).astype(np.float32)
    assert spread_pvalue(moved) == pytest.approx(spread_pvalue(rows))


@pytest.mark.parametrize(
    "rows",
    [np.eye(AXES), np.zeros((8, AXES)), np.full((8, AXES), np.nan), np.ones((8, 4)), np.full((4, AXES), np.inf)],
)
def test_where_nothing_can_be_told_nothing_is(rows: Doubles) -> None:
    with np.errstate(invalid="ignore"):
        assert spread_pvalue(rows.astype(np.float32)) is None
