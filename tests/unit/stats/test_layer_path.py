"""The way through the table of layers, against every way there is."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from modelkin.stats.layer_path import BACK, CERTAIN, DRIFT, MOST_DRIFT, NEW, SKIP, cell_scores, layer_path


def worth(scores: np.ndarray, way: tuple[int, ...]) -> float:
    new = len(scores)
    total = sum(scores[i, j] for j, i in enumerate(way) if i != new)
    for before, after in pairwise(way):
        if new in (before, after):
            total -= 0.0 if before == after else NEW
        else:
            ahead = after - before - 1
            step = SKIP if ahead > 0 else BACK
            total -= 0.0 if ahead == 0 else step + min(DRIFT * abs(ahead), MOST_DRIFT)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_against_every_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((4, 4)) < 0.5, rng.uniform(6, 12, (4, 4)), -np.inf)
    found = layer_path(scores)
    way = tuple(4 if i is None else i for i in found)
    best = max(worth(scores, each) for each in product(range(5), repeat=4))
    assert worth(scores, way) == pytest.approx(best)


def test_cells_count_from_one_in_a_million_and_are_capped() -> None:
    table = cell_scores([-5.9, -6.0, -80.0, 0.0], rows=2)
    assert table.tolist() == [[-np.inf, 6.0], [CERTAIN, -np.inf]]
