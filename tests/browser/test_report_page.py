"""report.html in a real browser: Debian's Chromium, which `make test` installs where it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from modelkin.report.html import comparison_html, survey_html
from unit.report.known_pairs import of_outcome
from unit.report.known_surveys import of_three

pytestmark = pytest.mark.xdist_group("browser")  # one browser, and each page written once

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1200, "height": 900}
SHOWN = ("related", "related, and in which order", "in part", "unrelated")
ALL = (*SHOWN, "survey")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for place, name in enumerate(SHOWN):
        file = folder / f"{place}.html"
        file.write_text(comparison_html(of_outcome(name)), "utf-8")
        written[name] = file.as_uri()
    survey = folder / "survey.html"
    survey.write_text(survey_html(of_three()), "utf-8")
    return {**written, "survey": survey.as_uri()}


class Tab:
    """A page, and everything that it said, threw or asked of a network."""

    def __init__(self, browser: Browser, **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, **settings})
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.complaints.append(request.url)

    def open(self, address: str) -> Page:
        self.page.goto(address)
        return self.page

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def through(page: Page) -> None:
    """From top to bottom, so that every chart has come into view and lives."""
    shown = page.locator("[data-spec]:visible")
    for place in range(shown.count()):
        shown.nth(place).scroll_into_view_if_needed()
        page.wait_for_function("one => one.dataset.live === 'yes'", arg=shown.nth(place).element_handle())


@pytest.mark.parametrize("name", ALL)
def test_a_page_opens_without_a_word_and_without_a_network(browser: Browser, pages: dict[str, str], name: str) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages[name])
        through(page)
        assert page.locator("[data-live]").count() >= 3
        assert page.locator("h1:visible").count() == 1
        assert tab.complaints == []


def test_hovering_over_a_point_shows_its_value_and_that_of_strangers(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["related"])
        through(page)
        page.locator("[data-spec='en-curves-spec'] .mark-symbol path").first.hover()
        tip = page.locator("#vg-tooltip-element.visible")
        tip.wait_for()
        assert "found themselves" in tip.inner_text()
        assert "between strangers" in tip.inner_text()
        page.locator("[data-spec='en-null-0-spec'] .mark-rect.role-mark path").first.hover()
        tip.get_by_text("draws between strangers").wait_for()


def test_hovering_over_a_cell_of_a_survey_shows_the_layers_and_the_value(
    browser: Browser, pages: dict[str, str]
) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["survey"])
        through(page)
        page.locator("[data-spec='en-maps-0-spec'] .mark-rect.role-mark path").first.hover()
        tip = page.locator("#vg-tooltip-element.visible")
        tip.wait_for()
        assert "layer of dune" in tip.inner_text()
        assert "layer of heath" in tip.inner_text()
        assert "Pearson" in tip.inner_text()
        page.locator(
            "[data-spec='en-facing-0-spec'] .mark-symbol path"
        ).last.hover()  # points of two roles may coincide
        tip.get_by_text("between strangers").wait_for()
        assert "0 ± 0.09" in tip.inner_text()


def test_the_pairs_of_a_survey_sort_by_number(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["survey"])
        page.locator("#en table.questions thead button").nth(2).click()
        assert "dune · heath" not in questions(page)[0]
        assert questions(page)[-1] == "dune · heath"


def test_on_paper_a_survey_leaves_its_long_tables_out(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["survey"])
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#en details.raw:visible").count() == 0
        assert page.locator("#en .on-paper:visible").count() == 1


@pytest.mark.parametrize("script", [True, False])
def test_the_language_switches_and_back(browser: Browser, pages: dict[str, str], script: bool) -> None:
    with Tab(browser, java_script_enabled=script) as tab:
        page = tab.open(pages["unrelated"])
        assert page.locator("h1:visible").inner_text() == "Unrelated"
        page.get_by_role("link", name="한국어").click()
        assert page.locator("h1:visible").inner_text() == "관련 없음"
        if script:
            assert page.evaluate("document.documentElement.lang") == "ko"
            assert "관련 없음" in page.title()
        page.locator("#ko nav a[href='#ko-limits']").click()
        assert page.locator("h1:visible").inner_text() == "관련 없음"
        page.get_by_role("link", name="English").click()
        assert page.locator("h1:visible").inner_text() == "Unrelated"


def test_hangul_is_drawn_by_the_font_of_the_page(browser: Browser, pages: dict[str, str]) -> None:
    """Where no Korean font is installed, a syllable that is missing would be an empty box as wide as any other."""
    with Tab(browser) as tab:
        page = tab.open(pages["unrelated"] + "#ko")
        page.evaluate("document.fonts.ready.then(() => null)")
        loaded = page.evaluate("[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family + f.weight)")
        assert {name.replace('"', "") for name in loaded} == {
            "Modelkin Hangul Serif400",
            "Modelkin Hangul Serif700",
            "Modelkin Hangul Sans400",
        }
        client = tab.context.new_cdp_session(page)
        client.send("DOM.enable")
        client.send("CSS.enable")
        root = client.send("DOM.getDocument")["root"]["nodeId"]
        for selector in ("#ko h1", "#ko h2", "#ko .lead", "#ko .contents a", "#ko table th"):
            node = client.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
            fonts = client.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
            assert any(font["isCustomFont"] and font["glyphCount"] for font in fonts), (selector, fonts)


def questions(page: Page) -> list[str]:
    return page.locator("#en table.questions tbody th").all_inner_texts()


def test_the_table_of_questions_sorts_by_mouse_and_by_keyboard(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["related"])
        asked = questions(page)
        page.locator("#en table.questions thead button").nth(0).click()
        assert questions(page) == sorted(asked, key=str.lower)
        head = page.locator("#en table.questions thead th").nth(3)
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert questions(page)[0] == "layers"  # the smallest p
        assert head.get_attribute("aria-sort") == "ascending"
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert questions(page)[-1] == "layers"


def test_a_chart_has_a_role_and_a_name_before_it_lives(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser, java_script_enabled=False) as tab:
        page = tab.open(pages["related"])
        boxes = page.locator("#en .chart[tabindex]").all()
        assert len(boxes) >= 3
        assert all(box.get_attribute("role") and box.get_attribute("aria-label") for box in boxes)


def test_the_words_of_a_tooltip_can_be_read(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["related"])
        through(page)
        page.locator("[data-spec='en-curves-spec'] .mark-symbol path").first.hover()
        page.locator("#vg-tooltip-element.visible").wait_for()
        key = page.locator("#vg-tooltip-element td.key").first
        look = key.evaluate("one => [getComputedStyle(one).color, getComputedStyle(one).fontSize]")
        assert look == ["rgb(90, 90, 90)", "13px"]


def test_printed_pages_are_numbered_and_named(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        page = tab.open(pages["unrelated"])
        rules = page.evaluate(
            "[...document.styleSheets].flatMap(sheet => [...sheet.cssRules])"
            ".filter(rule => rule instanceof CSSPageRule).map(rule => rule.cssText).join(' ')"
        )
        assert 'content: counter(page) " / " counter(pages)' in rules
        assert 'content: "modelkin: A dune, B grove"' in rules
        page.emulate_media(media="print")
        assert page.locator("#en footer:visible").count() == 0  # it would take a page for itself
        assert page.locator("#en .made:visible").count() == 1


def test_the_page_prints_to_a4_with_everything_open(browser: Browser, pages: dict[str, str], tmp_path: Path) -> None:
    with Tab(browser, color_scheme="dark") as tab:
        page = tab.open(pages["related"])
        page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
        body = (tmp_path / "page.pdf").read_bytes()
        assert body.startswith(b"%PDF")
        assert b"/MediaBox [0 0 594.95996 841.91998]" in body or b"/MediaBox [0 0 595" in body
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize(
    ("name", "language", "scheme"),
    [
        ("related", "en", "light"),
        ("related, and in which order", "ko", "dark"),
        ("in part", "ko", "light"),
        ("unrelated", "en", "dark"),
        ("survey", "ko", "light"),
        ("survey", "en", "dark"),
    ],
)
def test_axe_finds_nothing_serious(
    browser: Browser, pages: dict[str, str], name: str, language: str, scheme: str
) -> None:
    with Tab(browser, color_scheme=scheme) as tab:
        page = tab.open(f"{pages[name]}#{language}")
        through(page)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found = Axe().run(page).response["violations"]
        assert [
            (one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")
        ] == []


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("name", ALL)
def test_a_phone_never_scrolls_the_page_sideways(
    browser: Browser, pages: dict[str, str], name: str, language: str
) -> None:
    with Tab(browser, viewport=PHONE) as tab:
        page = tab.open(f"{pages[name]}#{language}")
        through(page)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("name", ["related", "unrelated"])
def test_on_a_phone_every_layer_of_a_chart_is_in_sight(browser: Browser, pages: dict[str, str], name: str) -> None:
    with Tab(browser, viewport=PHONE) as tab:
        page = tab.open(pages[name])
        through(page)
        cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.dataset.spec)"
        assert page.locator("[data-spec]:visible").evaluate_all(cut) == []


# Letters that come only when they are let in.
HELD = """
const load = FontFace.prototype.load;
const door = new Promise((open) => { window.letIn = open; });
FontFace.prototype.load = function () { return door.then(() => load.call(this)); };
"""


def test_charts_wait_for_the_letters_of_the_page(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser) as tab:
        tab.page.add_init_script(HELD)
        page = tab.open(f"{pages['unrelated']}#ko")
        page.locator("[data-spec]:visible").first.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        assert page.locator("[data-live]").count() == 0
        page.evaluate("window.letIn()")
        page.locator("[data-live]").first.wait_for()


def test_without_scripts_it_is_a_document_with_pictures(browser: Browser, pages: dict[str, str]) -> None:
    with Tab(browser, java_script_enabled=False) as tab:
        page = tab.open(pages["related"])
        assert page.locator("#en svg[role=img]").count() >= 5
        assert page.locator("#en table.questions tbody tr").count() == 9
        assert tab.complaints == []


def test_a_script_that_slipped_in_would_not_run(browser: Browser, pages: dict[str, str]) -> None:
    """The page allows its own scripts by their hash; escaping is the first wall, this the second."""
    with Tab(browser) as tab:
        page = tab.open(pages["unrelated"])
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.slipped = 1'}))"
        )
        assert page.evaluate("window.slipped") is None
        assert any("Content Security Policy" in complaint for complaint in tab.complaints)
