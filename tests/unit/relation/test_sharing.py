"""Shares where numbers were chosen freely, where an MLP became experts, and whichever of the two stands first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_models import LAYERS, Plain, bf16, moved, plain, trained

from modelkin.records import Role, Slot
from modelkin.records.relation import Relation, TensorFact
from modelkin.relation.experts import ExpertMatch, Upcycling
from modelkin.relation.inheritance import rows_found, total
from modelkin.relation.learned import NOISE
from modelkin.relation.reading import LayerMap, default_map, facing_slots
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.sharing import share_in_experts, without_place

BASE = plain(0)
READERS = ("q", "gate", "up")
GAPS: LayerMap = (("0", None), ("1", "1"), ("2", None), ("3", "3"))


def kinds(found: Relation) -> list[str]:
    return [kind.kind for kind in found.kinds]


def with_gains_moved(model: Plain) -> Plain:
    """Gains of either sign, and readers that make up for them."""
    rng = np.random.default_rng(3)
    gains = rng.choice([-1, 1], 48) * rng.uniform(0.2, 4, 48)
    readers: dict[str, Any] = dict.fromkeys(READERS, lambda x, _: x / gains)
    return model.changed(**readers, **dict.fromkeys(("input_norm", "post_norm"), lambda x, _: x * gains))


def interval(found: Relation) -> tuple[float, float]:
    assert found.shared is not None
    return found.shared.low, found.shared.high


# Layers and gains.


def test_layers_that_moved_gains_hid_are_found_at_their_place() -> None:
    free = with_gains_moved(BASE)
    for pair in ((BASE, free), (free, BASE)):
        found = relate(*pair, Inquiry(layers=GAPS))
        assert found.layer_map == tuple((name, name) for name in BASE.layers)
        assert kinds(found) == ["re-encoded"]
        assert interval(found)[0] > 0.98
        assert interval(found)[1] == 1  # gains that were chosen anew are new, or the same in other words


def test_a_layer_that_was_drawn_anew_stays_new() -> None:
    other = plain(9)
    slots = {slot: (other if slot.layer in (0, 2) else BASE).slots[slot] for slot in BASE.slots}
    found = relate(BASE, Plain(slots, BASE.form, BASE.facts), Inquiry(layers=GAPS))
    assert found.layer_map == GAPS
    assert interval(found)[1] < 0.6


def test_layers_are_set_side_by_side_only_where_as_many_are_left_of_both() -> None:
    body = {slot: x for slot, x in with_gains_moved(BASE).slots.items() if slot.layer != LAYERS - 1}
    layers: LayerMap = (("0", "0"), ("1", None), ("2", None))
    assert relate(BASE, Plain(body, BASE.form, BASE.facts), Inquiry(layers=layers)).layer_map == layers


def test_what_a_head_reads_by_may_be_scaled() -> None:
    facts = type(BASE.facts)(**{**vars(BASE.facts), "tied": True})
    one = Plain(BASE.slots, BASE.form, facts)
    gains = np.random.default_rng(4).choice([-1, 1], 48) * np.geomspace(0.1, 10, 48)
    head = bf16(BASE.slots[Slot(Role.EMBEDDING)] * gains)
    two = Plain({**BASE.slots, Slot(Role.HEAD): head}, BASE.form, BASE.facts)
    for pair in ((one, two), (two, one)):
        found = relate(*pair)
        assert found.shared is not None
        assert found.shared.fraction > 0.99
        assert not found.not_compared


# Whichever stands first.


def test_rows_that_were_drawn_together_are_found_in_either_order() -> None:
    rng = np.random.default_rng(5)
    a = rng.normal(size=(200, 32)).astype(np.float32)
    pull = rng.uniform(0, 1, (200, 1))
    b = (a * (1 - 0.9 * pull) + 1.5 * pull * a[:1] + 0.4 * rng.normal(size=a.shape)).astype(np.float32)
    counts = [rows_found(*pair, Role.EMBEDDING, rng)[1] for pair in ((a, b), (b, a))]
    assert counts[0] == counts[1] > 100


def test_a_head_is_compared_with_the_table_of_a_tied_model_in_either_order() -> None:
    facts = type(BASE.facts)(**{**vars(BASE.facts), "tied": True})
    one = Plain(BASE.slots, BASE.form, facts)
    two = Plain({**BASE.slots, Slot(Role.HEAD): BASE.slots[Slot(Role.EMBEDDING)]}, BASE.form, BASE.facts)
    layers = default_map(BASE.layers, BASE.layers)
    for a, b in ((one, two), (two, one)):
        pairs = facing_slots(a, b, layers, None)
        tables = {(pair.a.role, pair.b.role) for pair in pairs if pair.a.layer is None and not pair.a.role.is_gain}
        assert len(tables) == 2
        assert {role for pair in tables for role in pair} == {Role.EMBEDDING, Role.HEAD}
        assert without_place(a, b, layers, pairs) == []
    assert len(facing_slots(two, BASE, layers, None)) == len(BASE.slots)  # nothing says that b's table is its head


def test_what_may_be_hidden_for_one_reason_does_not_average_out() -> None:
    found = total([(10, (0.0, 0.0, 1.0))] * 10 + [(900, (1.0, 1.0, 1.0))], 1000)
    assert found is not None
    assert (found.low, found.high) == (0.9, 1.0)


# Experts.


def split(experts: int = 4, noise: float = 0.0) -> Plain:
    rng, slots = np.random.default_rng(7), {}
    for slot, x in BASE.slots.items():
        if slot.role not in (Role.GATE, Role.UP, Role.DOWN):
            slots[slot] = x
            continue
        for expert, part in enumerate(np.split(x, experts, axis=1 if slot.role is Role.DOWN else 0)):
            slots[Slot(slot.role, slot.layer, expert)] = bf16(part + noise * x.std() * rng.normal(size=part.shape))
    return Plain(slots, BASE.form, BASE.facts)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_an_mlp_that_was_split_is_inherited_in_either_order(noise: float) -> None:
    for pair in ((BASE, split(noise=noise)), (split(noise=noise), BASE)):
        found = relate(*pair)
        assert kinds(found)[0] == "moe-upcycle"
        assert interval(found)[0] > 0.97
        assert interval(found)[1] == pytest.approx(1)
        assert {part.part: part.fraction for part in found.by_role}["up"] > 0.97
        assert all(part.fraction > 0.95 for part in found.by_layer)


def matched(asked: int, found: list[range], dense: int) -> tuple[list[ExpertMatch], Upcycling]:
    matches = [ExpertMatch("0", i, asked, np.array(each, dtype=np.intp), 0) for i, each in enumerate(found)]
    return matches, Upcycling(tuple(matches), True, dense)


def test_of_an_mlp_the_part_that_experts_have_is_counted() -> None:
    matches, experts = matched(50, [range(50), range(50)], 200)  # the same quarter twice
    assert share_in_experts(matches, {0: 50, 1: 50}, experts) == (0.25, 0.25, 0.25)
    matches, experts = matched(50, [range(40), range(50, 90)], 200)  # twenty neurons were not recognised
    share, low, high = share_in_experts(matches, {0: 50, 1: 50}, experts)
    assert (share, low) == (0.4, 0.4)
    assert high == pytest.approx(0.5)


def test_where_some_neurons_were_asked_the_interval_holds_what_the_others_may_be() -> None:
    parts, of_parts = matched(50, [range(0, 200, 4), range(200, 400, 4)], 400)
    share, low, high = share_in_experts(parts, {0: 200, 1: 200}, of_parts)
    assert low < share == high == 1
    copies, of_copies = matched(50, [range(0, 400, 8)] * 2, 400)
    assert share_in_experts(copies, {0: 400, 1: 400}, of_copies)[1] > 0.9
    partly, of_all = matched(50, [range(0, 200, 8), range(0, 200, 8)], 400)  # half of each, and two were not asked
    share, low, high = share_in_experts(partly, dict.fromkeys(range(4), 400), of_all)
    assert low < 0.5 < share == pytest.approx(0.74, abs=0.02)
    assert high == 1


# What was trained.


def emptied(model: Plain) -> Plain:
    """The smaller half of every matrix set to zero."""
    half: dict[str, Any] = dict.fromkeys(
        ("q", "o", "gate", "up", "down"), lambda x, _: np.where(np.abs(x) < np.median(np.abs(x)), 0, x)
    )
    return model.changed(**half)


def of_matrices(found: Relation) -> list[TensorFact]:
    return [fact for fact in found.tensors if len(fact.shape) == 2 and fact.layer]


def test_zeros_on_both_sides_are_no_training() -> None:
    tuned = trained(BASE, 0.05, 1)
    plainly, both = relate(BASE, tuned), relate(emptied(BASE), emptied(tuned))
    for one, other in zip(of_matrices(plainly), of_matrices(both), strict=True):
        assert other.beyond == pytest.approx(one.difference, rel=0.25)
        assert other.difference > 1.5 * one.difference
    assert kinds(both)[0] == kinds(plainly)[0] == "fine-tune"


def on_grid(model: Plain) -> Plain:
    """Eight bits, one scale a row."""

    def rounded(x: Any, _: Slot) -> Any:
        step = np.abs(x).max(axis=1, keepdims=True) / 127
        return np.round(x / step) * step

    return model.changed(**dict.fromkeys(("q", "o", "gate", "up", "down"), rounded))


def test_a_few_matrices_that_were_trained_are_not_hidden_by_those_that_were_rounded() -> None:
    tuned = trained(BASE, 0.05, 1)
    slots = {slot: (tuned if slot.role in (Role.UP, Role.DOWN) else BASE).slots[slot] for slot in BASE.slots}
    siblings = Plain(slots, BASE.form, BASE.facts), on_grid(BASE)
    for pair in (siblings, siblings[::-1]):
        found = relate(*pair)
        assert kinds(found)[:2] == ["re-encoded", "fine-tune"]
        assert (
            f"{2 * LAYERS} of {5 * LAYERS} matrices (up, down) changed as training changes them" in found.kinds[1].why
        )
    assert kinds(relate(BASE, on_grid(BASE))) == ["re-encoded"]
    assert kinds(relate(BASE, moved(on_grid(BASE), 0.02, 4))) == ["re-encoded"]


def test_values_set_to_zero_are_not_called_trained_in_part() -> None:
    """Small values have the signs of what a matrix learnt, so that setting them to zero has directions of its own."""
    rng = np.random.default_rng(6)
    uneven = BASE.changed(q=lambda x, _: x + 0.05 * np.outer(rng.choice([-1, 1], 48), rng.choice([-1, 1], 48)))
    found = relate(uneven, emptied(uneven))
    assert max(f.spectra.excess or 0 for f in of_matrices(found) if f.spectra and f.role is Role.Q) > NOISE
    assert kinds(found) == ["re-encoded"]
    tuned = trained(emptied(uneven), 0.02, 5)
    kept = {slot: np.where(x == 0, 0, tuned.slots[slot]) for slot, x in emptied(uneven).slots.items()}
    both = relate(uneven, Plain(kept, BASE.form, BASE.facts))
    assert not any("the others not" in kind.why for kind in both.kinds)


def test_of_models_trained_in_part_no_odds_are_given() -> None:
    tuned = trained(BASE, 0.05, 1)
    slots = {slot: (tuned if slot.role is Role.UP else BASE).slots[slot] for slot in BASE.slots}
    found = relate(BASE, Plain(slots, BASE.form, BASE.facts))
    assert {kind.kind: kind.probability for kind in found.kinds} == {"fine-tune": None}
    assert "trained as a whole" in found.kinds[0].why
