"""Published claims recomputed from published data. Expected numbers are those of the documents, or closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from modelkin.reference import contradictions
from modelkin.reference.contradictions import RECOMPUTED
from modelkin.reference.published import ORIGINS, chosen, half_a_digit, records, rows
from modelkin.reference.recomputed import (
    bf16_step,
    changed_rows,
    claimed_sigma,
    cohens_d,
    facing,
    identity_errors,
    matched_by_chance,
    means_only,
    off_diagonal,
    relative_to_other,
)

VALUES = [pytest.param(row, id=f"{row['number']} {row['quantity']}") for row in rows("contradicted_values")]


def test_the_cosine_identity_holds_on_all_92_rows() -> None:
    errors = identity_errors()
    assert errors.shape == (92,)
    assert np.abs(errors).max() < 2e-7


def test_182_sigma_is_cohens_d_of_four_against_four() -> None:
    assert claimed_sigma() == pytest.approx(181.94, abs=5e-3)
    assert cohens_d([1.0, 3.0], [0.0, 0.0]) == pytest.approx(2 / math.sqrt(0.5))


def test_means_alone_give_the_published_off_diagonal_mean() -> None:
    pre, post = means_only("norm_pre"), means_only("norm_post")
    assert pre.shape == (46, 46)
    assert off_diagonal(pre).size == 46 * 45
    assert off_diagonal(pre).mean() == pytest.approx(0.9387, abs=5e-5)
    published = float(records("layer_decay_results")["off_diagonal_mean"])
    assert (off_diagonal(pre).mean() + off_diagonal(post).mean()) / 2 == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize(
    ("category", "column", "mean"),
    [
        ("norm_pre", "cosine", 0.948743),
        ("norm_pre", "pearson", 0.012602),
        ("norm_post", "cosine", 0.986383),
        ("norm_post", "pearson", -0.001872),
        ("router_or_gate", "cosine", 0.003705),
        ("router_or_gate", "pearson", 0.003709),
        ("router_or_gate", "aligned_expert_cosine", 0.029266),
    ],
)
def test_means_over_layers_are_those_of_the_files(category: str, column: str, mean: float) -> None:
    assert facing(category, column).mean() == pytest.approx(mean, abs=1e-6)


def test_matching_strangers_at_their_best_gives_more_than_the_published_alignment() -> None:
    """128 experts, 4,096 wide: 0.0380 with a spread of 0.0005 between draws; published 0.0293 after matching."""
    found = [matched_by_chance(128, 4096, np.random.default_rng(seed)) for seed in range(6)]
    assert np.mean(found) == pytest.approx(0.0380, abs=0.0006)
    assert np.std(found) < 0.001
    assert facing("router_or_gate", "aligned_expert_cosine").max() < min(found)


def test_matching_is_as_good_as_the_best_assignment() -> None:
    """To the little that centring rows of eleven values changes."""
    rng = np.random.default_rng(5)
    left, right = rng.standard_normal((2, 7, 11))
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right))
    best = linear_sum_assignment(left @ right.T, maximize=True)
    assert matched_by_chance(7, 11, np.random.default_rng(5)) == pytest.approx((left @ right.T)[best].mean(), abs=0.02)


def test_relative_distances_turn_around() -> None:
    a, b = np.array([3.0, 1.0]), np.array([1.0, 0.5])
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    relative = np.linalg.norm(a - b) / np.linalg.norm(a)
    assert relative_to_other(cosine, relative) == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_steps_of_bfloat16() -> None:
    import ml_dtypes

    for value in (0.011, 0.2502, 0.5, 0.99, 1.0, 2.67):
        assert bf16_step(value) == float(np.spacing(ml_dtypes.bfloat16(value)))


def test_changes_follow_the_steps_of_the_stored_type() -> None:
    """Mean |difference| over changed share is about one step for layers 3 to 12: the values moved by one step each."""
    share, difference, mean = (changed_rows(c) for c in ("changed_percent", "mean_abs_diff", "glm_gamma_mean"))
    for layer in range(3, 13):
        in_steps = difference[layer] / (share[layer] / 100 * bf16_step(mean[layer]))
        assert 0.7 < in_steps < 1.1


def test_files_agree_with_each_other() -> None:
    for row in chosen("layernorm_sanity", category="norm_pre"):
        other = chosen("layerwise_similarity", category="norm_pre", layer_A=row["layer"])[0]
        assert float(row["cosine"]) == pytest.approx(float(other["cosine"]), abs=1e-6)
        assert float(row["cosine_centered"]) == pytest.approx(float(other["pearson"]), abs=1e-6)


@pytest.mark.parametrize("row", VALUES)
def test_the_right_value_comes_out_of_the_files(row: dict[str, str]) -> None:
    assert RECOMPUTED[row["quantity"]]() == pytest.approx(float(row["right"]), abs=half_a_digit(row["right"]))


def test_printed_numbers_are_not_the_right_ones() -> None:
    """Those that were printed as numbers; the rest are words."""
    numbers = [row for row in rows("contradicted_values") if row["printed"].lstrip("-").replace(".", "", 1).isdigit()]
    assert len(numbers) > 30
    for row in numbers:
        assert abs(RECOMPUTED[row["quantity"]]() - float(row["printed"])) > half_a_digit(row["printed"]), row[
            "quantity"
        ]


def test_all_28_contradictions_are_listed_and_only_two_rest_on_other_sources() -> None:
    table = contradictions()
    cells = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [cell["number"] for cell in cells] == list(range(1, 29))
    assert all(cell[name] for cell in cells for name in table.columns if name != "recomputed")
    assert {cell["number"] for cell in cells if cell["recomputed"] is None} == {13, 26}
    assert {row["quantity"] for row in rows("contradicted_values")} == RECOMPUTED.keys()


def test_every_file_has_an_origin_and_rows() -> None:
    assert all(rows(name) for name in ORIGINS)
