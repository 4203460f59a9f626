"""A pair through the whole room: what is shared, which kinds hold, how the map is drawn."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from plain_models import LAYERS, Plain, bf16, moved, plain, trained

from modelkin.records import Role, Slot
from modelkin.records.relation import Relation
from modelkin.relation import relating
from modelkin.relation.depth import depth_change
from modelkin.relation.drawing import drawn
from modelkin.relation.reading import tokens_by_content, tokens_by_number
from modelkin.relation.relating import Inquiry, relate

BASE = plain(0)


def kinds(found: Relation) -> list[str]:
    return [kind.kind for kind in found.kinds]


def with_layers(model: Plain, layers: list[int]) -> Plain:
    top = {s: x for s, x in model.slots.items() if s.layer is None}
    body = {Slot(s.role, i): x for i, old in enumerate(layers) for s, x in model.slots.items() if s.layer == old}
    return Plain(top | body, model.form, model.facts)


def layer_map(layers: list[int]) -> tuple[tuple[str, str], ...]:
    return tuple((str(new), str(old)) for new, old in enumerate(layers))


def test_a_model_and_itself() -> None:
    found = relate(BASE, BASE)
    assert kinds(found) == ["identical"]
    assert found.direction == "unknown"
    assert found.shared is not None
    assert found.shared.fraction == pytest.approx(1)


def test_matrices_drawn_anew_beside_others_that_nobody_touched_were_not_trained() -> None:
    def drawn_anew(x: Any, _: Any) -> Any:
        return np.random.default_rng(9).normal(0, x.std(), x.shape)

    found = relate(BASE, BASE.changed(q=drawn_anew))
    assert kinds(found) == ["component-reuse"]


def test_layers_of_another_model_are_a_sign_that_more_was_changed() -> None:
    top = {slot: x for slot, x in BASE.slots.items() if slot.layer != LAYERS - 1}
    mixed = Plain({**plain(5).slots, **top}, BASE.form, BASE.facts)

    def emptied(x: Any, _: Any) -> Any:
        return np.where(np.abs(x) < np.quantile(np.abs(x), 0.4), 0, x)

    pruned = BASE.changed(**dict.fromkeys(("q", "o", "gate", "up", "down"), emptied))
    layers = tuple((str(i), str(i) if i < LAYERS - 1 else None) for i in range(LAYERS))
    assert relate(mixed, pruned, Inquiry(layers=layers)).direction == "unknown"
    assert relate(BASE, pruned, Inquiry(layers=layer_map(list(range(LAYERS))))).direction == "a->b"


def test_the_same_values_in_another_format() -> None:
    assert kinds(relate(BASE, Plain(BASE.slots, "F32"))) == ["re-encoded"]


def test_small_and_large_changes_are_told_by_degree() -> None:
    small, large = relate(BASE, trained(BASE, 0.005, 1)), relate(BASE, trained(BASE, 0.9, 2))
    assert kinds(small)[0] == "fine-tune"
    assert kinds(large)[0] == "continued-pretraining"
    assert all((kind.probability or 0) >= 0.2 for found in (small, large) for kind in found.kinds)


def test_in_between_both_are_named_and_their_odds_are_complete() -> None:
    found = relate(BASE, trained(BASE, 0.1, 1))
    assert set(kinds(found)) == {"fine-tune", "continued-pretraining"}
    assert sum(kind.probability or 0 for kind in found.kinds) == pytest.approx(1)


def test_where_gains_cannot_be_compared_their_change_is_not_taken_for_none() -> None:
    """Training that moved matrices far is not called light because its gains are out of sight."""
    found = relate(without(BASE, Role.is_gain.fget), without(moved(BASE, 0.9, 2), Role.is_gain.fget))
    assert kinds(found)[0] == "continued-pretraining"
    assert "gains cannot be compared" in found.kinds[0].why


def without(model: Plain, left_out: Any) -> Plain:
    return Plain({s: x for s, x in model.slots.items() if not left_out(s.role)}, model.form, model.facts)


def test_of_a_rearranged_copy_what_storing_changed_is_no_training() -> None:
    rng = np.random.default_rng(12)
    turn = np.linalg.qr(rng.normal(size=(48, 48)))[0]

    def turned_and_back(x: Any, slot: Slot) -> Any:
        side = turn if slot.role in (Role.O, Role.DOWN) else None
        return x if slot.role.is_gain else (side @ bf16(side.T @ x) if side is not None else bf16(x @ turn) @ turn.T)

    slots = {slot: turned_and_back(x, slot).astype(np.float32) for slot, x in BASE.slots.items()}
    copy = Plain(slots, BASE.form, BASE.facts)
    words = ("hidden axes are a rotation of A's",)
    assert kinds(relate(BASE, copy, Inquiry(disguises=words))) == ["obfuscated"]
    assert kinds(relate(BASE, trained(copy, 0.05, 1), Inquiry(disguises=words)))[:2] == ["obfuscated", "fine-tune"]


@pytest.mark.parametrize("size", [0.01, 0.1])
def test_noise_is_no_training(size: float) -> None:
    found = relate(BASE, moved(BASE, size, 3))
    assert kinds(found) == ["re-encoded"]
    assert "in no direction" in found.kinds[0].why
    assert found.direction_reasons == ("nothing was lost, and nothing was changed that would tell an order",)


def test_numbers_that_a_model_may_choose_freely_were_not_trained() -> None:
    """Gains moved into what reads behind them, neurons scaled: other numbers, and nothing that was learnt."""
    rng = np.random.default_rng(5)
    gains, factors = rng.uniform(0.3, 3, 48), rng.uniform(0.3, 3, 64)
    free = BASE.changed(
        q=lambda x, _: x / gains,
        gate=lambda x, _: x / gains,
        up=lambda x, _: x / gains * factors[:, None],
        down=lambda x, _: x / factors,
        input_norm=lambda x, _: x * gains,
        post_norm=lambda x, _: x * gains,
    )
    found = relate(BASE, free)
    assert kinds(found) == ["re-encoded"]
    assert "nothing that was learnt" in found.kinds[0].why
    assert "re-encoded" not in kinds(relate(BASE, trained(free, 0.05, 1)))


def test_layers_in_another_order_are_not_the_same_model() -> None:
    swapped = [0, 2, 1, *range(3, LAYERS)]
    found = relate(BASE, with_layers(BASE, swapped), Inquiry(layers=layer_map(swapped)))
    assert kinds(found) == ["obfuscated"]
    assert found.kinds[0].why == "layers stand in another order"


def test_a_layer_of_which_nothing_is_known_was_not_left_out() -> None:
    known = tuple((name, name) for name in BASE.layers if name != "2")
    assert depth_change(BASE, BASE, known, np.random.default_rng(0)) is None


def test_a_head_of_its_own_stands_beside_a_table_that_was_both() -> None:
    facts = type(BASE.facts)(**{**vars(BASE.facts), "tied": True})
    one = Plain(BASE.slots, BASE.form, facts)
    two = Plain({**BASE.slots, Slot(Role.HEAD): BASE.slots[Slot(Role.EMBEDDING)]}, BASE.form, BASE.facts)
    found = relate(one, two)
    assert kinds(found) == ["identical"]
    assert found.shared is not None
    assert found.shared.fraction == 1
    assert kinds(relate(BASE, two)) == ["undetermined"]  # nothing says that a's table is its head


def test_the_record_keeps_so_many_tensors_and_counts_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relating, "MOST_FACTS", 10)
    found = relate(BASE, BASE)
    assert (len(found.tensors), found.tensors_compared) == (10, len(BASE.slots))
    assert any("10 of 30 tensors" in limit for limit in found.limits)
    assert {fact.layer for fact in found.tensors} >= {"0", "3"}


def test_an_adapter_on_some_roles() -> None:
    rng = np.random.default_rng(3)

    def adapted(x: Any, _: Any) -> Any:
        update = rng.normal(size=(x.shape[0], 2)) @ rng.normal(size=(2, x.shape[1]))
        return x + 0.05 * np.linalg.norm(x) * update / np.linalg.norm(update)

    found = relate(BASE, BASE.changed(q=adapted, up=adapted))
    assert kinds(found) == ["merged-lora"]
    assert "q 2, up 2" in found.kinds[0].why


def test_one_more_tensor_that_changed_makes_it_no_adapter() -> None:
    rng = np.random.default_rng(4)

    def adapted(x: Any, _: Any) -> Any:
        return x + 0.01 * np.outer(rng.normal(size=x.shape[0]), rng.normal(size=x.shape[1]))

    def shifted(x: Any, _: Any) -> Any:
        return x + 0.1

    assert "merged-lora" not in kinds(relate(BASE, BASE.changed(up=adapted, input_norm=shifted)))


def test_layers_left_out_repeated_and_doubled() -> None:
    rng = np.random.default_rng(0)
    cut, grown = [0, 3], [0, 1, 2, 1, 2, 3]
    assert kinds(relate(BASE, with_layers(BASE, cut), Inquiry(layers=layer_map(cut)))) == ["depth-prune"]
    found = relate(BASE, with_layers(BASE, grown), Inquiry(layers=layer_map(grown)))
    assert (kinds(found), found.direction) == (["depth-upscale"], "a->b")
    turned = depth_change(with_layers(BASE, grown), BASE, (("0", "0"), ("1", "1"), ("2", "4"), ("3", "5")), rng)
    assert turned is not None
    assert (turned.kind, turned.child) == ("depth-upscale", "a")
    assert depth_change(BASE, BASE, layer_map(list(range(LAYERS))), rng) is None


def test_one_layer_taken_over_is_a_part() -> None:
    host = plain(5)
    slots = {s: BASE.slots[s] if s.layer == 2 else x for s, x in host.slots.items()}
    found = relate(BASE, Plain(slots, host.form, host.facts))
    assert kinds(found) == ["component-reuse"]
    inside = next(part for part in found.by_layer if part.part == "2")
    others = [part.fraction for part in found.by_layer if part.part not in ("2", "")]
    assert inside.fraction == pytest.approx(1)
    assert max(others) < 0.05
    assert found.shared is not None
    assert found.shared.low <= inside.parameters / sum(x.size for x in host.slots.values()) <= found.shared.high


def test_strangers_share_nothing() -> None:
    found = relate(BASE, plain(6))
    assert kinds(found) == ["undetermined"]
    assert found.shared is not None
    assert found.shared.fraction < 0.02


def test_experts_copied_split_and_partly_new() -> None:
    for how, neurons, order in (("copies of the MLP:", 64, "a->b"), ("parts of the MLP:", 16, "unknown")):
        found = relate(BASE, upcycled(neurons, new=0))
        assert kinds(found)[0] == "moe-upcycle"
        assert how in found.kinds[0].why
        assert found.direction == order
    partly = relate(BASE, upcycled(64, new=32))
    assert "partly new" in partly.kinds[0].why
    assert "50%" in partly.kinds[0].why
    assert partly.direction == "unknown"


@pytest.mark.parametrize("taken", ["first", "mean", "joined"])
def test_an_mlp_that_was_taken_out_of_experts_is_not_their_source(taken: str) -> None:
    """Experts that were copied and parted by training: one of them, their mean, or all of them as one MLP."""
    moe = trained(upcycled(64, new=0), 0.002 if taken == "first" else 0.01, 3)
    slots = {slot: x for slot, x in moe.slots.items() if slot.expert is None}
    for slot in (each for each in moe.slots if each.expert == 0):
        experts = [moe.slots[Slot(slot.role, slot.layer, expert)] for expert in range(4)]
        axis = 1 if slot.role is Role.DOWN else 0
        one = {"first": experts[0], "mean": bf16(np.mean(experts, axis=0)), "joined": np.concatenate(experts, axis)}
        slots[Slot(slot.role, slot.layer)] = one[taken]
    dense = Plain(slots, BASE.form, BASE.facts)
    for pair in ((dense, moe), (moe, dense)):
        found = relate(*pair)
        assert kinds(found)[0] == "moe-upcycle"
        assert found.direction == "unknown"
        assert any("taken out of experts" in why for why in found.direction_reasons)


def upcycled(neurons: int, new: int, experts: int = 4) -> Plain:
    """Experts of so many neurons of the MLP, in turn, some of each drawn anew."""
    rng = np.random.default_rng(7)
    slots = {}
    for slot, x in BASE.slots.items():
        if slot.role not in (Role.GATE, Role.UP, Role.DOWN):
            slots[slot] = x
            continue
        rows = x.T if slot.role is Role.DOWN else x
        for expert in range(experts):
            start = expert * neurons % len(rows)
            part = rows[start : start + neurons].copy()
            lot = np.random.default_rng([expert, slot.layer or 0]).permutation(len(part))[:new]  # one lot an expert
            part[lot] = rng.normal(0, 0.05, (new, part.shape[1]))
            slots[Slot(slot.role, slot.layer, expert)] = bf16(part.T if slot.role is Role.DOWN else part)
    return Plain(slots, BASE.form, BASE.facts)


def test_a_narrower_model_is_a_part_of_the_wider() -> None:
    wide = plain(8, vocabulary=200)
    found = relate(wide, narrowed(wide), Inquiry(tokens=tokens_by_number((200, 200))))
    assert kinds(found) == ["width-prune"]
    assert found.direction == "unknown"  # who has more may have been made wider
    assert found.shared is not None
    assert found.shared.fraction == pytest.approx(1)
    assert relate(narrowed(wide), wide, Inquiry(tokens=tokens_by_number((200, 200)))).direction == "unknown"
    stranger = relate(plain(9, vocabulary=200), narrowed(wide), Inquiry(tokens=tokens_by_number((200, 200))))
    assert "width-prune" not in kinds(stranger)


def narrowed(wide: Plain) -> Plain:
    axes, some = np.arange(0, 48, 2), np.arange(0, 64, 2)
    cuts = {
        Role.EMBEDDING: lambda x: x[:, axes], Role.Q: lambda x: x[:, axes], Role.O: lambda x: x[axes],
        Role.GATE: lambda x: x[some][:, axes], Role.UP: lambda x: x[some][:, axes],
        Role.DOWN: lambda x: x[axes][:, some],
    }  # fmt: skip
    slots = {s: cuts.get(s.role, lambda x: x[axes])(x) for s, x in wide.slots.items()}
    facts = type(wide.facts)(**{**vars(wide.facts), "hidden": len(axes), "intermediate": len(some)})
    return Plain(slots, wide.form, facts)


OLD = {b"%d" % i: i for i in range(64)}
NEW = OLD | {b"new %d" % i: 64 + i for i in range(16)}


def extended(model: Plain, noise: float) -> Plain:
    """Sixteen tokens more, at the mean of the rows and so much noise, beside their spread, next to it."""
    rows = model.slots[Slot(Role.EMBEDDING)]
    added = rows.mean(axis=0) + noise * rows.std() * np.random.default_rng(0).normal(size=(16, rows.shape[1]))
    return Plain(model.slots | {Slot(Role.EMBEDDING): bf16(np.vstack([rows, added]))}, model.form, model.facts)


@pytest.mark.parametrize(("noise", "order"), [(0.0, "a->b"), (3e-5, "a->b"), (0.05, "unknown")])
def test_rows_that_are_the_mean_are_added_tokens_and_rows_near_it_may_be(noise: float, order: str) -> None:
    grown = extended(BASE, noise)
    found = relate(BASE, grown, Inquiry(tokens=tokens_by_content(OLD, NEW, (64, 80))))
    assert (kinds(found), found.direction) == (["vocabulary-surgery"], order)
    assert found.tokens is not None
    assert found.tokens.found == pytest.approx(1)
    assert found.tokens.near_mean_b is not None
    assert found.tokens.near_mean_b < 0.1
    back = relate(grown, BASE, Inquiry(tokens=tokens_by_content(NEW, OLD, (80, 64))))
    assert back.direction == {"a->b": "b->a"}.get(order, order)


def test_tokens_trimmed_off_a_trained_model_do_not_make_it_a_parent() -> None:
    """Added at the mean and never seen since, while all other rows were trained a little."""
    rows = Slot(Role.EMBEDDING)
    grown = extended(BASE, 0.0)
    tuned = trained(grown, 0.05, 2)
    tuned.slots[rows][64:] = grown.slots[rows][64:]
    trimmed = Plain(tuned.slots | {rows: tuned.slots[rows][:64]}, tuned.form, tuned.facts)
    for first, second, tokens in (
        (trimmed, tuned, tokens_by_content(OLD, NEW, (64, 80))),
        (tuned, trimmed, tokens_by_content(NEW, OLD, (80, 64))),
    ):
        found = relate(first, second, Inquiry(tokens=tokens))
        assert found.direction == "unknown"
        assert any("or left out in the other" in why for why in found.direction_reasons)


def test_layers_left_out_of_a_trained_stack_do_not_make_it_a_parent() -> None:
    grown = [0, 1, 2, 1, 2, 3]
    tuned = trained(with_layers(BASE, grown), 0.05, 4)
    cut = with_layers(tuned, [0, 1, 2, 5])
    one = relate(cut, tuned, Inquiry(layers=layer_map(grown)))
    two = relate(tuned, cut, Inquiry(layers=(("0", "0"), ("1", "1"), ("2", "2"), ("3", "5"))))
    assert one.direction == two.direction == "unknown"
    assert "or left out in A" in one.direction_reasons[0]
    assert "or left out in B" in two.direction_reasons[0]
    assert kinds(one) == kinds(two)
    assert kinds(one)[0] == "depth-upscale"


def test_what_had_to_be_undone_is_a_kind_of_its_own() -> None:
    found = relate(BASE, BASE, Inquiry(disguises=("hidden axes are a rotation of a's",)))
    assert kinds(found)[0] == "obfuscated"


def test_a_seed_without_descent() -> None:
    """The same noise in every matrix, other outliers on top, and gains that have nothing in common."""
    rng = np.random.default_rng(10)

    def trained(x: Any, slot: Slot) -> Any:
        if slot.role.is_gain:
            return rng.normal(1, 0.1, x.shape)
        return x + 0.6 * np.outer(rng.normal(size=x.shape[0]), rng.normal(size=x.shape[1])) * x.std()

    names = [slot.role.value for slot in BASE.slots if slot.role is not Role.EMBEDDING]
    one, two = (BASE.changed(**dict.fromkeys(names, trained)) for _ in range(2))
    assert kinds(relate(one, two)) == ["shared-init"]


def test_the_record_survives_json() -> None:
    found = relate(BASE, moved(BASE, 0.1, 11))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Relation) == found


def test_the_map_is_drawn_with_a_line_a_layer() -> None:
    lines = drawn((("0", "0"), ("1", None), ("2", "2")), ("0", "1", "2"))
    assert lines[1:] == ("0  ■··  0", "1  ···  new", "2  ··■  2")
    wide = drawn((("0", "99"),), tuple(map(str, range(100))))
    assert "2 a column" in wide[0]
    assert wide[1].count("■") == 1
    assert drawn((), ()) == ()
