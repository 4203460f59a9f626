"""What report.html says of a pair that agrees only once something was undone, and of numbers that prove nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from known_pairs import at_budget, of_outcome, told
from test_html import Reader

from modelkin.questions.gains import ALARM
from modelkin.records import Beside, BriefAnswer, Comparison, LayerFinding, Null
from modelkin.records.relation import NotCompared
from modelkin.report.comparison_text import IN_PLACE, comparison_page
from modelkin.report.html import charts, drawing, page, sections
from modelkin.report.html.chart import MOST_LAYERS
from modelkin.report.html.layer_charts import curve_charts, heat_chart
from modelkin.report.html.sheet import Sheet
from modelkin.report.html.words import LANGUAGES, Language, words
from modelkin.report.markdown import markdown
from modelkin.report.text import interval, render

DISGUISED = "related, and in which order"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def said(comparison: Comparison) -> dict[str, str]:
    sheets = Reader(page.comparison_html(comparison)).said
    return {language: " ".join(text.split()) for language, text in sheets.items()}


def answered(comparison: Comparison, question: str, **changes: Any) -> Comparison:
    """The same with one answer changed, and no other."""
    (answer,) = (one for one in sections.evidence(comparison) if one.question == question)
    return msgspec.structs.replace(comparison, answers=(msgspec.structs.replace(answer, **changes),))


def test_what_convicts_is_drawn_first_beside_the_controls() -> None:
    case = of_outcome(DISGUISED)
    first, *rest = charts.null_charts(case, "en")
    assert first.title == "disguises undone"
    observed, highest = float(first.rows[-1][0].replace(",", "")), float(first.rows[-2][0])
    layers = sections.undisguised(case).held_out.layers
    assert observed == sum(one.two + one.three for one in layers) / sum(one.blocks for one in layers)
    assert observed > 10 * highest
    sheet = Sheet(case, "en")
    assert [chart.name for chart in sheet.nulls_undone()] == [first.name]
    assert [chart.name for chart in sheet.nulls_before()] == [chart.name for chart in rest]
    assert Sheet(of_outcome("related"), "en").nulls_undone() == []


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("language", LANGUAGES)
def test_before_and_after_undoing_are_told_apart(language: Language) -> None:
    text = words(language)
    disguised, open_pair = said(of_outcome(DISGUISED))[language], said(of_outcome("related"))[language]
    told_apart = (
        text["questions"]["in_place"],
        text["questions"]["before"],
        text["layer_map"]["after"],
        text["curves"]["before"],
    )
    for sentence in told_apart:
        assert sentence in disguised
        assert sentence not in open_pair


def test_text_and_markdown_tell_it_too() -> None:
    for outcome, there in ((DISGUISED, True), ("related", False)):
        pages = render(comparison_page(of_outcome(outcome)), width=200), markdown(of_outcome(outcome))
        assert [IN_PLACE in one for one in pages] == [there, there]


def test_tensors_that_could_not_be_compared_have_no_colour() -> None:
    case = of_outcome("related")
    assert case.relation is not None
    hidden = tuple(
        msgspec.structs.replace(one, correlation=0.01, rows=100, found=2) if str(one.role) == "q" else one
        for one in case.relation.tensors
    )
    relation = msgspec.structs.replace(case.relation, tensors=hidden, not_compared=(NotCompared("q", 1, "turned"),))
    chart = heat_chart(msgspec.structs.replace(case, relation=relation), "en")
    assert chart is not None
    values = {row[1]: row[2] for row in chart.rows}
    assert values["q"] == words("en")["heat"]["not_compared"]
    assert values["k"] != words("en")["heat"]["not_compared"]
    assert "0.01" not in chart.alt
    assert chart.note == words("en")["heat"]["hatched"]
    plain = heat_chart(case, "en")
    assert plain is not None
    assert plain.note == ""


@pytest.mark.parametrize(("left", "is_hatched"), [(0.002, True), (0.9, False)])
def test_heads_that_fit_once_turned_back_have_no_colour_and_strangers_have(left: float, is_hatched: bool) -> None:
    case = of_outcome("related")
    assert case.relation is not None
    turned = tuple(
        msgspec.structs.replace(one, correlation=0.01, rows=100, found=2, refitted=left)
        if str(one.role) == "q"
        else one
        for one in case.relation.tensors
    )
    relation = msgspec.structs.replace(case.relation, tensors=turned)
    chart = heat_chart(msgspec.structs.replace(case, relation=relation), "en")
    assert chart is not None
    assert bool(chart.note) is is_hatched


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("language", "word"), [("en", "0.036 · chance"), ("ko", "0.036 · 우연")])
def test_every_p_has_its_number_and_a_small_one_its_word(language: Language, word: str) -> None:
    case = of_outcome("unrelated")
    small = answered(case, "hidden-axes-by-gains", log10_pvalue=-1.44, adjusted_pvalue=0.18)
    assert word in said(small)[language]
    layers = (LayerFinding("0", "0", 5.0, 64, -2.43), LayerFinding("1", "1", 1.0, 64, -0.1))
    in_layers = curve_charts(answered(case, "layer-map", per_layer=layers), language)
    assert [row[-1] for row in in_layers[0].rows] == [word.replace("0.036", "0.0037"), "0.79"]


def test_a_layer_says_what_strangers_show_in_it_and_a_head_which_it_is() -> None:
    case = of_outcome("unrelated")
    pairs = [("0", "0"), ("0", "0"), ("1", "1"), ("1", "1")]
    heads = tuple(LayerFinding(a, b, 1.0, 32, -0.2) for a, b in pairs)
    (chart,) = curve_charts(answered(case, "attention", per_layer=heads, n=128, null=Null("one a set", (4.0,))), "en")
    assert [row[3] for row in chart.rows] == ["head 1 of 2 read", "head 2 of 2 read"] * 2
    assert {row[6] for row in chart.rows} == {"1 of 32"}


def test_the_text_of_several_curves_says_the_chance_of_each() -> None:
    (chart, *_) = curve_charts(of_outcome("related"), "en")
    asked = dict.fromkeys(row[0] for row in chart.rows)
    assert len(asked) > 1
    for question in asked:
        assert f"{question}: " in chart.alt
    assert chart.alt.count("between strangers") == len(asked) + 1


def test_a_record_of_very_many_layers_is_drawn_in_part_and_says_so() -> None:
    many = tuple(LayerFinding(str(i), str(i), 0.1, 128) for i in range(20_000))
    case = answered(of_outcome("unrelated"), "hidden-axes-by-gains", per_layer=many)
    (chart,) = curve_charts(case, "en")
    assert len(chart.rows) <= MOST_LAYERS
    assert "of 20,000 points are drawn" in chart.note
    assert "<svg" in drawing.drawn(chart).svg


@pytest.mark.usefixtures("undrawn")
def test_sections_come_in_the_order_that_was_asked_for() -> None:
    names = [name for name, _ in Sheet(of_outcome("related"), "en").contents()]
    assert names.index("not-evidence") + 1 == names.index("relation")
    text = page.comparison_html(of_outcome("related"))
    assert 0 < text.index('id="en-not-evidence"') < text.index('id="en-relation"') < text.index('id="en-claims"')


@pytest.mark.usefixtures("undrawn")
def test_a_common_start_is_not_said_flatly_to_be_no_descent() -> None:
    case = told(of_outcome("related"), "neither", "shared-init")
    for language, sheet in said(case).items():
        text = words(language)["direction"]  # type: ignore[arg-type]
        assert text["began_alike"] in sheet
        assert text["neither"] not in sheet
    assert "direction: neither, unless that is imitated" in render(comparison_page(case), width=200)
    assert "direction: `neither`, unless that is imitated" in markdown(case)


def test_an_order_of_two_is_explained_only_where_one_was_told() -> None:
    for outcome in (DISGUISED, "related", "in part"):
        verdict = of_outcome(outcome).verdict
        explained = any(limit.startswith("An order of two says") for limit in verdict.limits)
        assert explained == (verdict.direction in ("a->b", "b->a"))


def test_what_is_no_assumption_does_not_stand_among_them() -> None:
    case = of_outcome(DISGUISED)
    held = {assumption.text for assumption, _ in sections.assumptions(case)}
    beside = set(sections.remarks(case))
    assert any("pair-swap e-value" in text for text in beside)
    assert not any(text.startswith(("for comparison only", "controls:", "extrapolated:")) for text in held)
    assert all(sections.REMARK.match(text) for text in beside)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_names_the_threshold_of_its_checks(language: Language) -> None:
    assert f"{ALARM:g}" in words(language)["assumptions"]["lead"]


@pytest.mark.usefixtures("undrawn")
def test_powers_of_ten_are_set_as_such() -> None:
    assert "10<sup>" in page.comparison_html(of_outcome("unrelated"))
    assert "10^" not in page.comparison_html(of_outcome("unrelated"))


def test_an_interval_reads_the_same_everywhere() -> None:
    case = of_outcome("related")
    shared = case.verdict.shared
    assert shared is not None
    wanted = interval(shared.low, shared.high)
    assert wanted in Sheet(case, "en").share()
    assert all(wanted in Sheet(case, language).share_sentence() for language in LANGUAGES)
    assert wanted in render(comparison_page(case), width=200)
    assert wanted in markdown(case).replace("`", "")


def test_counts_of_layers_that_cannot_be_compared_are_not_set_side_by_side() -> None:
    facing, best = (
        Beside(
            id=f"m{n}", revision=None, side="a", budget="standard", outcome="unrelated", sentence="",
            answers=(BriefAnswer(question="layer-map", statistic=5.0, n=n, log10_pvalue=-0.58, strangers="none does"),),
        )
        for n in (384, 64)
    )  # fmt: skip
    sheet = Sheet(msgspec.structs.replace(of_outcome("unrelated"), candidates=(facing, best)), "en")
    assert [sheet.brief(row, "layer-map") for row in (facing, best)] == ["p 0.26", "p 0.26"]
    assert sheet.beside_questions((facing, best)) == {"layer-map": ""}


def test_charts_say_what_their_axes_and_shades_are() -> None:
    chart = charts.share_chart(of_outcome("related"), "en")
    assert chart is not None
    assert chart.spec["layer"][0]["encoding"]["x"]["title"] == "layer of B"
    text = page.comparison_html(of_outcome("related"))
    assert words("en")["heat"]["low"] in text
    assert words("en")["heat"]["high"] in text


@pytest.mark.usefixtures("undrawn")
def test_names_cannot_leave_the_head_of_a_printed_page() -> None:
    case = of_outcome("unrelated")
    evil = msgspec.structs.replace(case.a, id='x"; } } body { display: none } /*')
    style = page.comparison_html(msgspec.structs.replace(case, a=evil)).partition("<style>")[2].partition("</style>")[0]
    assert "display: none } /*" not in style.rpartition("@page")[2]
    assert "\\22 \\3b " in style


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_that_are_no_roll_call_are_said_to_be_none(language: Language) -> None:
    """Those that the page holds, and no others: `quick` asks few of them."""
    for case in (of_outcome("unrelated"), at_budget("dune", "grove", "quick")):
        asked = {answer.question for answer in sections.evidence(case)}
        lead, labels = Sheet(case, language).lead(), words(language)["questions"]["label"]
        for question in ("identity", "copies", "pooled-rows", "gauge", "coverage"):
            assert (labels[question] in lead) == (question in asked), question
