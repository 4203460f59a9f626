"""Baselines inside one model and groups of models: the expected cosine is that of the very pairs of each row."""

from __future__ import annotations

import csv
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pair_builders import opened, rows_of

from builders import llama_tensors
from modelkin.records import Role
from modelkin.survey.baselines import baseline_table, group_table
from modelkin.survey.vectors import Stack

Doubles = NDArray[np.float64]


def published() -> Doubles:
    """Vectors with the published means and spreads of GLM's input norms: one value above the mean, one below."""
    text = files("modelkin.reference").joinpath("data/layernorm_sanity.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["category"] == "norm_pre"]
    return np.array([float(r["B_mean"]) + float(r["B_std"]) * np.array([1.0, -1.0]) for r in rows])


def share(row: Doubles) -> float:
    return float(row.mean() / np.sqrt(np.mean(row**2)))


def stack(rows: Doubles, owners: tuple[str, ...], layers: tuple[str, ...]) -> Stack:
    return Stack(Role.INPUT_NORM, owners, layers, rows)


def test_the_published_baseline_is_what_means_and_spreads_alone_give(tmp_path: Path) -> None:
    """0.377 was published for layer 0 with others: between 0.366 and 0.372 from means and spreads."""
    rows = published()
    one = stack(rows, ("m",) * len(rows), tuple(map(str, range(len(rows)))))
    with opened(tmp_path, {"m": llama_tensors(1)}, "input_norm") as found:
        table = rows_of(baseline_table(found, [one]))
    row = next(r for r in table if r["baseline"] == "layer-0" and r["distance"] is None)
    assert row["expected_cosine"] == pytest.approx(0.366, abs=0.001)
    itself = next(r for r in table if r["baseline"] == "means-only")
    assert itself["cosine_mean"] > 0.9  # type: ignore[operator]  # each layer with itself: another question


def test_expected_cosines_by_brute_force(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = rng.uniform(0.2, 1.5, (5, 1)) + rng.uniform(0.1, 0.6, (5, 1)) * rng.standard_normal((5, 48))
    one = stack(rows, ("m",) * 5, tuple("01234"))
    with opened(tmp_path, {"m": llama_tensors(1)}, "input_norm") as found:
        table = rows_of(baseline_table(found, [one]))
    for distance in range(1, 5):
        pairs = [(i, j) for i, j in combinations(range(5), 2) if j - i == distance]
        wanted = np.mean([share(rows[i]) * share(rows[j]) for i, j in pairs])
        row = next(r for r in table if (r["baseline"], r["distance"]) == ("equal-distance", distance))
        assert row["expected_cosine"] == pytest.approx(wanted)
        assert row["n"] == len(pairs)
        assert row["width"] == 48


def test_groups_have_the_expectation_of_their_own_pairs(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.uniform(0.2, 1.5, (3, 1)) + rng.uniform(0.1, 0.6, (3, 1)) * rng.standard_normal((3, 48))
    labels = ("m", "o", "p")
    with opened(tmp_path, {label: llama_tensors(n) for n, label in enumerate(labels)}, "input_norm") as found:
        (row,) = rows_of(group_table(found, [stack(rows, labels, ("0",) * 3)]))
    wanted = np.mean([share(rows[i]) * share(rows[j]) for i, j in combinations(range(3), 2)])
    assert row["expected_cosine"] == pytest.approx(wanted)
    assert (row["group_a"], row["n"], row["width"]) == ("all", 3, 48)
