"""What a name or a number alone would leave a reader to guess, in the page, the text and the Markdown."""

from __future__ import annotations

import pytest
from known_pairs import at_budget, of_outcome, told

from modelkin.report.comparison_text import comparison_page
from modelkin.report.html import comparison_html, drawing
from modelkin.report.markdown import markdown
from modelkin.report.text import render


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def test_a_kind_that_its_name_does_not_explain_is_said_in_words() -> None:
    """In every view; and beside another kind it is plain which of them the words are for."""
    case = told(of_outcome("related"), "a->b", "re-encoded", "fine-tune")
    page = comparison_html(case)
    words = "re-encoded: the same numbers stored in another way, as by rounding, quantising or pruning; fine-tune"
    assert f"<dd>{words}</dd>" in page
    assert "<dd>다시 부호화: 같은 수를 반올림, 양자화, 가지치기 등으로 달리 저장함; 미세조정</dd>" in page
    assert "<dt>re-encoded</dt>" in page
    assert "<dt>다시 부호화</dt>" in page
    assert f"Kind: {words} · direction" in markdown(case)
    assert f"kind: {words} · direction" in " ".join(render(comparison_page(case), width=200).split())


def test_the_nearest_layer_is_spoken_of_only_where_one_is_shown() -> None:
    nearest = "Of a layer that matches none, the nearest of A is shown"
    assert nearest in comparison_html(of_outcome("unrelated"))
    assert nearest not in comparison_html(at_budget("dune", "grove", "quick"))


def test_every_number_that_is_no_evidence_says_what_strangers_show() -> None:
    case = of_outcome("unrelated")
    without = [item for item in case.not_evidence if item.expected_from_means_alone is None]
    assert without
    text = render(comparison_page(case), width=200)
    assert text.count("; strangers have no single value") == len(without)
    assert text.count("; expected of strangers: ") == len(case.not_evidence) - len(without)
    short = markdown(case)
    assert short.count("; strangers: no single value. ") == len(without)
    assert short.count("; strangers: ") == len(case.not_evidence)
