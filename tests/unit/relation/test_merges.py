"""Weights that were put in come out, every method is known by its marks, and siblings are no parents."""

from __future__ import annotations

import numpy as np
import pytest
from plain_models import Plain, bf16, mixed, moved, plain

from modelkin.relation.marks import atoms
from modelkin.relation.merges import unmixed

BASE = plain(0)
ONE, TWO, FAR = moved(BASE, 0.2, 1), moved(BASE, 0.3, 2), moved(BASE, 0.8, 3)


def over(base: Plain, change) -> Plain:  # type: ignore[no-untyped-def]
    """A merge entry by entry: the change that a function makes of the changes of ONE and TWO."""
    rng = np.random.default_rng(7)
    slots = {s: bf16(x + change(ONE.slots[s] - x, TWO.slots[s] - x, rng)) for s, x in base.slots.items()}
    return Plain(slots, base.form, base.facts)


def slerp(a: Plain, b: Plain, t: float) -> Plain:
    slots = {}
    for slot, x in a.slots.items():
        y = b.slots[slot]
        angle = np.arccos(np.vdot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)))
        slots[slot] = bf16((np.sin((1 - t) * angle) * x + np.sin(t * angle) * y) / np.sin(angle))
    return Plain(slots, a.form, a.facts)


@pytest.mark.parametrize("weights", [[0.6, 0.4], [0.85, 0.15]])
@pytest.mark.parametrize("with_base", [True, False])
def test_linear_weights(weights: list[float], with_base: bool) -> None:
    sources = [("one", ONE), ("two", TWO), *([("base", BASE)] if with_base else [])]
    found = unmixed(("merged", mixed([ONE, TWO], weights)), sources)
    assert found is not None
    assert (found.method, found.sources) == ("linear", ("one", "two"))
    assert found.weights == pytest.approx(weights, abs=0.01)
    assert all(layer.weights == pytest.approx(weights, abs=0.02) for layer in found.layers)
    assert not found.missing_parent


@pytest.mark.parametrize("t", [0.3, 0.5])
def test_slerp_is_told_from_the_chord_and_its_weight_found(t: float) -> None:
    found = unmixed(("merged", slerp(ONE, FAR, t)), [("one", ONE), ("far", FAR), ("base", BASE)])
    assert found is not None
    assert found.method == "slerp"
    assert found.weights == pytest.approx([1 - t, t], abs=0.01)
    straight = unmixed(("merged", mixed([ONE, FAR], [1 - t, t])), [("one", ONE), ("far", FAR), ("base", BASE)])
    assert straight is not None
    assert straight.method == "linear"


def test_dare_by_its_atoms() -> None:
    def dropped(one: np.ndarray, two: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return sum(0.5 * x * (rng.random(x.shape) < 0.6) / 0.6 for x in (one, two))

    found = unmixed(("merged", over(BASE, dropped)), [("one", ONE), ("two", TWO), ("base", BASE)])
    assert found is not None
    assert (found.method, found.base, found.sources) == ("dare", "base", ("one", "two"))
    assert found.density == pytest.approx(0.6, abs=0.03)
    assert found.weights == pytest.approx([0.5, 0.5], abs=0.03)


def test_ties_by_what_it_trims() -> None:
    def trimmed(one: np.ndarray, two: np.ndarray, _: np.random.Generator) -> np.ndarray:
        kept = np.array([x * (np.abs(x) >= np.quantile(np.abs(x), 0.7)) for x in (one, two)])
        agrees = (np.sign(kept) == np.sign(kept.sum(axis=0))) & (kept != 0)
        return (kept * agrees).sum(axis=0) / np.maximum(agrees.sum(axis=0), 1)

    found = unmixed(("merged", over(BASE, trimmed)), [("one", ONE), ("two", TWO), ("base", BASE)])
    assert found is not None
    assert (found.method, found.base) == ("ties", "base")


def test_layers_of_two_models_stacked() -> None:
    slots = {s: (ONE if (s.layer or 0) < 2 else TWO).slots[s] for s in BASE.slots}
    found = unmixed(("merged", Plain(slots, BASE.form, BASE.facts)), [("one", ONE), ("two", TWO), ("base", BASE)])
    assert found is not None
    assert found.method == "passthrough"
    assert found.origins == (("0", "one", "0"), ("1", "one", "1"), ("2", "two", "2"), ("3", "two", "3"))


def test_a_parent_that_is_not_given_is_missed() -> None:
    third = moved(BASE, 0.25, 9)
    merged = mixed([ONE, TWO, third], [0.35, 0.4, 0.25])
    found = unmixed(("merged", merged), [("one", ONE), ("two", TWO), ("base", BASE)])
    assert found is not None
    assert found.missing_parent
    whole = unmixed(("merged", merged), [("one", ONE), ("two", TWO), ("base", BASE), ("third", third)])
    assert whole is not None
    assert not whole.missing_parent


@pytest.mark.parametrize("seed", range(3))
def test_a_fine_tune_is_no_mixture_of_its_parent_and_a_sibling(seed: int) -> None:
    assert unmixed(("child", moved(BASE, 0.2, 50 + seed)), [("base", BASE), ("one", ONE), ("two", TWO)]) is None


def test_a_checkpoint_on_the_way_is_no_mixture_of_those_before_and_after() -> None:
    middle = moved(BASE, 0.2, 60)
    assert unmixed(("middle", middle), [("base", BASE), ("last", moved(middle, 0.2, 61))]) is None


def test_a_stranger_has_no_part() -> None:
    assert unmixed(("child", ONE), [("base", BASE), ("stranger", plain(99))]) is None


def test_atoms_of_unrelated_changes_explain_little() -> None:
    rng = np.random.default_rng(11)
    step, changes = rng.normal(size=2000), rng.normal(size=(2, 2000))
    choices = [np.array(pair) for pair in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))]
    assert atoms(step, changes, choices) < 0.6
    assert atoms(changes[0] * (step > 0), changes, choices) == pytest.approx(1)
