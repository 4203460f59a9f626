"""Rows inside heads, and heads: found where they were kept, not where they were mixed or trained apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from scipy.stats import chisquare

from builders import CONFIG, HEADS, HIDDEN, KV_HEADS, LAYERS, Tensors, llama_files, llama_tensors
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.questions.attention import ATTENTION, _counted
from modelkin.questions.experts import counted
from modelkin.questions.heads import Layer, View, read_layers, views
from modelkin.questions.question import BudgetName, CannotAsk, Pair
from modelkin.records import Evidence, Role
from modelkin.sampling.readings import Readings, bytes_of, portrait, read
from modelkin.sources import LocalSource
from modelkin.sources.memory import MemorySource
from modelkin.stats import roll_call

HEAD = HIDDEN // HEADS


def bundled_anatomy(name: str) -> Anatomy:
    return identify(open_checkpoint(LocalSource(bundled()[name])))


def built(tensors: Tensors, **config: Any) -> Anatomy:
    files = llama_files(config=CONFIG | config) | {"model.safetensors": save(tensors)}
    return identify(open_checkpoint(MemorySource(files)))


def asked(a: Anatomy, b: Anatomy, budget: BudgetName = "standard") -> Evidence:
    mine, theirs = ATTENTION.cuts(Pair(a, b, 0, budget))
    sides = Readings(portrait(a), read(a, mine)), Readings(portrait(b), read(b, theirs))
    return ATTENTION.answer(*sides, np.random.default_rng(1))


def changed(change: str, value: float = 0.0) -> Anatomy:
    """Value rows in other orders inside their heads, or whole groups in another order: both with all that belongs to
    them, so that the model does the same. Or values that were wiped, in all layers or in the first."""
    tensors = llama_tensors(0)
    for name, array in tensors.items():
        axis = 1 if "o_proj" in name else 0
        if change == "rolled" and ("v_proj" in name or "o_proj" in name):
            heads = np.split(array, array.shape[axis] // HEAD, axis)
            tensors[name] = np.concatenate([np.roll(head, 1, axis) for head in heads], axis)
        elif change == "heads" and "self_attn" in name:
            tensors[name] = np.concatenate(np.split(array, KV_HEADS, axis)[::-1], axis)
        elif "v_proj" in name and (change == "all" or (change == "first" and ".0." in name)):
            tensors[name] = np.full_like(array, value)
    return built(tensors)


def alone(model: Anatomy) -> Evidence:
    """Values alone, without the keys and o."""
    cuts, _ = ATTENTION.cuts(Pair(model, model, 0, "standard"))
    side = Readings(portrait(model), read(model, [cut for cut in cuts if cut.slot.role is Role.V]))
    return ATTENTION.answer(side, side, np.random.default_rng(1))


@pytest.mark.parametrize("child", ["amber", "heath", "birch"])
def test_relatives(child: str) -> None:
    found = asked(bundled_anatomy("dune"), bundled_anatomy(child))
    assert found.statistic == found.n == 384
    assert (found.log10_pvalue or 0.0) < -300


@pytest.mark.parametrize(("a", "b"), [("dune", "grove"), ("dune", "fjord"), ("ember", "cobalt"), ("dune", "ember")])
def test_strangers_and_disguises(a: str, b: str) -> None:
    found = asked(bundled_anatomy(a), bundled_anatomy(b))
    assert (found.log10_pvalue or 0.0) > -3


def test_rows_are_called_head_by_head() -> None:
    model = built(llama_tensors(0))
    found = asked(model, model)
    assert len(found.per_layer) == LAYERS * KV_HEADS
    assert {finding.n for finding in found.per_layer} == {HEAD}
    assert (asked(model, changed("rolled")).log10_pvalue or 0.0) > -3


def test_heads_in_another_order_are_known_by_their_keys() -> None:
    found = asked(built(llama_tensors(0)), changed("heads"))
    assert found.statistic == found.n == LAYERS * KV_HEADS * HEAD
    assert found.observed.endswith("value rows chose their own, in heads that their keys chose")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_that_cannot_be_told_apart(value: float) -> None:
    with pytest.raises(CannotAsk, match="told from"):
        alone(changed("all", value))
    assert alone(changed("first", value)).n == (LAYERS - 1) * KV_HEADS * HEAD
    model = changed("all", value)
    assert "columns of o" in asked(model, model).observed  # which were not wiped


def test_values_that_are_not_finite_are_left_out() -> None:
    model = changed("first", np.nan)
    assert {finding.a for finding in asked(model, model).per_layer} == {"1", "2"}
    with pytest.raises(CannotAsk, match="finite"):
        asked(model, changed("all", np.inf))


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    dune = bundled_anatomy("dune")
    row = 128 * 2
    monkeypatch.setattr("modelkin.questions.attention.STANDARD_BYTES", 2 * 32 * row)
    cuts, _ = ATTENTION.cuts(Pair(dune, dune, 0, "standard"))
    assert [(cut.stop or 0) - (cut.start or 0) for cut in cuts] == [32, 32]
    monkeypatch.setattr("modelkin.questions.attention.STANDARD_BYTES", 6 * 4 * 32 * row)
    cuts, _ = ATTENTION.cuts(Pair(dune, dune, 0, "standard"))
    assert {cut.slot.role for cut in cuts} == {Role.V, Role.K}
    assert len(cuts) == 12
    monkeypatch.setattr("modelkin.questions.attention.STANDARD_BYTES", row)
    with pytest.raises(CannotAsk, match="do not fit"):
        ATTENTION.cuts(Pair(dune, dune, 0, "standard"))
    assert len(ATTENTION.cuts(Pair(dune, dune, 0, "full"))[0]) == 3 * 6


def test_what_cannot_be_asked() -> None:
    model = built(llama_tensors(0))
    with pytest.raises(CannotAsk, match="widths"):
        ATTENTION.cuts(Pair(model, bundled_anatomy("dune"), 0, "standard"))
    bare = built({name: array for name, array in llama_tensors().items() if "self_attn" not in name})
    with pytest.raises(CannotAsk, match="value rows"):
        ATTENTION.cuts(Pair(model, bare, 0, "standard"))


def test_two_strangers_with_repeated_layers_do_not_count_a_find_twice() -> None:
    """Sets that both models hold eight times each: the sum would take one lucky set for eight."""
    rng, found = np.random.default_rng(3), []
    for _ in range(60):
        left, right = rng.normal(size=(16, 24)).astype(np.float32), rng.normal(size=(16, 24)).astype(np.float32)
        sets = [(str(i), str(i), left, right) for i in range(8)]
        evidence = counted(ATTENTION, sets, "value row", rng)
        assert evidence.log10_pvalue is not None
        found.append(evidence.log10_pvalue)
    assert min(found) > -4  # of sixty strangers; as independent counts, three finds in every set would give 1e-6


# Other numbers of heads.


def with_heads(how: str, seed: int = 0) -> Anatomy:
    """Two KV heads become one: their mean, or the first or the second of them."""
    tensors = llama_tensors(seed, np.float32)
    for name, array in tensors.items():
        if "k_proj" in name or "v_proj" in name:
            heads = array.reshape(KV_HEADS, HEAD, HIDDEN)
            tensors[name] = {"mean": heads.mean(axis=0), "first": heads[0], "second": heads[1].copy()}[how]
    return built(tensors, num_key_value_heads=1, head_dim=HEAD)


@pytest.mark.parametrize(
    ("how", "told"),
    [("mean", ", 2 heads averaged beside one"), ("first", ""), ("second", ", in heads that their keys chose")],
)
def test_fewer_heads_are_found_again(how: str, told: str) -> None:
    many, few = built(llama_tensors(0, np.float32)), with_heads(how)
    for pair in ((many, few), (few, many)):
        found = asked(*pair)
        assert found.observed == f"{LAYERS * HEAD} of {LAYERS * HEAD} value rows chose their own{told}"
        assert found.effect == pytest.approx(1, abs=1e-3)
        assert (found.log10_pvalue or 0.0) < -12
        assert found.grade == "A"


def test_fewer_heads_of_a_stranger_are_not() -> None:
    for how in ("mean", "first", "second"):
        assert (asked(built(llama_tensors(0)), with_heads(how, 1)).log10_pvalue or 0.0) > -3


def test_heads_of_another_size_cannot_be_asked() -> None:
    halves = built(llama_tensors(0), num_attention_heads=2 * HEADS, num_key_value_heads=2 * KV_HEADS)
    with pytest.raises(CannotAsk, match="different sizes: 8 and 4"):
        ATTENTION.cuts(Pair(built(llama_tensors(0)), halves, 0, "standard"))


# Where positions do not rotate, and matrices are stored transposed.


def gpt2(seed: int, order: np.ndarray | None = None) -> Anatomy:
    """With `order`, the rows of q and k inside every head stand in it."""
    rng, tensors = np.random.default_rng(seed), {}
    for layer in range(LAYERS):
        for name, columns in {"attn.c_attn": 3 * HIDDEN, "attn.c_proj": HIDDEN, "mlp.c_fc": 48}.items():
            tensors[f"h.{layer}.{name}.weight"] = rng.normal(size=(HIDDEN, columns)).astype(np.float32)
        if order is not None:
            fused = tensors[f"h.{layer}.attn.c_attn.weight"].reshape(HIDDEN, 3, HEADS, HEAD)
            fused[:, :2] = fused[:, :2][..., order]
    config = {"model_type": "gpt2", "n_embd": HIDDEN, "n_head": HEADS, "n_layer": LAYERS, "n_inner": 48}
    files = {"model.safetensors": save(tensors)}
    return identify(open_checkpoint(MemorySource(llama_files(config=config) | files)))


def views_of(a: Anatomy, b: Anatomy) -> dict[str, list[Any]]:
    mine, theirs = ATTENTION.cuts(Pair(a, b, 0, "standard"))
    sides = Readings(portrait(a), read(a, mine)), Readings(portrait(b), read(b, theirs))
    return {view.what + view.how: list(view.sets) for view in views(read_layers(*sides, HEAD), True)}


def test_keys_and_queries_are_asked_where_nothing_fixes_their_order() -> None:
    names = set(views_of(gpt2(0), gpt2(1)))
    assert {"key rows", "query rows", "columns of o", "value rows"} < names
    rotary = views_of(built(llama_tensors(0)), built(llama_tensors(1)))
    assert not {"key rows", "query rows"} & set(rotary)


def test_a_joint_order_of_keys_and_queries_moves_them_alone() -> None:
    turned = views_of(gpt2(0), gpt2(0, np.roll(np.arange(HEAD), 1)))
    for what, expected in (("key rows", False), ("query rows", False), ("value rows", True), ("columns of o", True)):
        assert all(np.array_equal(left, right) == expected for _, _, left, right in turned[what])
    left, right = (np.concatenate([sets[i] for sets in turned["key rows"]]) for i in (2, 3))
    assert np.array_equal(np.sort(left, axis=None), np.sort(right, axis=None))


def test_a_row_of_queries_holds_those_of_all_heads_of_its_group() -> None:
    """Against the slow way, for o: column r of every query head of the group."""
    model = built(llama_tensors(0))
    sets = views_of(model, model)["columns of o"]
    whole = np.asarray(llama_tensors(0)["model.layers.1.self_attn.o_proj.weight"], np.float32)
    per_group = HEADS // KV_HEADS
    for group in range(KV_HEADS):
        found = sets[KV_HEADS + group][2]
        for r in range(HEAD):
            columns = [whole[:, (group * per_group + head) * HEAD + r] for head in range(per_group)]
            assert np.array_equal(found[r], np.concatenate(columns))


def test_dear_matrices_are_read_by_a_block_of_hidden_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = 3 * HIDDEN * 4  # bytes of a stored row: what a hidden axis is to q, k and v
    monkeypatch.setattr("modelkin.questions.attention.STANDARD_BYTES", LAYERS * 10 * fused)
    monkeypatch.setattr("modelkin.questions.attention.FEWEST_COLUMNS", 8)
    model = gpt2(0)
    cuts, _ = ATTENTION.cuts(Pair(model, model, 0, "standard"))
    assert len({cut.columns for cut in cuts}) == 1
    assert bytes_of(model, cuts) == LAYERS * 10 * fused
    found = asked(model, model)
    assert found.statistic == found.n == LAYERS * HEADS * HEAD


# Between strangers.


def renumbered(layer: Layer, rng: np.random.Generator) -> Layer:
    """b with its groups, and the value rows inside each, in any order."""
    b = {role: heads.copy() for role, heads in layer.b.items()}
    for head in range(len(b[Role.V])):
        order = rng.permutation(b[Role.V].shape[1])
        for role in (Role.V, Role.O):
            b[role][head] = b[role][head][order]
    groups = rng.permutation(len(b[Role.V]))
    return Layer(layer.names, layer.a, {role: heads[groups] for role, heads in b.items()})


def counts(layers: list[Layer], rng: np.random.Generator, times: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _ in range(times):
        for view in views([renumbered(layer, rng) for layer in layers], True):
            calls = [roll_call(left, right, rng).fixed for _, _, left, right in view.sets]
            found.setdefault(view.what + view.how, []).extend(calls)
    return found


def poisson_fits(fixed: list[int]) -> float:
    """p of the counts against the law of fixed points, which is that of Poisson(1) to many digits from n = 8 on."""
    chances = [math.exp(-1) / math.factorial(k) for k in range(4)]
    seen = [fixed.count(k) for k in range(4)]
    expected = [len(fixed) * chance for chance in (*chances, 1 - sum(chances))]
    return float(chisquare([*seen, len(fixed) - sum(seen)], expected).pvalue)


@pytest.mark.parametrize("child", ["grove", "heath"])
def test_every_view_counts_as_its_law_says(child: str) -> None:
    """A stranger trained on the same text, and a fine-tune, both renumbered: nothing else is left to find."""
    a, b = bundled_anatomy("dune"), bundled_anatomy(child)
    mine, theirs = ATTENTION.cuts(Pair(a, b, 0, "standard"))
    layers = read_layers(Readings(portrait(a), read(a, mine)), Readings(portrait(b), read(b, theirs)), 32)
    found = counts(layers, np.random.default_rng(8), 25)
    assert set(found) == {"value rows", "value rows, in heads that their keys chose", "columns of o"}
    for what, fixed in found.items():
        assert len(fixed) == 25 * 12
        assert poisson_fits(fixed) > 1e-3, what


def test_whole_groups_count_as_their_law_says() -> None:
    """Nine groups a layer, of a copy that was renumbered."""
    rng = np.random.default_rng(9)
    heads = {role: rng.normal(size=(9, 4, 6)).astype(np.float32) for role in (Role.V, Role.K, Role.O)}
    layer = Layer(("0", "0"), heads, heads)
    plain = views([layer, layer], True)[-1]
    assert plain.what == "KV groups"
    assert [roll_call(left, right, rng).fixed for _, _, left, right in plain.sets] == [9, 9]
    assert poisson_fits(counts([layer, layer], rng, 80)["KV groups"]) > 1e-3
    assert "KV groups" not in {view.what for view in views([layer, layer], False)}


def test_heads_that_both_models_repeat_are_no_second_find() -> None:
    """Strangers whose eight heads are one head eight times: as independent counts a find would come eight times."""
    rng, found = np.random.default_rng(4), []
    for _ in range(60):
        left, right = rng.normal(size=(2, 16, 24)).astype(np.float32)
        view = View("value rows", "", tuple(("0", "0", left, right) for _ in range(8)), 24)
        found.append(_counted(view, rng).significance.log10_pvalue)
    assert min(found) > -4  # three finds in every head would give 1e-6
