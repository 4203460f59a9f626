"""report.html on paper: what stands on which page of the PDF."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page

from browser.printed import printed_runs
from modelkin.records import Comparison
from modelkin.report.html import comparison_html, survey_html
from unit.report.known_pairs import of_outcome
from unit.report.known_surveys import of_three

pytestmark = pytest.mark.xdist_group("browser")

# Words that strangers' files may have put there, of which there is no end.
UNSAID = "It says nothing of the part numbered {} of this model, nor of any other that nobody has looked at so far."

# Every heading with the first letters of the words beneath it, where words stand there.
HEADED = """language => [...document.querySelectorAll(`#${language} main :is(h1, h2, h3, h4)`)]
  .filter((one) => one.checkVisibility() && !one.matches(".away") && one.nextElementSibling?.matches("p, ul, dl"))
  .map((one) => one.innerText + one.nextElementSibling.innerText.slice(0, 6))"""


def opened(browser: Browser, folder: Path, html: str, language: str) -> Page:
    file = folder / "report.html"
    file.write_text(html, "utf-8")
    page = browser.new_page()
    page.goto(f"{file.as_uri()}#{language}")
    return page


def on_paper(page: Page) -> list[list[str]]:
    return printed_runs(page.pdf(prefer_css_page_size=True))


def joined(runs: list[str]) -> str:
    """Without spaces, which a line's end swallows."""
    return "".join("".join(runs).split())


def saying(name: str, limits: int) -> Comparison:
    """The same pair with so many things that its verdict does not say."""
    comparison = of_outcome(name)
    told = tuple(UNSAID.format(place) for place in range(limits))
    return msgspec.structs.replace(comparison, verdict=msgspec.structs.replace(comparison.verdict, limits=told))


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("limits", [10, 120])
@pytest.mark.parametrize("name", ["related", "unrelated"])
def test_the_verdict_begins_on_the_first_page(
    browser: Browser, tmp_path: Path, name: str, limits: int, language: str
) -> None:
    page = opened(browser, tmp_path, comparison_html(saying(name, limits)), language)
    first = joined(on_paper(page)[0])
    for part in (".pair dd:first-of-type", "h1", ".lead", ".strength h2", "aside h2", "aside li:first-child"):
        words = page.locator(f"#{language} .verdict {part}").first.text_content() or ""
        assert joined([words]) in first, part


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("name", ["related", "related, and in which order", "in part", "unrelated", "survey"])
def test_no_page_ends_with_a_heading_or_within_a_paragraph(
    browser: Browser, tmp_path: Path, name: str, language: str
) -> None:
    html = survey_html(of_three()) if name == "survey" else comparison_html(of_outcome(name))
    page = opened(browser, tmp_path, html, language)
    pages = on_paper(page)
    assert len(pages) > 4
    page.emulate_media(media="print")
    whole = [joined(runs) for runs in pages]
    headed = [joined([text]) for text in page.evaluate(HEADED, language)]
    assert len(headed) > 8
    assert [text for text in headed if not any(text in one for one in whole)] == []
    said = [joined([text]) for text in page.locator(f"#{language} section > p:visible").all_inner_texts()]
    assert len(said) > 8
    assert [text for text in said if not any(text in one for one in whole)] == []


def test_the_head_of_every_printed_page_is_in_the_language_that_shows(browser: Browser, tmp_path: Path) -> None:
    html = survey_html(of_three(), "en")
    for language, head in (("en", "3 models side by side"), ("ko", "나란히 놓은 모델 3개")):
        pages = on_paper(opened(browser, tmp_path, html, language))
        assert [runs for runs in pages if not joined(runs).startswith(joined([head]))] == []
