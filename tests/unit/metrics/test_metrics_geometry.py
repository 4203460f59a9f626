from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from modelkin.metrics import (
    ShapeMismatch,
    Undefined,
    geometry,
    linear_cka_similarity,
    singular_values,
    spectral_distance,
    unbiased_cka_similarity,
)

Array = NDArray[np.float64]
WIDE, TALL = (20, 90), (90, 6)  # one goes by Grams, the other by factors


def textbook_cka(x: Array, y: Array) -> float:
    n = len(x)
    centring = np.eye(n) - 1 / n
    k, m = centring @ x @ x.T @ centring, centring @ y @ y.T @ centring
    return float((k * m).sum() / math.sqrt((k * k).sum() * (m * m).sum()))


def emptied(x: Array) -> Array:
    """The Gram matrix with an empty diagonal, centred as Székely and Rizzo do."""
    k = x @ x.T
    np.fill_diagonal(k, 0)
    n = len(k)
    means = k.sum(axis=0) / (n - 2)
    means -= means.sum() / (2 * (n - 1))
    k -= means[:, None] + means[None, :]
    np.fill_diagonal(k, 0)
    return k


def textbook_unbiased_cka(x: Array, y: Array) -> float:
    k, m = emptied(x), emptied(y)
    return float((k * m).sum() / math.sqrt((k * k).sum() * (m * m).sum()))


def song_hsic(x: Array, y: Array) -> float:
    """Equation 5 of Song et al. as it is printed."""
    k, m, n = x @ x.T, y @ y.T, len(x)
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    one = np.ones(n)
    means = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return float((np.trace(k @ m) + means - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3)))


@given(st.integers(0, 10_000), st.integers(4, 12), st.integers(1, 15), st.integers(1, 15))
def test_cka_against_the_textbook(seed: int, n: int, p: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(2, 1, (n, p)), rng.normal(-1, 3, (n, q))
    y[:, 0] += 2 * x[:, 0]
    assert linear_cka_similarity(x, y) == pytest.approx(textbook_cka(x, y), abs=1e-9)
    assert unbiased_cka_similarity(x, y) == pytest.approx(textbook_unbiased_cka(x, y), abs=1e-7)
    song = song_hsic(x, y) / math.sqrt(song_hsic(x, x) * song_hsic(y, y))
    assert unbiased_cka_similarity(x, y) == pytest.approx(song, abs=1e-7)


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("items", [1, 200, 1 << 22])
def test_any_piece_size_gives_one_number(shape: tuple[int, int], items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "_PIECE", items)
    x, y = np.random.default_rng(0).normal(1, 1, (2, *shape))
    y += x
    assert linear_cka_similarity(x, y) == pytest.approx(textbook_cka(x, y), rel=1e-10)
    assert unbiased_cka_similarity(x, y) == pytest.approx(textbook_unbiased_cka(x, y), rel=1e-10)


def test_strangers_are_far_above_zero_only_in_the_biased_one() -> None:
    rng = np.random.default_rng(7)
    draws = [rng.standard_normal((2, 30, 200)) for _ in range(200)]
    biased = [linear_cka_similarity(x, y) for x, y in draws]
    unbiased = np.array([unbiased_cka_similarity(x, y) for x, y in draws])
    assert min(biased) > 0.8
    assert abs(unbiased.mean()) < 4 * unbiased.std() / math.sqrt(len(unbiased))
    assert unbiased.std() < 0.1
    assert unbiased.min() < 0


def test_features_need_not_correspond() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 10))
    wider = np.hstack([x, x]) @ np.linalg.qr(rng.standard_normal((20, 20)))[0]
    assert linear_cka_similarity(x, wider) == pytest.approx(1)
    assert unbiased_cka_similarity(x, wider) == pytest.approx(1)


def test_cka_of_extreme_scales() -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 10, 4))
    for metric in (linear_cka_similarity, unbiased_cka_similarity):
        assert metric(x * 1e70, y * 1e-70) == pytest.approx(metric(x, y), rel=1e-9)


def test_cka_without_samples_that_differ_is_undefined() -> None:
    x, alike = np.random.default_rng(3).standard_normal((6, 4)), np.full((6, 4), 0.1)
    for metric in (linear_cka_similarity, unbiased_cka_similarity):
        with pytest.raises(Undefined, match=r"^all samples of b are alike"):
            metric(x, alike)
    with pytest.raises(Undefined, match="at least 2 samples"):
        linear_cka_similarity(x[:1], x[:1])
    with pytest.raises(Undefined, match="at least 4 samples"):
        unbiased_cka_similarity(x[:3], x[:3])
    assert unbiased_cka_similarity(x[:4], x[:4]) == pytest.approx(1)


def test_one_odd_sample_leaves_no_unbiased_geometry() -> None:
    x, odd = np.random.default_rng(4).standard_normal((8, 3)), np.zeros((8, 3))
    odd[5] = [0.3, 0.1, 0.7]
    with pytest.raises(Undefined, match="leaves nothing of a"):
        unbiased_cka_similarity(odd, x)
    assert 0 <= linear_cka_similarity(odd, x) <= 1


def test_samples_have_to_correspond() -> None:
    with pytest.raises(ShapeMismatch, match=r"as many samples \(rows\), found \(5, 2\) and \(6, 2\)"):
        linear_cka_similarity(np.ones((5, 2)), np.ones((6, 2)))


def test_spectral_distance_of_diagonal_matrices() -> None:
    a, b = np.diag([3.0, -4.0]), np.diag([5.0, 0.0])
    assert list(singular_values(a)) == pytest.approx([4, 3])
    assert spectral_distance(a, b) == pytest.approx(math.hypot(4 / 5 - 1, 3 / 5))
    assert spectral_distance(a, 7 * a) == pytest.approx(0, abs=1e-15)
    wider = np.eye(50)
    assert spectral_distance(b, wider) == pytest.approx(math.sqrt(2 - 2 / math.sqrt(50)))


def test_a_shorter_spectrum_ends_in_zeros() -> None:
    a = np.diag([4.0, 3.0])
    padded = np.zeros((5, 3))
    padded[:2, :2] = a
    assert spectral_distance(a, padded) == pytest.approx(0, abs=1e-15)


def test_no_rotation_of_either_side_comes_closer_than_the_spectral_distance() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 5, 4))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    least = spectral_distance(a, b)
    for _ in range(200):
        left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (5, 4))
        assert np.linalg.norm(a - left @ b @ right) >= least
    (u_a, _, v_a), (u_b, _, v_b) = (np.linalg.svd(m) for m in (a, b))
    assert np.linalg.norm(a - u_a @ u_b.T @ b @ v_b.T @ v_a) == pytest.approx(least, rel=1e-9)


def test_zero_has_no_spectrum() -> None:
    with pytest.raises(Undefined, match=r"^b is 0 throughout"):
        spectral_distance(np.eye(3), np.zeros((3, 3)))


def test_singular_values_of_stored_numbers() -> None:
    a = np.random.default_rng(6).standard_normal((7, 3)).astype(ml_dtypes.bfloat16)
    assert singular_values(a) == pytest.approx(np.linalg.svd(a.astype(np.float64), compute_uv=False))
