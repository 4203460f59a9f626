"""A merge that was disguised: its sources, weights and method come out as if it had not been."""

from __future__ import annotations

import numpy as np
import pytest
from planted import Arrays, anatomy, composed, drawn, noisy, permute_neurons, restacked

from modelkin.alignment import align, rewritten
from modelkin.records.relation import Merge
from modelkin.relation.merges import unmixed
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.returned import placed, turned_again

BASE = drawn(1, layers=6, neurons=96)
ONE, TWO, THREE = (noisy(BASE, 0.15, seed) for seed in (2, 3, 4))


def mixed(models: list[Arrays], weights: list[float]) -> Arrays:
    return {name: sum(w * m[name] for w, m in zip(weights, models, strict=True)) for name in BASE}


def told(product: Arrays, sources: dict[str, Arrays]) -> Merge | None:
    """From a comparison of the first source with the product, turned and renumbered; the others are candidates."""
    known = [(name, anatomy(arrays)) for name, arrays in sources.items()]
    (name, a), *candidates = known
    b = rewritten(align(a, anatomy(composed(product, np.random.default_rng(5))), np.random.default_rng(0)))
    return relate(a, b, Inquiry(names=(name, "merged"), candidates=candidates, disguises=("turned",))).merge


@pytest.mark.parametrize("weights", [[0.6, 0.4], [0.5, 0.2, 0.3]])
def test_weights_of_a_disguised_mean(weights: list[float]) -> None:
    parents = dict(zip(("one", "two", "three"), (ONE, TWO, THREE), strict=True))
    some = dict(list(parents.items())[: len(weights)])
    found = told(mixed(list(some.values()), weights), some | {"base": BASE})
    assert found is not None
    assert (found.method, found.sources, found.missing_parent) == ("linear", tuple(some), False)
    assert found.weights == pytest.approx(weights, abs=0.005)


def test_layers_of_two_models_stacked_and_disguised() -> None:
    first, last = restacked(ONE, [0, 1, 2, 3]), restacked(TWO, [2, 3, 4, 5])
    made = {**first, **{n.replace(f"layers.{i}.", f"layers.{i + 4}."): last[n] for i in range(4) for n in last
            if n.startswith(f"model.layers.{i}.")}}  # fmt: skip
    found = told(made, {"one": ONE, "two": TWO})
    assert found is not None
    assert found.method == "passthrough"
    assert [origin[1:] for origin in found.origins] == [
        *(("one", str(i)) for i in range(4)),
        *(("two", str(i)) for i in range(2, 6)),
    ]


def test_a_disguised_child_is_no_mixture() -> None:
    assert told(noisy(ONE, 0.1, 8), {"one": ONE, "two": TWO, "base": BASE}) is None
    assert told(noisy(BASE, 0.1, 8), {"one": ONE, "two": TWO, "base": BASE}) is None


def test_the_disguised_one_may_be_the_first_of_the_pair() -> None:
    """Candidates then stand beside b as it is stored, and a is turned back to where they are."""
    a, b = (anatomy(arrays) for arrays in (composed(mixed([ONE, TWO], [0.6, 0.4]), np.random.default_rng(5)), ONE))
    turned = rewritten(align(a, b, np.random.default_rng(0)))
    found = relate(a, turned, Inquiry(names=("merged", "one"), candidates=[("two", anatomy(TWO))])).merge
    assert found is not None
    assert (found.merged, found.sources) == ("merged", ("one", "two"))
    assert found.weights == pytest.approx([0.6, 0.4], abs=0.005)


def test_beside_one_model_alone_the_turn_hides_the_mixture() -> None:
    """Why it is turned again: what was rewritten beside one source is not what the sources mix to."""
    a, two = anatomy(ONE), anatomy(TWO)
    b = rewritten(align(a, anatomy(composed(mixed([ONE, TWO], [0.6, 0.4]), np.random.default_rng(5))),
                        np.random.default_rng(0)))  # fmt: skip
    again = turned_again(b, a, [("one", a), ("two", two)])
    assert again is not None
    assert unmixed(("merged", again[0]), again[1]) is not None
    assert unmixed(("merged", b), [("one", a), ("two", two)]) is None


def test_renumbered_neurons_alone_need_no_turn() -> None:
    a, b = anatomy(ONE), anatomy(permute_neurons(mixed([ONE, TWO], [0.7, 0.3]), np.random.default_rng(5)))
    turned = rewritten(align(a, b, np.random.default_rng(0)))
    found = placed(("one", a), ("merged", turned), [("two", anatomy(TWO))])
    merge = unmixed(("merged", found.b), [("one", found.a), *found.candidates])
    assert merge is not None
    assert merge.weights == pytest.approx([0.7, 0.3], abs=0.005)


def test_candidates_that_stand_beside_neither_change_nothing() -> None:
    a = anatomy(ONE)
    b = rewritten(align(a, anatomy(composed(ONE, np.random.default_rng(5))), np.random.default_rng(0)))
    stranger = [("stranger", anatomy(drawn(99, layers=6, neurons=96)))]
    assert placed(("one", a), ("b", b), stranger) == (a, b, stranger)
    assert placed(("one", a), ("two", anatomy(TWO)), stranger).a is a
