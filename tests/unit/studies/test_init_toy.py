from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.records import Study
from modelkin.report.study_figures import study_figures
from modelkin.report.study_text import study_page
from modelkin.studies import init_toy
from modelkin.studies.columns import numbers
from modelkin.studies.init_toy import ONES, RANDOM, SEEDS, _up, arithmetic, text
from modelkin.studies.toy_gpt2 import LENGTH, Size

torch = pytest.importorskip("torch")
TINY = Size(layers=2, heads=2, width=64, steps=60)

pytestmark = pytest.mark.xdist_group("toy")  # what the fixture makes takes long, so one worker makes it


@pytest.fixture(scope="module")
def study() -> Study:
    """The small form, smaller still: what is tested is where gains stay, which no size changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(init_toy, "SMALL", TINY)
        from modelkin.studies import STUDIES

        return STUDIES["init-toy"].run(small=True)


def test_gains_that_start_at_one_stay_alike(study: Study) -> None:
    """Adam moves a gain by about the learning rate a step at most: 60 steps of 0.001 leave a CV below 0.06, so that
    the cosine of any two stays above 1 / (1 + 0.06²) − 0.06² > 0.99; published, at five times the steps, 0.9998."""
    cosines = numbers(study.tables[0], "cosine", init=ONES)
    assert len(cosines) == 3 * 2 * TINY.layers
    assert min(cosines) > 0.999


def test_gains_that_start_at_random_stay_apart(study: Study) -> None:
    """0 ± 1/sqrt(64) between strangers; 4.5 of those for twelve values. Published at 512: within 2.9 of 1/sqrt(512)."""
    cosines = numbers(study.tables[0], "cosine", init=RANDOM)
    assert max(map(abs, cosines)) < 4.5 / math.sqrt(TINY.width)
    assert min(numbers(study.tables[0], "start_kept", init=RANDOM)) > 0.99
    published = numbers(study.tables[1], "least", source="published", init=RANDOM)
    assert abs(published[0]) < 4.5 / math.sqrt(512)


def test_pearson_sees_strangers_in_both(study: Study) -> None:
    assert max(map(abs, numbers(study.tables[0], "pearson"))) < 4.5 / math.sqrt(TINY.width - 1)


def test_cosine_is_what_means_alone_make_it(study: Study) -> None:
    found, alone = (np.array(numbers(study.tables[0], name, init=ONES)) for name in ("cosine", "expected_cosine"))
    assert np.abs(found - alone).max() < 1e-3


def test_published_ranges_are_kept(study: Study) -> None:
    published = [row for row in study.tables[1].rows if row[0] == "published"]
    assert [(row[2], row[5], row[7]) for row in published] == [(ONES, 0.99981, 0.99997), (RANDOM, -0.12613, 0.11864)]


def test_the_models_did_learn(study: Study) -> None:
    for row in study.tables[2].rows:
        *_, first, last = row
        assert isinstance(first, float)
        assert isinstance(last, float)
        assert first == pytest.approx(math.log(256), abs=0.3)
        assert last < first - 1


def test_weight_decay_moves_the_mean_and_not_the_cosine(study: Study) -> None:
    """Decay multiplies every gain by (1 − 0.001 · 0.1) a step: 0.6 % in 60 steps, where nothing else pulls."""
    without, decayed = (
        np.array(numbers(study.tables[0], "mean_a", stream="arithmetic", init=ONES, weight_decay=it))
        for it in (0.0, 0.1)
    )
    assert np.all((without - decayed > 0.003) & (without - decayed < 0.009))


def test_streams_differ_between_models_and_not_between_runs() -> None:
    sequences = [arithmetic(seed)(0) for pair in SEEDS.values() for seed in pair]
    assert len({array.tobytes() for array in sequences}) == 4
    assert set(np.diff(sequences[0][0]) % 256) == {3}
    first, again, other = text(10, 0)(5), text(10, 0)(5), text(20, 0)(5)
    assert np.array_equal(first, again)
    assert first.shape == (init_toy.TEXTS_AT_ONCE, LENGTH + 1)
    assert not np.array_equal(first, other)


def test_its_page_and_pictures_are_made(study: Study) -> None:
    pytest.importorskip("matplotlib")
    assert "published 0.99981 to 0.99997" in " ".join(study_page(study).split())
    assert list(study_figures(study)) == ["init-toy-ln_1", "init-toy-ln_2"]


def test_bounds_are_rounded_to_the_safe_side() -> None:
    assert str(_up(4.303e-05, 5)) == "0.00005"
    assert str(-_up(-0.99989, 4)) == "0.9998"
    assert str(_up(0.0, 5)) == "0.00000"
