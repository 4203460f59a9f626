"""What stands on and under pictures: what is drawn there, each thing once, and pairs that are known marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from modelkin.records import KnownPair, Survey
from modelkin.report.figures import FIGURES, canvas, experiments, gains, halves, matrices, tokens, weights
from modelkin.report.figures.rows import counted, has, numbers, where
from modelkin.report.study_figures import PICTURES
from modelkin.report.survey_files import captions, write_survey
from modelkin.studies import STUDIES
from modelkin.survey import SurveyOptions, survey

matplotlib = pytest.importorskip("matplotlib")

MODELS = Path(__file__).parents[3] / "src" / "modelkin" / "demo" / "models"
NAMES = ("amber", "dune", "cobalt", "ember")
ROLES = ("input_norm", "post_norm", "k", "router", "embedding")

pytestmark = pytest.mark.xdist_group("captions")


@pytest.fixture(scope="module")
def surveyed() -> Survey:
    known = (KnownPair("amber", "dune", "derived"), KnownPair("amber", "cobalt", "independent"))
    return survey([str(MODELS / name) for name in NAMES], SurveyOptions(roles=ROLES, known=known))


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with matplotlib.rc_context(canvas.settings()):
        yield


def pictures(survey: Survey) -> Iterator[canvas.Picture]:
    for kind in FIGURES:
        if has(survey, *kind.needs):
            yield from kind.draw(survey)


def sentences(caption: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[a-z)])\. ", caption.rstrip(".")) if len(sentence) > 20]


def names_on(panel: object) -> list[str]:
    return [label.get_text() for label in panel.get_yticklabels()]  # type: ignore[attr-defined]


def test_no_caption_says_a_thing_twice_or_counts_one_as_many(surveyed: Survey) -> None:
    for picture in pictures(surveyed):
        said = sentences(picture.caption)
        assert len(said) == len(set(said)), picture.name
        assert not re.search(r"\b1 (models|pairs|layers|tensors)\b", picture.caption), picture.name
        assert ".." not in picture.caption, picture.name
        assert not re.search(r"[Bb]etween strangers[:,] [^.;]{0,60}\bstrangers\b", picture.caption), picture.name


def test_no_caption_of_a_study_names_a_column() -> None:
    for name in ("cosine-bias", "gain-scale", "claim"):
        for picture in PICTURES[name](STUDIES[name].run(seed=1)):
            assert "`" not in picture.caption, picture.name
            assert "etween strangers: " in picture.caption, picture.name


def test_pairs_that_are_known_are_marked(surveyed: Survey) -> None:
    for draw in (experiments.pairs_at_one_layer, halves.decay):
        names = names_on(next(draw(surveyed)).figure.axes[0])
        assert [name.splitlines()[1] for name in names if "known" in name] == ["known: derived", "known: independent"]
        assert names[0].startswith("amber · dune\nknown: derived")


def test_captions_of_windows_count_their_own_page(surveyed: Survey) -> None:
    table = surveyed.table("windows")
    for picture in weights.windows(surveyed):
        drawn = sum(len(part.rows) for part in picture.data if not hasattr(part, "metric"))
        assert picture.caption.startswith(counted(drawn, "pair"))
        assert drawn <= len(table.rows)
        beyond = any(np.nanmax(np.abs(numbers(part, "z"))) >= 8 for part in picture.data)  # type: ignore[arg-type]
        assert ("logarithmic" in picture.caption) == beyond


def test_a_copy_leaves_an_edge_of_its_original(surveyed: Survey) -> None:
    lines = {str(line.get_label()): line for line in next(gains.statistics(surveyed)).figure.axes[0].get_lines()}
    widths = [lines[name].get_linewidth() for name in NAMES]
    assert widths == sorted(set(widths), reverse=True)


def test_cosines_of_relatives_are_enlarged_and_those_of_strangers_are_not(surveyed: Survey) -> None:
    for picture in tokens.embeddings(surveyed):
        panel = picture.figure.axes[0]
        found = numbers(where(picture.data[0], held_out="yes"), "cosine")  # type: ignore[arg-type]
        assert bool(panel.child_axes) == (np.ptp(found) < 0.04), picture.name


def test_numbers_in_cells_fit_them(surveyed: Survey) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    picture = next(matrices.over_models(surveyed))
    drawer = FigureCanvasAgg(picture.figure).get_renderer()
    panel = picture.figure.axes[0]
    cell = panel.get_window_extent(drawer).width / len(NAMES)
    assert panel.texts
    assert all(text.get_window_extent(drawer).width <= cell for text in panel.texts)
    assert all(text.get_fontsize() >= 7 for text in panel.texts)


def test_a_long_name_of_a_matrix_becomes_a_file_and_keeps_its_own(surveyed: Survey, tmp_path: Path) -> None:
    first, second = surveyed.matrices[:2]
    long = [msgspec.structs.replace(it, name=f"{'x' * 300}.{it.metric}") for it in (first, second)]
    changed = msgspec.structs.replace(surveyed, matrices=tuple(long), tables=())
    write_survey(changed, "", tmp_path)
    files = sorted(path.stem for path in (tmp_path / "matrices").iterdir())
    assert len(files) == 2
    assert all(name in captions(changed) for name in files)
