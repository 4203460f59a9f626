from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from modelkin.errors import UsageError
from modelkin.records import Study
from modelkin.report.study_figures import PICTURES, study_figures
from modelkin.report.study_files import write_study
from modelkin.report.study_text import SHOWN, study_page
from modelkin.studies import STUDIES
from modelkin.studies.gains import labels

WITHOUT_TORCH = [name for name, experiment in STUDIES.items() if experiment.extra is None]


@pytest.fixture(scope="module", params=[name for name in WITHOUT_TORCH if name != "precision"])
def study(request: pytest.FixtureRequest) -> Study:
    return STUDIES[request.param].run(seed=3)


def test_the_five_are_there_with_page_and_pictures() -> None:
    assert list(STUDIES) == ["cosine-bias", "init-toy", "gain-scale", "precision", "claim"]
    assert STUDIES.keys() == SHOWN.keys() == PICTURES.keys()


def test_listing_them_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'scipy', 'torch', 'matplotlib', 'rich'}"
    code = f"import sys, modelkin.studies; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_study_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no models"):
        STUDIES["cosine-bias"].run(["dune"])
    with pytest.raises(UsageError, match="takes two models"):
        STUDIES["claim"].run(["dune"])
    with pytest.raises(UsageError, match="no small form"):
        STUDIES["precision"].run(small=True)


def test_every_table_says_what_it_shows_and_what_strangers_would(study: Study) -> None:
    assert study.seed == 3
    for table in study.tables:
        assert table.caption.endswith(".")
        assert table.strangers
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(value is None or type(value) in (int, float, str) for row in table.rows for value in row)


def test_the_same_seed_gives_the_same_tables(study: Study) -> None:
    assert STUDIES[study.name].run(seed=3).tables == study.tables


def test_the_page_holds_the_text_and_the_tables(study: Study) -> None:
    page = study_page(study)
    words = " ".join(page.split())
    assert " ".join(study.text.split()) in words
    assert "Between strangers" in words
    assert max(map(len, page.splitlines())) <= 110


def test_figures_are_drawn_from_the_tables_alone(study: Study) -> None:
    pytest.importorskip("matplotlib")
    figures = study_figures(study)
    assert figures
    assert all(name.startswith(study.name) for name in figures)


def test_everything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = STUDIES["cosine-bias"].run()
    written = write_study(found, study_page(found), tmp_path)
    assert all(path.stat().st_size for path in written)
    names = {path.name for path in written}
    assert {f"{table.name}.csv" for table in found.tables} < names
    assert {"study.json", "study.txt", "captions.txt", "cosine-bias-geometry.png", "cosine-bias.gif"} < names
    assert (tmp_path / "cosine-bias.gif").read_bytes()[:6] == b"GIF89a"
    assert {path.name for path in write_study(found, "", tmp_path, figures=False)} == {
        name for name in names if name.rpartition(".")[2] in ("json", "txt", "csv")
    }


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match="needs torch") as error:
        STUDIES["init-toy"].run(small=True)
    assert "modelkin[torch]" in error.value.hint


def test_labels_tell_models_apart() -> None:
    assert labels(["acme/tiny", "/data/base/"]) == ["tiny", "base"]
    assert labels(["a/tiny", "b/tiny", "c/big"]) == ["a/tiny", "b/tiny", "big"]
