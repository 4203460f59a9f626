"""Where not all tensors fit a budget, few are looked at, spread evenly, and the budget is never passed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from modelkin.compare import CompareOptions, compare, plan
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.questions import whole_tensors
from modelkin.questions.stored_tensors import sides_of
from modelkin.questions.tensor_sample import FEWEST_ROWS, Stored, further_rows, spread
from modelkin.questions.whole_tensors import equal_tensors
from modelkin.records import Answer
from modelkin.sources import ReadOptions
from modelkin.sources.protocol import no_progress
from tensor_models import Tensors, anatomy, evidence, remarks


def blocks(seed: int, count: int, *shape: int) -> Tensors:
    rng = np.random.default_rng([seed, 9])
    return {f"x.{i:04}.weight": rng.normal(size=shape).astype(np.float32) for i in range(count)}


def stored(count: int, rows: int = 64, width: int = 10) -> list[Stored]:
    return [Stored(f"{rows}x{width}.{i}", (rows, width), rows, width) for i in range(count)]


# which


def test_what_fits_is_all_looked_at() -> None:
    side = stored(5) + stored(3, 8, 20)
    cost = sum(tensor.cost for tensor in side)
    assert cost == 5 * 10 * FEWEST_ROWS + 3 * 20 * 8
    for chosen in spread([side, side], cost):
        assert sorted(chosen) == sorted(tensor.name for tensor in side)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("taken", [1, 2, 3, 8, 50])
def test_a_sample_is_spread_over_the_whole(count: int, taken: int) -> None:
    side = stored(count)
    (chosen, other) = spread([side, side], taken * side[0].cost)
    places = sorted(int(name.partition(".")[2]) for name in chosen)
    assert chosen == other
    assert len(set(places)) == len(places) == min(count, taken)
    gaps = np.diff([-1, *places, count])
    assert gaps.max() <= 2 * count / len(places) + 1  # no stretch twice as long as it need be


def test_every_shape_has_its_turn_and_shapes_of_one_side_none() -> None:
    many, few, mine, theirs = stored(500), stored(2, 8, 30), stored(4, 8, 40), stored(4, 8, 50)
    a, b = spread([many + few + mine, theirs + few + many], 20 * many[0].cost)
    for chosen in (a, b):
        assert {name.partition(".")[0] for name in chosen} == {"64x10", "8x30"}
        assert sum(name.startswith("8x30") for name in chosen) == 2


def test_a_random_budget_is_never_passed_by_either_side() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        kinds = [(int(rng.integers(1, 40)), int(rng.integers(1, 300))) for _ in range(6)]
        sides = [[t for rows, width in kinds for t in stored(int(rng.integers(1, 30)), rows, width)] for _ in range(2)]
        budget = int(rng.integers(1, 200_000))
        chosen = [{*names} for names in spread(sides, budget)]
        taken = [[t for t in side if t.name in names] for side, names in zip(sides, chosen, strict=True)]
        spent = [sum(t.cost for t in side) for side in taken]
        assert max(spent) <= budget
        rows = further_rows(taken, [budget - cost for cost in spent])
        assert all(sum(rows[t.shape] * t.row for t in side) <= budget for side in taken)
        assert all(min(t.rows, FEWEST_ROWS) <= rows[t.shape] <= t.rows for side in taken for t in side)


# what it finds


def look(a: Tensors, b: Tensors, most_bytes: int) -> tuple[Answer, int]:
    sides = anatomy(a, {}), anatomy(b, {})
    answer = equal_tensors(*sides, no_progress, None, most_bytes)
    return answer, max(side.checkpoint.source.ledger.bytes({"stream"}) for side in sides)


@pytest.mark.parametrize("most_bytes", [25_000, 100_000, 1_000_000, 10_000_000])
def test_a_copy_is_found_within_the_budget_and_told_as_a_sample(most_bytes: int) -> None:
    a = blocks(0, 100, 24, 160)  # 1.5 MB
    answer, read = look(a, a, most_bytes)
    found = evidence(answer)
    assert 0.5 * min(most_bytes, 1_536_000) < read <= min(most_bytes, 1_536_000)  # and nothing twice
    assert found.grade == "A"
    is_sample = most_bytes < 16 * 160 * 4 * 100
    assert ("a sample of 100" in found.observed) is is_sample
    assert ("of 100 tensors were looked at" in remarks(found)) is is_sample


def test_strangers_cost_a_row_of_every_tensor_of_the_sample() -> None:
    a, b = blocks(0, 100, 24, 160), blocks(1, 100, 24, 160)
    answer, read = look(a, b, 100_000)
    assert evidence(answer).grade is None
    side, _ = sides_of(anatomy(a, {}), anatomy(b, {}), 100_000)
    assert 0 < len(side.tensors) < 100
    assert read == len(side.tensors) * 160 * 4


def test_equal_tensors_of_few_shared_shapes_are_not_most_of_a_model() -> None:
    """Names that say nothing count only as most of both models, and other shapes are part of those."""
    same = {f"z{i}": array for i, array in enumerate(blocks(0, 4, 24, 160).values())}
    rest = [{f"y{i}": array for i, array in enumerate(blocks(s, 20, 24, 160 + s).values())} for s in (1, 2)]
    answer, _ = look(same | rest[0], same | rest[1], 1_000_000)
    assert (evidence(answer).statistic, evidence(answer).grade) == (0, None)
    assert evidence(look(same, same, 1_000_000)[0]).grade == "A"


# over HTTP, where what lies between near ranges comes along


@pytest.mark.parametrize("shape", [(40, 400), (8, 3000), (300, 30)])
@pytest.mark.parametrize("alike", [True, False])
def test_standard_stays_within_its_bytes_from_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], alike: bool
) -> None:
    monkeypatch.setattr(whole_tensors, "STANDARD_BYTES", 600_000)
    repositories = {}
    for name, seed in (("a", 0), ("b", 0 if alike else 1)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "odd"}))
        more = {"x.more.weight": np.full((2, 5), seed, np.float32)}  # the files differ in any case
        extra = {"x.other.weight": np.zeros((3, 7), np.float32)} if name == "b" else {}
        (folder / "model.safetensors").write_bytes(save(blocks(seed, 60, *shape) | more | extra))
        repositories[f"x/{name}"] = Repository.from_folder(folder)
    with LoopbackHub(repositories) as hub:
        options = CompareOptions("standard", reading=ReadOptions(endpoint=hub.endpoint, cache=False, token=False))
        promised = numbers(plan("x/a", "x/b", options)[-1])
        cost = _cost(options, alike)
    assert max(cost) <= 600_000
    assert all(read <= most for read, most in zip(cost, promised, strict=True))


def _cost(options: CompareOptions, alike: bool) -> tuple[int, int]:
    from modelkin.compare import compare_pair, cost, open_pair
    from modelkin.errors import NothingComparable

    if alike:
        found = compare("x/a", "x/b", options).cost
        return found.tensor_bytes_a, found.tensor_bytes_b
    with open_pair("x/a", "x/b", options) as pair:
        with pytest.raises(NothingComparable):  # that tensors differ is no answer
            compare_pair(pair, 0.0)
        spent = cost(pair, 0.0)
    return spent.tensor_bytes_a, spent.tensor_bytes_b


def numbers(line: str) -> list[Any]:
    found = re.findall(r"([\d,]+)(?: bytes of the weights| of those)", line)
    return [int(number.replace(",", "")) for number in found]
