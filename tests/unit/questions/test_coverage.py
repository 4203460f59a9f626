"""What was compared: parts count by a sound answer about them, and what was left out is told in words."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from builders import llama_files, llama_tensors
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.questions.coverage import compared_parts
from modelkin.questions.question import Pair
from modelkin.records import Answer, Evidence, Null, Role, Unanswered
from modelkin.sources.memory import MemorySource

EVERYTHING = frozenset(Role)
QUESTIONS = ("hidden-axes-by-gains", "neurons", "hidden-axes-by-embeddings", "attention")


def anatomy(**more: tuple[int, int]) -> Anatomy:
    """`more`: further tensors by name, of no known role."""
    tensors = llama_tensors() | {name: np.ones(shape, np.float32) for name, shape in more.items()}
    return identify(open_checkpoint(MemorySource(llama_files() | {"model.safetensors": save(tensors)})))


def answer(question: str, grade: str | None = "A") -> Evidence:
    return Evidence(
        question=question,
        index_set="none",
        grade=grade,  # type: ignore[arg-type]
        statistic=1.0,
        pvalue=0.5,
        log10_pvalue=-0.3,
        null=Null("one"),
        n=16,
        effect=0.0,
        observed="1 of 16",
        strangers="1 of 16",
    )


def covered(answers: list[Answer], roles: frozenset[Role] = EVERYTHING, pair: Pair | None = None) -> Evidence:
    one = anatomy()
    return compared_parts(pair or Pair(one, one, 0, "standard"), answers, roles)


def by_part(evidence: Evidence) -> dict[str, bool]:
    return {finding.b: finding.statistic == 1 for finding in evidence.per_layer}


def remarks(evidence: Evidence) -> str:
    return " ".join(remark.text for remark in evidence.assumptions)


def test_all_parts_answered_soundly_are_all_of_the_parameters() -> None:
    found = covered([answer(question) for question in QUESTIONS])
    assert found.statistic == 1
    assert all(by_part(found).values())
    assert (found.grade, found.pvalue, remarks(found)) == (None, None, "")


def test_parts_hold_all_parameters_once() -> None:
    found = covered([])
    one = anatomy()
    stored = sum(ref.parameters for ref in one.checkpoint.tensors.values())
    assert found.n == 2 * stored
    assert sum(finding.effect or 0.0 for finding in found.per_layer) == pytest.approx(1.0)
    assert found.statistic == 0


def test_an_answer_without_grade_has_compared_nothing() -> None:
    sound = covered([answer("neurons"), answer("attention")])
    unsound = covered([answer("neurons"), answer("attention", grade=None)])
    assert by_part(sound)["attention"]
    assert not by_part(unsound)["attention"]
    assert unsound.statistic < sound.statistic


def test_what_was_read_is_told_where_nothing_counts() -> None:
    tainted = covered([answer(question, grade=None) for question in QUESTIONS], frozenset({Role.GATE, Role.UP}))
    one = anatomy()
    held = sum(np.prod(one.shape(slot)) for slot in one.slots if slot.role in (Role.GATE, Role.UP))
    share = round(100 * held / one.checkpoint.parameters)
    assert tainted.observed == (
        f"no part in a way that counts; rows were read of matrices that hold {share} % of the parameters"
    )
    assert covered([answer("neurons")]).observed.startswith("parts that hold ")


def test_what_could_not_be_asked_is_named_with_the_reason() -> None:
    reason = "the model has no tokenizer"
    found = covered([answer("neurons"), Unanswered("hidden-axes-by-embeddings", reason)])
    assert "Not compared: token embeddings (" in remarks(found)
    assert f"% of the parameters), as {reason}." in remarks(found)


def test_matrices_never_read_inside_a_part_are_named_and_the_part_counts() -> None:
    roles = EVERYTHING - {Role.DOWN, Role.Q}
    found = covered([answer(question) for question in QUESTIONS], roles)
    assert found.statistic == 1
    assert "the query rows of attention" in remarks(found)
    assert "what the MLP writes back (down)" in remarks(found)


def test_a_head_of_its_own_counts_only_where_it_was_read() -> None:
    answers: list[Answer] = [answer(question) for question in QUESTIONS]
    assert by_part(covered(answers))["output head"]
    unread = covered(answers, EVERYTHING - {Role.HEAD})
    assert not by_part(unread)["output head"]
    assert unread.statistic < 1


def test_the_model_of_which_less_was_compared_decides() -> None:
    plain, strange = anatomy(), anatomy(**{"adapter.matrix": (400, 100)})
    answers: list[Answer] = [answer(question) for question in QUESTIONS]
    expected = 1 - 40_000 / sum(ref.parameters for ref in strange.checkpoint.tensors.values())
    for pair in (Pair(plain, strange, 0, "standard"), Pair(strange, plain, 0, "standard")):
        found = covered(answers, pair=pair)
        assert found.statistic == pytest.approx(expected)
        assert "Not compared: other tensors" in remarks(found)
