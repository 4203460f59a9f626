from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from modelkin.alignment import Alignment, align
from modelkin.architectures import identify
from modelkin.demo import bundled
from modelkin.inspection import open_model
from modelkin.questions import CannotAsk
from modelkin.questions.controls import ControlClass, Controls, Counts, PairClass
from modelkin.questions.unmasked import answer

pytestmark = pytest.mark.xdist_group("unmasked")
STRANGERS = tuple(Counts(two, 0, 6) for two in range(12) for _ in range(100))


def controls(widths: tuple[int, int] = (128, 128), route: str = "facing layers") -> Controls:
    of = PairClass(True, 0, route)
    return Controls((ControlClass(of=of, models=50, widths=widths, layers=(6, 6), pairs=STRANGERS),))


@cache
def aligned(a: str, b: str) -> Alignment:
    left, right = (identify(open_model(str(bundled()[name]))) for name in (a, b))
    return align(left, right, np.random.default_rng(0))


def test_a_disguised_copy_is_beyond_all_controls() -> None:
    found = answer(aligned("dune", "fjord"), controls())
    assert (found.grade, found.index_set) == ("B", "neurons")
    assert found.pvalue == pytest.approx(1 / 1201)
    assert found.statistic == found.n == 6 * 224
    assert found.effect == 1
    assert "1,200 pairs of 50 unrelated models" in found.assumptions[0].text
    assert {(f.a, f.b) for f in found.per_layer} == {(str(i), str(i)) for i in range(6)}


def test_beyond_their_width_p_is_capped_and_called_extrapolated() -> None:
    found = answer(aligned("dune", "fjord"), controls(widths=(256, 512)))
    assert found.log10_pvalue == -6
    assert "extrapolated" in found.assumptions[0].text


def test_strangers_are_among_the_controls() -> None:
    for known in (controls(), controls(widths=(256, 512))):
        found = answer(aligned("dune", "grove"), known)
        assert (found.log10_pvalue or 0.0) > -1
        assert (found.effect or 0.0) < 0.02


def test_without_controls_of_its_route_it_informs_alone() -> None:
    found = answer(aligned("dune", "fjord"), controls(route="any two layers"))
    assert (found.grade, found.pvalue) == (None, None)


def test_what_could_not_be_judged_cannot_be_asked() -> None:
    nothing = replace(aligned("dune", "fjord"), held_out=(), reasons=("two layers are needed",))
    with pytest.raises(CannotAsk, match="two layers are needed"):
        answer(nothing, controls())
