from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from known_pairs import OUTCOMES, of_outcome

from modelkin.demo import bundled
from modelkin.inspection import inspect
from modelkin.report import schema as schemas
from modelkin.report.files import to_json
from modelkin.report.schema import RECORDS, main, outdated, schema
from modelkin.studies import STUDIES
from modelkin.survey import survey

PUBLISHED = Path(__file__).parents[3] / "docs" / "schema"
# What scripts depend on: these keys are always there.
CONTRACT = {
    "Comparison": "schema modelkin policy seed a b verdict answers alignment controls not_evidence rows cost",
    "Party": "id revision format parameters layers hidden vocabulary files claims",
    "FileFact": "name size sha256",
    "Claims": "base_model relation",
    "Verdict": "outcome grade pvalue kinds direction direction_probability shared layer_map reasons limits",
    "KindShare": "kind probability",
    "Shared": "fraction low high",
    "Evidence": "question index_set grade statistic pvalue adjusted_pvalue null n effect per_layer assumptions",
    "Unanswered": "question unanswered",
    "Null": "text sample",
    "NotEvidence": "measure value expected_from_means_alone why",
    "Cost": "bytes_a bytes_b tensor_bytes_a tensor_bytes_b requests seconds",
}


def published(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((PUBLISHED / name).read_text(encoding="utf-8"))
    return read


def complaints(name: str, record: object) -> list[str]:
    checker = Draft202012Validator(published(name))
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(json.loads(to_json(record)))]


def structs(rules: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "top", rules
    yield from ((name, rule) for name, rule in rules["$defs"].items() if "properties" in rule)


def test_what_is_published_is_what_the_records_say() -> None:
    assert outdated(PUBLISHED) == [], "python -m modelkin.report.schema docs/schema"
    assert {path.name for path in PUBLISHED.iterdir()} == RECORDS.keys()


def test_the_check_fails_where_a_file_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0
    (tmp_path / "study.json").write_text("{}", encoding="utf-8")
    assert main([str(tmp_path), "--check"]) == 1
    assert "study.json" in capsys.readouterr().err
    assert main([]) == 2


@pytest.mark.parametrize("name", list(RECORDS))
def test_every_schema_is_one_and_requires_and_describes_everything(name: str) -> None:
    rules = published(name)
    Draft202012Validator.check_schema(rules)
    for title, rule in structs(rules):
        assert rule["required"] == list(rule["properties"]), title
        assert "default" not in json.dumps(rule["properties"])
    assert rules["description"]
    assert rules["properties"]["schema"] == {"const": rules["title"]}


def test_the_keys_that_scripts_depend_on_are_required() -> None:
    rules = published("comparison.json")
    for name, keys in CONTRACT.items():
        required = (rules if name == "Comparison" else rules["$defs"][name])["required"]
        assert set(keys.split()) <= set(required), name


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_comparisons_are_as_promised(outcome: str) -> None:
    assert complaints("comparison.json", of_outcome(outcome)) == []


def test_inspections_surveys_and_studies_are_as_promised() -> None:
    models = bundled()
    assert complaints("inspection.json", inspect(str(models["dune"]))) == []
    assert complaints("survey.json", survey([str(models["dune"]), str(models["heath"])])) == []
    assert complaints("study.json", STUDIES["cosine-bias"].run()) == []


def test_a_record_that_breaks_the_promise_is_refused() -> None:
    record = json.loads(to_json(of_outcome("related")))
    checker = Draft202012Validator(schema(schemas.Comparison))
    for broken in (
        {key: value for key, value in record.items() if key != "controls"},
        record | {"schema": "modelkin.comparison/2"},
        record | {"verdict": record["verdict"] | {"outcome": "guilty"}},
        record | {"answers": [{"answer": "unanswered", "question": "neurons"}]},
    ):
        assert not checker.is_valid(broken)
