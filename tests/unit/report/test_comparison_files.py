"""The files of a comparison: its charts as pictures in one language, and grade B that goes beyond what was measured."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from known_pairs import of_outcome

from modelkin.report.comparison_figures import write_figures
from modelkin.report.demo_text import demo_text
from modelkin.report.files import answers_csv, write_comparison
from modelkin.report.html.words import Language, words

TURNED = "related, and in which order"


@pytest.mark.parametrize(("language", "hangul"), [("en", False), ("ko", True)])
def test_every_chart_of_the_page_is_written_as_svg_and_png(language: Language, hangul: bool, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    files = write_figures(of_outcome("related"), tmp_path, language, lambda *step: steps.append(step))
    svgs = [path for path in files if path.suffix == ".svg"]
    assert svgs
    assert steps[-1] == (len(svgs), len(svgs))
    for path in svgs:
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        text = path.read_text("utf-8")
        assert bool(re.search("[가-힣]", text)) == hangul
        assert ("@font-face" in text) == hangul  # a reader without a Korean font sees letters too
    assert words(language)["layer_map"]["title"] in (tmp_path / "captions.txt").read_text("utf-8")


def test_they_lie_in_a_folder_beside_the_page_unless_nobody_wants_them(tmp_path: Path) -> None:
    files = write_comparison(of_outcome("unrelated"), "page", tmp_path / "with")
    assert tmp_path / "with" / "figures" in files
    write_comparison(of_outcome("unrelated"), "page", tmp_path / "without", figures=False)
    assert not (tmp_path / "without" / "figures").exists()


def test_what_goes_beyond_what_was_measured_says_so() -> None:
    rows = {row["question"]: row for row in csv.DictReader(io.StringIO(answers_csv(of_outcome(TURNED))))}
    assert rows["unmasked-neurons"]["extrapolated"] == "true"
    assert rows["neurons"]["extrapolated"] == ""
    assert "(grade B, extrapolated)" in demo_text([of_outcome(TURNED)], ["known"])
    assert "extrapolated" not in demo_text([of_outcome("related")], ["known"])
