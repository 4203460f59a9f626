"""The layer map: every change of depth is read off the neurons, and strangers have none in common."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save

from builders import NEURONS, Tensors, llama_files, llama_tensors
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled, truth
from modelkin.questions.layers import LAYER_MAP, layer_map
from modelkin.questions.question import BudgetName, CannotAsk, Pair
from modelkin.records import Cut, Evidence, Portrait, Role, Slot
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.sources import LocalSource
from modelkin.sources.memory import MemorySource

Floats = NDArray[np.float32]
ROWS, WIDTH = 40, 96


def bundled_anatomy(name: str) -> Anatomy:
    return identify(open_checkpoint(LocalSource(bundled()[name])))


def asked(a: Anatomy, b: Anatomy, budget: BudgetName = "standard", seed: int = 0) -> Evidence:
    mine, theirs = LAYER_MAP.cuts(Pair(a, b, seed, budget))
    sides = Readings(portrait(a), read(a, mine)), Readings(portrait(b), read(b, theirs))
    return LAYER_MAP.answer(*sides, np.random.default_rng(seed))


def of_bundled(a: str, b: str) -> Evidence:
    return asked(bundled_anatomy(a), bundled_anatomy(b))


def stack(count: int, rng: np.random.Generator) -> list[Floats]:
    return [rng.normal(size=(ROWS, WIDTH)).astype(np.float32) for _ in range(count)]


def noisy(layer: Floats, rng: np.random.Generator) -> Floats:
    return (0.6 * layer + 0.8 * rng.normal(size=layer.shape)).astype(np.float32)


def readings(layers: list[Floats], gates: list[Floats] | None = None, role: Role = Role.UP) -> Readings:
    shown = Portrait(
        family="llama",
        layers=tuple(str(i) for i in range(len(layers))),
        hidden=WIDTH,
        neurons=ROWS,
        heads=None,
        kv_heads=None,
        head_dim=None,
        experts=None,
        norm="rms",
        gain_offset=0.0,
        positions="rotary",
        tied=False,
        exchangeable_hidden=True,
        why="",
    )
    arrays = {Cut(Slot(role, i), 0, ROWS): layer for i, layer in enumerate(layers)}
    arrays |= {Cut(Slot(Role.GATE, i), 0, ROWS): gate for i, gate in enumerate(gates or [])}
    return Readings(shown, arrays)


def answer(a: Readings, b: Readings, seed: int = 3) -> Evidence:
    return LAYER_MAP.answer(a, b, np.random.default_rng(seed))


def sources(evidence: Evidence) -> list[int | None]:
    return [None if a is None else int(a) for _, a in layer_map(evidence)]


def test_layers_twice_are_found_twice() -> None:
    found = of_bundled("dune", "amber")
    assert sources(found) == truth()["models"]["amber"]["made_by"]["derivation"]["details"]["layer_map"]
    assert found.grade == "A"
    assert found.log10_pvalue is not None
    assert found.log10_pvalue < -100
    assert found.effect is not None
    assert found.effect > 0.9


def test_the_base_beside_its_deeper_child_has_no_new_layer() -> None:
    found = of_bundled("amber", "dune")
    assert sources(found) == [0, 1, 2, 3, 4, 9]
    assert len(found.per_layer) > 6


def pairs(evidence: Evidence) -> set[tuple[str, str]]:
    return {(finding.a, finding.b) for finding in evidence.per_layer if finding.a}


def test_repeats_are_found_whichever_model_is_named_first() -> None:
    deeper, base = of_bundled("amber", "dune"), of_bundled("dune", "amber")
    assert pairs(deeper) == {(b, a) for a, b in pairs(base)}


def test_a_layer_of_b_has_one_match_and_further_ones_come_after() -> None:
    rng = np.random.default_rng(14)
    base = stack(3, rng)
    deeper = [noisy(base[i], rng) for i in (0, 1, 1, 1, 2)]
    found = answer(readings(deeper), readings(base))
    assert len(layer_map(found)) == 3
    assert sorted(pairs(found)) == [("0", "0"), ("1", "1"), ("2", "1"), ("3", "1"), ("4", "2")]
    assert [finding.b for finding in found.per_layer[:3]] == ["0", "1", "2"]
    assert len(answer(readings(base), readings(base)).per_layer) == 3


@pytest.mark.parametrize("child", ["heath", "birch", "dune"])
def test_a_child_of_the_same_depth_is_the_identity(child: str) -> None:
    assert sources(of_bundled("dune", child)) == list(range(6))


@pytest.mark.parametrize(("a", "b"), [("dune", "grove"), ("ember", "cobalt"), ("dune", "ember"), ("ember", "grove")])
def test_strangers_have_no_layer_in_common(a: str, b: str) -> None:
    found = of_bundled(a, b)
    assert set(sources(found)) == {None}
    assert found.log10_pvalue is not None
    assert found.log10_pvalue > -3


@pytest.mark.parametrize(
    "order",
    [
        [0, 1, 2, 5, 6, 7],  # dropped in the middle
        [3, 4, 5, 6, 7],  # dropped at the start
        [0, 1, 2, None, None, 3, 4, 5, 6, 7],  # inserted
        [None, 0, 1, 2, 3, 4, 5, 6, 7, None],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7],  # a passage twice
        [0, 0, 1, 1, 2, 2, 3, 3],  # every layer twice
        [5, 2, 7, 0, 3, 6, 1, 4],  # shuffled
        [None, None, 4, None],  # one layer borrowed
    ],
)
def test_changes_of_depth(order: list[int | None]) -> None:
    rng = np.random.default_rng(len(order))
    parent = stack(8, rng)
    child = [stack(1, rng)[0] if i is None else noisy(parent[i], rng) for i in order]
    assert sources(answer(readings(parent), readings(child))) == order


def test_gates_count_where_both_have_them() -> None:
    rng = np.random.default_rng(5)
    up, gate, other = stack(3, rng), stack(3, rng), stack(3, rng)
    assert sources(answer(readings(up, gate), readings(other, gate))) == [0, 1, 2]
    assert sources(answer(readings(up, gate), readings(other))) == [None] * 3


def test_strangers_follow_the_law() -> None:
    rng = np.random.default_rng(6)
    values = [answer(readings(stack(3, rng)), readings(stack(4, rng)), seed).log10_pvalue or 0.0 for seed in range(150)]
    for level in (0.5, 0.1, 0.05):
        assert np.mean(np.array(values) <= np.log10(level)) <= level + 3 * np.sqrt(level * (1 - level) / 150)


def test_renumbered_neurons_are_not_found() -> None:
    rng = np.random.default_rng(7)
    parent = stack(3, rng)
    assert sources(answer(readings(parent), readings([rng.permutation(layer) for layer in parent]))) == [None] * 3


def test_equal_rows_decide_nothing() -> None:
    rng = np.random.default_rng(8)
    same = [np.tile(layer[:1], (ROWS, 1)) for layer in stack(3, rng)]
    for empty in (same, [np.zeros((ROWS, WIDTH), np.float32)] * 3, [np.ones((ROWS, WIDTH), np.float32)] * 3):
        with pytest.raises(CannotAsk, match="told from"):
            answer(readings(empty), readings(empty))
    half = [np.vstack([layer[: ROWS // 2], same[0][: ROWS // 2]]) for layer in stack(3, rng)]
    assert {finding.n for finding in answer(readings(half), readings(half)).per_layer} == {ROWS // 2}


def test_layers_that_are_not_finite_are_left_out() -> None:
    rng = np.random.default_rng(9)
    parent = stack(4, rng)
    child = [layer.copy() for layer in parent]
    child[2][3, 3] = np.nan
    found = answer(readings(parent), readings(child))
    assert layer_map(found) == (("0", "0"), ("1", "1"), ("3", "3"))
    assert "left out were 0 layers of A and 1 of B" in found.observed
    with pytest.raises(CannotAsk, match="finite"):
        answer(readings(parent), readings([np.full((ROWS, WIDTH), np.inf, np.float32)]))


def test_one_layer_each() -> None:
    (layer,) = stack(1, np.random.default_rng(10))
    found = answer(readings([layer]), readings([layer]))
    assert sources(found) == [0]
    assert found.per_layer[0].statistic == ROWS


def test_layers_twice_in_both_are_not_added_up() -> None:
    """Of strangers that both have every layer eight times, each count would be seen eight times."""
    rng = np.random.default_rng(13)
    a, b = stack(1, rng)[0], stack(1, rng)[0]
    b[:4] = noisy(a[:4], rng)  # four neurons in common: 1/4! a pair of layers
    twice = answer(readings([a] * 8), readings([b] * 8))
    assert twice.n == ROWS
    assert (twice.log10_pvalue or 0.0) > -3
    once = answer(readings([a] * 8), readings([b, *stack(7, rng)]))
    assert once.n == 8 * ROWS


def test_sorted_neurons_in_both_fail_the_check() -> None:
    rng = np.random.default_rng(11)
    ordered = [layer * np.linspace(2, 1, ROWS, dtype=np.float32)[:, None] for layer in stack(4, rng)]
    both, one = answer(readings(ordered), readings(ordered)), answer(readings(ordered), readings(stack(4, rng)))
    assert [a.held for a in both.assumptions if "order of size" in a.text] == [False]
    assert [a.held for a in one.assumptions if "order of size" in a.text] == [True]


def test_nothing_in_common_is_said() -> None:
    layers = stack(2, np.random.default_rng(12))
    with pytest.raises(CannotAsk, match="one offset"):
        answer(readings(layers), Readings(readings(layers).portrait, {}))
    with pytest.raises(CannotAsk, match=f"different widths: 50, {WIDTH}$"):
        answer(readings(layers), readings([layer[:, :50] for layer in layers]))


def built(tensors: Tensors) -> Anatomy:
    files = llama_files() | {"model.safetensors": save(tensors)}
    return identify(open_checkpoint(MemorySource(files)))


def test_cuts_are_one_block_of_every_layer() -> None:
    anatomy = built(llama_tensors())
    mine, theirs = LAYER_MAP.cuts(Pair(anatomy, anatomy, 4, "standard"))
    assert list(mine) == list(theirs)
    assert {(cut.start, cut.stop) for cut in mine} == {(0, NEURONS)}
    assert {(cut.slot.role, cut.slot.layer) for cut in mine} == {(r, i) for r in (Role.UP, Role.GATE) for i in range(3)}


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy = bundled_anatomy("dune")
    row = 6 * 128 * 2  # layers, width, bytes
    for budget, roles, rows in ((row * 128, 2, 64), (row * 127, 1, 64), (row * 30, 1, 30)):
        monkeypatch.setattr("modelkin.questions.layers.STANDARD_BYTES", budget)
        cuts, _ = LAYER_MAP.cuts(Pair(anatomy, anatomy, 0, "standard"))
        assert len({cut.slot.role for cut in cuts}) == roles
        assert {(cut.stop or 0) - (cut.start or 0) for cut in cuts} == {rows}
    monkeypatch.setattr("modelkin.questions.layers.STANDARD_BYTES", row * 5)
    with pytest.raises(CannotAsk, match="do not fit"):
        LAYER_MAP.cuts(Pair(anatomy, anatomy, 0, "standard"))
    assert len(LAYER_MAP.cuts(Pair(anatomy, anatomy, 0, "full"))[0]) == 12


def test_other_widths_and_models_without_neurons_cannot_be_asked() -> None:
    anatomy = built(llama_tensors())
    with pytest.raises(CannotAsk, match="widths"):
        LAYER_MAP.cuts(Pair(anatomy, bundled_anatomy("dune"), 0, "standard"))
    bare = built({name: array for name, array in llama_tensors().items() if "mlp" not in name})
    with pytest.raises(CannotAsk, match="neurons"):
        LAYER_MAP.cuts(Pair(anatomy, bare, 0, "standard"))
