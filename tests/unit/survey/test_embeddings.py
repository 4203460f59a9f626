"""Embeddings of shared tokens as they stand and rotated, and vocabularies side by side."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pair_builders import Row, named, number, opened
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group, spearmanr, ttest_1samp

from builders import CONFIG, VOCABULARY, Tensors, llama_tensors
from modelkin.demo import bundled
from modelkin.survey import embeddings
from modelkin.survey.embeddings import TOKENS_A_DIRECTION, align, random_pairs
from modelkin.survey.reading import SurveyOptions, collected
from modelkin.survey.renumbering import renumbered
from modelkin.survey.tokenizers import longest_run

Floats = NDArray[np.float64]
EMBEDDING = "model.embed_tokens.weight"
WORDS = [f"word{i}" for i in range(VOCABULARY)]


def cloud(seed: int, tokens: int = 400, width: int = 12) -> Floats:
    return np.random.default_rng(seed).normal(size=(tokens, width)) + 0.3


def test_rotation_against_scipy() -> None:
    """As many directions as axes: then it is the plain problem on centred rows."""
    left = cloud(1)
    right = left @ ortho_group.rvs(12, random_state=1) + cloud(2) * 0.5
    found = align(left, right, np.random.default_rng(0))
    assert found.directions == 12
    mine, theirs = (side - side[found.fitted].mean(axis=0) for side in (left, right))
    rotation, _ = orthogonal_procrustes(mine[found.fitted], theirs[found.fitted])
    turned = mine @ rotation
    expected = np.sum(turned * theirs, axis=1) / np.linalg.norm(turned, axis=1) / np.linalg.norm(theirs, axis=1)
    np.testing.assert_allclose(found.cosines, expected, atol=1e-9)


def test_a_rotated_copy_is_found_on_held_out_tokens_and_strangers_are_not() -> None:
    left = cloud(1)
    rotated = left @ ortho_group.rvs(12, random_state=2)
    copy = align(left, rotated, np.random.default_rng(0))
    np.testing.assert_allclose(copy.cosines, 1, atol=1e-9)
    assert abs(copy.null) < 0.15
    stranger = align(left, cloud(2), np.random.default_rng(0))
    assert stranger.cosines[stranger.fitted].mean() > 0.15
    assert abs(stranger.cosines[~stranger.fitted].mean()) < 5 / math.sqrt(200 * 12)


def test_few_tokens_in_many_dimensions_are_seen_in_few_directions() -> None:
    """The smaller Gram matrix gives the same directions as the covariance."""
    rng = np.random.default_rng(3)
    left = rng.normal(size=(40, 100)) * np.geomspace(5, 0.1, 100)
    found = align(left, left @ ortho_group.rvs(100, random_state=3), rng)
    assert found.directions == 20 // TOKENS_A_DIRECTION
    np.testing.assert_allclose(found.cosines, 1, atol=1e-6)


def test_random_pairs_against_every_pair() -> None:
    rows = cloud(4, 30)
    every = [float(x @ y / np.linalg.norm(x) / np.linalg.norm(y)) for x, y in combinations(rows, 2)]
    assert random_pairs(rows) == pytest.approx(np.mean(every))


def row_of(
    folder: Path, models: dict[str, Tensors], words: dict[str, list[str]], configs: dict[str, dict[str, object]]
) -> tuple[list[Row], list[str]]:
    with opened(folder, models, "embedding", configs, words) as found:
        tables = embeddings.tables(found)
        return (named(tables, "embeddings") if any(t.name == "embeddings" for t in tables) else []), found.left_out


def test_tokens_meet_by_content_whatever_their_ids(tmp_path: Path) -> None:
    base = llama_tensors(1, np.float32)
    order = np.random.default_rng(5).permutation(VOCABULARY)
    moved = base | {EMBEDDING: np.ascontiguousarray(base[EMBEDDING][order])}
    words = {"base": WORDS, "moved": [WORDS[i] for i in order]}
    with opened(tmp_path, {"base": base, "moved": moved}, "embedding", words=words) as found:
        tables = embeddings.tables(found)
    (row,) = named(tables, "embeddings")
    assert (row["tokens"], row["identical_rows"]) == (VOCABULARY, VOCABULARY)
    assert row["mean"] == pytest.approx(1)
    assert row["aligned_held_out"] == pytest.approx(1, abs=1e-6)
    assert row["p"] == 1e-6
    tokens = named(tables, "tokens")
    assert len(tokens) == VOCABULARY
    assert all(WORDS[int(number(token["id_a"]))] == str(token["token"]).strip() for token in tokens)
    assert all(order[int(number(token["id_b"]))] == token["id_a"] for token in tokens)
    assert sum(token["held_out"] == "yes" for token in tokens) == VOCABULARY // 2


def test_numbers_of_strangers(tmp_path: Path) -> None:
    models = {"one": llama_tensors(1, np.float32), "two": llama_tensors(2, np.float32)}
    words = dict.fromkeys(models, WORDS)
    (row,), left_out = row_of(tmp_path, models, words, {})
    x, y = (models[label][EMBEDDING].astype(np.float64) for label in models)
    cosines = np.sum(x * y, axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert row["mean"] == pytest.approx(cosines.mean())
    assert row["std"] == pytest.approx(cosines.std(ddof=1))
    assert row["naive_z"] == pytest.approx(ttest_1samp(cosines, 0).statistic)
    assert abs(number(row["z_renumbered"])) < 4
    assert left_out == []


def test_z_by_renumbering_holds_where_tokens_share_a_direction() -> None:
    """Trained embeddings do: one direction common to all tokens makes the plain z a multiple of what it should be."""
    plain, ours = [], []
    rng = np.random.default_rng(6)
    for _ in range(300):
        units = []
        for _ in "ab":
            side = rng.normal(size=(50, 32)) + rng.normal(size=32)
            units.append(side / np.linalg.norm(side, axis=1, keepdims=True))
        cosines = np.sum(units[0] * units[1], axis=1)
        plain.append(cosines.mean() / cosines.std(ddof=1) * math.sqrt(50))
        ours.append(renumbered(*units).z or 0.0)
    assert np.std(plain) > 3
    assert np.std(ours) == pytest.approx(1, abs=0.17)


def test_rows_without_a_direction_are_left_out(tmp_path: Path) -> None:
    base, other = llama_tensors(1, np.float32), llama_tensors(2, np.float32)
    broken = other[EMBEDDING].copy()
    broken[3], broken[5, 2] = 0, np.nan
    models = {"one": base, "two": other | {EMBEDDING: broken}}
    (row,), left_out = row_of(tmp_path, models, dict.fromkeys(models, WORDS), {})
    assert row["tokens"] == VOCABULARY - 2
    assert any(f"2 of {VOCABULARY} tokens" in line for line in left_out)


@pytest.mark.parametrize("case", ["no tokenizer", "few tokens", "other width", "all zero"])
def test_what_cannot_be_compared_is_said(tmp_path: Path, case: str) -> None:
    models = {"one": llama_tensors(1, np.float32), "two": llama_tensors(2, np.float32)}
    words, configs = dict.fromkeys(models, WORDS), {}
    if case == "no tokenizer":
        del words["two"]
    if case == "few tokens":
        words["two"] = [*WORDS[:10], *(f"other{i}" for i in range(VOCABULARY - 10))]
    if case == "all zero":
        models["two"][EMBEDDING] = np.zeros_like(models["two"][EMBEDDING])
    if case == "other width":
        models["two"] = {EMBEDDING: models["two"][EMBEDDING][:, :16].copy()}
        configs["two"] = CONFIG | {"hidden_size": 16, "num_hidden_layers": 0}
    rows, left_out = row_of(tmp_path, models, words, configs)
    assert rows == []
    assert left_out


def facts_of(a: str, b: str) -> dict[str, object]:
    folders = bundled()
    options = SurveyOptions(roles=("embedding",), layers=("all",))
    with collected([str(folders[a]), str(folders[b])], options) as found:
        rows = named(embeddings.tables(found), "vocabulary")
        first, second = (model.anatomy.checkpoint.vocabulary for model in found.models)
    assert first is not None
    assert second is not None
    ids = [(first.ids[t], second.ids[t]) for t in sorted(first.ids.keys() & second.ids.keys()) if len(t) > 1]
    return {str(row["fact"]): row["value"] for row in rows} | {"ids": np.array(ids, dtype=np.float64)}


def test_vocabularies_of_two_bundled_models() -> None:
    found = facts_of("dune", "birch")
    ids = found["ids"]
    assert isinstance(ids, np.ndarray)
    assert found["id_pearson"] == pytest.approx(np.corrcoef(ids.T)[0, 1])
    assert found["id_spearman"] == pytest.approx(spearmanr(*ids.T).statistic)
    assert isinstance(found["shared"], int)
    assert 0 < found["shared"] <= len(ids) + 256
    assert sum(int(str(value)) for name, value in found.items() if name.startswith("scripts.a.")) == found["sizes.a"]


def test_high_ids_are_those_beyond_the_smaller_vocabulary(tmp_path: Path) -> None:
    hangul = ["한국", "사람", "나라"]
    large = llama_tensors(2, np.float32)
    large[EMBEDDING] = np.vstack([large[EMBEDDING], large[EMBEDDING][:3]])
    models = {"small": llama_tensors(1, np.float32), "large": large}
    configs = {"large": CONFIG | {"vocab_size": VOCABULARY + 3}}
    with opened(tmp_path, models, "embedding", configs, {"small": WORDS, "large": [*WORDS, *hangul]}) as found:
        rows = {row["fact"]: row["value"] for row in named(embeddings.tables(found), "vocabulary")}
    assert (rows["high_ids.b"], rows["high_ids.b.hangul"]) == (3, 3)
    assert (rows["shared"], rows["longest_run"], rows["id_offset.+0"]) == (VOCABULARY, VOCABULARY, VOCABULARY)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), unique_by=lambda ids: ids[0]))
def test_longest_run_against_every_run(ids: list[tuple[int, int]]) -> None:
    ids.sort()
    places = dict(ids)
    lengths = [0]
    for a, b in ids:
        length = 1
        while places.get(a + length) == b + length:
            length += 1
        lengths.append(length)
    assert longest_run(ids) == max(lengths)


def test_nothing_is_made_unless_embeddings_are_asked_for(tmp_path: Path) -> None:
    models = {"one": llama_tensors(1), "two": llama_tensors(2)}
    with opened(tmp_path, models, "q", words=dict.fromkeys(models, WORDS)) as found:
        assert embeddings.tables(found) == []
