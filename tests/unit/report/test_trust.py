"""A record that was changed is refused, or shown under a warning in every form; a contradiction always is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from known_pairs import compared, of_outcome
from known_surveys import of_three

from modelkin.cli import main
from modelkin.records import Comparison
from modelkin.records.comparison import seal
from modelkin.records.survey import sealed_survey
from modelkin.report.files import to_json
from modelkin.report.html import drawing
from modelkin.report.trust import BROKEN, contradictions, is_whole

Record = dict[str, Any]


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def report(record: Record, folder: Path, *options: str) -> Result:
    file = folder / "record.json"
    file.write_text(json.dumps(record), "utf-8")
    return CliRunner().invoke(main, ["report", str(file), "--no-figures", "--out", str(folder / "out"), *options])


def sealed_anew(record: Record) -> None:
    record["sha256"] = seal(msgspec.convert(record, Comparison))


def stored(what: str = "related") -> Record:
    made: Record = json.loads(to_json(of_outcome(what) if what != "survey" else of_three()))
    return made


def renamed(record: Record) -> None:
    record["a"]["id"] = "somebody/else"


def another_kind(record: Record) -> None:
    record["verdict"]["kinds"] = [{"kind": "identical", "probability": None}]


def another_seal(record: Record) -> None:
    record["sha256"] = "0" * 64


def no_seal(record: Record) -> None:
    record["sha256"] = ""


@pytest.mark.parametrize("change", [renamed, another_kind, another_seal, no_seal])
def test_a_broken_seal_is_refused_with_what_to_try(change: Callable[[Record], None], tmp_path: Path) -> None:
    record = stored()
    change(record)
    done = report(record, tmp_path)
    assert done.exit_code == 4
    assert "the record was changed after it was made" in done.stderr
    assert "--unsealed" in done.stderr
    assert not (tmp_path / "out").exists()


def test_under_the_option_every_form_begins_with_the_warning(tmp_path: Path) -> None:
    record = stored()
    renamed(record)
    done = report(record, tmp_path, "--unsealed", "--markdown", str(tmp_path / "comment.md"))
    assert done.exit_code == 0, done.output
    out = tmp_path / "out"
    page = (out / "report.html").read_text("utf-8")
    assert page.index(BROKEN["en"]) < page.index('class="sheet"')
    assert BROKEN["ko"] in page
    assert " ".join((out / "comparison.txt").read_text("utf-8").split()).startswith(f"WARNING: {BROKEN['en'][:40]}")
    assert "WARNING" in done.stdout
    for file in (out / "comparison.md", tmp_path / "comment.md"):
        assert file.read_text("utf-8").startswith(f"> **{BROKEN['en']}**")
    assert not (out / "comparison.cdx.json").exists()  # no program would heed a warning
    assert not (out / "comparison.spdx.json").exists()
    assert json.loads((out / "comparison.json").read_text("utf-8"))["sha256"] == record["sha256"]


def test_no_card_is_proposed_from_a_changed_record(tmp_path: Path) -> None:
    record = stored()
    renamed(record)
    assert report(record, tmp_path, "--unsealed", "--model-card").exit_code == 2


def test_a_whole_record_has_no_warning(tmp_path: Path) -> None:
    assert report(stored(), tmp_path).exit_code == 0
    assert BROKEN["en"] not in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert (tmp_path / "out" / "comparison.cdx.json").exists()


def test_the_mark_that_some_editors_put_before_a_text_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(json.dumps(stored()), "utf-8-sig")
    assert CliRunner().invoke(main, ["report", str(file)]).exit_code == 0


def other_outcome(record: Record) -> str:
    record["verdict"]["outcome"] = "unrelated"
    return "its outcome is 'unrelated'"


def no_answers(record: Record) -> str:
    record["answers"] = []
    return "no question has an answer"


def negative(record: Record) -> str:
    next(answer for answer in record["answers"] if answer.get("pvalue") is not None)["pvalue"] = -3.0
    return "is -3, which no p can be"


def above_one(record: Record) -> str:
    record["verdict"]["log10_pvalue"] = 5.0
    return "is 100000, which no p can be"


def too_sure(record: Record) -> str:
    record["verdict"]["kinds"][0]["probability"] = 1.5
    return "is 1.5, which no share can be"


def less_than_none(record: Record) -> str:
    next(answer for answer in record["answers"] if answer["answer"] == "evidence")["n"] = -5
    return "was asked of -5 things"


def no_date(record: Record) -> str:
    record["made"] = "yesterday"
    return "it was made on 'yesterday', which is no date"


@pytest.mark.parametrize("change", [other_outcome, no_answers, negative, above_one, too_sure, less_than_none, no_date])
def test_a_contradiction_is_refused_though_sealed_anew_and_asked_for(
    change: Callable[[Record], str], tmp_path: Path
) -> None:
    record = stored()
    said = change(record)
    sealed_anew(record)
    done = report(record, tmp_path, "--unsealed")
    assert done.exit_code == 4
    assert "the record contradicts itself" in done.stderr
    assert said in done.stderr


def all_by_chance(record: Record) -> None:
    for answer in record["answers"]:
        if answer.get("pvalue") is not None:
            answer |= {"pvalue": 1.0, "log10_pvalue": 0.0, "adjusted_pvalue": 1.0}


def an_order(record: Record) -> None:
    record["verdict"]["direction"] = "b->a"


@pytest.mark.parametrize(
    ("outcome", "change"), [("related", all_by_chance), ("related", an_order), ("unrelated", an_order)]
)
def test_a_verdict_that_its_answers_do_not_lead_to_is_refused_though_sealed_anew(
    outcome: str, change: Callable[[Record], None], tmp_path: Path
) -> None:
    record = stored(outcome)
    change(record)
    sealed_anew(record)
    done = report(record, tmp_path)
    assert done.exit_code == 4, done.output
    assert "the record contradicts itself: verdict." in done.stderr
    assert "and its answers lead to" in done.stderr


@pytest.mark.parametrize("pair", [("dune", "heath"), ("dune", "fjord"), ("ember", "cobalt"), ("dune", "grove")])
def test_nothing_that_compare_finds_is_taken_for_a_contradiction(pair: tuple[str, str]) -> None:
    found = compared(*pair)
    assert is_whole(found)
    assert list(contradictions(found)) == []


def test_a_survey_is_sealed_and_dated_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    assert is_whole(of_three())
    dated = sealed_survey(of_three(), "2026-01-31T12:00:00Z")
    assert is_whole(dated)
    assert dated.sha256 != of_three().sha256
    record = stored("survey")
    record["models"][0]["label"] = "another"
    assert report(record, tmp_path).exit_code == 4
    assert report(record, tmp_path, "--unsealed").exit_code == 0
    assert BROKEN["ko"] in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert (tmp_path / "out" / "survey.txt").read_text("utf-8").startswith("WARNING")


def test_a_survey_with_an_impossible_p_is_refused(tmp_path: Path) -> None:
    record = stored("survey")
    table = next(table for table in record["tables"] if table["name"] == "layer-pairs")
    table["rows"][0][table["columns"].index("diagonal_p")] = 7.0
    done = report(record, tmp_path, "--unsealed")
    assert done.exit_code == 4
    assert "diagonal_p of the table layer-pairs holds 7" in done.stderr
