"""Who was rounded, and what rounding explains: no order from digits that were made, no training from zeros."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from plain_models import NEURONS, WIDTH, Plain, bf16, moved, plain, trained

from modelkin.records import Role, Shared, Slot
from modelkin.records.naming import seen_from_child
from modelkin.records.relation import Relation
from modelkin.relation.depth import depth_change
from modelkin.relation.direction import Clues, judged
from modelkin.relation.elementwise import rounded, steps_off
from modelkin.relation.inheritance import rows_found
from modelkin.relation.lattice import grid_noise, lattice
from modelkin.relation.reading import default_map, facing_slots
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.repeated import NOT_FOUND, repeated_heads
from modelkin.relation.rounding import filling
from modelkin.relation.tensors import tensor_facts
from modelkin.relation.unrounded import moved_inside_cells

BASE = plain(0)
MATRICES = ("q", "o", "gate", "up", "down")


def order(a: Plain, b: Plain, **more: Any) -> str:
    facts = tensor_facts(
        a, b, facing_slots(a, b, default_map(a.layers, b.layers), None), np.random.default_rng(0), lambda *_: None
    )
    return judged(Clues(facts, **more), (), {}).direction


def written_finer(model: Plain, size: float, but: tuple[Role, ...] = ()) -> Plain:
    """The same in float32, every value of a matrix changed by a small part of its size, as moving gains to and fro."""
    rng = np.random.default_rng(1)
    slots = {
        s: x if s.role in but or x.ndim < 2 else (x * (1 + size * rng.normal(size=x.shape))).astype(np.float32)
        for s, x in model.slots.items()
    }
    return Plain(slots, "F32", model.facts)


def on_grid(model: Plain, steps: int = 127) -> Plain:
    def rounded(x: Any, _: Any) -> Any:
        step = np.abs(x).max(axis=1, keepdims=True) / steps
        return np.round(x / step) * step

    return model.changed(**dict.fromkeys(MATRICES, rounded))


def pruned(model: Plain) -> Plain:
    return model.changed(
        **dict.fromkeys(MATRICES, lambda x, _: np.where(np.abs(x) < np.quantile(np.abs(x), 0.5), 0, x))
    )


@pytest.mark.parametrize("source", [BASE, on_grid(BASE), on_grid(BASE, 7), pruned(BASE)])
def test_a_coarse_model_written_down_finer_is_not_its_own_childs_child(source: Plain) -> None:
    copy = written_finer(source, 1e-6)
    assert order(source, copy) == order(copy, source) == "unknown"
    dusted = Plain({s: x + np.float32(1e-9) if x.ndim == 2 else x for s, x in copy.slots.items()}, "F32", copy.facts)
    assert order(source, dusted) == order(dusted, source) == "unknown"


def scaled(model: Plain, factors: Any) -> Plain:
    """In float32, every matrix times factors so near to one that all values round back."""
    slots = {s: (x * factors(x)).astype(np.float32) if x.ndim == 2 else x for s, x in model.slots.items()}
    return Plain(slots, "F32", model.facts)


LOT = np.random.default_rng(5)


@pytest.mark.parametrize(
    "factors",
    [
        lambda _: np.float64(1 - 0.0019),
        lambda _: np.float64(1 - 0.0012),
        lambda x: 1 + 0.0018 * LOT.choice([-1, 1], (len(x), 1)),
        lambda x: 1 + 0.0018 * LOT.choice([-1, 1], (1, x.shape[1])),
        lambda x: 1 + 0.0019 * np.tanh(LOT.normal(size=(len(x), 4)) @ LOT.normal(size=(4, x.shape[1]))),
    ],
    ids=["decay", "less decay", "rows", "columns", "low rank"],
)
def test_a_model_that_was_moved_in_one_way_and_rounds_back_is_no_source(factors: Any) -> None:
    """Weight decay, folded gains, an adapter: less than half a step of the format everywhere."""
    copy = scaled(BASE, factors)
    assert all(np.array_equal(bf16(copy.slots[s]), x) for s, x in BASE.slots.items() if x.ndim == 2)
    assert order(BASE, copy) == order(copy, BASE) == "unknown"


def test_an_eight_bit_model_that_was_changed_within_its_cells_is_no_child() -> None:
    """By noise of a quarter of a step, by an adapter, or by a constant: nearly all values still round back."""
    grid = on_grid(BASE)
    lot = np.random.default_rng(6)

    def step(x: Any) -> Any:
        return np.abs(x).max(axis=1, keepdims=True) / 127

    changes = (
        lambda x: 0.25 * lot.normal(size=x.shape),
        lambda x: 0.28 * lot.normal(size=(len(x), 1)) * lot.choice([-1, 1], (1, x.shape[1])),
        lambda _: 0.25,
    )
    for change in changes:
        slots = {
            s: (x + step(x) * change(x)).astype(np.float32) if s.role.value in MATRICES else x
            for s, x in grid.slots.items()
        }
        moved_on = Plain(slots, "F32", grid.facts)
        assert order(grid, moved_on) == order(moved_on, grid) == "unknown"


@pytest.mark.parametrize("name", ["BF16", "F16", "F8_E4M3", "F8_E5M2"])
def test_what_was_rounded_fills_its_steps_in_no_pattern(name: str) -> None:
    """Also numbers below the normal ones of a format, which stand as far apart as the smallest of these."""
    lot = np.random.default_rng(7)
    for _ in range(20):
        fine = (lot.standard_t(5, (64, 96)) * 0.01).astype(np.float32)
        coarse = rounded(fine, name)
        found = filling(steps_off(coarse, fine, name), coarse)
        assert found.filled == pytest.approx(0.5, abs=0.04)
        assert found.pattern is not None
        assert found.pattern < 1.2


def test_what_was_rounded_is_still_told_in_either_order() -> None:
    fine = written_finer(BASE, 0.05)
    for child in (Plain({s: bf16(x) for s, x in fine.slots.items()}), on_grid(fine)):
        assert (order(fine, child), order(child, fine)) == ("a->b", "b->a")


def test_a_finer_model_that_holds_coarse_matrices_to_the_bit_was_made_of_them() -> None:
    fine = written_finer(BASE, 0.05, but=(Role.EMBEDDING,))
    coarse = Plain({s: bf16(x) for s, x in fine.slots.items()})
    assert order(coarse, fine) == order(fine, coarse) == "unknown"


def test_digits_of_a_model_that_was_written_anew_tell_no_order() -> None:
    fine = written_finer(BASE, 0.05)
    coarse = Plain({s: bf16(x) for s, x in fine.slots.items()})
    assert order(coarse, fine, new_digits=True) == order(fine, coarse, new_digits=True) == "unknown"


def named(found: Relation) -> dict[str, float | None]:
    return {kind.kind: kind.probability for kind in found.kinds}


@pytest.mark.parametrize("lossy", [pruned, on_grid])
def test_zeros_and_grids_are_no_training(lossy: Any) -> None:
    tuned = trained(BASE, 0.15, 1)
    whole, less = named(relate(BASE, tuned)), named(relate(BASE, lossy(tuned)))
    assert less.pop("re-encoded", 0) is None
    assert less["continued-pretraining"] == pytest.approx(whole["continued-pretraining"], abs=0.1)


def with_feedback(model: Plain, steps: int) -> Plain:
    """Column by column on a grid, each error made good in the next column, as far as inputs go together."""

    def quantised(x: Any, _: Any) -> Any:
        step, rest = np.abs(x).max(axis=1, keepdims=True) / steps, x.astype(np.float64)
        for i in range(x.shape[1]):
            column = np.round(rest[:, i : i + 1] / step) * step
            rest[:, i + 1 : i + 2] += 0.7 * (rest[:, i : i + 1] - column)
            rest[:, i : i + 1] = column
        return rest

    return model.changed(**dict.fromkeys(MATRICES, quantised))


@pytest.mark.parametrize("child", [on_grid(trained(BASE, 0.03, 1), 3), with_feedback(BASE, 7), with_feedback(BASE, 3)])
def test_what_drowns_in_rounding_is_not_laid_to_training(child: Plain) -> None:
    for pair in ((BASE, child), (child, BASE)):
        (kind,) = relate(*pair).kinds
        assert (kind.kind, kind.probability) == ("re-encoded", None)
    assert "fine-tune" in named(relate(BASE, on_grid(trained(BASE, 0.1, 1))))  # of eight bits it stands out


@pytest.mark.parametrize("form", ["BF16", "F32"])
@pytest.mark.parametrize("size", [0.001, 0.003, 0.006])
def test_a_little_training_is_no_re_encoding(form: str, size: float) -> None:
    """Less than a step of bfloat16 in most values; free numbers take nothing of it away."""
    rng = np.random.default_rng(5)
    slots = {
        s: x + np.float32(size) * x.std() * np.outer(*(rng.normal(size=n) for n in x.shape)).astype(np.float32)
        if x.ndim == 2
        else x
        for s, x in BASE.slots.items()
    }
    child = Plain({s: bf16(x) if form == "BF16" else x for s, x in slots.items()}, form, BASE.facts)
    for pair in ((BASE, child), (child, BASE)):
        assert "re-encoded" not in named(relate(*pair))


@pytest.mark.parametrize("form", ["BF16", "F32"])
def test_that_nothing_was_learnt_is_said_of_scaled_columns_alone(form: str) -> None:
    rng = np.random.default_rng(6)
    scales = rng.uniform(0.5, 2, WIDTH).astype(np.float32)

    def scaled(model: Plain) -> Plain:
        slots = {s: x * scales if s.role in (Role.GATE, Role.UP) else x for s, x in model.slots.items()}
        return Plain({s: bf16(x) if form == "BF16" else x for s, x in slots.items()}, form, model.facts)

    learnt = BASE.changed(gate=lambda x, _: x * (1 + 0.02 * rng.normal(size=x.shape)))
    (kind,) = relate(BASE, scaled(BASE)).kinds
    assert kind.kind == "re-encoded"
    assert "nothing that was learnt" in kind.why
    assert all("nothing that was learnt" not in kind.why for kind in relate(BASE, scaled(learnt)).kinds)


def test_an_adapter_is_told_in_a_format_that_holds_small_values_worse() -> None:
    rng = np.random.default_rng(7)
    factor = lambda n: rng.normal(size=(n, 2))  # noqa: E731
    adapted = {
        s: x + 0.1 * x.std() * factor(x.shape[0]) @ factor(x.shape[1]).T if s.role is Role.Q else x
        for s, x in BASE.slots.items()
    }
    half = Plain({s: np.asarray(x, np.float16).astype(np.float32) for s, x in adapted.items()}, "F16", BASE.facts)
    assert list(named(relate(BASE, half))) == ["merged-lora"]


def test_values_that_a_format_cannot_hold_are_no_training() -> None:
    """bfloat16 reaches below the smallest numbers of float16."""
    tiny = BASE.changed(**dict.fromkeys(MATRICES, lambda x, _: np.where(np.abs(x) < 0.005, x * 1e-4, x)))
    half = Plain({s: np.asarray(x, np.float16).astype(np.float32) for s, x in tiny.slots.items()}, "F16", tiny.facts)
    assert any((half.slots[s] != x).any() for s, x in tiny.slots.items())
    for pair in ((tiny, half), (half, tiny)):
        assert list(named(relate(*pair))) == ["re-encoded"]


def test_tensors_that_only_one_has_leave_the_order_open() -> None:
    fine = Plain({s: x + np.float32(1e-4) * x.std() for s, x in BASE.slots.items()}, "F32", BASE.facts)
    rng = np.random.default_rng(8)
    fine = Plain(
        {s: (x * (1 + 0.002 * rng.normal(size=x.shape))).astype(np.float32) for s, x in fine.slots.items()}, "F32"
    )
    child = Plain({s: bf16(x) for s, x in fine.slots.items()})
    assert relate(fine, child).direction == "a->b"
    biases = {Slot(Role.Q_BIAS, layer): rng.normal(size=WIDTH).astype(np.float32) for layer in range(4)}
    more = Plain(fine.slots | biases, "F32")
    assert relate(more, child).direction == relate(child, more).direction == "unknown"
    assert relate(fine, child, Inquiry(unplaced=True)).direction == "unknown"


def test_the_degree_is_that_of_the_exchanged_pair() -> None:
    grown = Plain({s: bf16(1.5 * x) for s, x in trained(BASE, 0.2, 1).slots.items()}, BASE.form, BASE.facts)
    one, two = named(relate(BASE, grown)), named(relate(grown, BASE))
    assert one["continued-pretraining"] == pytest.approx(two["continued-pretraining"], abs=0.01)


def test_values_moved_inside_their_cells_differ_as_rounding_does() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(64, 128)).astype(np.float32)
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    stored = (np.round(x / step) * step).astype(np.float32)
    found = lattice(stored)
    assert found is not None
    lost = np.linalg.norm(x - stored)
    assert np.linalg.norm(moved_inside_cells(stored, rng) - stored) == pytest.approx(lost, rel=0.1)
    assert grid_noise(stored, found) == pytest.approx(lost / np.linalg.norm(x), rel=0.1)
    assert np.array_equal(moved_inside_cells(x, rng), x)


def layered(model: Plain, layers: list[int]) -> Plain:
    top = {s: x for s, x in model.slots.items() if s.layer is None}
    return Plain(
        top | {Slot(s.role, i): x for i, old in enumerate(layers) for s, x in model.slots.items() if s.layer == old}
    )


def test_doubles_of_layers_that_the_other_lacks_tell_no_order() -> None:
    stacked = layered(BASE, [0, 1, 2, 3, 0, 1, 2, 3])
    rng = np.random.default_rng(0)
    cut = depth_change(stacked, layered(BASE, [0, 3]), (("0", "0"), ("1", "3")), rng)
    assert cut is not None
    assert (cut.kind, cut.tells_order) == ("depth-upscale", False)
    assert "4 layers of A that B lacks" in cut.why
    whole = depth_change(stacked, BASE, tuple((str(i), str(i)) for i in range(4)), rng)
    assert whole is not None
    assert (whole.tells_order, whole.doubles) == (True, (("4", "0"), ("5", "1"), ("6", "2"), ("7", "3")))


def test_a_share_says_of_which_model_it_is_and_so_do_its_parts() -> None:
    stacked = layered(BASE, [0, 1, 2, 3, 0, 1, 2, 3])
    found = relate(stacked, BASE)
    assert (found.direction, found.shared) == ("b->a", Shared(1.0, 1.0, 1.0, "a"))
    assert [part.part for part in found.by_layer if part.part] == [str(i) for i in range(8)]
    assert all(part.fraction == 1 for part in found.by_layer)
    back = relate(BASE, moved(BASE, 0.3, 1)).shared
    assert back is not None
    assert back.of == "b"
    assert msgspec.json.decode(b'{"fraction":1,"low":1,"high":1}', type=Shared).side("b->a") == "a"


def test_neurons_that_changed_their_signs_are_inherited() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(NEURONS, WIDTH)).astype(np.float32)
    signs = rng.choice([-1, 1], NEURONS)[:, None].astype(np.float32)
    assert rows_found(rows, rows * signs, Role.UP, rng)[1] == NEURONS
    mixed = BASE.changed(up=lambda x, _: x * signs, down=lambda x, _: x * signs.T)
    shared = relate(BASE, mixed).shared
    assert shared is not None
    assert shared.low == 1


def test_repeated_heads_are_found_and_those_of_strangers_are_not() -> None:
    rng = np.random.default_rng(4)
    facts = SimpleNamespace(head_dim=8)
    keys = rng.normal(size=(2, 8, 64)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0].astype(np.float32)
    few = Plain({Slot(Role.K, 0): keys.reshape(16, 64)}, facts=facts)
    many = Plain({Slot(Role.K, 0): (turn @ keys[[1, 0, 0, 1]]).reshape(32, 64)}, facts=facts)
    others = Plain({Slot(Role.K, 0): rng.normal(size=(32, 64)).astype(np.float32)}, facts=facts)
    assert [(each.share_a[0], each.share_b[0]) for each in repeated_heads(few, many, (("0", "0"),))] == [(1.0, 1.0)]
    assert [each.share_b for each in repeated_heads(few, others, (("0", "0"),))] == [NOT_FOUND]


def test_axes_are_turned_against_those_of_the_model_that_came_first() -> None:
    words = ("hidden axes are a rotation of A's", "neurons renumbered")
    assert seen_from_child(words, "a->b") == words
    assert seen_from_child(words, "b->a") == ("hidden axes are a rotation of B's", "neurons renumbered")
