"""Documents are read back by the public bindings, which hold every type, value and count of the SPDX model."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
import spdx_python_model
from known_pairs import COMMIT, OUTCOMES, merged, of_outcome, on_a_hub, told

from modelkin.records import Comparison
from modelkin.report.spdx import NO_DATE, spdx

RELATION = {
    "related": ["other"],
    "related, and in which order": ["descendantOf"],
    "in part": ["other"],
    "unrelated": [],
}


def graph(comparison: Comparison) -> list[dict[str, Any]]:
    """The elements, once the public library has read them, written them and found every reference."""
    data = json.loads(spdx(comparison))
    model, objects = spdx_python_model.load_data(data)
    assert objects.link() == set()
    model.JSONLDSerializer().write(objects, io.BytesIO())
    found: list[dict[str, Any]] = data["@graph"]
    return found


def of_type(elements: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [element for element in elements if element["type"] == kind]


def relations(elements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in of_type(elements, "Relationship") if each["relationshipType"] != "contains"]


def test_the_library_refuses_what_is_wrong() -> None:
    """Else the tests below would show nothing."""
    data = json.loads(spdx(of_outcome("related")))
    wrong = json.loads(json.dumps(data).replace('"relationshipType": "other"', '"relationshipType": "stolenFrom"'))
    assert wrong != data
    with pytest.raises(ValueError, match="stolenFrom"):
        spdx_python_model.load_data(wrong)
    for element in data["@graph"]:
        element.pop("created", None)
    model, objects = spdx_python_model.load_data(data)
    with pytest.raises(ValueError, match="created"):
        model.JSONLDSerializer().write(objects, io.BytesIO())


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_every_outcome_is_valid_and_claims_no_more_than_was_found(outcome: str) -> None:
    case = of_outcome(outcome)
    for named in (case, on_a_hub(case)):
        elements = graph(named)
        assert [each["relationshipType"] for each in relations(elements)] == RELATION[outcome]
        assert [each["name"] for each in of_type(elements, "ai_AIPackage")] == [named.a.id, named.b.id]
        assert of_type(elements, "SpdxDocument")[0]["description"] == case.verdict.sentence


def test_the_descendant_descends_from_the_ancestor() -> None:
    case = on_a_hub(of_outcome("related, and in which order"))
    for direction, child, parent in (("a->b", "b", "a"), ("b->a", "a", "b")):
        (relation,) = relations(graph(told(case, direction, "fine-tune")))  # type: ignore[arg-type]
        assert relation["relationshipType"] == "descendantOf"
        assert relation["from"].endswith(f"#model-{child}")
        assert [to.endswith(f"#model-{parent}") for to in relation["to"]] == [True]
    (part,) = relations(graph(told(case, "a->b", "component-reuse")))
    assert part["relationshipType"] == "other"


def test_a_mixture_descends_from_all_its_parents() -> None:
    case = told(on_a_hub(of_outcome("related, and in which order")), "a->b", "merge")
    elements = graph(merged(case, "example/base-7b", "zoo/other"))
    names = {each["spdxId"]: each["name"] for each in of_type(elements, "ai_AIPackage")}
    (relation,) = relations(elements)
    assert [names[to] for to in relation["to"]] == ["example/base-7b", "zoo/other"]


def test_every_answer_is_an_annotation_with_what_strangers_show() -> None:
    case = of_outcome("unrelated")
    statements = [each["statement"] for each in of_type(graph(case), "Annotation")]
    assert len(statements) == len(case.answers) + 1
    gains = next(text for text in statements if text.startswith("hidden-axes-by-gains"))
    assert "Between strangers: 1 of 128 on average" in gains
    assert json.loads(statements[0])["verdict"]["outcome"] == "unrelated"


def test_no_probability_is_given_of_an_order_that_is_not_told() -> None:
    verdict = msgspec.structs.replace(of_outcome("related").verdict, direction="unknown", direction_probability=0.76)
    case = msgspec.structs.replace(of_outcome("related"), verdict=verdict)
    told_of = json.loads(of_type(graph(case), "Annotation")[0]["statement"])
    assert told_of["verdict"]["direction_probability"] is None


def test_models_of_a_hub_can_be_fetched_again() -> None:
    package = of_type(graph(on_a_hub(of_outcome("related"))), "ai_AIPackage")[0]
    assert package["software_packageUrl"] == f"pkg:huggingface/example/base-7b@{COMMIT}"
    assert package["software_downloadLocation"] == f"https://huggingface.co/example/base-7b/tree/{COMMIT}"
    local = of_type(graph(of_outcome("related")), "ai_AIPackage")[0]
    assert not {"software_packageUrl", "software_downloadLocation", "software_packageVersion"} & local.keys()


def test_files_of_weights_bear_their_hashes() -> None:
    case = of_outcome("related")
    known = {fact.sha256 for party in (case.a, case.b) for fact in party.files if fact.name in party.weights}
    files = of_type(graph(case), "software_File")
    assert {file["verifiedUsing"][0]["hashValue"] for file in files} == known


def test_the_same_record_gives_the_same_document_with_the_date_of_the_record() -> None:
    case = of_outcome("related")
    again = msgspec.json.decode(msgspec.json.encode(case), type=Comparison)
    assert spdx(again) == spdx(case)
    assert NO_DATE in spdx(case)
    dated = spdx(msgspec.structs.replace(case, made="2026-01-31T12:00:00Z"))
    assert "2026-01-31T12:00:00Z" in dated
    assert NO_DATE not in dated
    assert "holds no date" not in dated
