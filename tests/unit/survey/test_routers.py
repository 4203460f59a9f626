"""Routers: what matching makes of strangers, and who finds its own number."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pair_builders import named, number, opened
from safetensors.numpy import load_file
from scipy.stats import ks_2samp

from builders import Tensors, llama_tensors
from modelkin.demo import bundled
from modelkin.survey import routers
from modelkin.survey.reading import SurveyOptions, collected
from modelkin.survey.routers import random_directions, random_rows
from modelkin.survey.truncation import matched_cosine

Floats = NDArray[np.floating]
ROLES = SurveyOptions(roles=("router",), layers=("all",))


def greedy(likeness: Floats) -> float:
    """Row after row takes the best column that is left."""
    table, found = likeness.copy(), []
    for row in table:
        chosen = int(np.argmax(row))
        found.append(float(row[chosen]))
        table[:, chosen] = -np.inf
    return float(np.mean(found))


def test_matching_strangers_gives_the_published_null() -> None:
    """128 experts, width 4,096: 0.0380 ± 0.0005, greedily 0.0345; published as if it were evidence: 0.0293."""
    mean, std = random_rows(128, 128, 4096, 0)
    assert mean == pytest.approx(0.0380, abs=0.0002)
    assert std == pytest.approx(0.0005, abs=0.0001)
    rng = np.random.default_rng(1)
    pairs = [random_directions(128, 128, 4096, rng) for _ in range(20)]
    chosen = [greedy(first @ second.T) for first, second in pairs]
    assert np.mean(chosen) == pytest.approx(0.0345, abs=0.0005)  # three standard errors of 20 draws


@pytest.mark.parametrize(("left", "right", "width"), [(6, 6, 20), (4, 7, 9), (7, 4, 9)])
def test_turned_rows_have_the_law_of_whole_rows(left: int, right: int, width: int) -> None:
    rng = np.random.default_rng(2)

    def whole() -> float:
        x, y = rng.normal(size=(left, width)), rng.normal(size=(right, width))
        units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
        return matched_cosine(*units)

    turned = [matched_cosine(*random_directions(left, right, width, rng)) for _ in range(2000)]
    assert ks_2samp(turned, [whole() for _ in range(2000)]).pvalue > 0.001


def test_more_experts_than_dimensions() -> None:
    first, second = random_directions(12, 9, 5, np.random.default_rng(3))
    assert (first.shape, second.shape) == ((12, 5), (9, 5))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-6)


def test_a_router_beside_itself_and_a_stranger() -> None:
    folders = bundled()
    with collected([str(folders["ember"]), str(folders["cobalt"]), str(folders["ember"])], ROLES) as found:
        rows = named(routers.tables(found), "routers")
    itself = [row for row in rows if "cobalt" not in (row["a"], row["b"])]
    assert len(itself) == 3
    for row in itself:
        assert row["chose_their_own"] == row["experts"] == row["asked"]
        assert row["p"] == pytest.approx(1 / math.factorial(int(number(row["experts"]))))
        assert row["aligned_cosine"] == pytest.approx(1, abs=1e-6)
        assert row["cosine"] == pytest.approx(1)
    strangers = [row for row in rows if row not in itself]
    assert all(number(row["p"]) > 0.04 for row in strangers)
    assert all(0 < number(row["aligned_null_mean"]) < 0.3 for row in rows)
    assert all(abs(number(row["aligned_cosine"]) - number(row["renumbered_mean"])) < 0.2 for row in strangers)


def mixture(change: Tensors | None = None) -> Tensors:
    return load_file(bundled()["ember"] / "model.safetensors") | (change or {})


def router_names() -> list[str]:
    return sorted(name for name in mixture() if ".gate.weight" in name and "experts" not in name)


def test_broken_routers_leave_empty_cells(tmp_path: Path) -> None:
    config = json.loads((bundled()["ember"] / "config.json").read_text("utf-8"))
    names, tensors = router_names(), mixture()
    strange, zero = tensors[names[0]].copy(), np.zeros_like(tensors[names[1]])
    strange[0, 0] = np.nan
    models = {"base": tensors, "broken": mixture({names[0]: strange, names[1]: zero})}
    with opened(tmp_path, models, "router", dict.fromkeys(models, config)) as found:
        rows = named(routers.tables(found), "routers")
        left_out = found.left_out
    assert [row["cosine"] is None for row in rows] == [True, True, False]
    assert [row["p"] is None for row in rows] == [True, True, False]
    assert any("finite" in line for line in left_out)
    assert len(left_out) == 2


def test_experts_in_another_order_match_but_do_not_choose_their_own(tmp_path: Path) -> None:
    config = json.loads((bundled()["ember"] / "config.json").read_text("utf-8"))
    tensors = mixture()
    turned = mixture({name: np.ascontiguousarray(tensors[name][::-1]) for name in router_names()})
    with opened(tmp_path, {"base": tensors, "turned": turned}, "router", {"base": config, "turned": config}) as found:
        rows = named(routers.tables(found), "routers")
    assert all(row["aligned_cosine"] == pytest.approx(1, abs=1e-6) for row in rows)
    assert all((row["chose_their_own"], row["p"]) == (0, 1.0) for row in rows)


def test_models_without_routers_have_no_table(tmp_path: Path) -> None:
    with opened(tmp_path, {"one": llama_tensors(1), "two": llama_tensors(2)}, "router,q") as found:
        assert routers.tables(found) == []
    folders = bundled()
    with collected([str(folders["ember"]), str(folders["dune"])], ROLES) as found:
        assert routers.tables(found) == []
        assert any("no router" in line for line in found.left_out)
