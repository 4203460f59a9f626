"""The neurons of the bundled models by their rows, and blocks that leave little to compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_gains_question import ask, built, bundled

from builders import CONFIG, Tensors, llama_tensors
from builders import NEURONS as COUNT
from modelkin.questions.neurons import NEURONS
from modelkin.questions.question import CannotAsk, Pair
from modelkin.records import Role

EXPERTS = CONFIG | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
}


def upcycled(dense: Tensors) -> Tensors:
    """Every MLP twice, as experts of one router."""
    found = {}
    for name, tensor in dense.items():
        at, mlp, projection = name.partition("mlp.")
        if not mlp:
            found[name] = tensor
            continue
        short = {"gate": "w1", "up": "w3", "down": "w2"}[projection.split("_")[0]]
        found |= {f"{at}block_sparse_moe.experts.{e}.{short}.weight": tensor for e in range(2)}
        found[f"{at}block_sparse_moe.gate.weight"] = np.eye(2, tensor.shape[1] if short != "w2" else 32)
    return {name: tensor.astype(np.float32) for name, tensor in found.items()}


@pytest.mark.parametrize("b", ["heath", "birch", "amber"])
def test_children_convict(b: str) -> None:
    found = ask(NEURONS, bundled("dune"), bundled(b))
    assert (found.log10_pvalue or 0) < -24
    assert found.grade == "A"
    assert found.observed == "32 of 32 neurons found themselves, in 2 layers"
    assert (found.effect or 0) > 0.5
    assert [layer.statistic for layer in found.per_layer] == [16, 16]


@pytest.mark.parametrize(("a", "b"), [("dune", "grove"), ("dune", "fjord"), ("ember", "cobalt"), ("dune", "ember")])
def test_strangers_and_disguised_copies_do_not(a: str, b: str) -> None:
    found = ask(NEURONS, bundled(a), bundled(b))
    assert (found.log10_pvalue or 0) > -3
    assert abs(found.effect or 0) < 0.2


def test_ends_of_a_deeper_child_meet_their_own() -> None:
    found = ask(NEURONS, bundled("dune"), bundled("amber"))
    assert [(layer.a, layer.b) for layer in found.per_layer] == [("1", "1"), ("4", "8")]


def test_one_offset_of_16_rows_whatever_the_budget() -> None:
    pair = [bundled("dune"), bundled("ember")]
    quick, full = (NEURONS.cuts(Pair(*pair, 7, budget)) for budget in ("quick", "full"))
    assert quick == full
    assert len({(cut.start, cut.stop) for side in quick for cut in side}) == 1
    start, stop = quick[0][0].start, quick[0][0].stop
    assert (start, stop) != (None, None)
    assert (stop or 0) - (start or 0) == 16
    assert (stop or 0) <= 64
    assert len(quick[0]) == len(set(quick[0])) == 4  # gate and up at two depths, once each, beside two experts
    assert {cut.slot.expert for cut in quick[1]} == {0, 1}


def test_experts_copied_from_a_dense_model_are_found(tmp_path: Path) -> None:
    dense = built(tmp_path / "a", llama_tensors(0, np.float32))
    moe = built(tmp_path / "b", upcycled(llama_tensors(0, np.float32)), EXPERTS)
    for pair in ((dense, moe), (moe, dense), (moe, moe)):
        found = ask(NEURONS, *pair)
        assert found.statistic == found.n == 32
        assert (found.log10_pvalue or 0) < -24


def test_strangers_that_were_both_upcycled_do_not_convict_twice(tmp_path: Path) -> None:
    """Both experts have one order in each model: their counts are one count, and must not be added."""
    moe = [built(tmp_path / str(i), upcycled(llama_tensors(i, np.float32)), EXPERTS) for i in range(2)]
    found = ask(NEURONS, *moe)
    assert found.n == 32  # two layers of 16, not four
    assert (found.log10_pvalue or 0) > -3


def test_layers_that_are_copies_in_both_models_count_once(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    same = {n: tensors[n.replace("layers.2.", "layers.0.")] for n in tensors}
    a = built(tmp_path, same)
    found = ask(NEURONS, a, a)
    assert -13.5 < (found.log10_pvalue or 0) < -12
    assert any("copies of each other" in assumption.text for assumption in found.assumptions)


def test_without_gates_up_is_enough(tmp_path: Path) -> None:
    bare = built(tmp_path, {n: t for n, t in llama_tensors().items() if "gate_proj" not in n})
    mine, _ = NEURONS.cuts(Pair(bare, bare, 0, "quick"))
    assert {cut.slot.role for cut in mine} == {Role.UP}
    assert ask(NEURONS, bare, bare).statistic == 32


def test_wide_models_give_one_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkin.questions.neurons.WIDE", 127)
    mine, _ = NEURONS.cuts(Pair(bundled("dune"), bundled("heath"), 0, "quick"))
    assert {cut.slot.role for cut in mine} == {Role.GATE}
    assert ask(NEURONS, bundled("dune"), bundled("heath")).statistic == 32


def test_dead_and_broken_rows_are_left_out(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    for name, tensor in tensors.items():
        if "gate_proj" in name or "up_proj" in name:
            tensor[::4] = 0
            tensor[1::4, 5] = np.nan
    a = built(tmp_path, tensors)
    found = ask(NEURONS, a, a)
    assert (found.statistic, found.n) == (16, 16)
    assert any("32 rows left out" in assumption.text for assumption in found.assumptions)


@pytest.mark.parametrize("value", [0.0, 0.5, np.nan])
def test_matrices_without_anything_in_them_cannot_be_asked(tmp_path: Path, value: float) -> None:
    tensors = {n: np.full_like(t, value) if "mlp" in n else t for n, t in llama_tensors(0, np.float32).items()}
    a = built(tmp_path, tensors)
    with pytest.raises(CannotAsk, match="told apart"):
        ask(NEURONS, a, a)


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    small = built(tmp_path / "a", llama_tensors())
    with pytest.raises(CannotAsk, match="different widths"):
        NEURONS.cuts(Pair(bundled("dune"), small, 0, "quick"))
    bare = built(tmp_path / "b", {n: t for n, t in llama_tensors().items() if "mlp" not in n})
    with pytest.raises(CannotAsk, match="share no gate or up"):
        NEURONS.cuts(Pair(small, bare, 0, "quick"))
    few = {n: t[:5] if "gate_proj" in n or "up_proj" in n else t for n, t in llama_tensors().items()}
    few = {n: t[:, :5] if "down_proj" in n else t for n, t in few.items()}
    tiny = built(tmp_path / "c", few, CONFIG | {"intermediate_size": 5})
    with pytest.raises(CannotAsk, match="only 5 neurons"):
        NEURONS.cuts(Pair(small, tiny, 0, "quick"))


def test_sorted_neurons_lose_the_grade(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    for name, tensor in tensors.items():
        if "gate_proj" in name or "up_proj" in name:
            tensor *= np.linspace(9, 1, COUNT, dtype=np.float32)[:, None] ** 2
    a = built(tmp_path / "sorted", tensors)
    found = ask(NEURONS, a, a)
    assert found.grade is None
    assert found.pvalue is not None
    assert [assumption.held for assumption in found.assumptions] == [False, True, True]
    plain = built(tmp_path / "plain", llama_tensors(1, np.float32))
    assert ask(NEURONS, a, plain).grade == "A"  # the law holds where one model's neurons may be renumbered
