"""Experts by their router rows: the same numbers between relatives, one a layer between strangers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.questions.experts import EXPERTS
from modelkin.questions.question import CannotAsk, Pair
from modelkin.records import Cut, Evidence, Role, Slot
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.sources import LocalSource

Floats = NDArray[np.float32]
LAYERS, COUNT, WIDTH = 3, 16, 64


def bundled_anatomy(name: str) -> Anatomy:
    return identify(open_checkpoint(LocalSource(bundled()[name])))


def of_bundled(a: str, b: str) -> Evidence:
    one, two = bundled_anatomy(a), bundled_anatomy(b)
    mine, theirs = EXPERTS.cuts(Pair(one, two, 0, "standard"))
    sides = Readings(portrait(one), read(one, mine)), Readings(portrait(two), read(two, theirs))
    return EXPERTS.answer(*sides, np.random.default_rng(1))


def routers(seed: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(COUNT, WIDTH)).astype(np.float32) for _ in range(LAYERS)]


def answer(a: list[Floats], b: list[Floats], seed: int = 0) -> Evidence:
    shown = portrait(bundled_anatomy("ember"))
    sides = [Readings(shown, {Cut(Slot(Role.ROUTER, i), 0, len(m)): m for i, m in enumerate(side)}) for side in (a, b)]
    return EXPERTS.answer(sides[0], sides[1], np.random.default_rng(seed))


def test_a_model_finds_its_own_experts_and_four_cannot_say_more_than_one_in_24() -> None:
    found = of_bundled("ember", "ember")
    assert (found.statistic, found.n) == (12, 12)
    assert found.log10_pvalue == pytest.approx(-3 * math.log10(24) + math.log10(2))  # better of two


def test_strangers() -> None:
    found = of_bundled("ember", "cobalt")
    assert (found.log10_pvalue or 0.0) > -2
    values = [answer(routers(2 * seed), routers(2 * seed + 1), seed).log10_pvalue or 0.0 for seed in range(1, 200)]
    assert np.mean(np.array(values) <= -1) <= 0.1 + 3 * math.sqrt(0.09 / 199)


def test_relatives_and_experts_in_another_order() -> None:
    base = routers(1)
    noise = [0.5 * layer for layer in routers(2)]
    assert (answer(base, [a + b for a, b in zip(base, noise, strict=True)]).log10_pvalue or 0.0) < -30
    turned = answer(base, [np.roll(layer, 1, axis=0) for layer in base])
    assert turned.log10_pvalue == 0.0
    assert turned.effect == pytest.approx(0, abs=0.1)


def test_equal_experts_say_nothing() -> None:
    same = [np.tile(layer[:1], (COUNT, 1)) for layer in routers(3)]
    for empty in (same, [np.zeros((COUNT, WIDTH), np.float32)] * 3):
        with pytest.raises(CannotAsk, match="told from"):
            answer(empty, empty)
    mixed = [same[0], *routers(3)[1:]]
    assert answer(mixed, mixed).n == 2 * COUNT


def test_layers_that_are_not_finite_are_left_out() -> None:
    broken = routers(4)
    broken[1][0, 0] = np.nan
    assert [finding.b for finding in answer(routers(4), broken).per_layer] == ["0", "2"]
    with pytest.raises(CannotAsk, match="finite"):
        answer(broken[1:2], broken[1:2])


def test_one_layer() -> None:
    one = routers(5)[:1]
    assert answer(one, one).statistic == COUNT


@pytest.mark.parametrize(("a", "b", "why"), [("dune", "heath", "either model"), ("dune", "ember", "one of the models")])
def test_without_routers(a: str, b: str, why: str) -> None:
    with pytest.raises(CannotAsk, match=why):
        EXPERTS.cuts(Pair(bundled_anatomy(a), bundled_anatomy(b), 0, "standard"))


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ember = bundled_anatomy("ember")
    monkeypatch.setattr("modelkin.questions.experts.STANDARD_BYTES", 2 * 4 * 128 * 2)
    assert len(EXPERTS.cuts(Pair(ember, ember, 0, "standard"))[0]) == 2
    assert len(EXPERTS.cuts(Pair(ember, ember, 0, "full"))[0]) == 3
