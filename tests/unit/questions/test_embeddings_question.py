"""The hidden axes of the bundled models by the embeddings of shared tokens."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from test_gains_question import ask, built, bundled

from builders import HIDDEN, VOCABULARY, Tensors, llama_tensors
from modelkin.architectures import Anatomy
from modelkin.questions.embeddings import EMBEDDINGS
from modelkin.questions.question import CannotAsk, Pair
from modelkin.records import Role
from modelkin.stats import hidden_axes

WORDS = [f"word{i}" for i in range(VOCABULARY)]
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def spoken(folder: Path, tensors: Tensors, words: list[str] = WORDS) -> Anatomy:
    return built(folder, tensors, **{"vocab.txt": "\n".join(words).encode()})


def floats(seed: int) -> Tensors:
    return llama_tensors(seed, np.float32)


@pytest.mark.parametrize(("a", "b"), [("dune", "heath"), ("dune", "amber"), ("heath", "amber")])
def test_kept_embeddings_convict(a: str, b: str) -> None:
    found = ask(EMBEDDINGS, bundled(a), bundled(b), "standard")
    assert found.statistic == found.n == 128
    assert (found.log10_pvalue or 0) < -200
    assert found.grade == "A"
    assert found.observed.endswith("by 256 shared tokens")


@pytest.mark.parametrize(("a", "b"), [("dune", "grove"), ("dune", "fjord"), ("dune", "birch"), ("ember", "cobalt")])
def test_strangers_new_embeddings_and_disguised_copies_do_not(a: str, b: str) -> None:
    found = ask(EMBEDDINGS, bundled(a), bundled(b), "standard")
    assert (found.log10_pvalue or 0) > -3
    assert found.grade == "A"


def test_rows_are_those_of_the_same_tokens() -> None:
    (mine,), (theirs,) = EMBEDDINGS.cuts(Pair(bundled("dune"), bundled("birch"), 3, "full"))
    names = [anatomy.checkpoint.vocabulary for anatomy in (bundled("dune"), bundled("birch"))]
    tokens = [{id: token for token, id in vocabulary.ids.items()} for vocabulary in names if vocabulary]
    assert [tokens[0][id] for id in mine.rows] == [tokens[1][id] for id in theirs.rows]
    assert mine.rows != theirs.rows
    assert not {*mine.rows} & {*(names[0].special.values() if names[0] else ())}


def test_the_seed_alone_chooses_the_tokens() -> None:
    pair = bundled("dune"), bundled("heath")
    first, again, other = (EMBEDDINGS.cuts(Pair(*pair, seed, "standard")) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first[0][0].rows) == 256


def test_ids_may_differ(tmp_path: Path) -> None:
    tensors = floats(0)
    order = np.random.default_rng(5).permutation(VOCABULARY)
    moved = tensors | {EMBEDDING: tensors[EMBEDDING][order] + np.float32(1e-4)}
    a = spoken(tmp_path / "a", tensors)
    b = spoken(tmp_path / "b", moved, [WORDS[i] for i in order])
    found = ask(EMBEDDINGS, a, b, "standard")
    assert found.statistic == found.n == HIDDEN


def test_bit_equal_rows_are_left_out_where_others_remain(tmp_path: Path) -> None:
    mine, theirs = floats(0), floats(1)
    theirs[EMBEDDING][:20] = mine[EMBEDDING][:20]
    a, b = spoken(tmp_path / "a", mine), spoken(tmp_path / "b", theirs)
    found = ask(EMBEDDINGS, a, b, "standard")
    assert (found.log10_pvalue or 0) > -3
    assert found.observed.endswith("by 44 and 64 shared tokens (embedding and head)")
    assert found.assumptions[-1].text == "20 of 64 rows are bit-equal, left out"


def test_an_embedding_that_was_taken_over_whole_is_said_to_be(tmp_path: Path) -> None:
    a, b = (spoken(tmp_path / str(i), floats(i) | {EMBEDDING: floats(0)[EMBEDDING]}) for i in range(2))
    found = ask(EMBEDDINGS, a, b, "standard")
    assert found.statistic == HIDDEN
    assert found.assumptions[-1].text.startswith("64 of 64 rows are bit-equal, too many")


def test_a_head_of_its_own_is_asked_with_the_embedding(tmp_path: Path) -> None:
    """One call by both: a head that was taken over is found although all embeddings are new."""
    kept = floats(1) | {HEAD: floats(0)[HEAD] + np.float32(0.01) * floats(2)[HEAD]}
    a, b = spoken(tmp_path / "a", floats(0)), spoken(tmp_path / "b", kept)
    mine, theirs = EMBEDDINGS.cuts(Pair(a, b, 0, "standard"))
    assert [cut.slot.role for cut in mine] == [cut.slot.role for cut in theirs] == [Role.EMBEDDING, Role.HEAD]
    assert mine[0].rows == mine[1].rows
    found = ask(EMBEDDINGS, a, b, "standard")
    assert (found.log10_pvalue or 0) < -20
    assert found.observed.endswith("by 64 shared tokens (embedding and head)")
    tied = spoken(tmp_path / "c", {name: tensor for name, tensor in kept.items() if name != HEAD})
    assert len(EMBEDDINGS.cuts(Pair(a, tied, 0, "standard"))[0]) == 1


def test_embedding_and_head_of_strangers_make_one_call_with_the_usual_law() -> None:
    """The axes of a and b apart, those of embedding and head of each together: mean one, never more than chance."""
    rng = np.random.default_rng(8)
    counts = []
    for _ in range(400):
        rows = rng.normal(size=(2, 2, 40, 24))  # model, matrix, token, axis
        rows[:, 1] += rows[:, 0]  # the head of a model knows its embedding
        counts.append(hidden_axes(np.concatenate(rows[0]), np.concatenate(rows[1]), rng).fixed)
    seen = [counts.count(k) for k in range(4)]
    chances = [math.exp(-1) / math.factorial(k) for k in range(4)]
    assert chisquare([*seen, 400 - sum(seen)], [400 * p for p in (*chances, 1 - sum(chances))]).pvalue > 1e-3


def test_dead_and_broken_rows_are_left_out(tmp_path: Path) -> None:
    tensors = floats(0)
    tensors[EMBEDDING][:4] = 0.25
    tensors[EMBEDDING][4:6, 1] = np.nan
    a = spoken(tmp_path / "a", tensors)
    found = ask(EMBEDDINGS, a, spoken(tmp_path / "b", floats(1)), "standard")
    assert found.assumptions[-1].text.startswith("6 of 64 rows left out")
    tensors[EMBEDDING][6:] = 0
    headless = {name: tensor for name, tensor in tensors.items() if name != HEAD}
    with pytest.raises(CannotAsk, match="only 0 shared tokens"):
        ask(EMBEDDINGS, spoken(tmp_path / "c", headless), a, "standard")
    by_head = ask(EMBEDDINGS, spoken(tmp_path / "d", tensors), a, "standard")
    assert by_head.observed.endswith("by 64 shared tokens (head)")


def test_a_code_is_no_embedding(tmp_path: Path) -> None:
    """Bits of a hash of the token, the same for everybody: no order of the axes gives them away, but two numbers do."""
    code = np.sign(np.random.default_rng(9).normal(size=floats(0)[EMBEDDING].shape)).astype(np.float32)
    a, b = (
        spoken(tmp_path / str(i), {n: t for n, t in floats(i).items() if n != HEAD} | {EMBEDDING: (i + 1) * code})
        for i in range(2)
    )
    found = ask(EMBEDDINGS, a, b, "standard")
    assert (found.log10_pvalue or 0) < -20
    assert found.grade is None
    assert [it.held for it in found.assumptions if "is no code" in it.text] == [False]
    plain = ask(EMBEDDINGS, spoken(tmp_path / "c", floats(0)), spoken(tmp_path / "d", floats(1)), "standard")
    assert not any("is no code" in it.text for it in plain.assumptions)


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    a = spoken(tmp_path / "a", floats(0))
    mute = built(tmp_path / "b", floats(1))
    with pytest.raises(CannotAsk, match="no tokenizer"):
        EMBEDDINGS.cuts(Pair(a, mute, 0, "standard"))
    foreign = spoken(tmp_path / "c", floats(1), WORDS[:31] + [f"Wort{i}" for i in range(33)])
    with pytest.raises(CannotAsk, match="share 31 tokens; 32"):
        EMBEDDINGS.cuts(Pair(a, foreign, 0, "standard"))
    with pytest.raises(CannotAsk, match="different widths"):
        EMBEDDINGS.cuts(Pair(a, bundled("dune"), 0, "standard"))
    headless = spoken(tmp_path / "d", {n: t for n, t in floats(0).items() if n != EMBEDDING})
    with pytest.raises(CannotAsk, match="B has no embedding"):
        EMBEDDINGS.cuts(Pair(a, headless, 0, "standard"))
