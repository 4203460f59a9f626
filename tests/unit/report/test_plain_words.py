"""What every view says of its numbers: that a p is a bound, and what is counted; nothing accuses or is half Korean."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from known_pairs import at_budget, of_outcome, told
from known_surveys import of_many_roles, of_three

import modelkin
from modelkin.records import Beside, BriefAnswer, Comparison, Outcome
from modelkin.records.relation import PartShare
from modelkin.report.comparison_text import P_NOTE, comparison_page
from modelkin.report.html import charts, drawing, page, sections
from modelkin.report.html.chart import MOST_LAYERS
from modelkin.report.html.sheet import Sheet
from modelkin.report.html.words import LANGUAGES, Language, survey_words, words
from modelkin.report.markdown import markdown
from modelkin.report.phrasebook import korean
from modelkin.report.text import render

PACKAGE = Path(modelkin.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
ACCUSING = re.compile(r"(?i)\b(?:un)?(?:convict|accus|guilt|culprit|stole|theft|thief|suspect|offend)\w*")
SPOKEN_OF = ("aria-label", "title", "alt", "data-label", "data-title", "data-sort")
# What a column of a table is called, or a value in it, is a name in any language.
NAMES = ("random-normal, shuffled, means-only",)
ENGLISH = re.compile(r"\b[A-Za-z][a-z']+(?:[ ,;:]+[a-z']+){2,}\b")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


class Korean(HTMLParser):
    """Every text of the Korean sheet, with pictures and labels; not code, nor cells of tables shown as they are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.inside, self.quoted = False, 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if known.get("class") == "sheet":
            self.inside = known.get("id") == "ko"
        self.inside = self.inside and tag != "script"
        self.quoted += tag in ("code", "pre") or (tag == "details" and (self.quoted > 0 or known.get("class") == "raw"))
        if self.inside:
            self.said += [known[name] or "" for name in SPOKEN_OF if name in known]

    def handle_endtag(self, tag: str) -> None:
        self.quoted -= self.quoted > 0 and tag in ("code", "pre", "details")

    def handle_data(self, data: str) -> None:
        if self.inside and not self.quoted:
            self.said.append(data)

    def english(self) -> list[str]:
        told = [text if not any(name in text for name in NAMES) else "" for text in self.said]
        return [found for text in told for found in ENGLISH.findall(text)]


@pytest.mark.parametrize("outcome", ["related", "related, and in which order", "in part", "unrelated"])
def test_a_korean_page_holds_no_english_sentence(outcome: str) -> None:
    assert Korean(page.comparison_html(of_outcome(outcome))).english() == []


def test_a_korean_survey_holds_no_english_sentence() -> None:
    """Of every role: routers, embeddings and matrices have tables of their own."""
    found = Korean(page.survey_html(of_many_roles()))
    assert len(found.said) > 1000
    assert found.english() == []


def test_the_search_for_english_finds_it() -> None:
    sheet = '<div class="sheet" id="ko"><p>{}</p></div>'
    assert Korean(sheet.format("z는 the sum of products 입니다")).english() == ["the sum of products"]
    assert Korean(sheet.format('<i aria-label="the sum of products"></i>')).english() == ["the sum of products"]
    assert Korean(sheet.format("<code>the sum of products</code>")).english() == []
    assert Korean('<div class="sheet" id="en"><p>the sum of products</p></div>').english() == []


def test_what_every_table_of_a_survey_says_of_strangers_has_its_korean() -> None:
    """Those of few surveys too: heads of another number, published numbers."""
    found = []
    for file in (*PACKAGE.glob("survey/*.py"), PACKAGE / "reference" / "checking.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table":
                values = {one.arg: one.value for one in node.keywords if one.arg in ("title", "strangers")}
                found += [one.value for one in values.values() if isinstance(one, ast.Constant)]
    assert len(found) > 25
    assert [text for text in found if korean(str(text)) is None] == []


# A p is a bound.


def test_every_view_calls_p_a_bound() -> None:
    case = of_outcome("unrelated")
    bounds = {"en": "at most this share of pairs", "ko": "많아야 이 비율"}
    for language in LANGUAGES:
        text = words(language)
        assert bounds[language] in Sheet(case, language).p_note()
        assert any(bounds[language] in entry["text"] for entry in text["glossary"]["entries"] if entry["term"] == "p")
    assert bounds["en"] in P_NOTE
    assert "how often strangers" not in render(comparison_page(case), width=110) + markdown(case)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_p_above_the_share_of_draws_is_explained_beside_them(language: Language) -> None:
    """z = 1.9 and p = 0.72 in one picture would look like an error."""
    case = of_outcome("unrelated")
    (pooled,) = (one for one in sections.evidence(case) if one.question == "pooled-rows")
    seen = sorted(pooled.null.sample)[-4]
    cautious = msgspec.structs.replace(pooled, statistic=seen, log10_pvalue=-0.14)
    (chart,) = charts.null_charts(msgspec.structs.replace(case, answers=(cautious,)), language)
    expected = words(language)["null_chart"]["bound"].format(
        reached="4", draws=f"{len(pooled.null.sample):,}", p="0.72"
    )
    assert chart.note == expected
    sharp = msgspec.structs.replace(cautious, log10_pvalue=-1.7)
    (chart,) = charts.null_charts(msgspec.structs.replace(case, answers=(sharp,)), language)
    assert chart.note == ""


# What is counted.


@pytest.mark.parametrize("language", LANGUAGES)
def test_layers_are_counted_as_layers_and_their_neurons_as_neurons(language: Language) -> None:
    text = words(language)["null_chart"]
    for outcome, where in (("unrelated", "best_two"), ("related", "all_facing")):
        case = of_outcome(outcome)
        (answer,) = (one for one in sections.evidence(case) if one.question == "layer-map")
        (chart,) = charts.null_charts(msgspec.structs.replace(case, answers=(answer,)), language)
        assert chart.note.startswith(text["by_neurons"].format(where=text[where]))
        axis = chart.spec["layer"][0]["encoding"]["x"]["title"]
        assert axis == text["x_count"]["layer-map"].format(n=f"{answer.n:,}")


def beside(outcome: Outcome) -> Beside:
    given = (
        BriefAnswer(question="layer-map", statistic=5.0, n=64, log10_pvalue=-0.58, strangers="none does"),
        BriefAnswer(question="neurons", statistic=3.0, n=32, log10_pvalue=0.0, strangers="2 of 32 on average"),
    )
    return Beside(
        id="zoo/third", revision=None, side="a", budget="quick", outcome=outcome, sentence="As told.", answers=given
    )


def test_a_count_of_neurons_beside_the_word_layers_says_so() -> None:
    case = msgspec.structs.replace(of_outcome("unrelated"), candidates=(beside("undecided"),))
    assert "layers 5 of 64 neurons, MLP neurons 3 of 32" in " ".join(render(comparison_page(case), width=200).split())


def with_control() -> Comparison:
    return msgspec.structs.replace(of_outcome("related"), controls=(beside("undecided"),))


@pytest.mark.usefixtures("undrawn")
def test_controls_are_counted_and_not_judged() -> None:
    """What few questions leave undecided would read as a doubt."""
    text = page.comparison_html(with_control())
    for language in LANGUAGES:
        (section,) = re.findall(rf'<section id="{language}-controls">.*?</section>', text, re.DOTALL)
        assert words(language)["outcome"]["undecided"] not in section
        assert words(language)["beside"]["this_pair"] in section
        assert "32 / 32" in section  # of the pair
        assert "3 / 32" in section
    folded = markdown(with_control()).partition("Controls:")[2].partition("</details>")[0]
    assert "undecided" not in folded
    assert "MLP neurons 3 of 32 (this pair 32 of 32)" in folded
    assert "between strangers" in folded


def test_the_share_of_many_layers_is_thinned_out_and_says_so() -> None:
    case = of_outcome("related")
    assert case.relation is not None
    few = charts.share_chart(case, "en")
    assert few is not None
    assert few.note == ""
    parts = tuple(PartShare(str(n), 10, 1.0, 0.9, 1.0) for n in range(2 * MOST_LAYERS + 1))
    many = msgspec.structs.replace(case, relation=msgspec.structs.replace(case.relation, by_layer=parts))
    chart = charts.share_chart(many, "en")
    assert chart is not None
    assert [row[0] for row in chart.rows] == [str(n) for n in range(0, 2 * MOST_LAYERS + 1, 3)]
    assert chart.note == "171 of 513 layers are drawn, evenly chosen; the record has all."


def test_what_is_read_twice_is_said_to_be_counted_twice() -> None:
    case = of_outcome("unrelated")
    for language in LANGUAGES:
        assert words(language)["cost"]["read_again"] in page.comparison_html(case)
    assert "repeats included" in " ".join(render(comparison_page(case), width=110).split())
    assert "read, with repeats," in markdown(case)


# Nobody is accused.


def test_no_word_of_a_view_accuses() -> None:
    cases = [of_outcome("related"), of_outcome("unrelated"), at_budget("dune", "grove", "quick")]
    views = [markdown(case) + render(comparison_page(case), width=110) for case in cases]
    views += [str(words("en")), str(survey_words("en"))]
    assert [found for view in views for found in ACCUSING.findall(view) if found != "suspicion"] == []


def test_no_heading_of_the_documentation_accuses() -> None:
    headings = [line for file in DOCS.glob("*.md") for line in file.read_text("utf-8").splitlines() if line[:1] == "#"]
    assert len(headings) > 80
    assert [line for line in headings if ACCUSING.search(line)] == []


def test_a_common_start_is_no_flatter_in_the_headline_than_in_the_sentence() -> None:
    began_alike = told(of_outcome("related"), "neither", "shared-init")
    assert "seem to have started" in _source("verdict/words.py")
    for language, hedge in (("en", "it seems"), ("ko", "듯함")):
        assert hedge in words(language)["headline"][sections.headline(began_alike)]


def _source(name: str) -> str:
    return (PACKAGE / name).read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_cards_of_a_survey_name_every_number() -> None:
    """Without their column a card on a phone would show bare numbers."""
    text = page.survey_html(of_three())
    tables = re.findall(r'<table class="[^"]*\bcards\b.*?</table>', text, re.DOTALL)
    cells = [cell for table in tables for cell in re.findall(r"<td\b[^>]*>", table)]
    assert len(tables) == 2 * len(LANGUAGES)
    assert len(cells) > 60
    assert [cell for cell in cells if "data-label" not in cell] == []
