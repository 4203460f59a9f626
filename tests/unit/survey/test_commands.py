"""`modelkin survey` and `modelkin study` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelkin.cli import main

MODELS = Path(__file__).parents[3] / "src" / "modelkin" / "demo" / "models"
AMBER, BIRCH = str(MODELS / "amber"), str(MODELS / "birch")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_page_has_the_null_beside_every_cosine():
    result = run("survey", AMBER, BIRCH, "--known", f"independent:{AMBER},birch")
    assert result.exit_code == 0, result.output
    assert "expected" in result.stdout
    assert "Between strangers" in result.stdout
    assert "independent" in result.stdout


def test_json_alone_goes_to_standard_output():
    record = json.loads(run("survey", AMBER, BIRCH, "--layers", "1,2", "--json", "-").stdout)
    assert record["schema"] == "modelkin.survey/1"
    assert record["layers"] == ["1", "2"]


def test_the_same_model_twice_is_said():
    result = run("survey", AMBER, AMBER)
    assert "given more than once" in result.stdout
    assert "amber-2" in result.stdout


def test_out_writes_a_file_a_table(tmp_path: Path):
    result = run("survey", AMBER, BIRCH, "--no-figures", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "tables" / "layer-pairs.csv").exists()
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("survey",),
        ("survey", AMBER, "--roles", "nonsense"),
        ("survey", AMBER, "--group", "nonsense"),
        ("survey", AMBER, "--known", "parent:a,b"),
        ("survey", AMBER, "--known", "derived:amber"),
        ("survey", AMBER, "--mixed", "amber"),
        ("study", "nonsense"),
    ],
)
def test_wrong_usage_ends_with_two(arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


def test_published_numbers_are_held_against_a_survey_of_other_models():
    result = run("survey", AMBER, BIRCH, "--check-reference")
    assert result.exit_code == 0, result.output
    assert "not measured" in result.stdout


def test_studies_are_listed():
    assert "cosine-bias" in run("study").stdout
