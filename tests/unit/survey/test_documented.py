"""docs/survey.md names every table of a survey with all its columns, in order, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelkin.records.survey import KnownPair, Matrix, Survey, SurveyCost, SurveyModel, Table
from modelkin.survey import SurveyOptions, survey
from modelkin.survey.truncation import COLUMNS as TRUNCATION

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "src" / "modelkin" / "demo" / "models"
ROLES = ("input_norm", "post_norm", "k", "router", "embedding")


@pytest.fixture(scope="module")
def documented() -> dict[str, tuple[str, ...]]:
    text = (ROOT / "docs" / "survey.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ((?:`\w+` ?)+)\|$", text, re.MULTILINE)
    return {name: tuple(re.findall(r"`(\w+)`", columns)) for name, columns in rows}


def test_every_table_and_column_is_documented(documented: dict[str, tuple[str, ...]]) -> None:
    made = survey([str(MODELS / name) for name in ("amber", "birch", "cobalt", "ember")], SurveyOptions(roles=ROLES))
    tables = {table.name: table.columns for table in made.tables}
    assert documented == tables | {"truncation": TRUNCATION}  # all bundled models have one number of heads


def test_kinds_of_matrices_are_documented() -> None:
    text = (ROOT / "docs" / "survey.md").read_text(encoding="utf-8")
    made = survey([str(MODELS / name) for name in ("amber", "birch")])
    assert {matrix.name.split(".")[0] for matrix in made.matrices} == set(re.findall(r"`(\w+)\.\*`", text))
    section = text.partition("## Matrices\n")[2].partition("## survey.json")[0]
    assert {matrix.metric for matrix in made.matrices} <= set(re.findall(r"`(\w+)`", section))


def test_every_key_of_the_record_is_documented() -> None:
    text = (ROOT / "docs" / "survey.md").read_text(encoding="utf-8").partition("## survey.json\n")[2]
    rows = dict(re.findall(r"^\| (?:the|an?) ([a-z ]+) \| (`.*) \|$", text, re.MULTILINE))
    records = dict(zip(rows, (Survey, SurveyModel, KnownPair, Table, Matrix, SurveyCost), strict=True))
    for name, kind in records.items():
        assert sorted(re.findall(r"`(\w+)`", rows[name])) == sorted(kind.__struct_fields__), name
