from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from modelkin.alignment.folding import Neurons
from modelkin.alignment.rows import RowFacts, _few_places, _tied, row_facts
from modelkin.architectures import identify
from modelkin.demo import bundled
from modelkin.inspection import open_model

WIDTH = 512


def drawn(seed: int, rows: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def test_the_largest_eighth_of_normal_numbers_holds_what_the_law_says() -> None:
    edge = norm.isf(1 / 16)
    expected = 2 * (edge * norm.pdf(edge) + norm.sf(edge))
    assert _few_places(drawn(0)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("rows", [np.eye(WIDTH)[:200] + 0.01 * drawn(1), np.where(np.arange(WIDTH) < 40, drawn(2), 0)])
def test_rows_with_their_numbers_in_few_places_are_told_by_chance(rows: np.ndarray) -> None:
    assert RowFacts(0.0, _few_places(rows.astype(np.float32))).tells_by_chance


def test_two_looks_at_the_same_numbers_are_one() -> None:
    gate, up, down = drawn(3), drawn(4), drawn(5)
    assert _tied(Neurons(gate, up, down)) < 0.1
    assert _tied(Neurons(up, up, down)) == pytest.approx(1)
    assert _tied(Neurons(None, up, up)) == pytest.approx(1)
    assert RowFacts(0.9, 0.5).tells_by_chance


@pytest.mark.parametrize("name", ["dune", "ember", "fjord"])
def test_trained_models_are_not_told_by_chance(name: str) -> None:
    found = row_facts(identify(open_model(str(bundled()[name]))))
    assert found is not None
    assert not found.tells_by_chance
