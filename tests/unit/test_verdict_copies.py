"""What tensors that are the same number for number do to a verdict."""

from __future__ import annotations

import pytest

from modelkin.records import Evidence, Null, Verdict
from modelkin.verdict import judge

SETS = {"hidden-axes-by-gains": "hidden axes", "neurons": "neurons", "hidden-axes-by-embeddings": "hidden axes"}


def asked(question: str, log10: float) -> Evidence:
    return Evidence(
        question=question,
        index_set=SETS[question],  # type: ignore[arg-type]
        grade="A",
        statistic=60.0,
        pvalue=10.0**log10,
        log10_pvalue=log10,
        null=Null("one finds itself"),
        n=64,
        effect=0.9 if log10 < -6 else 0.0,
        observed="60 of 64",
        strangers="1 of 64",
        detectable=0.05,
    )


def copies(statistic: float, n: int = 1000, effect: float = 0.1) -> Evidence:
    return Evidence(
        question="copies",
        index_set="tensors",
        grade="A" if statistic else None,
        statistic=statistic,
        pvalue=None,
        log10_pvalue=None,
        null=Null("none"),
        n=n,
        effect=effect,
        observed="2 of 9 tensors are in both to the byte: query and key of layer 3",
        strangers="none",
    )


def kinds(verdict: Verdict) -> list[str]:
    return [share.kind for share in verdict.kinds]


QUIET = [asked("hidden-axes-by-gains", -0.3), asked("neurons", -0.3)]
SHARED_INIT = [asked("hidden-axes-by-gains", -0.3), asked("neurons", -41), asked("hidden-axes-by-embeddings", -41)]


def test_copies_alone_are_component_reuse_without_a_pvalue() -> None:
    verdict = judge([copies(10), *QUIET])
    assert (verdict.outcome, kinds(verdict), verdict.pvalue) == ("related", ["component-reuse"], None)
    assert "query and key of layer 3" in verdict.sentence
    assert "in the other rows that were compared nothing beyond chance was seen" in verdict.sentence


def test_what_is_the_same_is_never_called_unshared() -> None:
    sentence = judge([copies(10), *QUIET]).sentence
    assert "not shared" not in sentence
    assert "neurons" not in sentence


def test_equal_constants_change_nothing() -> None:
    without, beside = judge(QUIET), judge([copies(0, effect=0.3), *QUIET])
    assert without == beside
    assert beside.outcome == "unrelated"


def test_identical_is_said_of_everything_in_its_place_alone() -> None:
    assert kinds(judge([copies(990, effect=1.0), *QUIET])) == ["identical"]
    assert kinds(judge([copies(1000, effect=0.999), *QUIET])) == [
        "component-reuse"
    ]  # all that was looked at, or a cast


@pytest.mark.parametrize(("equal", "kind"), [(0, "shared-init"), (100, "shared-init"), (900, "component-reuse")])
def test_training_apart_does_not_leave_most_numbers_as_they_were(equal: int, kind: str) -> None:
    assert kinds(judge([copies(equal), *SHARED_INIT])) == [kind]


def test_the_same_embeddings_are_no_distillation() -> None:
    found = [copies(100), asked("hidden-axes-by-embeddings", -41), asked("neurons", -0.3)]
    assert "distillation" not in judge(found).sentence
    assert "distillation" in judge(found[1:]).sentence
    assert kinds(judge(found)) == ["component-reuse"]
