"""Models that have other numbers of experts or heads, or tokens of other numbers: what of them goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plain_models import WIDTH, Plain, bf16, moved, plain

from modelkin.records import Role, Slot
from modelkin.records.relation import Relation
from modelkin.relation.reading import tokens_by_content, tokens_by_number
from modelkin.relation.relating import OTHER_EXPERTS, OTHER_HEADS, Inquiry, relate
from modelkin.relation.sharing import NO_TOKENIZER

BASE = plain(0, layers=2)
HEAD_SIZE, HEADS = 8, 6
MLP = (Role.GATE, Role.UP, Role.DOWN)


def share(found: Relation) -> tuple[float, float, float]:
    assert found.shared is not None
    assert found.shared.of == "b"
    return found.shared.fraction, found.shared.low, found.shared.high


# Experts.


def mixture(seed: int = 1, experts: int = 6) -> Plain:
    """Experts of 16 neurons, and a router."""
    rng = np.random.default_rng(seed)
    slots = {slot: x for slot, x in BASE.slots.items() if slot.role not in MLP}
    for layer in range(2):
        slots[Slot(Role.ROUTER, layer)] = bf16(rng.normal(0, 0.05, (experts, WIDTH)))
        for expert in range(experts):
            for role in MLP:
                shape = (WIDTH, 16) if role is Role.DOWN else (16, WIDTH)
                slots[Slot(role, layer, expert)] = bf16(rng.normal(0, 0.05, shape))
    return Plain(slots, BASE.form, BASE.facts)


def with_experts(model: Plain, chosen: list[int]) -> Plain:
    slots = {slot: x for slot, x in model.slots.items() if slot.expert is None}
    for slot, x in model.slots.items():
        if slot.role is Role.ROUTER:
            slots[slot] = x[chosen]
    for new, old in enumerate(chosen):
        slots |= {Slot(s.role, s.layer, new): x for s, x in model.slots.items() if s.expert == old}
    return Plain(slots, model.form, model.facts)


@pytest.mark.parametrize("kept", [[0, 2, 3, 5], [5, 4, 1], [0, 1, 2, 3]])
def test_experts_that_were_left_out_do_not_hide_the_others(kept: list[int]) -> None:
    whole, less = mixture(), with_experts(mixture(), kept)
    found, back = relate(whole, less), relate(less, whole)
    assert share(found) == (1, 1, 1)
    of_all = sum(x.size for x in less.slots.values()) / sum(x.size for x in whole.slots.values())
    assert share(back) == pytest.approx((of_all,) * 3)
    for each in (found, back):
        assert each.direction == "unknown"
        assert each.direction_reasons == (OTHER_EXPERTS,)
        assert "component-reuse" not in [kind.kind for kind in each.kinds]


def test_experts_that_were_trained_on_are_found_and_new_ones_are_not() -> None:
    tuned = moved(with_experts(mixture(), [1, 3, 4, 5]), 0.3, 2)
    assert share(relate(mixture(), tuned))[0] > 0.95
    other = mixture(seed=7, experts=4)
    new = {slot: x for slot, x in other.slots.items() if slot.expert in (1, 2)}
    found = relate(mixture(), Plain({**with_experts(mixture(), [1, 3, 4, 5]).slots, **new}, BASE.form, BASE.facts))
    lost = sum(x.size for x in new.values()) + 2 * 2 * WIDTH  # and their rows of the routers
    assert share(found)[0] == pytest.approx(1 - lost / sum(x.size for x in other.slots.values()))


def test_experts_in_another_order_are_the_same_model_rearranged() -> None:
    found = relate(mixture(), with_experts(mixture(), [3, 1, 0, 5, 2, 4]))
    assert share(found) == (1, 1, 1)
    assert [(kind.kind, kind.why) for kind in found.kinds] == [("obfuscated", "experts renumbered")]


def test_experts_that_are_copies_of_one_keep_their_numbers() -> None:
    copies = with_experts(mixture(), [0] * 6)
    assert [kind.kind for kind in relate(copies, copies).kinds] == ["identical"]


# Heads.


def with_attention(seed: int, heads: int = HEADS, size: int = HEAD_SIZE) -> Plain:
    rng = np.random.default_rng(seed)
    slots = dict(BASE.slots)
    for layer in range(2):
        for role in (Role.Q, Role.K, Role.V, Role.O):
            drawn = rng.normal(0, 0.05, (heads * size, WIDTH))
            slots[Slot(role, layer)] = bf16(drawn.T if role is Role.O else drawn)
    return Plain(slots, BASE.form, SimpleNamespace(**{**vars(BASE.facts), "head_dim": size}))


def with_heads(model: Plain, heads: list[int], roles: str = "qkvo") -> Plain:
    rows = np.concatenate([np.arange(HEAD_SIZE) + HEAD_SIZE * head for head in heads])
    cut: dict[str, Any] = {role: lambda x, s: x[:, rows] if s.role is Role.O else x[rows] for role in roles}
    return model.changed(**cut)


@pytest.mark.parametrize("roles", ["qkvo", "kv"])
def test_heads_that_were_left_out_do_not_hide_the_others(roles: str) -> None:
    whole = with_attention(1)
    less = with_heads(whole, [1, 4, 5], roles)
    found, back = relate(whole, less), relate(less, whole)
    assert share(found) == (1, 1, 1)
    of_all = sum(x.size for x in less.slots.values()) / sum(x.size for x in whole.slots.values())
    assert share(back) == pytest.approx((of_all,) * 3)
    assert found.direction_reasons == back.direction_reasons == (OTHER_HEADS,)


def test_keys_and_values_that_were_joined_are_found() -> None:
    whole = with_attention(1)
    pairs: dict[str, Any] = {
        role: lambda x, _: x.reshape(3, 2, HEAD_SIZE, WIDTH).mean(axis=1).reshape(-1, WIDTH) for role in "kv"
    }
    assert share(relate(whole, whole.changed(**pairs))) == (1, 1, 1)


@pytest.mark.parametrize(("heads", "size"), [(3, 8), (6, 4)])
def test_attention_that_was_drawn_anew_with_other_heads_is_not_inherited(heads: int, size: int) -> None:
    new = with_attention(2, heads, size)
    found = relate(with_attention(1), new)
    attention = sum(x.size for slot, x in new.slots.items() if slot.role.value in "qkvo")
    least = 1 - attention / sum(x.size for x in new.slots.values())
    assert share(found) == pytest.approx((least, least, 1))  # heads of other sizes may be the same, cut
    assert found.direction_reasons == (OTHER_HEADS,)


# Tokens.


def with_tokens(order: Any, seed: int | None = None) -> Plain:
    table = BASE.slots[Slot(Role.EMBEDDING)] if seed is None else plain(seed).slots[Slot(Role.EMBEDDING)]
    return Plain({**BASE.slots, Slot(Role.EMBEDDING): table[order]}, BASE.form, BASE.facts)


def test_rows_that_no_tokenizer_names_are_neither_inherited_nor_new() -> None:
    order = np.random.default_rng(3).permutation(64)
    tokens = tokens_by_number((64, 64))
    found = relate(BASE, with_tokens(order), Inquiry(tokens=tokens))
    least = 1 - 64 * WIDTH / sum(x.size for x in BASE.slots.values())
    assert share(found) == pytest.approx((1, least, 1))
    assert [(each.role, each.why) for each in found.not_compared] == [("embedding", NO_TOKENIZER)]
    assert "identical" not in [kind.kind for kind in found.kinds]
    assert found.direction == "unknown"
    fewer = relate(BASE, with_tokens(order[:40]), Inquiry(tokens=tokens_by_number((64, 40))))
    assert share(fewer)[2] == 1


def test_rows_in_place_count_without_a_tokenizer_and_known_rows_that_differ_are_new() -> None:
    tuned = moved(BASE, 0.2, 1)
    assert share(relate(BASE, tuned, Inquiry(tokens=tokens_by_number((64, 64)))))[1] > 0.97
    named = {str(i).encode(): i for i in range(64)}
    found = relate(BASE, with_tokens(np.arange(64), seed=9), Inquiry(tokens=tokens_by_content(named, named, (64, 64))))
    assert share(found)[2] < 0.93
    assert not found.not_compared


def test_one_table_that_is_compared_once_and_not_twice_is_counted_once() -> None:
    """A head of its own that faces the one table of the other in other rows."""
    head = plain(5).slots[Slot(Role.EMBEDDING)]
    two = Plain({**BASE.slots, Slot(Role.HEAD): head}, BASE.form, BASE.facts)
    one = Plain(BASE.slots, BASE.form, SimpleNamespace(**{**vars(BASE.facts), "tied": True}))
    found = relate(two, one, Inquiry(tokens=tokens_by_number((64, 64))))
    assert share(found) == (1, 1, 1)
