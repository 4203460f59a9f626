"""What is left once free numbers are chosen alike, against what was planted."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.records import Role
from modelkin.relation.refitting import left_over

RNG = np.random.default_rng(4)
A = RNG.normal(size=(64, 96)).astype(np.float32)


def test_rows_and_columns_that_were_scaled() -> None:
    rows, columns = RNG.uniform(0.2, 5, 64)[:, None], RNG.uniform(0.2, 5, 96)
    assert left_over(A, (rows * A * columns).astype(np.float32), Role.UP, None) < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_scales_of_both_signs_cancel_nowhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(64, 48)).astype(np.float32)
    rows, columns = (rng.choice([-1, 1], n) * rng.uniform(0.2, 4, n) for n in (64, 48))
    assert left_over(a, (a * rows[:, None] * columns).astype(np.float32), Role.UP, None) < 1e-4


@pytest.mark.parametrize(("role", "turn"), [(Role.V, False), (Role.Q, False), (Role.O, True)])
def test_heads_whose_members_were_mixed(role: Role, turn: bool) -> None:
    mixers = RNG.normal(size=(4, 16, 16))
    mixed = np.concatenate([m @ A[i * 16 : i * 16 + 16] for i, m in enumerate(mixers)]).astype(np.float32)
    a, b = (A.T, mixed.T) if turn else (A, mixed)
    assert left_over(a, b, role, 16) < 1e-4
    assert left_over(a, b, Role.UP, 16) > 0.5  # neurons are nobody's to mix


def test_what_was_added_is_left_over() -> None:
    """Of noise as large as a share of b, the fit takes no more than its free numbers can: (64 + 96) / (64 · 96)."""
    added = 0.1 * RNG.normal(size=A.shape)
    expected = np.linalg.norm(added) / np.linalg.norm(A + added)
    assert left_over(A, (A + added).astype(np.float32), Role.UP, None) == pytest.approx(expected, rel=0.03)


def test_of_a_stranger_nearly_all_is_left_over() -> None:
    stranger = RNG.normal(size=A.shape).astype(np.float32)
    assert left_over(A, stranger, Role.UP, None) == pytest.approx(1, abs=0.05)
    assert left_over(A, stranger, Role.V, 16) == pytest.approx(np.sqrt(1 - 16 / 96), abs=0.05)


def test_matrices_of_zeros() -> None:
    assert left_over(A, np.zeros_like(A), Role.UP, None) == np.inf
    assert left_over(np.zeros_like(A), np.zeros_like(A), Role.UP, None) == 0
    assert left_over(np.zeros_like(A), A, Role.V, 16) == pytest.approx(1)
