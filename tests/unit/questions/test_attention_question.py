"""Value rows inside heads: found where they were kept, not where a head was permuted, mixed or trained apart."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from builders import HEADS, HIDDEN, KV_HEADS, LAYERS, Tensors, llama_files, llama_tensors
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.questions.attention import ATTENTION
from modelkin.questions.experts import counted
from modelkin.questions.question import BudgetName, CannotAsk, Pair
from modelkin.records import Evidence
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.sources import LocalSource
from modelkin.sources.memory import MemorySource

HEAD = HIDDEN // HEADS


def bundled_anatomy(name: str) -> Anatomy:
    return identify(open_checkpoint(LocalSource(bundled()[name])))


def built(tensors: Tensors) -> Anatomy:
    return identify(open_checkpoint(MemorySource(llama_files() | {"model.safetensors": save(tensors)})))


def asked(a: Anatomy, b: Anatomy, budget: BudgetName = "standard") -> Evidence:
    mine, theirs = ATTENTION.cuts(Pair(a, b, 0, budget))
    sides = Readings(portrait(a), read(a, mine)), Readings(portrait(b), read(b, theirs))
    return ATTENTION.answer(*sides, np.random.default_rng(1))


def changed(change: str, value: float = 0.0) -> Anatomy:
    tensors = llama_tensors(0)
    for i, (name, array) in enumerate(tensors.items()):
        if "v_proj" in name and change == "rolled":
            tensors[name] = np.concatenate([np.roll(head, 1, axis=0) for head in np.split(array, KV_HEADS)])
        elif "v_proj" in name and change == "heads":
            tensors[name] = np.concatenate(np.split(array, KV_HEADS)[::-1])
        elif "v_proj" in name and (change == "all" or (change == "first" and i < 9)):
            tensors[name] = np.full_like(array, value)
    return built(tensors)


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
    for change in ("rolled", "heads"):
        assert (asked(model, changed(change)).log10_pvalue or 0.0) > -4
    assert asked(model, changed("rolled")).statistic == 0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_that_cannot_be_told_apart(value: float) -> None:
    model = changed("all", value)
    with pytest.raises(CannotAsk, match="told from"):
        asked(model, model)
    model = changed("first", value)
    assert asked(model, model).n == (LAYERS - 1) * KV_HEADS * HEAD


def test_values_that_are_not_finite_are_left_out() -> None:
    model = changed("first", np.nan)
    assert {finding.a for finding in asked(model, model).per_layer} == {"1", "2"}
    with pytest.raises(CannotAsk, match="finite"):
        asked(model, changed("all", np.inf))


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    dune = bundled_anatomy("dune")
    row = 128 * 2
    monkeypatch.setattr("modelkin.questions.experts.STANDARD_BYTES", 2 * 32 * row)
    monkeypatch.setattr("modelkin.questions.attention.STANDARD_BYTES", 2 * 32 * row)
    cuts, _ = ATTENTION.cuts(Pair(dune, dune, 0, "standard"))
    assert [(cut.stop or 0) - (cut.start or 0) for cut in cuts] == [32, 32]
    assert len(ATTENTION.cuts(Pair(dune, dune, 0, "full"))[0]) == 6


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
