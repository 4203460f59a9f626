"""Figures in Korean: every text of them, with the package's own letters; and of many pairs the most alike."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import msgspec
import pytest
from known_surveys import made_up, of_three
from matplotlib.text import Text

from modelkin.records import Survey
from modelkin.report.figures import draw_all
from modelkin.report.figures.canvas import OWN_FONT, drawable, families, settings, stand_ins
from modelkin.report.figures.drawing import FIGURES, _chosen, _lacking
from modelkin.report.figures.language import SENTENCE, in_language
from modelkin.report.notable import MOST_PAIRS, ranked_pairs

# Names of models, roles, metrics and baselines, and numbers, stay as they are.
NAME = r"(dune|heath|grove|cv|z|cosine|pearson|shuffled|\w*[_@\d-][\w@.-]*)"
AS_IT_IS = re.compile(rf"[\s\d.,:%·()+−$\\{{}}^-]*|{NAME}(( · |: ){NAME})?|PC\d \([\d.]+%\)|\$.*\$", re.ASCII)


def test_any_syllable_can_be_drawn_without_a_font_of_the_machine() -> None:
    assert OWN_FONT in families()
    assert drawable("한글모델-뷁쀍")
    survey = of_three()
    named = tuple(msgspec.structs.replace(model, label=f"모델-{n}뷁") for n, model in enumerate(survey.models))
    assert stand_ins(msgspec.structs.replace(survey, models=named)) == {}


@pytest.mark.parametrize(
    "kind", [kind for kind in FIGURES if not _lacking(of_three(), kind)], ids=lambda kind: kind.name
)
def test_every_text_of_a_figure_has_its_korean(kind: object) -> None:
    with matplotlib.rc_context(settings()):
        for drawn in kind.draw(of_three()):  # type: ignore[attr-defined]
            picture = in_language(drawn, "ko")
            texts = [text.get_text() for text in picture.figure.findobj(Text)]
            for said in (picture.title, *SENTENCE.split(picture.caption), *texts):
                assert re.search("[가-힣]", said) or AS_IT_IS.fullmatch(said), said


def test_of_many_pairs_the_most_alike_are_drawn_and_the_caption_says_so() -> None:
    survey = made_up(20, 3)
    kind = next(kind for kind in FIGURES if kind.name == "decay")
    chosen, said = _chosen(survey, kind)
    assert set(pairs_of(chosen)) == set(ranked_pairs(survey)[:MOST_PAIRS])
    assert said == f" Of 190 pairs the {MOST_PAIRS} most alike are drawn; --all-figures draws all."
    assert _chosen(made_up(3, 3), kind) == (made_up(3, 3), "")


def pairs_of(survey: Survey) -> list[tuple[str, str]]:
    table = survey.table("curves")
    return [(str(row[0]), str(row[1])) for row in table.rows]


def test_letters_of_hangul_are_drawn_as_shapes_where_a_reader_may_have_no_font(tmp_path: Path) -> None:
    survey = of_three()
    few = msgspec.structs.replace(
        survey, tables=tuple(t for t in survey.tables if t.name in ("models", "gains")), matrices=()
    )
    drawn = draw_all(few, tmp_path, language="ko")
    svg = next(path for path in drawn.files if path.suffix == ".svg").read_text("utf-8")
    assert not re.search("<text[^>]*>[^<]*[가-힣]", svg)
    assert "층별 게인" in (tmp_path / "captions.txt").read_text("utf-8")
