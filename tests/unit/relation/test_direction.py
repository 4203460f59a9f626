"""Who came first: losses, three relatives, and a fit that has no favourite."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from plain_models import Plain, bf16, moved, plain

from modelkin.records.relation import AxesFacts, Lattice, Merge, TensorFact, TokenFacts, Triplet
from modelkin.relation.depth import Depth
from modelkin.relation.direction import Clues, judged
from modelkin.relation.learned import DEGREE, DIRECTION, direction_features, fitted
from modelkin.relation.reading import default_map, facing_slots
from modelkin.relation.tensors import tensor_facts
from modelkin.relation.triplets import Distances
from modelkin.relation.triplets import judged as triplet_of

BASE = plain(0)
MERGE = Merge(
    merged="B", sources=("A", "C"), method="linear", weights=(0.5, 0.5), layers=(), gain=1, unexplained=0,
    missing_parent=False, marks=(), last="B",
)  # fmt: skip


def facts(a: Plain, b: Plain) -> tuple[TensorFact, ...]:
    pairs = facing_slots(a, b, default_map(a.layers, b.layers), None)
    return tensor_facts(a, b, pairs, np.random.default_rng(0), lambda *_: None)


def emptied(x: Any, _: Any) -> Any:
    return np.where(np.abs(x) < np.quantile(np.abs(x), 0.4), 0, x)


PRUNED = BASE.changed(**dict.fromkeys(("q", "o", "gate", "up", "down"), emptied))


def test_the_emptied_one_is_the_child_in_either_order() -> None:
    assert judged(Clues(facts(BASE, PRUNED)), (), {}).direction == "a->b"
    assert judged(Clues(facts(PRUNED, BASE)), (), {}).direction == "b->a"


def test_siblings_of_which_one_was_emptied_further_have_no_order() -> None:
    def less(x: Any, _: Any) -> Any:
        return np.where(np.abs(x) < np.quantile(np.abs(x), 0.2), 0, x)

    some = BASE.changed(**dict.fromkeys(("q", "o", "gate", "up", "down"), less))
    for pair in ((some, PRUNED), (PRUNED, some)):
        judgement = judged(Clues(facts(*pair)), (), {})
        assert (judgement.direction, judgement.probability) == ("unknown", None)
        assert "both were emptied from a third" in judgement.reasons[0]


@pytest.mark.parametrize(
    "clue",
    [
        {"depth": Depth("depth-prune", "a", "fewer, or put in", tells_order=False)},
        {"depth": Depth("depth-prune", "b", "fewer, or put in", tells_order=False)},
        {"narrow": "a"},
        {"tokens": TokenFacts(tokens_a=64, tokens_b=80, shared=64, moved_ids=0, only_a=0, only_b=16, near_mean_b=1.0)},
    ],
)
def test_a_loss_beside_another_shape_may_be_a_siblings(clue: dict[str, Any]) -> None:
    """One was emptied, the other was cut: both may be made from a third that had all."""
    judgement = judged(Clues(facts(BASE, PRUNED), **clue), (), {})
    assert judgement.direction == "unknown"
    assert "both may come from a third" in judgement.reasons[-1]


@pytest.mark.parametrize("role", ["o", "embedding"])
def test_a_loss_beside_a_part_of_another_model_may_be_a_siblings(role: str) -> None:
    def of_a_stranger(x: Any, _: Any) -> Any:
        return np.random.default_rng(9).normal(0, x.std(), x.shape)

    other = BASE.changed(**{role: of_a_stranger})
    for pair in ((other, PRUNED), (PRUNED, other)):
        assert judged(Clues(facts(*pair)), (), {}).direction == "unknown"


def test_a_loss_beside_layers_that_match_none_may_be_a_siblings() -> None:
    judgement = judged(Clues(facts(BASE, PRUNED), apart=True), (), {})
    assert judgement.direction == "unknown"
    assert "they may be new" in judgement.reasons[-2]


@pytest.mark.parametrize(
    ("levels", "nearest", "order"), [(16, 0.996, "a->b"), (16, 0.985, "unknown"), (255, 0.97, "a->b")]
)
def test_on_a_coarse_grid_only_the_source_finds_its_nearest_values(levels: int, nearest: float, order: str) -> None:
    grid = Lattice("int4", "32", levels)
    rounded = [
        msgspec.structs.replace(fact, lattice_b=grid, nearest=nearest) for fact in facts(BASE, moved(BASE, 0.1, 1))
    ]
    assert judged(Clues(rounded), (), {}).direction == order


def test_a_fit_is_never_shown_as_certain() -> None:
    judgement = judged(Clues(facts(BASE, moved(BASE, 1.5, 4))), (), {})
    assert (judgement.probability or 0) > 0.995
    assert "probability over 0.99 (" in judgement.reasons[0]
    assert "1.00" not in judgement.reasons[0]


def test_counted_losses_carry_no_probability() -> None:
    assert judged(Clues(facts(BASE, PRUNED)), (), {}).probability is None


def test_losses_on_both_sides_contradict_each_other() -> None:
    clues = Clues(facts(BASE, PRUNED), depth=Depth("depth-upscale", "a", "layers of a are doubles"))
    assert judged(clues, (), {}).direction == "unknown"


@pytest.mark.parametrize(
    ("clue", "child"),
    [
        ({"depth": Depth("depth-upscale", "b", "doubled")}, "a->b"),
        ({"depth": Depth("depth-upscale", "b", "of a's layers some are missing", tells_order=False)}, "unknown"),
        ({"depth": Depth("depth-prune", "b", "fewer, or put in", tells_order=False)}, "unknown"),
        ({"narrow": "a"}, "unknown"),
        ({"reordered": True}, "unknown"),
        ({"reordered": True, "depth": Depth("depth-upscale", "b", "doubled")}, "unknown"),
        ({"upcycled": "b", "unparted": True}, "a->b"),
        ({"upcycled": "b"}, "unknown"),
        ({"merge": MERGE, "names": ("A", "B")}, "a->b"),
        ({"merge": msgspec.structs.replace(MERGE, sources=("C", "D")), "names": ("A", "B")}, "unknown"),
        ({"merge": msgspec.structs.replace(MERGE, last=None), "names": ("A", "B")}, "unknown"),
        (
            {"merge": msgspec.structs.replace(MERGE, merged="C", last="C", sources=("A", "B")), "names": ("A", "B")},
            "unknown",
        ),
    ],
)
def test_structure_points_at_the_child(clue: dict[str, Any], child: str) -> None:
    assert judged(Clues(facts(BASE, moved(BASE, 0.002, 1)), **clue), (), {}).direction == child


def test_a_loss_beside_other_changes_may_be_a_siblings() -> None:
    found = judged(Clues(facts(BASE, moved(BASE, 0.05, 1)), depth=Depth("depth-upscale", "b", "doubled")), (), {})
    assert found.direction == "unknown"
    assert found.reasons[0] == "doubled"
    assert "points to B as the later one" in found.reasons[1]


def test_a_loss_beside_one_matrix_that_was_trained_may_be_a_siblings() -> None:
    """An adapter on a few matrices leaves the others as they were: beside a pruned base it is a sibling."""
    pruned = facts(BASE, PRUNED)
    trained = next(fact for fact in facts(BASE, moved(BASE, 0.05, 1)) if len(fact.shape) > 1)
    one = tuple(trained if fact.b == trained.b else fact for fact in pruned)
    assert sum(before is not after for before, after in zip(pruned, one, strict=True)) == 1
    assert [judged(Clues(each), (), {}).direction for each in (pruned, one)] == ["a->b", "unknown"]


def test_added_rows_that_are_the_mean_point_at_the_larger_vocabulary_and_those_near_it_do_not() -> None:
    told = TokenFacts(
        tokens_a=64, tokens_b=80, shared=64, moved_ids=0, only_a=0, only_b=16, near_mean_b=1e-4, at_mean_b=True
    )
    same = facts(BASE, BASE)
    assert judged(Clues(same, tokens=told), (), {}).direction == "a->b"
    near = judged(Clues(same, tokens=msgspec.structs.replace(told, at_mean_b=False)), (), {})
    assert near.direction == "unknown"
    assert "or left out in the other" in near.reasons[0]
    trained = msgspec.structs.replace(told, near_mean_b=1.0, at_mean_b=False)
    assert judged(Clues(same, tokens=trained), (), {}).direction == "unknown"


TURNED = AxesFacts(pvalue_a=1e-30, pvalue_b=0.4, matrices_a=20, matrices_b=20)


@pytest.mark.parametrize(
    ("axes", "order"),
    [
        (TURNED, "a->b"),
        (AxesFacts(pvalue_a=0.4, pvalue_b=1e-30, matrices_a=20, matrices_b=20), "b->a"),
        (AxesFacts(pvalue_a=1e-30, pvalue_b=1e-30, matrices_a=20, matrices_b=20), "unknown"),
        (AxesFacts(pvalue_a=0.4, pvalue_b=0.4, matrices_a=20, matrices_b=20), "unknown"),
        (AxesFacts(pvalue_a=0.001, pvalue_b=0.4, matrices_a=20, matrices_b=20), "unknown"),
        (AxesFacts(pvalue_a=1e-30, pvalue_b=0.001, matrices_a=20, matrices_b=20), "unknown"),
        (msgspec.structs.replace(TURNED, gains_a=False), "unknown"),  # principal axes, it may be
        (msgspec.structs.replace(TURNED, gains_b=False), "a->b"),
    ],
)
def test_the_one_whose_axes_are_ordinary_was_turned(axes: AxesFacts, order: str) -> None:
    judgement = judged(Clues(facts(BASE, moved(BASE, 0.002, 1)), axes=axes), (), {})
    assert judgement.direction == order
    assert any("drawn at random" in why for why in judgement.reasons) == (order != "unknown")


def test_a_turned_model_that_is_far_from_the_other_may_come_from_before_both() -> None:
    judgement = judged(Clues(facts(BASE, moved(BASE, 0.6, 1)), axes=TURNED), (), {})
    assert judgement.direction == "unknown"
    assert "B was turned" in judgement.reasons[-2]
    assert "both may come from a third" in judgement.reasons[-1]


@pytest.mark.parametrize(("rise", "order"), [((1.0, 0.5), "a->b"), ((0.5, 1.0), "b->a"), ((0.5, 0.5), "unknown")])
def test_the_one_whose_tokens_left_the_order_of_their_merges_was_renumbered(
    rise: tuple[float, float], order: str
) -> None:
    told = TokenFacts(
        tokens_a=64, tokens_b=64, shared=64, moved_ids=60, only_a=0, only_b=0, ascending_a=rise[0], ascending_b=rise[1]
    )
    near = facts(BASE, moved(BASE, 0.002, 1))
    assert judged(Clues(near, tokens=told), (), {}).direction == order
    other = msgspec.structs.replace(told, only_b=1)
    assert judged(Clues(near, tokens=other), (), {}).direction == "unknown"


def test_the_fit_turns_with_the_pair() -> None:
    other = moved(BASE, 0.4, 3)
    one, two = direction_features(facts(BASE, other)), direction_features(facts(other, BASE))
    assert one is not None
    assert two is not None
    model = fitted()["direction"]
    assert model.log_odds(one) == pytest.approx(-model.log_odds(two), abs=1e-6)
    assert model.log_odds(one) != 0


def test_the_fit_alone_names_no_parent() -> None:
    judgement = judged(Clues(facts(BASE, moved(BASE, 1.5, 4))), (), {})
    assert judgement.direction == "unknown"
    assert judgement.probability is not None


def test_shipped_models_fit_their_features() -> None:
    assert fitted()["degree"].features == DEGREE
    assert fitted()["direction"].features == DIRECTION
    for model in fitted().values():
        assert len(model.weights) == len(model.scale) == len(model.features)
        assert model.provenance["pairs"]


def distances(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Distances:
    """Of three points, of 12 tensors each.  (12, n) each"""
    apart = [x - y for x, y in ((a, b), (a, c), (b, c))]
    squares = np.array([np.sum(x**2, axis=1) for x in apart]).T
    fourths = np.array([np.sum(x**4, axis=1) for x in apart]).T
    return Distances(squares, a.shape[1] * fourths / squares**2)


def shape(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> str:
    return triplet_of("c", distances(a, b, c), np.random.default_rng(0)).shape


def learnt(rng: np.random.Generator, root: np.ndarray) -> np.ndarray:
    """What training changes: every matrix by an amount of its own."""
    return np.asarray(rng.uniform(0.8, 1.2, (len(root), 1)) * rng.normal(size=root.shape))


def test_paths_and_stars() -> None:
    rng = np.random.default_rng(5)
    root = rng.normal(size=(12, 4000))
    one, two, three = (root + learnt(rng, root) for _ in range(3))
    assert shape(root, one, two) == "a between"
    assert shape(one, root, two) == "b between"
    assert shape(one, two, root) == "third between"
    assert shape(one, two, three) == "star"
    last = one + rng.normal(size=root.shape)
    assert shape(root, one, last) == "b between"
    near = root + 0.1 * rng.normal(size=root.shape)
    assert shape(root, near, two) == "a between"  # however much farther the third went


def test_a_mixture_with_a_base_and_a_parent_is_no_star() -> None:
    """Three equal legs, though one is the base of the others: changes kept by lot, or the larger ones of a second."""
    rng = np.random.default_rng(6)
    root = rng.normal(size=(24, 4000))
    steps = [learnt(rng, root) for _ in range(2)]
    by_lot = root + sum(0.5 * step * (rng.random(root.shape) < 0.5) / 0.5 for step in steps)
    assert shape(root + steps[0], by_lot, root) == "unclear"
    mean = root + 0.5 * steps[0] + 0.5 * np.sqrt(3) * steps[1]
    assert shape(root + steps[0], mean, root) == "unclear"


def test_less_than_a_right_angle_is_no_line_of_descent() -> None:
    """A mean of three, seen from which two of its parents lie in opposed directions; and who learnt the same first."""
    rng = np.random.default_rng(7)
    root = rng.normal(size=(12, 500))
    one, two, three = (root + learnt(rng, root) for _ in range(3))
    assert shape(one, (2 * one + 2 * two + three) / 5, two) == "opposed"
    common = learnt(rng, root)
    assert shape(root, root + 0.5 * common, root + common + learnt(rng, root)) == "opposed"
    far = root + 8 * learnt(rng, root)
    assert shape((one + two) / 2, one, far) == "opposed"  # a cosine of -0.06, for the third is far away


def test_a_star_has_no_direction() -> None:
    at = (0.5, 0.45, 0.55)
    star = Triplet(third="C", at_a=at, at_b=at, at_third=at, shape="star")
    judgement = judged(Clues(facts(BASE, moved(BASE, 0.3, 6))), (star,), {"C": (0.0, 0.0)})
    assert judgement.direction == "neither"


def test_a_parent_between_its_children_makes_them_siblings() -> None:
    wide, right = (0.7, 0.65, 0.75), (0.0, -0.05, 0.05)
    path = Triplet(third="P", at_a=wide, at_b=wide, at_third=right, shape="third between")
    clues = Clues(facts(BASE, moved(BASE, 0.3, 6)))
    assert judged(clues, (path,), {"P": (5.0, 5.0)}).direction == "neither"
    assert judged(clues, (path,), {"P": (0.0, 0.0)}).direction == "unknown"


def test_bf16_values_in_a_wider_format_point_nowhere_and_a_cast_at_the_coarser() -> None:
    rng = np.random.default_rng(8)
    fine = Plain({s: (x + 1e-4 * rng.normal(size=x.shape)).astype(np.float32) for s, x in BASE.slots.items()}, "F32")
    coarse = Plain({s: bf16(x) for s, x in fine.slots.items()}, "BF16")
    assert judged(Clues(facts(fine, coarse)), (), {}).direction == "a->b"
    wider = Plain(BASE.slots, "F32")
    assert judged(Clues(facts(BASE, wider)), (), {}).direction == "unknown"


def test_a_mixture_of_which_a_part_is_missing_does_not_make_a_loss_tell_an_order() -> None:
    """The page says of such a mixture that it tells no order; nor does a turn beside it, which siblings show too."""
    turned = AxesFacts(pvalue_a=1e-9, pvalue_b=0.5, matrices_a=4, matrices_b=4)
    part = msgspec.structs.replace(MERGE, missing_parent=True, last=None, method="unknown")
    changed = facts(BASE, moved(BASE, 0.2, 1))
    assert judged(Clues(changed, axes=turned, merge=part, names=("A", "B")), (), {}).direction == "unknown"
    assert judged(Clues(changed, axes=turned, merge=MERGE, names=("A", "B")), (), {}).direction == "a->b"
