"""Who belongs to whom: against brute force, against scipy, and where nothing can be told apart."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from modelkin.alignment.matching import Choice, assigned, by_signature, isometry, procrustes, scored, turned
from modelkin.alignment.pairing import counterparts
from modelkin.alignment.sides import evenly, unit

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_assignment_against_every_other(shape: tuple[int, int]) -> None:
    likeness = RNG.normal(size=shape)
    chosen = assigned(likeness, np.random.default_rng(1))
    given = [(row, column) for row, column in enumerate(chosen) if column >= 0]
    rows, columns = shape
    wide = likeness if rows <= columns else likeness.T
    best = max(sum(wide[i, j] for i, j in enumerate(way)) for way in permutations(range(max(shape)), min(shape)))
    assert len(given) == min(shape)
    assert sum(likeness[i, j] for i, j in given) == pytest.approx(best)


def test_ties_are_broken_by_chance_apart_for_every_way_of_looking() -> None:
    """All alike: K counts the fixed points of a uniform permutation, mean 1 and variance 1."""
    rng = np.random.default_rng(2)
    alike = np.ones((20, 20))
    counts = [int(Choice((assigned(alike, rng), assigned(alike, rng))).two.sum()) for _ in range(400)]
    assert np.mean(counts) == pytest.approx(1, abs=0.2)  # four standard errors
    assert np.var(counts) == pytest.approx(1, abs=0.45)


def test_nobody_left_is_no_agreement() -> None:
    none, some = np.array([-1, -1, 2]), np.array([-1, 0, 2])
    choice = Choice((none, some, some))
    assert choice.two.tolist() == [False, False, True]
    assert choice.three.tolist() == [False, False, True]
    assert choice.asked == 1
    assert not Choice((none, some)).three.any()


def test_p_of_agreement_is_that_of_fixed_points() -> None:
    order = np.arange(5)
    assert Choice((order, order)).log10_pvalue == pytest.approx(-np.log10(120))


@pytest.mark.parametrize(("rows", "a", "b"), [(80, 30, 30), (80, 30, 20), (80, 20, 30)])
def test_procrustes_against_scipy(rows: int, a: int, b: int) -> None:
    left, right = (np.float32(RNG.normal(size=(rows, width))) for width in (a, b))
    found = procrustes(left, right)
    if a == b:
        assert np.allclose(found, orthogonal_procrustes(left, right)[0], atol=1e-4)
    u, _, vt = np.linalg.svd(left.T @ right, full_matrices=False)
    assert np.allclose(found, u @ vt, atol=1e-4)


def test_few_rows_say_nothing_of_what_they_do_not_span() -> None:
    turn = np.float32(np.linalg.qr(RNG.normal(size=(40, 40)))[0])
    left = np.float32(RNG.normal(size=(6, 40)))
    found = procrustes(left, left @ turn)
    assert np.allclose(left @ found, left @ turn, atol=1e-4)
    assert np.linalg.matrix_rank(found, tol=1e-3) == 6
    assert np.allclose(found, isometry(left.T @ (left @ turn)), atol=1e-3)


def test_rows_of_b_are_turned_back() -> None:
    turn = np.float32(np.linalg.qr(RNG.normal(size=(12, 12)))[0])
    rows = unit(np.float32(RNG.normal(size=(5, 12))))
    assert np.allclose(turned(rows @ turn, turn), rows, atol=1e-5)


def test_scores_forget_the_scale_and_the_nearest_is_chosen() -> None:
    values = np.float32(RNG.normal(size=(30, 6)))
    order = RNG.permutation(30)
    changed = (np.exp(values) * [1, 10, 100, 1e3, 1e4, 1e5])[order]
    assert np.allclose(scored(values)[order], scored(changed), atol=1e-6)
    found = by_signature([scored(values)] * 2, [scored(changed)] * 2, np.random.default_rng(0))
    assert found.views[0].tolist() == order.tolist()


def test_unit_rows_whatever_their_size() -> None:
    rows = np.float32([[3e30, 4e30], [3e-30, 4e-30], [0, 0]])
    assert np.allclose(unit(rows), [[0.6, 0.8], [0.6, 0.8], [0, 0]], atol=1e-6)


def test_evenly_has_both_ends() -> None:
    assert evenly(list("abcdefghij"), 4) == ["a", "d", "g", "j"]
    assert evenly([1, 2], 4) == [1, 2]


@pytest.mark.parametrize("most", [10, 1000], ids=["mutual choice", "assignment"])
def test_all_counterparts_of_a_large_block(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.pairing.MOST_ASSIGNED", most)
    monkeypatch.setattr("modelkin.alignment.pairing.CHUNK", 7)
    a = [unit(np.float32(RNG.normal(size=(50, 24)))) for _ in range(2)]
    order = RNG.permutation(50)[:40]
    b = [unit(view[order] + np.float32(0.05 * RNG.normal(size=(40, 24)))) for view in a]
    found = counterparts(list(zip(a, b, strict=True)), np.random.default_rng(0))
    assert found.tolist() == order.tolist()
