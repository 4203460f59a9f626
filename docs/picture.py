"""The pictures of the READMEs: the first screen of a report, as a browser shows it. `make picture` makes them anew.

python docs/picture.py    needs chromium on the PATH, and playwright (the extra `dev`)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.report.html import comparison_html
from modelkin.sources import ReadOptions

PAIR = ("dune", "heath")  # a model and its fine-tune
FOLDER = Path(__file__).parent / "img"
WIDE, TALL = 1040, 1000
LARGEST = 200_000  # bytes, for readers on a telephone


def report() -> str:
    """Of bundled models as a Hub serves them, so that they bear names and no paths of this machine."""
    models = bundled()
    with LoopbackHub({f"demo/{name}": Repository.from_folder(models[name]) for name in PAIR}) as hub:
        reading = ReadOptions(endpoint=hub.endpoint, token=False, cache=False)
        return comparison_html(compare(*(f"demo/{name}" for name in PAIR), CompareOptions(reading=reading)))


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("the pictures need chromium on the PATH: make chromium\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        page_file.write_text(report(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDE, "height": TALL}, color_scheme="light")
        for language in ("en", "ko"):
            page.goto(f"{page_file.as_uri()}#{language}")
            page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
            picture = FOLDER / f"report-{language}.png"
            shown = page.locator(f"#{language}-verdict").bounding_box()
            assert shown is not None  # it is on the page
            page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": WIDE, "height": shown["y"] + shown["height"]})
            if picture.stat().st_size > LARGEST:
                sys.stderr.write(f"{picture} is larger than {LARGEST:,} bytes\n")
                return 1
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
