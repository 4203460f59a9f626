"""Heads by what they span, and rotations by shared tokens, judged on others."""

from __future__ import annotations

import numpy as np
import pytest
from planted import TOKENS, WIDTH, anatomy, drawn, permute_hidden, rotate_hidden

from modelkin.alignment.heads import head_map, overlaps
from modelkin.alignment.sides import Side, Sides
from modelkin.alignment.tokens import NoTokens, axes_of, by_tokens

RNG = np.random.default_rng(0)
IDENTITY = np.eye(WIDTH, dtype=np.float32)


def test_overlap_is_the_mean_squared_cosine_of_principal_angles() -> None:
    left, right = (np.float32(RNG.normal(size=(2, 5, 20))) for _ in range(2))
    found = overlaps(left, right, np.eye(20, dtype=np.float32))
    for i in range(2):
        for j in range(2):
            bases = np.linalg.qr(right[i].T)[0], np.linalg.qr(left[j].T)[0]
            angles = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
            assert found[i, j] == pytest.approx(float(np.mean(angles**2)), abs=1e-5)


def test_any_basis_of_a_head_spans_the_same() -> None:
    left = np.float32(RNG.normal(size=(3, 5, 20)))
    mixed = np.float32(RNG.normal(size=(3, 5, 5))) @ left
    assert np.allclose(np.diag(overlaps(left, mixed, np.eye(20, dtype=np.float32))), 1, atol=1e-4)


def test_strangers_overlap_by_chance() -> None:
    models = anatomy(drawn(1, width=WIDTH)), anatomy(drawn(2, width=WIDTH))
    sides = Sides(Side(models[0]), Side(models[1]), np.random.default_rng(0))
    found = head_map(sides, "0", "0", IDENTITY)
    assert found is not None
    assert found.chance == pytest.approx(12 / WIDTH)
    assert abs(found.overlap - found.chance) < 0.15


def tokens(a: dict, b: dict, seed: int = 0):
    return by_tokens(anatomy(a), anatomy(b), np.random.default_rng(seed))


def test_a_rotation_is_found_by_half_of_the_tokens_and_holds_for_the_others() -> None:
    a = drawn(1)
    found = tokens(a, rotate_hidden(a, np.random.default_rng(2)))
    assert found.n == TOKENS
    assert found.held_out > 0.99
    assert abs(found.chance) < 5 * max(found.spread, 0.02)
    assert not found.renumbered


def test_renumbered_axes_are_explained_by_their_numbers() -> None:
    a = drawn(1)
    found = tokens(a, permute_hidden(a, np.random.default_rng(2)))
    assert found.renumbered
    assert found.axes > 0.99


def test_strangers_whose_tokens_were_drawn_apart_have_nothing_held_out() -> None:
    found = [tokens(drawn(seed), drawn(seed + 50)) for seed in range(5)]
    # The mean of 80 cosines in 48 dimensions: standard deviation 1/√(80 · 48) = 0.016.
    assert max(abs(each.held_out) for each in found) < 0.07


def test_a_narrower_model_keeps_some_axes() -> None:
    a = drawn(1)
    b = {name: array[:, :40] if "embed" in name else array for name, array in a.items()}
    narrow = {name: array[:40] if array.ndim == 1 else array for name, array in b.items() if ".layers." not in name}
    found = by_tokens(anatomy(a), anatomy(narrow), np.random.default_rng(0))
    assert found.rotation.shape == (48, 40)
    assert found.axes > found.held_out - 0.01


def test_signed_axes_against_every_other() -> None:
    product = RNG.normal(size=(5, 3))
    found = axes_of(product, np.random.default_rng(0))
    assert (np.abs(found).sum(axis=0) == 1).all()
    assert np.sum(found * product) == pytest.approx(
        max(
            abs(product[i, 0]) + abs(product[j, 1]) + abs(product[k, 2])
            for i in range(5)
            for j in range(5)
            for k in range(5)
            if len({i, j, k}) == 3
        )
    )


def test_why_there_are_no_tokens() -> None:
    plain = anatomy(drawn(1), tokenizer=False)
    with pytest.raises(NoTokens, match="has no tokenizer"):
        by_tokens(plain, plain, np.random.default_rng(0))
    few = drawn(1)
    few["model.embed_tokens.weight"][:120] = 1.0
    with pytest.raises(NoTokens, match="only 40 shared tokens have embeddings"):
        tokens(few, drawn(2))
    without = {name: array for name, array in drawn(1).items() if "embed" not in name}
    with pytest.raises(NoTokens, match="has no embedding"):
        tokens(without, drawn(2))
