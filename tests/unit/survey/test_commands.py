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
        ("survey", AMBER, BIRCH, "--mixed", "amber:1"),
        ("survey", AMBER, BIRCH, "--mixed", "amber:1,amber:2"),
        ("survey", AMBER, BIRCH, "--known", "derived:amber,amber"),
        ("survey", AMBER, BIRCH, "--known", "derived:amber,birch", "--known", "independent:birch,amber"),
        ("survey", AMBER, BIRCH, "--group", "one=amber", "--group", "one=birch"),
        ("survey", AMBER, BIRCH, "--group", "one=amber,amber"),
        ("survey", AMBER, BIRCH, "--group", "all=amber"),
        ("survey", AMBER, BIRCH, "--group", "one=,"),
        ("study", "nonsense"),
    ],
)
def test_wrong_usage_ends_with_two(arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


def test_published_numbers_are_held_against_a_survey_of_other_models():
    result = run("survey", AMBER, BIRCH, "--check-reference")
    assert result.exit_code == 0, result.output
    assert "not measured" in result.stdout
    assert "None of these models is one of the originals" in result.stdout


@pytest.mark.parametrize("command", [("survey", "no-such-model"), ("study", "claim", "no-such-model", "nor-this-one")])
def test_a_folder_that_cannot_be_written_is_told_before_any_work(command: tuple[str, ...], tmp_path: Path):
    """Before the models are even looked for."""
    (tmp_path / "file").write_text("")
    result = run(*command, "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "cannot be written" in result.output


def test_a_known_pair_may_be_said_twice():
    known = [part for text in ("amber,birch", "birch,amber") for part in ("--known", f"independent:{text}")]
    record = json.loads(run("survey", AMBER, BIRCH, *known, "--json", "-").stdout)
    assert record["known"] == [{"a": "amber", "b": "birch", "relation": "independent"}]


@pytest.mark.parametrize("order", [("dune", "amber"), ("amber", "dune")])
def test_a_layer_of_either_model_is_looked_at(order: tuple[str, str]):
    """Amber is the deeper one: its layer 8 stands beside a layer of dune with another number."""
    models = [str(MODELS / name) for name in order]
    record = json.loads(run("survey", *models, "--layers", "8", "--roles", "k", "--json", "-").stdout)
    windows = next(table for table in record["tables"] if table["name"] == "windows")
    layers = [dict(zip(windows["columns"], row, strict=True)) for row in windows["rows"]]
    side = "ab"[order.index("amber")]
    assert {row[f"layer_{side}"] for row in layers} == {"8"}
    assert any("amber alone has it" in sentence for sentence in record["left_out"])


def test_the_page_says_why_there_are_no_pairs():
    page = run("survey", AMBER, BIRCH, "--roles", "k").stdout
    assert "none of one width" not in page
    assert "none of the roles asked for (k) is one vector a layer" in " ".join(page.split())


def test_a_long_page_shows_every_role_of_the_pairs_it_shows():
    page = run("survey", *(str(path) for path in sorted(MODELS.iterdir()) if path.is_dir())).stdout
    shown = page[page.index("Facing layers") : page.index("Between strangers")].splitlines()
    roles = [role for line in shown for role in ("input_norm", "post_norm") if role in line.split()]
    assert roles[:4] == ["input_norm", "post_norm"] * 2
    assert any(line.startswith("… and ") and line.endswith("layer-pairs.csv") for line in shown)


def test_studies_are_listed():
    assert "cosine-bias" in run("study").stdout
