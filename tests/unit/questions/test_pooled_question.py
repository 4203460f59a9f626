"""Rows that are alike on the whole, and what roll calls and pooled rows would have noticed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from test_gains_question import ask, built, bundled

from builders import LAYERS, NEURONS, Tensors, llama_tensors
from modelkin.questions.neurons import NEURONS as ROLL_CALL
from modelkin.questions.pooled import POOLED
from modelkin.questions.power import detectable_by_roll_call
from modelkin.questions.question import CannotAsk, Pair
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.stats import over_layers, roll_call


def mixed(share: float) -> Tensors:
    """Rows of another model with a share of the first's in them."""
    mine, other = llama_tensors(0, np.float32), llama_tensors(1, np.float32)
    rest = math.sqrt(1 - share**2)
    return {n: np.float32(share) * mine[n] + np.float32(rest) * t if "mlp" in n else t for n, t in other.items()}


@pytest.mark.parametrize("b", ["heath", "birch", "amber"])
def test_children_convict(b: str) -> None:
    found = ask(POOLED, bundled("dune"), bundled(b), "standard")
    assert (found.log10_pvalue or 0) < math.log10(POOLED.weight * 1e-6)
    assert found.grade == "A"
    assert found.effect is not None
    assert found.effect > 0.5
    assert found.n == 128


@pytest.mark.parametrize(("a", "b"), [("dune", "grove"), ("dune", "fjord"), ("ember", "cobalt"), ("dune", "ember")])
def test_strangers_and_disguised_copies_do_not(a: str, b: str) -> None:
    found = ask(POOLED, bundled(a), bundled(b), "standard")
    assert (found.log10_pvalue or 0) > -3
    assert abs(found.effect or 0) < 0.05
    assert found.detectable is not None
    assert found.detectable < 0.1


def test_faint_rows_are_seen_where_the_roll_call_sees_none(tmp_path: Path) -> None:
    a, b = built(tmp_path / "a", llama_tensors(0, np.float32)), built(tmp_path / "b", mixed(0.2))
    assert (ask(ROLL_CALL, a, b).log10_pvalue or 0) > -6.4
    assert (ask(POOLED, a, b, "standard").log10_pvalue or 0) < -7.3


def test_rows_that_other_questions_read_do_not_matter() -> None:
    a, b = bundled("dune"), bundled("heath")
    both = [[*x, *y] for x, y in zip(*(q.cuts(Pair(a, b, 0, "standard")) for q in (ROLL_CALL, POOLED)), strict=True)]
    mine, theirs = (Readings(portrait(m), read(m, cuts)) for m, cuts in zip((a, b), both, strict=True))
    alone = [POOLED.cuts(Pair(a, b, 0, "standard"))[side] for side in (0, 1)]
    left, right = (Readings(portrait(m), read(m, cuts)) for m, cuts in zip((a, b), alone, strict=True))
    rngs = [np.random.default_rng(1) for _ in range(2)]
    assert POOLED.answer(mine, theirs, rngs[0]) == POOLED.answer(left, right, rngs[1])


def test_layers_that_are_copies_in_both_models_count_once(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    last = f"layers.{LAYERS - 1}."
    a = built(tmp_path, {n: tensors[n.replace(last, "layers.0.")] for n in tensors})
    with pytest.raises(CannotAsk, match=f"only {NEURONS} neurons"):
        ask(POOLED, a, a, "standard")


def test_sorted_neurons_lose_the_grade(tmp_path: Path) -> None:
    tensors = llama_tensors(0, np.float32)
    for name, tensor in tensors.items():
        if "gate_proj" in name or "up_proj" in name:
            tensor *= np.linspace(9, 1, NEURONS, dtype=np.float32)[:, None]
    a = built(tmp_path, tensors)
    found = ask(POOLED, a, a, "standard")
    assert found.grade is None
    assert found.pvalue is not None


def test_without_gates_up_is_enough(tmp_path: Path) -> None:
    a = built(tmp_path, {n: t for n, t in llama_tensors().items() if "gate_proj" not in n})
    assert ask(POOLED, a, a, "standard").n == 2 * NEURONS


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    small = built(tmp_path / "a", llama_tensors())
    with pytest.raises(CannotAsk, match="different widths"):
        POOLED.cuts(Pair(bundled("dune"), small, 0, "standard"))
    bare = built(tmp_path / "b", {n: t for n, t in llama_tensors().items() if "mlp" not in n})
    with pytest.raises(CannotAsk, match="share no gate or up"):
        POOLED.cuts(Pair(small, bare, 0, "standard"))
    dead = {n: np.zeros_like(t) if "mlp" in n else t for n, t in llama_tensors().items()}
    dead = built(tmp_path / "c", dead)
    with pytest.raises(CannotAsk, match="only 0 neurons"):
        ask(POOLED, small, dead, "standard")


def test_what_a_roll_call_would_have_noticed_it_notices() -> None:
    """Against drawn layers: at the stated correlation nearly always, at half of it seldom."""
    rng, width, alpha = np.random.default_rng(0), 512, math.log10(1e-7)
    stated = detectable_by_roll_call([16, 16], width, alpha)
    assert stated is not None
    assert _found(stated, width, alpha, rng) >= 0.98
    assert _found(stated / 2, width, alpha, rng) <= 0.3


def _found(correlation: float, width: int, log10_alpha: float, rng: np.random.Generator, draws: int = 150) -> float:
    hits = 0
    for _ in range(draws):
        left = rng.normal(size=(2, 16, width))
        right = correlation * left + math.sqrt(1 - correlation**2) * rng.normal(size=left.shape)
        calls = [roll_call(a, b, rng) for a, b in zip(left, right, strict=True)]
        hits += over_layers(calls).total.log10_pvalue <= log10_alpha
    return hits / draws


def test_too_few_rows_notice_nothing() -> None:
    assert detectable_by_roll_call([4], 100, -6) is None
    assert detectable_by_roll_call([], 100, -6) is None
    assert detectable_by_roll_call([16], 0, -6) is None
