"""Models that lack what others have, or hold what no model should: something is told of each, and nothing is raised."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from plain_models import WIDTH, Plain, bf16, mixed, moved, plain

from modelkin.alignment import Rewritten
from modelkin.records import Role, Slot
from modelkin.records.relation import Relation
from modelkin.relation.reading import Held, tokens_by_number
from modelkin.relation.relating import Inquiry, relate

BASE = plain(0)
MLP = (Role.GATE, Role.UP, Role.DOWN)


def told(a: Plain, b: Plain, **asked: Any) -> Relation:
    """What is said, once it went through JSON: nothing in it may be other than a number."""
    found = relate(a, b, Inquiry(**asked))
    again = msgspec.json.decode(msgspec.json.encode(found), type=Relation)
    assert again == found
    return again


def with_values(model: Plain, role: Role, value: float, places: Any = ...) -> Plain:
    def changed(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[places] = value
        return x

    return Plain({s: changed(x) if s.role is role else x for s, x in model.slots.items()}, model.form, model.facts)


def only(model: Plain, *roles: Role) -> Plain:
    return Plain({s: x for s, x in model.slots.items() if s.role in roles}, model.form, model.facts)


def less(model: Plain, *roles: Role) -> Plain:
    return Plain({s: x for s, x in model.slots.items() if s.role not in roles}, model.form, model.facts)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("role", [Role.UP, Role.EMBEDDING, Role.INPUT_NORM, Role.DOWN])
def test_values_that_are_no_numbers_are_not_compared_and_widen_the_interval(role: Role, value: float) -> None:
    broken = with_values(moved(BASE, 0.01, 1), role, value, places=0)
    tokens = tokens_by_number((64, 64))
    for pair in ((BASE, broken), (broken, BASE)):
        found = told(*pair, tokens=tokens)
        assert [(each.role, "not finite" in each.why) for each in found.not_compared] == [(role.value, True)]
        assert found.shared is not None
        assert found.shared.fraction > 0.95
        lost = sum(x.size for s, x in BASE.slots.items() if s.role is role) / sum(x.size for x in BASE.slots.values())
        assert found.shared.low <= 1 - lost + 1e-9
        assert any("could not be compared" in limit for limit in found.limits)


def test_nothing_but_values_that_are_no_numbers() -> None:
    nothing = Plain({s: np.full_like(x, np.nan) for s, x in BASE.slots.items()}, BASE.form, BASE.facts)
    found = told(BASE, nothing, tokens=tokens_by_number((64, 64)))
    assert [kind.kind for kind in found.kinds] == ["undetermined"]
    assert found.direction == "unknown"
    assert found.shared is None


def test_constant_tensors_show_no_descent() -> None:
    flat = Plain({s: np.ones_like(x) for s, x in BASE.slots.items()}, BASE.form, BASE.facts)
    for pair in ((BASE, flat), (flat, BASE)):
        found = told(*pair)
        assert found.direction == "unknown"
        assert found.shared is not None
        assert found.shared.fraction < 0.05


def test_tensors_without_values_are_passed_over() -> None:
    empty = Plain(BASE.slots | {Slot(Role.UP_BIAS, 0): np.zeros(0, np.float32)}, BASE.form, BASE.facts)
    assert told(empty, empty).shared == told(BASE, BASE).shared


@pytest.mark.parametrize(
    "model",
    [
        plain(1, layers=1),
        less(BASE, *MLP),
        less(BASE, Role.EMBEDDING),
        less(BASE, Role.Q, Role.O),
        only(BASE, Role.EMBEDDING),
        only(BASE, Role.INPUT_NORM),
        only(BASE, Role.UP),
    ],
)
def test_models_that_lack_parts(model: Plain) -> None:
    found = told(model, moved(model, 0.05, 1))
    assert found.shared is not None
    assert found.shared.fraction > 0.9
    assert told(model, BASE).kinds
    assert told(BASE, model).kinds


def test_candidates_and_pairs_that_hold_no_numbers() -> None:
    broken = with_values(BASE, Role.UP, np.nan)
    other = moved(BASE, 0.05, 2)
    merged = mixed([BASE, other], [0.5, 0.5])
    tokens = tokens_by_number((64, 64))
    for a, b, third in ((BASE, merged, broken), (BASE, broken, other), (broken, merged, other), (broken,) * 3):
        found = told(a, b, names=("A", "B"), candidates=[("C", third)], tokens=tokens)
        assert found.kinds
    assert told(BASE, merged, names=("A", "B"), candidates=[("C", other)]).merge is not None


def test_nothing_in_common() -> None:
    found = told(only(BASE, Role.UP), only(BASE, Role.DOWN))
    assert [kind.kind for kind in found.kinds] == ["undetermined"]


def test_experts_on_both_sides() -> None:
    rng = np.random.default_rng(3)
    slots = {s: x for s, x in BASE.slots.items() if s.role not in MLP}
    for role, shape in {Role.GATE: (16, WIDTH), Role.UP: (16, WIDTH), Role.DOWN: (WIDTH, 16)}.items():
        slots |= {Slot(role, i, e): bf16(rng.normal(0, 0.05, shape)) for i in range(4) for e in range(6)}
    model = Plain(slots, BASE.form, BASE.facts)
    found = told(model, moved(model, 0.05, 1))
    assert found.shared is not None
    assert found.shared.fraction > 0.95
    assert "moe-upcycle" not in {kind.kind for kind in found.kinds}


class Counting(Rewritten):
    """Says how often it was read, and is otherwise a plain model."""

    def __init__(self, model: Plain) -> None:
        object.__setattr__(self, "plain", model)
        object.__setattr__(self, "asked", [])

    def read(self, slot: Slot, rows: Any = None) -> Any:
        self.asked.append((slot, rows is None))  # type: ignore[attr-defined]
        return self.plain.read(slot, rows)  # type: ignore[attr-defined]

    def shape(self, slot: Slot) -> tuple[int, ...]:
        return self.plain.shape(slot)  # type: ignore[attr-defined]


def test_a_matrix_of_a_rewritten_model_is_turned_back_once_and_its_vocabulary_is_read_in_rows() -> None:
    model = Counting(BASE)
    held, up, down = Held(model), Slot(Role.UP, 0), Slot(Role.DOWN, 0)
    for rows in (slice(0, 4), slice(4, 8), None, np.array([3, 1])):
        wanted = BASE.slots[up] if rows is None else BASE.slots[up][rows]
        assert np.array_equal(held.read(up, rows), wanted)
    held.read(down)
    held.read(Slot(Role.EMBEDDING), slice(0, 4))
    assert model.asked == [(up, True), (down, True), (Slot(Role.EMBEDDING), False)]  # type: ignore[attr-defined]
