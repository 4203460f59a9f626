from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, combine_pvalues

from modelkin.stats import Budget, fisher, holm

POLICY = {"gains": 0.2, "neurons": 0.4, "embeddings": 0.1, "map": 0.1, "attention": 0.1, "experts": 0.05, "rows": 0.05}


def test_holm_by_hand() -> None:
    found = holm(np.log10([0.01, 0.04, 0.03, 0.005]).tolist())
    assert 10 ** np.array(found) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_one_and_keeps_the_order() -> None:
    found = holm([-0.1, -400.0, 0.0])
    assert found[2] == 0.0
    assert found[1] == pytest.approx(-400 + math.log10(3))
    assert holm([]) == ()


def test_fisher_against_scipy() -> None:
    pvalues = [0.2, 0.01, 0.7, 0.04]
    assert 10 ** fisher(np.log10(pvalues).tolist()) == pytest.approx(combine_pvalues(pvalues).pvalue)


def test_fisher_of_p_values_that_no_float_holds() -> None:
    x = 800 * math.log(10)
    assert fisher([-400.0, -400.0]) == pytest.approx((math.log1p(x) - x) / math.log(10))
    assert fisher([]) == fisher([0.0, 0.0]) == 0.0


def test_fisher_of_one_is_itself() -> None:
    assert fisher([-3.0]) == pytest.approx(-3.0)
    assert 10 ** fisher([-1.0] * 3) == pytest.approx(chi2.sf(6 * math.log(10), 6))


def test_spending_by_weight() -> None:
    budget = Budget(1e-6, POLICY)
    assert budget.adjusted("neurons", -10.0) == pytest.approx(-10 - math.log10(0.4))
    assert budget.rejects("gains", math.log10(1.9e-7))
    assert not budget.rejects("gains", math.log10(2.1e-7))
    assert budget.smallest({"gains": -5.0, "rows": -6.0}) == pytest.approx(-6 - math.log10(0.05))
    assert budget.smallest({}) == 0.0
    assert budget.adjusted("rows", 0.0) == 0.0


def test_the_budget_holds_when_all_questions_are_one() -> None:
    """Questions that are wholly dependent, or not at all: the family-wise error stays below alpha."""
    rng = np.random.default_rng(1)
    budget = Budget(0.05, POLICY)
    for draw in (lambda: dict.fromkeys(POLICY, rng.uniform()), lambda: {name: rng.uniform() for name in POLICY}):
        drawn = [{name: math.log10(p) for name, p in draw().items()} for _ in range(3000)]
        false = np.mean([budget.smallest(pvalues) <= math.log10(0.05) for pvalues in drawn])
        assert false <= 0.05 + 3 * math.sqrt(0.05 / 3000)


@pytest.mark.parametrize(("alpha", "weights"), [(0.0, {"a": 1.0}), (0.1, {"a": 0.7, "b": 0.4}), (0.1, {"a": 0.0})])
def test_budgets_that_overspend_are_refused(alpha: float, weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Budget(alpha, weights)


@pytest.mark.parametrize("strange", [0.3, math.nan])
def test_what_is_no_logarithm_of_a_p_value_is_refused(strange: float) -> None:
    with pytest.raises(ValueError, match="logarithms"):
        fisher([strange])
    with pytest.raises(ValueError, match="logarithms"):
        holm([-1.0, strange])
