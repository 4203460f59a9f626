"""Fixed points among those who are surest: a bound that holds, and finds a few copies that the whole count drowns."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from modelkin.stats import log_chosen_tail, roll_call, surest_fixed_points, total_fixed_points


def law(n: int, chosen: int) -> list[float]:
    """P(K = k) over all permutations of n, K the fixed points among the first `chosen` places."""
    counts = Counter(sum(order[i] == i for i in range(chosen)) for order in permutations(range(n)))
    return [counts[k] / math.factorial(n) for k in range(chosen + 1)]


@pytest.mark.parametrize("sizes", [[(6, 1)], [(6, 3)], [(5, 5)], [(6, 2), (5, 3)], [(4, 1), (4, 1), (6, 4)]])
def test_against_all_orders(sizes: list[tuple[int, int]]) -> None:
    mass = np.ones(1)
    for n, chosen in sizes:
        mass = np.convolve(mass, law(n, chosen))
    share = sum(chosen / n for n, chosen in sizes)
    assert float(mass @ np.arange(mass.size)) == pytest.approx(share)
    for k in range(mass.size):
        assert mass[k:].sum() <= math.exp(log_chosen_tail(share, k)) * (1 + 1e-12)


def test_the_bound_is_reached_where_all_are_chosen_and_all_are_fixed() -> None:
    assert math.exp(log_chosen_tail(1.0, 5)) == pytest.approx(law(5, 5)[5])
    assert (log_chosen_tail(0.5, 0), log_chosen_tail(0.0, 1)) == (0.0, -math.inf)
    assert log_chosen_tail(40.0, 3) == 0.0
    with pytest.raises(ValueError, match="share"):
        log_chosen_tail(-0.1, 1)


def counted(left: np.ndarray, right: np.ndarray, rng: np.random.Generator, chosen: int) -> tuple[int, int]:
    call = roll_call(left, right, rng)
    found = np.array(call.matches)
    likeness = [np.corrcoef(left[i], right[found[i]])[0, 1] for i in range(len(left))]
    surest = np.argsort(-np.array(likeness), kind="stable")[:chosen]
    return int(np.count_nonzero(found[surest] == surest)), call.fixed


def test_strangers_find_their_share_among_the_surest() -> None:
    rng = np.random.default_rng(4)
    counts = [counted(*rng.normal(size=(2, 24, 10)), rng, 6)[0] for _ in range(800)]
    assert np.mean(counts) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 / 800))
    assert max(counts) <= 4  # five have a chance of 0.25^5/5! each, 1 in 150 for all of them


def test_a_few_copies_among_many_are_clearer_among_the_surest() -> None:
    rng = np.random.default_rng(5)
    blocks = []
    for _ in range(12):
        left, right = rng.normal(size=(2, 64, 32))
        right[:1] = left[:1]
        blocks.append(counted(left, right, rng, 4))
    sure, fixed = (sum(counts) for counts in zip(*blocks, strict=True))
    found = surest_fixed_points(sure, 48, 12 / 16)
    assert found.exact
    assert found.log10_pvalue < -9
    assert total_fixed_points([count for _, count in blocks], [64] * 12).log10_pvalue > -6
    assert fixed >= sure >= 12
