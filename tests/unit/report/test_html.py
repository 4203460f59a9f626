"""report.html without a browser: what it says in both languages, what it never says, and what no name can do to it."""

from __future__ import annotations

import json
import re
import tomllib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner
from known_pairs import COMMIT, OUTCOMES, compared, of_outcome, on_a_hub, told

from modelkin.alignment.kinds import Hidden
from modelkin.cli import main
from modelkin.errors import UnreadableError
from modelkin.records import Comparison, Evidence, Json
from modelkin.report.comparison_text import LABELS
from modelkin.report.files import to_json
from modelkin.report.html import charts, drawing, page, sections
from modelkin.report.html.layer_charts import curve_charts, heat_chart
from modelkin.report.html.numbers import many, zeros
from modelkin.report.html.words import LANGUAGES, Language, words
from modelkin.report.html.words import told as told_text
from modelkin.report.phrasebook import BOOKS
from modelkin.report.text import percent

FOLDER = Path(page.__file__).parent
EXTRAPOLATED = "related, and in which order"  # one of a size and class that few unrelated models have
HOSTILE = '<img src=x onerror=alert(1)></script><script>alert(2)</script>"\u202e'

# Signs, names and figures; and the lists, which `keys` does not open.
NO_WORDS = {
    ".page.title{a} {b} {headline}",
    ".questions.p",
    ".questions.none",
    ".verdict.pvalue{p}",
    ".cost.version",
    ".identity.sha256",
    ".curves.about_zero{spread}",
    ".glossary.entries[10]",
    ".limits.general[5]",
}


class Reader(HTMLParser):
    """The text of each language, the elements with their attributes, and the headings in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.said: dict[str, str] = dict.fromkeys(LANGUAGES, "")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sheet, self.hidden = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.sheet = dict(attrs).get("id") or self.sheet if dict(attrs).get("class") == "sheet" else self.sheet
        self.hidden = tag if tag in ("script", "style", "svg") else self.hidden

    def handle_endtag(self, tag: str) -> None:
        self.hidden = "" if tag == self.hidden else self.hidden

    def handle_data(self, data: str) -> None:
        if self.sheet and not self.hidden:
            self.said[self.sheet] += data

    def with_tag(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed."""
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def keys(node: object, path: str = "") -> set[str]:
    if isinstance(node, dict):
        return {one for key, value in node.items() for one in keys(value, f"{path}.{key}")}
    if isinstance(node, list):
        return {f"{path}[{len(node)}]"}
    return {path + " ".join(sorted(re.findall(r"\{\w+\}", str(node))))}


def test_both_languages_have_the_same_words_with_the_same_places() -> None:
    assert keys(words("en")) == keys(words("ko"))


def test_no_korean_word_was_left_in_english() -> None:
    text = (FOLDER / "words_ko.toml").read_text("utf-8")
    same = {key for key in keys(words("ko")) if not re.search("[가-힣]", _at(words("ko"), key))}
    assert same <= NO_WORDS, same - NO_WORDS
    assert tomllib.loads(text) == words("ko")


def _at(node: object, path: str) -> str:
    for step in re.sub(r"\{.*|\[.*", "", path).strip(".").split("."):
        node = node[step]  # type: ignore[index]
    return str(node) if not isinstance(node, list) else ""


def test_every_syllable_is_in_the_font_that_the_page_carries() -> None:
    books = [FOLDER / "words_ko.toml", FOLDER / "survey_ko.toml", *(FOLDER.parent / name for name in BOOKS)]
    text = "".join(book.read_text("utf-8") for book in books)
    for syllable in set(re.findall("[가-힣]", text)):
        assert len(syllable.encode("euc_kr")) == 2, f"{syllable} is not in KS X 1001"


def test_questions_are_called_as_on_the_text_page() -> None:
    assert words("en")["questions"]["label"] == LABELS


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_page_says_everything_that_the_record_says(outcome: str) -> None:
    comparison = of_outcome(outcome)
    said = " ".join(Reader(page.comparison_html(comparison)).said["en"].split()).lower()
    texts = [comparison.verdict.sentence, *comparison.verdict.limits]
    texts += comparison.verdict.reasons if comparison.verdict.outcome != "related" else ()
    for answer in comparison.answers:
        if isinstance(answer, Evidence):
            texts += [answer.observed, answer.strangers, *(one.text.replace("^", "") for one in answer.assumptions)]
        else:
            texts.append(answer.unanswered)
    texts += [text for item in comparison.not_evidence for text in (item.measure, item.why)]
    texts += [file.sha256 or "" for party in (comparison.a, comparison.b) for file in party.files]
    texts += [comparison.sha256, comparison.policy, f"--seed {comparison.seed}", "modelkin verify comparison.json"]
    for text in texts:
        assert " ".join(text.replace("`", "").split()).lower() in said, text


@pytest.mark.usefixtures("undrawn")
def test_a_quick_page_does_not_say_that_layers_were_looked_at() -> None:
    comparison = of_outcome("unrelated")
    quick = tuple(answer for answer in comparison.answers if answer.question in ("identity", "neurons"))
    said = Reader(page.comparison_html(msgspec.structs.replace(comparison, answers=quick))).said["en"]
    assert words("en")["layer_map"]["not_asked"] in said
    assert words("en")["layer_map"]["none"] not in said


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_headings_descend_one_by_one_and_ids_are_unique(outcome: str) -> None:
    read = Reader(page.comparison_html(of_outcome(outcome)))
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == len(LANGUAGES)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(one["href"]) for one in read.with_tag("a")]
    assert {link.lstrip("#") for link in links} <= set(ids)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("first", LANGUAGES)
def test_the_page_opens_in_the_language_asked_for(first: Language) -> None:
    read = Reader(page.comparison_html(of_outcome("unrelated"), first))
    assert read.with_tag("html")[0]["lang"] == first
    assert read.with_tag("body")[0]["class"] == f"first-{first}"
    assert words("ko")["headline"]["unrelated"] in read.said["ko"]
    assert words("en")["headline"]["unrelated"] in read.said["en"]


@pytest.mark.usefixtures("undrawn")
def test_what_nobody_translated_stays_english_and_is_marked_so() -> None:
    strange = msgspec.structs.replace(of_outcome("unrelated").verdict, limits=("Zyx wvu tsr.",))
    text = page.comparison_html(msgspec.structs.replace(of_outcome("unrelated"), verdict=strange), "ko")
    assert text.count('<li><span lang="en">Zyx wvu tsr.</span></li>') == 1
    assert text.count("<li>Zyx wvu tsr.</li>") == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_record_sets_in_backticks_is_shown_as_code_and_nothing_else_is_markup(language: Language) -> None:
    assert "<code>quick</code>" in told_text("nothing beyond chance in the little that `quick` reads", language)
    assert "<b>" not in told_text("`<b>` & `a<b>c`", language)
    assert "&lt;b&gt;" in told_text("`<b>` & `a<b>c`", language)


@pytest.mark.usefixtures("undrawn")
def test_strength_beyond_the_controls_is_said_to_be_extrapolated() -> None:
    read = Reader(page.comparison_html(of_outcome(EXTRAPOLATED)))
    for language, mark in (("en", "B, extrapolated"), ("ko", "B, 외삽")):
        text = words(language)["verdict"]  # type: ignore[arg-type]
        assert text["grade_B_extrapolated"] in read.said[language]
        assert text["grade_B"] not in read.said[language]
        assert mark in read.said[language]
    assert words("en")["verdict"]["grade_A"] in Reader(page.comparison_html(of_outcome("related"))).said["en"]


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_when_it_was_made_and_where_the_models_are() -> None:
    record = msgspec.structs.replace(on_a_hub(of_outcome("unrelated")), made="2026-01-31T12:00:00Z")
    said = Reader(page.comparison_html(record)).said["en"]
    assert "2026-01-31T12:00:00Z" in said
    assert f"https://huggingface.co/example/base-7b/tree/{COMMIT}" in said
    forged = msgspec.structs.replace(record.a, address="javascript:alert(1)")
    again = Reader(page.comparison_html(msgspec.structs.replace(record, a=forged, made="<b>now"))).said["en"]
    assert "javascript" not in again
    assert words("en")["cost"]["no_date"] in again


def test_the_page_bears_the_licences_of_what_it_holds() -> None:
    text = page.comparison_html(of_outcome("unrelated"))
    assert "Copyright (c) 2010, NAVER Corporation" in text
    assert "SIL OPEN FONT LICENSE" in text
    assert "University of Washington Interactive Data Lab" in text
    assert "Mike Bostock" in text
    assert "Ariya Hidayat" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_way_in_which_weights_can_stand_elsewhere_has_its_word(language: Language) -> None:
    known = {*get_args(Hidden), "subset", "moved", "one MLP"}
    assert known - words(language)["relation"]["how"].keys() == set()


def hostile(comparison: Comparison) -> Comparison:
    """Names, claims and texts that try to be markup, also in what charts read."""
    record: Json = json.loads(to_json(on_a_hub(comparison, HOSTILE, HOSTILE)))
    record["a"]["files"][0]["name"] = HOSTILE
    record["a"]["revision"] = record["b"]["format"] = HOSTILE
    record["b"]["claims"] = {
        "read": True,
        "base_model": [HOSTILE],
        "relation": HOSTILE,
        "license": HOSTILE,
        "notes": [HOSTILE],
    }
    record["verdict"]["sentence"] = record["policy"] = HOSTILE
    record["verdict"]["layer_map"] = [[HOSTILE, HOSTILE], ["1", None]]
    for answer in record["answers"]:
        answer["question"] += HOSTILE
        if "observed" in answer:
            answer["observed"] = answer["strangers"] = HOSTILE
    record["not_evidence"][0] = {
        "measure": HOSTILE,
        "value": HOSTILE,
        "expected_from_means_alone": HOSTILE,
        "why": HOSTILE,
    }
    return msgspec.convert(record, Comparison)


def test_names_with_markup_stay_text_also_in_the_data_of_charts() -> None:
    text = page.comparison_html(hostile(of_outcome("related")))
    read = Reader(text)
    assert len(read.with_tag("img")) == 0
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    runs = [one for one in read.with_tag("script") if one.get("type") != "application/json"]
    assert len(runs) == 2  # our own, and the charts'
    assert "\u202e" not in re.sub("<script.*?</script>", "", text, flags=re.S)
    assert HOSTILE[:20] in read.said["en"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_page_is_one_file_of_bearable_size(outcome: str) -> None:
    text = page.comparison_html(of_outcome(outcome))
    assert len(text.encode()) < 2_500_000
    outside = [
        value for tag, attributes in Reader(text).tags for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(str(value).startswith("#") for value in outside)
    assert not re.search(r"url\((?!data:)", re.sub("<script.*?</script>", "", text, flags=re.S))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_chart_has_a_text_alternative_and_its_numbers(outcome: str, language: Language) -> None:
    comparison = of_outcome(outcome)
    found = [*charts.null_charts(comparison, language), *curve_charts(comparison, language)]
    found += [one for one in (heat_chart(comparison, language), charts.share_chart(comparison, language)) if one]
    assert len(found) >= 3
    for chart in found:
        picture = drawing.drawn(chart).svg
        assert 'role="img"' in picture
        assert "<title>" in picture
        assert "<desc>" in picture
        assert chart.alt
        assert chart.rows
        assert {len(row) for row in chart.rows} == {len(chart.columns)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_picture_accuses_where_the_p_does_not(language: Language) -> None:
    """The best of many counts lies beyond what one of them shows between strangers: it is drawn, and that is said."""
    unrelated = of_outcome("unrelated")
    (gains,) = (one for one in sections.evidence(unrelated) if one.question == "hidden-axes-by-gains")
    best = msgspec.structs.replace(gains, statistic=max(gains.null.sample) + 1, log10_pvalue=-1.44)
    (chart,) = charts.null_charts(msgspec.structs.replace(unrelated, answers=(best,)), language)
    assert "0.036" in chart.note
    (plain,) = charts.null_charts(msgspec.structs.replace(unrelated, answers=(gains,)), language)
    assert plain.note == ""


def test_every_answer_with_a_p_has_its_picture() -> None:
    for outcome in ("unrelated", EXTRAPOLATED):
        drawn = [chart.title for chart in charts.null_charts(of_outcome(outcome), "en")]
        asked = [answer for answer in sections.evidence(of_outcome(outcome)) if answer.log10_pvalue is not None]
        assert sorted(drawn) == sorted(LABELS[answer.question] for answer in asked)
        assert {"layers", "MLP rows together", "disguises undone"} <= set(drawn)


def test_a_table_that_becomes_cards_on_a_phone_names_every_number() -> None:
    """Without their column a card would show bare numbers."""
    text = page.comparison_html(of_outcome("related"))
    tables = re.findall(r'<table class="[^"]*\bcards\b.*?</table>', text, re.DOTALL)
    cells = [cell for table in tables for cell in re.findall(r"<td\b[^>]*>", table)]
    assert len(tables) == len(LANGUAGES)
    assert len(cells) > 20
    assert [cell for cell in cells if "data-label" not in cell] == []


def test_headlines_do_not_claim_descent_where_there_is_none() -> None:
    related = of_outcome("related")
    assert sections.headline(related) == "related"
    assert sections.headline(told(related, "neither", "shared-init")) == "common_start"
    assert sections.headline(told(related, "neither", "shared-ancestor")) == "common_ancestor"
    assert sections.headline(told(related, "unknown", "component-reuse")) == "related_in_part"
    assert sections.headline(of_outcome("unrelated")) == "unrelated"


@pytest.mark.parametrize(
    ("log10", "power", "english", "korean"),
    [
        (-6.0, 6, "a million", "100만"),
        (-5.999999999999, 6, "a million", "100만"),
        (-6.9, 6, "a million", "100만"),
        (-12.2, 12, "a million million", "1조"),
        (-533.3, 533, "10<sup>533</sup>", "10<sup>533</sup>"),
        (0.5, 0, "1", "1"),
    ],
)
def test_a_chance_is_never_said_to_be_smaller_than_it_is(log10: float, power: int, english: str, korean: str) -> None:
    assert zeros(log10) == power
    assert (many(power, "en"), many(power, "ko")) == (english, korean)


@pytest.mark.parametrize(
    ("share", "shown"), [(0.0, "0 %"), (1e-4, "< 1 %"), (0.5, "50 %"), (0.9999, "> 99 %"), (1.0, "100 %")]
)
def test_nearly_all_is_not_all(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.usefixtures("undrawn")
def test_without_the_extra_the_page_is_whole_and_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "comparison.json"
    file.write_text(to_json(of_outcome("related")), "utf-8")
    done = CliRunner().invoke(main, ["report", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "pip install 'modelkin[report]'" in done.stderr
    read = Reader((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert words("en")["page"]["no_charts"] in read.said["en"]
    assert not read.with_tag("svg")
    assert "128" in read.said["en"]


def test_a_record_gives_the_same_files_again(tmp_path: Path) -> None:
    comparison = compared("dune", "grove")
    file = tmp_path / "comparison.json"
    file.write_text(to_json(comparison), "utf-8")
    done = CliRunner().invoke(main, ["report", str(file), "--out", str(tmp_path / "out"), "--lang", "ko"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "comparison.json").read_text("utf-8") == file.read_text("utf-8")
    assert (tmp_path / "out" / "report.html").read_text("utf-8") == page.comparison_html(comparison, "ko")
    assert comparison.verdict.sentence[:40] in done.stdout


def broken(comparison: Comparison) -> dict[str, str]:
    record: Json = json.loads(to_json(comparison))
    return {
        "no JSON": "{",
        "another thing": '{"name": "x"}',
        "another schema": json.dumps({**record, "schema": "modelkin.comparison/99"}),
        "a wrong type": json.dumps({**record, "verdict": {**record["verdict"], "outcome": "guilty"}}),
        "other tokenizers": json.dumps({**record, "tokenizers": {"ordinary": "many"}}),
        "another alignment": json.dumps({**record, "alignment": {"hidden": "rotation", "undone": 7}}),
    }


@pytest.mark.parametrize("what", broken(compared("dune", "grove")))
def test_a_broken_or_foreign_file_is_refused(what: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(broken(compared("dune", "grove"))[what], "utf-8")
    done = CliRunner().invoke(main, ["report", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == UnreadableError.exit_code == 4
    assert done.stderr.startswith("modelkin: ")
    assert not (tmp_path / "out").exists()
