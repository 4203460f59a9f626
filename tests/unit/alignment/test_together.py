"""Where two ways of looking find nobody, all of them together may: more is found, and what is judged stays held out."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from planted import LAYERS, Arrays, anatomy, composed, drawn, noisy

from modelkin.alignment import align, routes, summary
from modelkin.alignment.banks import Bank, attention_bank, mlp_bank, side_by_side
from modelkin.alignment.judging import judged
from modelkin.alignment.matching import choice_of
from modelkin.alignment.routes import NOT_TOGETHER, RECOGNISED, facing_route
from modelkin.alignment.sides import Side, Sides
from modelkin.alignment.teaching import Found, LayerPair, Taught, asked, teach, teach_together

PAIRS: list[LayerPair] = [(str(layer), str(layer)) for layer in range(LAYERS)]
FAR = 0.9  # noise on a disguised model, of each tensor's own spread


def quiet(_: str) -> None:
    """Nobody watches."""


def beside(a: Arrays, b: Arrays, seed: int = 0) -> Sides:
    return Sides(Side(anatomy(a)), Side(anatomy(b)), np.random.default_rng(seed))


def matched(sides: Sides, fold: list[LayerPair], together: bool) -> Found:
    banks: list[Bank] = [attention_bank(sides, PAIRS, quiet), mlp_bank(sides, fold)]
    return side_by_side(sides, fold, banks, quiet, together)


def far(seed: int) -> tuple[Arrays, Arrays]:
    a = drawn(seed, layers=6)
    return a, noisy(composed(a, np.random.default_rng(seed + 1)), FAR)


def test_the_greatest_sum_of_all_ways_against_every_other() -> None:
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(4, 5)).astype(np.float32) for _ in range(3)]
    found = choice_of(views, rng, together=True)
    whole = views[0] + views[1] + views[2]
    best = max(permutations(range(5), 4), key=lambda way: sum(whole[i, j] for i, j in enumerate(way)))
    assert [view.tolist() for view in found.views] == [list(best)] * 2
    assert found.two.all()


@pytest.mark.parametrize("seed", range(3))
def test_what_no_two_ways_recognise_is_found_by_all_together(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = far(seed)
    found = align(anatomy(a), anatomy(b), np.random.default_rng(0))
    assert found.layers == tuple((str(i), str(i)) for i in range(6))
    assert all(layer.two > 0.8 * layer.n for layer in found.held_out)
    monkeypatch.setattr(routes, "teach_together", lambda *_: None)
    assert not align(anatomy(a), anatomy(b), np.random.default_rng(0)).found


def test_most_anchors_are_wrong_at_first_and_all_are_right_at_last() -> None:
    a = drawn(1)
    sides, fold = beside(a, noisy(a, 1.1)), PAIRS[0::2]
    first = matched(sides, fold, together=True)
    right = sum(int((c.views[0] == np.arange(len(c.views[0]))).sum()) for ((_, c),) in first.values())
    taught = teach_together(sides, first)
    assert right < 0.5 * asked(first)
    assert taught is not None
    assert taught.anchors > 0.9 * asked(first)
    assert np.trace(taught.rotation) > 0.9 * len(taught.rotation)  # b was not turned


def test_the_neurons_that_are_judged_have_no_part_in_what_teaches() -> None:
    """Other MLPs in the layers of the other fold: the rotation is the same to the last bit."""
    a, b = far(1)
    other = drawn(77, layers=6)
    changed = b | {name: other[name] for name in b if ".mlp." in name and int(name.split(".")[2]) % 2}
    everywhere = [(str(layer), str(layer)) for layer in range(6)]
    taught = [facing_route(beside(a, each), everywhere, everywhere, quiet)[0] for each in (b, changed)]
    assert taught[0].anchors > RECOGNISED * 3 * 72
    assert taught[0].b == frozenset({"0", "2", "4"})
    assert np.array_equal(taught[0].rotation, taught[1].rotation)


def test_what_it_shows_of_strangers_is_left_to_chance() -> None:
    """Judged on other layers, two ways agree on one neuron a set and p is no smaller than it should be."""
    counts, pvalues, thrice = [], [], 0
    for seed in range(60):
        sides = beside(drawn(1000 + seed, neurons=36), drawn(2000 + seed, neurons=36), seed)
        taught = _always(sides)
        cells = [judged(sides, pair, taught, 1024, quiet) for pair in PAIRS]
        found = [cell.found for cell in cells if cell is not None]
        assert len(found) == LAYERS
        counts += [layer.two for layer in found]
        pvalues += [10**layer.log10_pvalue for layer in found]
        thrice += sum(layer.three for layer in found)
    assert np.mean(counts) == pytest.approx(1, abs=0.26)  # four standard errors of 240 counts of mean one
    for level in (0.3, 0.1, 0.02):  # four standard errors again; counts are whole, so p is larger than uniform
        assert np.mean(np.array(pvalues) <= level) <= level + 4 * np.sqrt(level * (1 - level) / len(pvalues))
    assert thrice <= 18  # three agree on one neuron in 36 sets


def _always(sides: Sides) -> list[Taught]:
    folds = PAIRS[0::2], PAIRS[1::2]
    return [taught for fold in folds if (taught := teach_together(sides, matched(sides, fold, True))) is not None]


def test_strangers_fit_themselves_and_are_not_confirmed() -> None:
    """Neurons that are few beside the width fit any others; the half that did not teach gives them away."""
    for seed in range(8):
        sides = beside(drawn(seed, neurons=40), drawn(90 + seed, neurons=40), seed)
        first = matched(sides, PAIRS[:1], together=True)
        taught = teach_together(sides, first)
        assert taught is not None
        assert taught.anchors < RECOGNISED * asked(first)


def test_a_second_try_that_shows_nothing_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = drawn(3), drawn(4)
    tried = align(anatomy(a), anatomy(b), np.random.default_rng(5))
    monkeypatch.setattr(routes, "teach_together", lambda *_: None)
    plain = align(anatomy(a), anatomy(b), np.random.default_rng(5))
    assert tried.held_out == plain.held_out
    assert summary(tried) == summary(plain)


def test_what_is_recognised_at_once_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "teach_together", None)
    a = drawn(1)
    assert align(anatomy(a), anatomy(noisy(a, 0.1)), np.random.default_rng(0)).found


def test_models_too_large_for_it_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.alignment.sides.SMALL", 0)
    assert NOT_TOGETHER in align(anatomy(drawn(3)), anatomy(drawn(4)), np.random.default_rng(5)).reasons


def test_nobody_to_teach_teaches_nothing() -> None:
    sides = beside(drawn(1), drawn(2))
    assert teach_together(sides, {}) is None
    assert teach(sides, {}) is None
