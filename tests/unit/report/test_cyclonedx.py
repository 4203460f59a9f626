from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from known_pairs import COMMIT, OUTCOMES, merged, of_outcome, on_a_hub, told

from modelkin.records import Assumption, Comparison, Evidence
from modelkin.report.cyclonedx import cyclonedx

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_7)


def document(comparison: Comparison) -> dict[str, Any]:
    text = cyclonedx(comparison)
    assert VALIDATOR.validate_str(text) is None
    read: dict[str, Any] = json.loads(text)
    return read


def properties(node: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in node["properties"]}


def claim(comparison: Comparison) -> dict[str, Any]:
    found: dict[str, Any] = document(comparison)["declarations"]["claims"][0]
    return found


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_every_outcome_is_valid_and_says_its_verdict(outcome: str) -> None:
    case = of_outcome(outcome)
    for named in (case, on_a_hub(case)):
        read = document(named)
        assert read["specVersion"] == "1.7"
        assert properties(read)["modelkin:outcome"] == case.verdict.outcome
        assert properties(read)["modelkin:sentence"] == case.verdict.sentence
        assert [part["type"] for part in read["components"]] == ["machine-learning-model"] * 2
        assert case.verdict.sentence in claim(named)["predicate"]


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_only_a_descent_with_an_order_has_a_pedigree(outcome: str) -> None:
    a, b = document(on_a_hub(of_outcome(outcome)))["components"]
    assert "pedigree" not in a
    assert ("pedigree" in b) == (outcome == "related, and in which order")


def test_the_ancestor_is_whoever_came_first() -> None:
    case = on_a_hub(of_outcome("related, and in which order"))
    a, b = document(told(case, "b->a", "fine-tune"))["components"]
    assert "pedigree" not in b
    (weights,) = case.b.weights
    digest = next(fact.sha256 for fact in case.b.files if fact.name == weights)
    assert a["pedigree"]["ancestors"] == [
        {
            "type": "machine-learning-model",
            "name": "acme/orca-7b",
            "version": COMMIT,
            "purl": f"pkg:huggingface/acme/orca-7b@{COMMIT}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "externalReferences": [{"type": "distribution", "url": case.b.address}],
            "properties": [{"name": "modelkin:same-as", "value": "model-b"}],
        }
    ]
    part = document(told(case, "a->b", "component-reuse"))["components"]
    assert not any("pedigree" in component for component in part)


def test_a_mixture_has_all_its_parents_for_ancestors() -> None:
    case = told(on_a_hub(of_outcome("related, and in which order")), "a->b", "merge")
    _, b = document(merged(case, "zoo/other", "example/base-7b"))["components"]
    one, other = b["pedigree"]["ancestors"]
    assert one["name"] == "example/base-7b"
    assert other["purl"] == f"pkg:huggingface/zoo/other@{COMMIT}"
    assert properties(other) == {"modelkin:given-as": "candidate"}
    _, alone = document(merged(case, "example/base-7b", "zoo/other", missing=True))["components"]
    assert [node["name"] for node in alone["pedigree"]["ancestors"]] == ["example/base-7b"]


def test_a_relation_rests_on_what_rejects_alone() -> None:
    """Answers that show nothing are no evidence of a relation, whatever their grade."""
    assert claim(of_outcome("related, and in which order"))["evidence"] == ["evidence/unmasked-neurons"]
    assert claim(of_outcome("in part"))["evidence"] == ["evidence/hidden-axes-by-gains"]
    assert "evidence/hidden-axes-by-gains" in claim(of_outcome("unrelated"))["evidence"]


def test_every_answer_stands_beside_what_strangers_show() -> None:
    case = of_outcome("related")
    told_of = {entry["bom-ref"]: entry["description"] for entry in document(case)["declarations"]["evidence"]}
    assert len(told_of) == len(case.answers)
    for answer in case.answers:
        said = told_of[f"evidence/{answer.question}"]
        assert (answer.strangers if isinstance(answer, Evidence) else answer.unanswered) in said


def test_a_count_that_does_not_count_is_not_shown() -> None:
    case = of_outcome("related")
    broken = tuple(
        msgspec.structs.replace(answer, grade=None, assumptions=(Assumption("axes may be renumbered", False),))
        if isinstance(answer, Evidence) and answer.question == "hidden-axes-by-gains"
        else answer
        for answer in case.answers
    )
    read = document(msgspec.structs.replace(case, answers=broken))["declarations"]
    entry = next(each for each in read["evidence"] if each["bom-ref"] == "evidence/hidden-axes-by-gains")
    assert entry["description"] == "Does not count, as this does not hold: axes may be renumbered."
    assert "data" not in entry
    assert "evidence/hidden-axes-by-gains" not in read["claims"][0]["evidence"]


def test_files_of_weights_bear_their_hashes() -> None:
    case = of_outcome("related")
    (file,) = document(case)["components"][0]["components"]
    fact = next(fact for fact in case.a.files if fact.name == "model.safetensors")
    assert file["hashes"] == [{"alg": "SHA-256", "content": fact.sha256}]


def test_no_probability_is_given_of_an_order_that_is_not_told() -> None:
    verdict = msgspec.structs.replace(of_outcome("related").verdict, direction="unknown", direction_probability=0.76)
    case = msgspec.structs.replace(of_outcome("related"), verdict=verdict)
    assert "modelkin:direction-probability" not in properties(document(case))


def test_the_same_record_gives_the_same_document_and_another_another() -> None:
    case = of_outcome("related")
    again = msgspec.json.decode(msgspec.json.encode(case), type=Comparison)
    assert cyclonedx(again) == cyclonedx(case)
    assert document(of_outcome("unrelated"))["serialNumber"] != document(case)["serialNumber"]
    assert "timestamp" not in document(case)["metadata"]


def test_the_date_is_that_of_the_record_if_it_is_one() -> None:
    dated = msgspec.structs.replace(of_outcome("related"), made="2026-01-31T12:00:00Z")
    assert document(dated)["metadata"]["timestamp"] == "2026-01-31T12:00:00Z"
    forged = msgspec.structs.replace(dated, made="yesterday")
    assert "timestamp" not in document(forged)["metadata"]


def test_names_from_strangers_stay_text() -> None:
    case = on_a_hub(of_outcome("related"), a='"><script>\n\u202e@all', b="../../etc")
    read = document(case)
    assert [part["name"] for part in read["components"]] == [case.a.id, case.b.id]
    assert not any("purl" in part or "externalReferences" in part for part in read["components"][:1])
