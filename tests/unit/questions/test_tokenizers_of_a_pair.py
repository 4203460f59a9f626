"""Tokenizers stand in the record from `standard` on; one that cannot be read costs its question and no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.records import Comparison, Unanswered

EMBEDDINGS = "hidden-axes-by-embeddings"


def copied(folder: Path, name: str) -> Path:
    shutil.copytree(bundled()[name], folder / name)
    return folder / name


def compared(a: Path, b: Path, budget: Any = "standard") -> Comparison:
    return compare(str(a), str(b), CompareOptions(budget))


def reason(comparison: Comparison) -> str:
    answer = next(answer for answer in comparison.answers if answer.question == EMBEDDINGS)
    assert isinstance(answer, Unanswered)
    return answer.unanswered


def test_the_facts_are_in_the_record_and_beside_what_is_no_evidence() -> None:
    models = bundled()
    facts = compared(models["dune"], models["heath"]).tokenizers
    assert facts is not None
    assert facts["shared"] == facts["ordinary"][0] == facts["same_ids"]
    comparison = compared(models["dune"], models["birch"])
    assert comparison.tokenizers is not None
    assert 0 < comparison.tokenizers["jaccard"] < 1
    entry = next(entry for entry in comparison.not_evidence if entry.measure.startswith("tokens in common"))
    assert entry.value == comparison.tokenizers["jaccard"]


def test_quick_reads_no_tokenizer() -> None:
    models = bundled()
    comparison = compared(models["dune"], models["heath"], "quick")
    assert comparison.tokenizers is None
    assert not any("token" in entry.measure for entry in comparison.not_evidence)


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}}', b""])
def test_a_broken_tokenizer_costs_one_question(tmp_path: Path, body: bytes) -> None:
    broken = copied(tmp_path, "heath")
    (broken / "tokenizer.json").write_bytes(body)
    comparison = compared(bundled()["dune"], broken)
    assert comparison.verdict.outcome == "related"
    assert comparison.tokenizers is None
    assert reason(comparison).startswith("a tokenizer cannot be read: ")
    assert "tokenizer.json" in reason(comparison)


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    bare = copied(tmp_path, "heath")
    (bare / "tokenizer.json").unlink()
    comparison = compared(bundled()["dune"], bare)
    assert comparison.verdict.outcome == "related"
    assert comparison.tokenizers is None
    assert "has no tokenizer" in reason(comparison)
