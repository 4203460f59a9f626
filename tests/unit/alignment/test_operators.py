"""Operators against what dense linear algebra gives, and signatures against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.alignment.folding import Factors, Neurons
from modelkin.alignment.operators import (
    LEAST_RANK,
    RANK,
    Operator,
    local_signatures,
    mlp_operators,
    operator,
    rank_for,
    signatures,
)

RNG = np.random.default_rng(0)


def factors(inner: int, width: int, decay: float = 0.8) -> Factors:
    scale = decay ** np.arange(inner)
    left, right = (np.linalg.qr(RNG.normal(size=(width, inner)))[0].T for _ in range(2))
    return Factors(np.float32(left * scale[:, None]), np.float32(right))


def dense(each: Operator) -> np.ndarray:
    return (each.left.T * each.values) @ each.right


@pytest.mark.parametrize(("inner", "width"), [(100, 120), (20, 60), (200, 40)], ids=["drawn", "exact", "wide"])
def test_leading_directions_are_those_of_the_full_svd(inner: int, width: int) -> None:
    if inner > width:
        given = Factors(*(np.float32(RNG.normal(size=(inner, width))) for _ in range(2)))
    else:
        given = factors(inner, width)
    rank = 8
    u, s, vt = np.linalg.svd(given.left.T.astype(float) @ given.right)
    s /= np.linalg.norm(s[:rank])
    found = operator(given, np.random.default_rng(1), rank)
    assert np.allclose(found.values, s[:rank], rtol=2e-3)
    assert np.allclose(dense(found), (u[:, :rank] * s[:rank]) @ vt[:rank], atol=5e-3)


def test_the_scale_of_an_operator_does_not_matter() -> None:
    given = factors(20, 60)
    huge = Factors(given.left * np.float32(1e25), given.right * np.float32(1e25))
    one, other = (operator(each, np.random.default_rng(1)) for each in (given, huge))
    assert np.allclose(dense(one), dense(other), atol=1e-5)
    assert np.all(operator(Factors(given.left * 0, given.right), np.random.default_rng(1)).values == 0)


def test_operators_of_an_mlp() -> None:
    rows = [np.float32(RNG.normal(size=(40, 24))) for _ in range(3)]
    du, gg = mlp_operators(Neurons(*rows), np.random.default_rng(1), rank=24)
    expected = rows[2].T @ rows[1]
    assert np.allclose(dense(du), expected / np.linalg.norm(expected), atol=1e-5)
    assert np.allclose(dense(gg), rows[0].T @ rows[0] / np.linalg.norm(rows[0].T @ rows[0]), atol=1e-5)
    assert len(mlp_operators(Neurons(None, *rows[1:]), np.random.default_rng(1))) == 1


def two() -> list[Operator]:
    return [operator(factors(30, 50), np.random.default_rng(1), rank) for rank in (6, 9)]


def test_signatures_are_the_forms_that_rows_make() -> None:
    rows, ops = np.float32(RNG.normal(size=(7, 50))), two()
    m = [dense(each) for each in ops]
    found = signatures(rows, ops)
    assert found.shape == (7, 6)
    for i, x in enumerate(rows):
        assert np.allclose(found[i, :2], [x @ each @ x for each in m], atol=1e-4)
        assert np.allclose(found[i, 2:4], [np.sum((each.T @ x) ** 2) for each in m], atol=1e-4)
        assert np.allclose(found[i, 4:], [np.sum((each @ x) ** 2) for each in m], atol=1e-4)


def test_local_signatures_add_the_products() -> None:
    rows, ops = np.float32(RNG.normal(size=(5, 50))), two()
    m = [dense(each) for each in ops]
    found = local_signatures(rows, ops)
    assert found.shape == (5, 8)
    for i, x in enumerate(rows):
        assert np.allclose(found[i, 6:], [x @ m[0] @ m[1] @ x, x @ m[1] @ m[0] @ x], atol=1e-4)


def test_a_rotation_leaves_signatures() -> None:
    rows, given = np.float32(RNG.normal(size=(9, 50))), factors(30, 50)
    turn = np.float32(np.linalg.qr(RNG.normal(size=(50, 50)))[0])
    turned = Factors(given.left @ turn, given.right @ turn)
    one, other = (operator(each, np.random.default_rng(1), 8) for each in (given, turned))
    assert np.allclose(local_signatures(rows, [one]), local_signatures(-rows @ turn, [other]), atol=1e-4)


def test_many_operators_keep_fewer_directions_each() -> None:
    assert [rank_for(count) for count in (0, 1, 32, 64, 1000)] == [RANK, RANK, RANK, 16, LEAST_RANK]
