"""report.html of a survey: what it says in both languages, what strangers would show beside it, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from known_surveys import made_up, of_three
from test_html import HOSTILE, Reader, _at, keys

from modelkin.cli import main
from modelkin.records import Survey
from modelkin.report.files import to_json
from modelkin.report.html import drawing, page
from modelkin.report.html.survey_charts import survey_charts
from modelkin.report.html.survey_parts import MOST_CELLS, layer_maps, pair_lines
from modelkin.report.html.survey_sheet import SHOWN_PAIRS
from modelkin.report.html.words import LANGUAGES, Language, survey_words
from modelkin.report.notable import MOST_MODELS, MOST_PAIRS
from modelkin.report.phrasebook import korean

SAME_IN_BOTH = {".pairs.p", ".record.version", ".dashes[4]", ".head.limits[4]", ".glossary.entries[6]", ".legend.high"}
LARGEST = 6_000_000


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed."""
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def own(language: Language) -> dict[str, Any]:
    return {key: value for key, value in survey_words(language).items() if key != "page"}


def test_both_languages_have_the_same_words_and_none_was_left_in_english() -> None:
    assert keys(own("en")) == keys(own("ko"))
    same = {key for key in keys(own("ko")) if not re.search("[가-힣]", _at(own("ko"), key))}
    assert same <= SAME_IN_BOTH, same - SAME_IN_BOTH


def test_every_title_and_every_null_of_a_survey_has_its_korean() -> None:
    parts = [*of_three().tables, *of_three().matrices]
    texts = {text for part in parts for text in (part.title, part.strangers)}
    texts |= {table.caption for table in of_three().tables}
    assert len(texts) > 60
    assert sorted(text for text in texts if korean(text) is None) == []


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_of_every_table_what_it_is_and_what_strangers_show() -> None:
    survey = of_three()
    said = " ".join(Reader(page.survey_html(survey)).said["en"].split()).lower()
    for table in survey.tables[1:]:
        for text in (table.name, table.title, table.caption, table.strangers):
            assert " ".join(text.replace("`", "").split()).lower() in said, text
    for matrix in survey.matrices:
        assert matrix.name in said
    for model in survey.models:
        assert model.id.lower() in said


@pytest.mark.usefixtures("undrawn")
def test_beside_every_number_of_a_pair_stands_what_strangers_have() -> None:
    text = page.survey_html(of_three())
    row = re.search(r'<tr role="row"><th role="rowheader" scope="row">dune · heath</th>.*?</tr>', text, re.S)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0])
    scatter = next(line.scatter for line in pair_lines(of_three()) if (line.a, line.b) == ("dune", "heath"))
    assert scatter is not None
    assert cells[2] == f"0 ± {scatter:.2g}"
    assert 0.9 * (6 * 128) ** -0.5 < scatter < 128**-0.5  # from that of six independent layers to that of a single one
    assert 0.99 < float(cells[5]) < float(cells[4])


def test_the_pairs_that_are_most_alike_come_first() -> None:
    lines = pair_lines(of_three())
    assert (lines[0].a, lines[0].b) == ("dune", "heath")
    assert min(line.pearson or 0 for line in lines[:2]) > 0.9
    assert max(line.pearson or 0 for line in lines[2:]) < 0.3


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_has_a_text_alternative_and_its_numbers(language: Language) -> None:
    found = survey_charts(of_three(), language)
    assert set(found) == {"facing", "likeness", "maps", "gain-curves", "cosines"}
    for charts in found.values():
        for chart in charts:
            assert chart.title in chart.alt
            assert chart.rows
            assert {len(row) for row in chart.rows} == {len(chart.columns)}


def test_a_heat_map_holds_the_values_of_its_matrix() -> None:
    line, matrix = layer_maps(of_three())[0]
    chart = survey_charts(of_three(), "en")["maps"][0]
    assert (line.a, line.b) == ("dune", "heath")
    assert chart.rows[2][3] == f"{matrix.values[2][2]:.4f}"
    cells = chart.spec["data"]["values"]
    assert len(cells) == len(matrix.rows) * len(matrix.columns)
    assert {"i": "2", "j": "2", "v": round(matrix.values[2][2] or 0.0, 4)} in cells


def test_a_large_survey_still_makes_a_page_that_can_be_sent() -> None:
    survey = made_up()
    shown = layer_maps(survey)
    assert sum(len(matrix.rows) * len(matrix.columns) for _, matrix in shown) <= MOST_CELLS
    assert len(shown) >= 1
    text = page.survey_html(survey)
    assert len(text.encode()) <= LARGEST, f"{len(text.encode()):,}"
    assert survey_words("en")["maps"]["rest"].partition("{rest}")[2] in text


def test_the_page_of_many_models_is_bounded_and_says_what_it_leaves_to_the_files() -> None:
    """44 models are 946 pairs: the page draws the most alike of them, and no more than of a few models."""
    survey = made_up(44, 6)
    found = survey_charts(survey, "en")
    assert len(found["facing"]) == len(found["gain-curves"]) == MOST_PAIRS == MOST_MODELS
    assert len(found["maps"]) <= 2 * MOST_PAIRS
    first = list(dict.fromkeys(f"{line.a} · {line.b}" for line in pair_lines(survey)))[:MOST_PAIRS]
    assert [chart.title for chart in found["facing"]] == first
    text = page.survey_html(survey)
    assert len(text.encode()) <= LARGEST, f"{len(text.encode()):,}"
    said = Reader(text).said["en"]
    assert survey_words("en")["facing"]["rest"].format(rest=946 - MOST_PAIRS) in said
    assert survey_words("en")["gain_curves"]["rest"].format(rest=44 - MOST_MODELS) in said
    assert survey_words("en")["pairs"]["rest"].format(rest=f"{2 * 946 - SHOWN_PAIRS:,}") in said


def test_what_lies_inside_the_band_of_strangers_has_no_small_p() -> None:
    for line in pair_lines(of_three()):
        assert line.scatter is not None
        assert line.pvalue is not None
        assert ((line.pearson or 0) > 1.8 * line.scatter) == (line.pvalue < 0.05)


def test_what_was_left_out_is_said_in_korean() -> None:
    widths = "models of different widths are not set beside each other (128: dune; 160: moss)"
    components = "principal components are those of the vectors with 128 values; others are left out"
    survey = msgspec.structs.replace(made_up(2, 3), left_out=(widths, components))
    said = Reader(page.survey_html(survey)).said["ko"]
    assert "폭이 다른 모델은 나란히 견주지 않음(128: dune; 160: moss)" in said
    assert "different widths" not in said
    assert "rincipal components" not in said
    assert "비교 기록" not in said


@pytest.mark.usefixtures("undrawn")
def test_names_with_markup_stay_text() -> None:
    record = json.loads(to_json(made_up(3, 4)))
    record["models"][0] |= {"label": HOSTILE, "id": HOSTILE, "family": HOSTILE}
    record["tables"][0] |= {"title": HOSTILE, "caption": HOSTILE, "strangers": HOSTILE}
    record["left_out"] = [HOSTILE]
    read = Reader(page.survey_html(msgspec.convert(record, Survey)))
    assert not read.with_tag("img")
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert HOSTILE[:20] in read.said["en"]


def test_names_with_markup_stay_text_in_the_data_of_charts() -> None:
    text = to_json(made_up(2, 3)).replace("a-model-with-a-long-name-0", json.dumps(HOSTILE)[1:-1])
    read = Reader(page.survey_html(msgspec.json.decode(text, type=Survey)))
    assert len(read.with_tag("img")) == 0
    assert len([one for one in read.with_tag("script") if one.get("type") != "application/json"]) == 2


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("models", [0, 1])
def test_nothing_to_compare_is_said(models: int) -> None:
    survey = made_up(2, 3)
    alone = msgspec.structs.replace(survey, models=survey.models[:models], tables=(), matrices=())
    assert survey_words("en")["pairs"]["none"] in Reader(page.survey_html(alone)).said["en"]


def written(survey: Survey, folder: Path) -> Path:
    file = folder / "survey.json"
    file.write_text(to_json(survey), "utf-8")
    return file


@pytest.mark.usefixtures("undrawn")
def test_a_record_gives_the_same_page_again(tmp_path: Path) -> None:
    file, out = written(of_three(), tmp_path), tmp_path / "out"
    done = CliRunner().invoke(main, ["report", str(file), "--no-figures", "--out", str(out), "--lang", "ko"])
    assert done.exit_code == 0, done.output
    assert (out / "report.html").read_text("utf-8") == page.survey_html(of_three(), "ko")
    assert (out / "survey.json").read_text("utf-8") == file.read_text("utf-8")
    assert "pip install 'modelkin[report]'" in done.stderr
    assert not (out / "figures").exists()
    other = tmp_path / "another" / "place"
    assert CliRunner().invoke(main, ["report", str(file), "--no-figures", "--out", str(other)]).exit_code == 0
    assert (other / "survey.txt").read_bytes() == (out / "survey.txt").read_bytes()


def test_a_survey_has_no_markdown_and_no_model_card(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(written(made_up(2, 3), tmp_path)), "--model-card"])
    assert done.exit_code == 2
    assert "a survey has no such form" in done.stderr


def broken() -> dict[str, Any]:
    record = json.loads(to_json(made_up(2, 3)))
    table, matrix = record["tables"][0], record["matrices"][0]
    return {
        "another schema": {**record, "schema": "modelkin.survey/9"},
        "no column": {**record, "tables": [{**table, "columns": ["x", *table["columns"][1:]]}]},
        "a short row": {**record, "tables": [{**table, "rows": [[1]]}]},
        "a short matrix": {**record, "matrices": [{**matrix, "values": matrix["values"][1:]}]},
        "a ragged matrix": {**record, "matrices": [{**matrix, "values": [[1.0], *matrix["values"][1:]]}]},
        "a wrong type": {**record, "seed": "seven"},
    }


@pytest.mark.parametrize("what", broken())
def test_a_broken_record_is_refused_before_anything_is_written(what: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(broken()[what]), "utf-8")
    done = CliRunner().invoke(main, ["report", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 4
    assert done.stderr.startswith("modelkin: ")
    assert not (tmp_path / "out").exists()
