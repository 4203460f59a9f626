"""The hidden axes of the bundled models by their gains, and of models that have nothing to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from safetensors.numpy import save

import modelkin
from builders import CONFIG, HIDDEN, Tensors, llama_tensors, write_files
from modelkin.architectures import Anatomy
from modelkin.questions.gains import GAINS
from modelkin.questions.question import BudgetName, CannotAsk, Pair, Question
from modelkin.records import Cut, Evidence
from modelkin.sampling.readings import Readings, pack, portrait, read, unpack

MODELS = Path(modelkin.__file__).parent / "demo" / "models"


@cache
def bundled(name: str) -> Anatomy:
    return modelkin.identify(modelkin.open(str(MODELS / name)))


def built(folder: Path, tensors: Tensors, config: Mapping[str, Any] = CONFIG, **files: bytes) -> Anatomy:
    body = {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)}
    return modelkin.identify(modelkin.open(str(write_files(folder, body | files))))


def ask(question: Question, a: Anatomy, b: Anatomy, budget: BudgetName = "quick", seed: int = 0) -> Evidence:
    """As the comparison does it; the rows go through what a record keeps of them."""
    mine, theirs = question.cuts(Pair(a, b, seed, budget))
    rng = np.random.default_rng([seed, crc32(question.id.encode())])
    return question.answer(kept(a, mine), kept(b, theirs), rng)


def kept(anatomy: Anatomy, cuts: Any) -> Readings:
    return Readings(portrait(anatomy), unpack(pack(read(anatomy, cuts))))


def with_gains(seed: int, change: Callable[[np.ndarray], np.ndarray]) -> Tensors:
    return {name: change(t) if "norm" in name else t for name, t in llama_tensors(seed, np.float32).items()}


@pytest.mark.parametrize(
    ("a", "b", "most"),
    [("dune", "heath", -200), ("dune", "birch", -50), ("dune", "amber", -200), ("ember", "cobalt", -12)],
)
def test_inherited_gains_convict(a: str, b: str, most: float) -> None:
    found = ask(GAINS, bundled(a), bundled(b))
    assert found.log10_pvalue is not None
    assert found.log10_pvalue < most
    assert found.grade == "A"
    assert found.effect == found.statistic / found.n > 0.1
    assert min(layer.effect or 0 for layer in found.per_layer) > 0.4


@pytest.mark.parametrize("b", ["grove", "fjord", "ember"])
def test_strangers_and_disguised_copies_do_not(b: str) -> None:
    found = ask(GAINS, bundled("dune"), bundled(b))
    assert found.statistic <= 5
    assert (found.log10_pvalue or 0) > -3
    assert found.grade == "A"


def test_the_answer_in_words() -> None:
    found = ask(GAINS, bundled("dune"), bundled("heath"))
    assert (found.observed, found.strangers) == ("128 of 128 hidden axes found themselves", "1 of 128 on average")
    assert any("pair-swap" in assumption.text for assumption in found.assumptions)
    assert [(layer.a, layer.b) for layer in found.per_layer] == [(str(i), str(i)) for i in range(6)]


def test_the_same_seed_gives_the_same_answer() -> None:
    assert ask(GAINS, bundled("dune"), bundled("grove")) == ask(GAINS, bundled("dune"), bundled("grove"))


def test_24_vectors_at_most_are_read_with_both_ends_at_every_budget(tmp_path: Path) -> None:
    config = CONFIG | {"num_hidden_layers": 20}
    names = {n: t for n, t in llama_tensors(0).items() if ".layers.0." not in n and ".layers.1." not in n}
    layer = {n: t for n, t in names.items() if ".layers.2." in n}
    many = names | {n.replace(".2.", f".{i}."): t for i in range(20) for n, t in layer.items()}
    anatomy = built(tmp_path, many, config)
    quick, _ = GAINS.cuts(Pair(anatomy, anatomy, 0, "quick"))
    assert GAINS.cuts(Pair(anatomy, anatomy, 0, "full"))[0] == quick
    assert 20 <= len(quick) <= 24
    assert {cut.slot.layer for cut in quick} >= {None, 0, 19}


def test_other_widths_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(CannotAsk, match="different widths, 128 and 32"):
        GAINS.cuts(Pair(bundled("dune"), built(tmp_path, llama_tensors()), 0, "quick"))


def test_too_few_axes_are_counted_without_a_noun_beside_the_number(tmp_path: Path) -> None:
    def nearly_flat(gains: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(gains)) < 2, gains, 1).astype(gains.dtype)

    few = built(tmp_path / "a", with_gains(0, nearly_flat))
    with pytest.raises(CannotAsk, match=r"^too few hidden axes can be told apart by their gains: \d$"):
        ask(GAINS, few, built(tmp_path / "b", with_gains(1, nearly_flat)))


def test_folded_gains_are_named(tmp_path: Path) -> None:
    flat = built(tmp_path / "a", with_gains(0, np.ones_like))
    other = built(tmp_path / "b", llama_tensors(1))
    with pytest.raises(CannotAsk, match="folded away"):
        ask(GAINS, flat, other)


def test_gains_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    tensors["model.norm.weight"][3] = np.nan
    a = built(tmp_path / "a", tensors)
    found = ask(GAINS, a, a)
    assert found.statistic == HIDDEN
    assert any(text.text.startswith("1 vectors left out") for text in found.assumptions)
    broken = built(tmp_path / "b", with_gains(0, lambda gain: np.full_like(gain, np.inf)))
    with pytest.raises(CannotAsk, match="not finite"):
        ask(GAINS, a, broken)


def test_no_shared_vector_cannot_be_asked(tmp_path: Path) -> None:
    bare = built(tmp_path, {name: t for name, t in llama_tensors().items() if "norm" not in name})
    with pytest.raises(CannotAsk, match="share no gain"):
        GAINS.cuts(Pair(bare, built(tmp_path / "b", llama_tensors()), 0, "quick"))


def test_axes_in_an_order_lose_the_grade_and_keep_the_p(tmp_path: Path) -> None:
    """Gains that rise along the index in both models look inherited and are not."""
    rising = [built(tmp_path / str(i), with_gains(i, lambda gain: np.sort(gain))) for i in range(2)]
    found = ask(GAINS, *rising)
    assert found.grade is None
    assert found.pvalue is not None
    assert [a.held for a in found.assumptions if "any order" in a.text] == [False, False]


def test_an_unknown_family_loses_the_grade(tmp_path: Path) -> None:
    unknown = built(tmp_path, llama_tensors(), CONFIG | {"model_type": "nobody", "architectures": ["Nobody"]})
    found = ask(GAINS, unknown, unknown)
    assert found.statistic == HIDDEN
    assert found.grade is None or unknown.facts.exchangeable_hidden


def test_cuts_are_whole_vectors() -> None:
    mine, theirs = GAINS.cuts(Pair(bundled("dune"), bundled("amber"), 0, "full"))
    assert len(mine) == len(theirs) == 13
    assert all(cut == Cut(cut.slot) for cut in (*mine, *theirs))
