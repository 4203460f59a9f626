"""Of models on one line rounding shows who was computed last; where it does not, nobody is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from plain_models import Plain, bf16, mixed, moved, plain

from modelkin.relation.computed import last_of
from modelkin.relation.merges import unmixed
from modelkin.relation.relating import Inquiry, relate

Doubles = NDArray[np.float64]
BASE = plain(0)
ONE, TWO = moved(BASE, 0.2, 1), moved(BASE, 0.3, 2)
FORMATS = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
TENSORS, ENTRIES = 4, 3000


class Drawn(NamedTuple):
    b: Doubles
    x: Doubles
    y: Doubles
    r: Callable[[Doubles], Doubles]


def last(form: str, size: float, made: Callable[[Drawn], Sequence[Doubles]], seed: int = 0) -> int | None:
    """Of models that `made` gives from a base, two of its children and a function that stores."""
    rng = np.random.default_rng(seed)

    def stored(values: Doubles) -> Doubles:
        return values.astype(np.float32).astype(FORMATS[form]).astype(np.float64)

    tables = []
    for _ in range(TENSORS):
        base = stored(rng.normal(0, 0.05, ENTRIES))
        children = [stored(base + size * 0.05 * rng.normal(size=ENTRIES)) for _ in range(2)]
        tables.append(np.array(made(Drawn(base, *children, stored))))
    return last_of(tables, [[form] * len(tables[0])] * TENSORS)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [0.01, 0.1])
@pytest.mark.parametrize("weight", [0.3, 0.5, 0.7])
def test_a_mean_was_computed_from_its_sources(form: str, size: float, weight: float) -> None:
    assert last(form, size, lambda d: [d.r(weight * d.x + (1 - weight) * d.y), d.x, d.y]) == 0


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [0.01, 0.1])
@pytest.mark.parametrize("by", [0.3, 0.7])
def test_whoever_was_moved_on_was_computed_from_the_model_between(form: str, size: float, by: float) -> None:
    """A task taken off its base, and a fine-tune carried further: never the one between."""
    assert last(form, size, lambda d: [d.b, d.x, d.r(d.b - by * (d.x - d.b))]) == 2
    assert last(form, size, lambda d: [d.x, d.b, d.r(d.x + by * (d.x - d.b))]) == 2


@pytest.mark.parametrize("form", FORMATS)
def test_sums_that_were_rounded_on_the_way_or_changed_afterwards_tell_nothing(form: str) -> None:
    assert last(form, 0.1, lambda d: [d.r(d.r(0.3 * d.x) + d.r(0.7 * d.y)), d.x, d.y]) is None
    assert last(form, 0.1, lambda d: [d.b, d.x, d.r(d.r(1.7 * d.b) - d.r(0.7 * d.x))]) is None
    assert last(form, 0.1, lambda d: [d.b, d.x, d.r(d.b - 0.7 * (d.x - d.b) + 0.02 * (d.y - d.b))]) is None


def test_whole_steps_need_no_rounding_and_tell_nothing() -> None:
    """Twice the one less the other lies on the grid, and so does what it is computed back to."""
    assert last("BF16", 0.01, lambda d: [d.b, d.x, d.r(2 * d.b - d.x)]) is None


def test_what_is_finer_than_all_others_was_computed_from_them() -> None:
    rng = np.random.default_rng(0)
    x, y = (bf16(rng.normal(0, 0.05, ENTRIES)).astype(np.float64) for _ in range(2))
    mean = (0.5 * x + 0.5 * y).astype(np.float32).astype(np.float64)
    assert last_of([np.array([mean, x, y])], [["F32", "BF16", "BF16"]]) == 0


@pytest.mark.parametrize("form", ["F16", "F32"])
def test_who_lies_on_the_same_line_in_finer_numbers_is_no_source(form: str) -> None:
    """Both were mixed from the same two, and what is finer stands in for the one that is not given."""
    rng = np.random.default_rng(0)
    x, y = (bf16(rng.normal(0, 0.05, ENTRIES)).astype(np.float64) for _ in range(2))
    half = bf16(0.5 * x + 0.5 * y).astype(np.float64)
    quarter = (0.75 * x + 0.25 * y).astype(FORMATS[form]).astype(np.float64)
    assert last_of([np.array([half, quarter, y])], [["BF16", form, "BF16"]]) is None
    assert last_of([np.array([half, x, y])], [["BF16", "BF16", "BF16"]]) == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_base_is_no_mixture_of_its_child_and_what_the_child_was_taken_off(order: tuple[int, int]) -> None:
    off = mixed([BASE, ONE], [1.7, -0.7])
    pair = [("A", BASE), ("B", ONE)]
    (a, b), third = [pair[i] for i in order], [("off", off)]
    found = relate(a[1], b[1], Inquiry(names=(a[0], b[0]), candidates=third))
    assert found.direction == "unknown"
    assert "merge" not in {kind.kind for kind in found.kinds}
    assert found.merge is not None
    assert (found.merge.merged, found.merge.last) == ("off", "off")
    assert dict(zip(found.merge.sources, found.merge.weights, strict=True)) == pytest.approx(
        {"A": 1.7, "B": -0.7}, abs=0.01
    )


def test_a_fine_tune_is_no_mixture_of_its_base_and_what_it_was_carried_on_to() -> None:
    further = mixed([ONE, BASE], [1.5, -0.5])
    found = relate(BASE, further, Inquiry(names=("base", "further"), candidates=[("one", ONE)]))
    assert found.direction == "a->b"
    assert found.merge is not None
    assert (found.merge.merged, found.merge.last, found.merge.method) == ("further", "further", "linear")


def test_changes_to_a_base_that_weigh_more_than_one_together() -> None:
    found = unmixed(("sum", mixed([BASE, ONE, TWO], [-0.6, 0.8, 0.8])), [("one", ONE), ("two", TWO), ("base", BASE)])
    assert found is not None
    assert (found.last, found.missing_parent, found.method) == ("sum", False, "linear")
    assert found.weights == pytest.approx([0.8, 0.8, -0.6], abs=0.01)


def test_where_rounding_does_not_tell_both_readings_are_said_and_no_order() -> None:
    slots = {s: bf16(bf16(0.3 * x) + bf16(0.7 * TWO.slots[s])) for s, x in ONE.slots.items()}
    found = relate(ONE, Plain(slots), Inquiry(names=("one", "mean"), candidates=[("two", TWO)]))
    assert found.merge is not None
    assert (found.merge.merged, found.merge.last, found.direction) == ("mean", None, "unknown")
    merge = next(kind for kind in found.kinds if kind.kind == "merge")
    assert merge.probability == 0.5
    assert "either mean is a mixture" in merge.why


def test_a_base_beside_children_that_had_other_layers_trained_each_is_no_stack_of_theirs() -> None:
    def trained_in(layers: tuple[int, ...], by: Plain) -> Plain:
        return Plain({s: by.slots[s] if s.layer in layers else x for s, x in BASE.slots.items()}, BASE.form, BASE.facts)

    low, up = trained_in((0, 1), ONE), trained_in((2, 3), TWO)
    found = relate(up, BASE, Inquiry(names=("up", "base"), candidates=[("low", low)]))
    assert found.direction == "unknown"
    assert found.merge is not None
    assert (found.merge.method, found.merge.last) == ("passthrough", None)
    merge = next(kind for kind in found.kinds if kind.kind == "merge")
    assert "or these come from it" in merge.why


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_a_base_is_no_merge_of_children_that_were_each_changed_in_some_places(share: float, count: int) -> None:
    """Everywhere it has the values of one or the other, as a merge has that drops changes."""

    def child(seed: int) -> Plain:
        rng = np.random.default_rng(seed)
        changed = moved(BASE, 0.2, 100 + seed)
        slots = {s: np.where(rng.random(x.shape) < share, changed.slots[s], x) for s, x in BASE.slots.items()}
        return Plain(slots, BASE.form, BASE.facts)

    assert unmixed(("base", BASE), [(f"child {i}", child(i)) for i in range(count)]) is None
