"""Weights that were put in come out, every method is known by its marks, and siblings are no parents."""

from __future__ import annotations

import numpy as np
import pytest
from plain_models import Plain, bf16, mixed, moved, plain

from modelkin.relation.circles import VISIBLE
from modelkin.relation.elementwise import spacing
from modelkin.relation.marks import nearest_atoms
from modelkin.relation.merges import unmixed
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.triplets import Distances, judged

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
    assert set(found.sources) <= {"one", "two"}
    assert (found.weights, found.layers) == ((), ())  # what is missing falls to those that are given
    whole = unmixed(("merged", merged), [("one", ONE), ("two", TWO), ("base", BASE), ("third", third)])
    assert whole is not None
    assert not whole.missing_parent


def test_a_stranger_that_was_mixed_in_and_is_not_given_is_missed() -> None:
    found = unmixed(("merged", mixed([BASE, plain(98)], [0.7, 0.3])), [("base", BASE), ("another", plain(99))])
    assert found is not None
    assert (found.sources, found.missing_parent, found.method) == (("base",), True, "unknown")
    assert found.weights == ()


def trained_on(model: Plain, steps: int, seed: int) -> Plain:
    """Steps in one direction, the same in every matrix, and less than a third as much in directions of their own."""
    way, own = np.random.default_rng(100), np.random.default_rng(seed)
    slots = {}
    for slot, x in model.slots.items():
        step = 0.002 * BASE.slots[slot].std() * np.ones(x.shape)
        slots[slot] = (x + steps * step * way.normal(size=x.shape) + step * own.normal(size=x.shape)).astype(np.float32)
    return Plain(slots, "F32", model.facts)


def test_a_checkpoint_on_a_straight_way_may_be_a_mixture_and_no_more() -> None:
    first = Plain(BASE.slots, "F32", BASE.facts)
    middle = trained_on(first, 4, 101)
    late = trained_on(middle, 5, 102)
    found = relate(first, middle, Inquiry(names=("first", "middle"), candidates=[("late", late)]))
    assert found.merge is not None
    assert (found.merge.missing_parent, found.merge.last, found.merge.weights) == (True, None, ())
    merge = next(kind for kind in found.kinds if kind.kind == "merge")
    assert merge.probability == 0.5
    assert "a checkpoint on the way from one model to another that was trained in one direction" in merge.why
    assert "nor any weights while a part is left over" in merge.why
    assert not any(word in merge.why for word in ("drift", "training makes", "0.5"))
    assert [third.shape for third in found.triplets] in (["unclear"], ["opposed"])
    assert found.direction == "unknown"


def test_three_hold_a_mixture_only_where_that_is_told() -> None:
    merged = mixed([ONE, TWO], [0.6, 0.4])
    told = relate(ONE, merged, Inquiry(names=("one", "merged"), candidates=[("two", TWO)]))
    assert told.merge is not None
    assert (told.merge.last, [third.shape for third in told.triplets]) == ("merged", ["mixture"])
    fine = Plain({slot: 0.6 * x + 0.4 * TWO.slots[slot] for slot, x in ONE.slots.items()}, "F32", BASE.facts)
    finer = Plain(ONE.slots, "F32", BASE.facts)
    either = relate(finer, fine, Inquiry(names=("one", "merged"), candidates=[("two", noised(TWO))]))
    assert either.merge is not None
    assert either.merge.last is None
    assert [third.shape for third in either.triplets] in (["unclear"], ["opposed"])


def noised(model: Plain) -> Plain:
    """A little more than rounding leaves, so that nothing tells who was computed last."""
    rng = np.random.default_rng(103)
    slots = {s: (x + 1e-3 * x.std() * rng.normal(size=x.shape)).astype(np.float32) for s, x in model.slots.items()}
    return Plain(slots, "F32", model.facts)


def test_a_model_given_twice_or_the_product_itself_changes_nothing() -> None:
    merged = mixed([ONE, TWO], [0.6, 0.4])
    again = [("one", ONE), ("two", TWO), ("copy", Plain(dict(ONE.slots))), ("itself", Plain(dict(merged.slots)))]
    found = unmixed(("merged", merged), again)
    assert found is not None
    assert found.sources == ("one", "two")
    assert found.weights == pytest.approx([0.6, 0.4], abs=0.01)


@pytest.mark.parametrize("size", [0.02, 0.05, 0.1])
def test_a_circle_is_told_from_a_line_or_both_are_said(size: float) -> None:
    """Twice the angle, four times the bend: it is seen in sums where it cannot be in single values.

    A circle moves values by t (1 - t) angle² / 2 of themselves. That is visible from VISIBLE steps of bfloat16 on, so
    that the angle must be sqrt(2 · VISIBLE · step / (t (1 - t))) or more; a model moved by `size` of its spread lies at
    that angle.
    """
    two = moved(BASE, size, 70)
    matrices = [x for slot, x in BASE.slots.items() if x.ndim == 2]
    step = max(float(np.sqrt(np.sum(spacing(x, "BF16") ** 2) / np.sum(x**2))) for x in matrices)
    visible = float(np.sqrt(2 * VISIBLE * step / (0.4 * 0.6)))
    assert 0.05 < visible < 0.1
    ways = {}
    for name, made in (("circle", slerp(BASE, two, 0.4)), ("line", mixed([BASE, two], [0.6, 0.4]))):
        found = unmixed(("merged", made), [("base", BASE), ("two", two)])
        assert found is not None
        assert found.weights == pytest.approx([0.6, 0.4], abs=0.02)
        ways[name] = (found.method, found.same_as)
    told = {"circle": ("slerp", ()), "line": ("linear", ())}
    assert ways == (dict.fromkeys(told, ("linear", ("slerp",))) if size < visible else told)


@pytest.mark.parametrize("count", [3, 6, 12])
def test_a_parent_is_no_mixture_of_its_children(count: int) -> None:
    """The mean of many children lies near their parent."""
    children = [(str(i), moved(BASE, 0.2, 80 + i)) for i in range(count)]
    assert unmixed(("parent", BASE), children) is None


@pytest.mark.parametrize("size", [0.003, 0.005, 0.01])
def test_a_model_is_no_mixture_of_copies_that_got_noise(size: float) -> None:
    """Their mean comes near to it, to what looks like rounding; but they lie in no opposed directions."""
    copies = [(f"copy {seed}", moved(BASE, size, seed)) for seed in (4, 5, 6)]
    assert unmixed(("base", BASE), copies) is None


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
    nearest, left = nearest_atoms(step, changes, choices)
    every = np.array([(step - choice @ changes) ** 2 for choice in choices])
    assert left == pytest.approx(every.min(axis=0).sum())
    assert (nearest == every.argmin(axis=0)).all()
    assert left > 0.4 * np.sum(step**2)
    assert nearest_atoms(changes[0] * (step > 0), changes, choices)[1] == 0


def test_children_who_learn_alike_do_not_make_their_parent_a_sibling() -> None:
    """Corners of a parent and two children whose changes agree by a quarter; then of three equal legs."""
    rng = np.random.default_rng(5)
    alike = np.tile([1.0, 1.0, 1.5], (20, 1)) * rng.uniform(0.8, 1.2, (20, 3))
    normal = np.full((20, 3), 3.0)
    assert judged("third", Distances(alike, normal), rng).shape != "star"
    assert judged("third", Distances(rng.uniform(0.8, 1.2, (20, 3)), normal), rng).shape == "star"


def test_two_sources_that_have_the_very_layers_are_no_stack() -> None:
    """A model beside two others that hold its own layers, some of them or more: each is as near as the other."""
    some = Plain({s: x for s, x in BASE.slots.items() if s.layer != 3}, BASE.form, BASE.facts)
    other = Plain({s: x for s, x in BASE.slots.items() if s.layer != 0}, BASE.form, BASE.facts)
    assert unmixed(("base", BASE), [("some", some), ("other", other)]) is None


def test_a_child_of_a_base_that_is_given_in_part_is_no_stack() -> None:
    """Its layers are nearest to those of the base, where that has them, and else to those of a sibling."""
    some = Plain({s: x for s, x in BASE.slots.items() if s.layer != 3}, BASE.form, BASE.facts)
    assert unmixed(("child", moved(BASE, 0.02, 5)), [("some", some), ("one", ONE), ("far", FAR)]) is None
