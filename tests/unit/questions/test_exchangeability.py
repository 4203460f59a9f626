"""Strangers whose architecture fixes what a neuron reads are never called related; relatives lose nothing by it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from mlp_models import Arrays, layered, written
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.questions.exchangeability import (
    Zeros,
    follow_no_index,
    in_no_order,
    index_means_nothing,
    zeros,
    zeros_apart,
)
from modelkin.records import Comparison, Evidence
from modelkin.sources import ReadOptions
from modelkin.stats import traits

Fill = Callable[[str, NDArray[np.float32]], NDArray[np.float32]]
LAYERS, NEURONS, WIDTH = 6, 256, 64


def masked(share: float) -> Fill:
    """The same mask for every model, another one for every matrix."""
    return lambda name, array: array * (np.random.default_rng(zlib.crc32(name.encode())).random(array.shape) < share)


def in_blocks(_: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = array.shape
    return array * np.kron(np.eye(16), np.ones((rows // 16, columns // 16)))


def in_a_band(_: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = array.shape
    return array * (np.abs(np.arange(rows)[:, None] * columns // rows - np.arange(columns)) <= 2)


def from_identity(_: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = array.shape
    return 0.3 * array + 3 * (np.arange(rows)[:, None] % columns == np.arange(columns))


def from_hadamard(_: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    return 0.3 * array + np.resize(hadamard(WIDTH) / 8, array.shape)


def barely_trained(name: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    return from_identity(name, np.float32(0.01) * array)


def filled(tensors: Arrays, fill: Fill) -> Arrays:
    return {
        name: fill(name, array).astype(np.float32) if array.ndim == 2 and "proj" in name else array
        for name, array in tensors.items()
    }


def compared(
    tmp_path: Path, a: Arrays, b: Arrays, budget: str, config: Mapping[str, int] | None = None, experts: int = 0
) -> Comparison:
    folders = written(tmp_path / "a", a, experts), written(tmp_path / "b", b, experts)
    for folder in folders:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | dict(config or {})))
    options = CompareOptions(budget, reading=ReadOptions(cache=False))  # type: ignore[arg-type]
    return compare(str(folders[0]), str(folders[1]), options)


def failed(comparison: Comparison) -> list[str]:
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    return [answer.question for answer in given if any(it.held is False for it in answer.assumptions)]


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
@pytest.mark.parametrize(
    "fill",
    [masked(0.05), masked(0.5), in_blocks, in_a_band, from_identity, from_hadamard, barely_trained],
    ids=["mask 5 %", "mask 50 %", "blocks", "band", "identity", "hadamard", "barely trained"],
)
def test_strangers_by_construction_are_not_related(tmp_path: Path, fill: Fill, budget: str) -> None:
    a, b = (filled(layered(seed, LAYERS, NEURONS, WIDTH), fill) for seed in (1, 2))
    assert compared(tmp_path, a, b, budget).verdict.outcome == "undecided"


def starting(*parts: str, shift: int = 0, layers: range = range(LAYERS)) -> Fill:
    """From an identity, shifted by `shift` from layer to layer, in some projections of some layers."""

    def fill(name: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
        layer = int(name.split(".")[2])
        if layer not in layers or not any(part in name for part in parts):
            return array
        rows, columns = array.shape
        return 0.3 * array + 3 * ((np.arange(rows)[:, None] + shift * layer) % columns == np.arange(columns))

    return fill


MLP, FIRST = ("gate_proj", "up_proj"), range(1)
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16}


@pytest.mark.parametrize(
    "fill",
    [
        starting(*MLP, shift=7),
        starting(*MLP, layers=FIRST),
        starting("up_proj", shift=7),
        starting("down_proj", shift=7),
        starting("v_proj"),
        starting("o_proj"),
        starting("v_proj", shift=7),
        starting("o_proj", shift=7),
        starting("v_proj", layers=FIRST),
    ],
    ids=["shifted", "one layer", "up", "down", "values", "o", "values shifted", "o shifted", "values of one layer"],
)
def test_strangers_that_start_from_an_identity_are_not_related(tmp_path: Path, fill: Fill) -> None:
    a, b = (filled(layered(seed, LAYERS, NEURONS, WIDTH), fill) for seed in (1, 2))
    assert compared(tmp_path, a, b, "full", HEADS).verdict.outcome in ("undecided", "unrelated")


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
def test_strangers_of_one_layer_are_not_related(tmp_path: Path, budget: str) -> None:
    a, b = (filled(layered(seed, 1, NEURONS, WIDTH), from_identity) for seed in (1, 2))
    assert compared(tmp_path, a, b, budget).verdict.outcome == "undecided"


@pytest.mark.parametrize(
    "formula",
    [
        3 * np.eye(16, WIDTH),
        hadamard(WIDTH)[:16],
        np.cos(np.pi * (np.arange(WIDTH) + 0.5) * np.arange(1, 17)[:, None] / WIDTH),
    ],
    ids=["identity", "hadamard", "cosines"],
)
def test_strangers_whose_routers_start_from_a_formula_are_not_related(
    tmp_path: Path, formula: NDArray[np.float64]
) -> None:
    sides = [layered(seed, LAYERS, 32, WIDTH, experts=16) for seed in (1, 2)]
    for side in sides:
        side |= {name: 0.3 * array + formula for name, array in side.items() if name.endswith("mlp.gate.weight")}
    comparison = compared(tmp_path, *sides, "standard", experts=16)
    assert comparison.verdict.outcome != "related"
    assert "experts" in failed(comparison)


@pytest.mark.parametrize("fill", [masked(0.05), masked(0.5)], ids=["5 %", "50 %"])
def test_one_mask_in_the_values_alone_is_noticed(tmp_path: Path, fill: Fill) -> None:
    a, b = (layered(seed, LAYERS, NEURONS, WIDTH) for seed in (1, 2))
    for side in (a, b):
        side |= {name: fill(name, array) for name, array in side.items() if "v_proj" in name or "o_proj" in name}
    assert compared(tmp_path, a, b, "standard").verdict.outcome in ("undecided", "unrelated")


def test_a_pruned_child_and_its_own_child_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    dense = layered(1, LAYERS, NEURONS, WIDTH)
    pruned = filled(dense, lambda _, array: np.where(np.abs(array) > 0.7, array, 0))
    tuned = {
        name: (array * (1 + 0.1 * rng.normal(size=array.shape))).astype(np.float32) for name, array in pruned.items()
    }
    for i, pair in enumerate([(dense, pruned), (pruned, tuned)]):
        (tmp_path / str(i)).mkdir()
        comparison = compared(tmp_path / str(i), *pair, "standard")
        assert comparison.verdict.outcome == "related"
        assert failed(comparison) == []


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
@pytest.mark.parametrize(("a", "b"), [("dune", "heath"), ("dune", "amber"), ("amber", "amber"), ("dune", "grove")])
def test_trained_models_fail_nothing(a: str, b: str, budget: str) -> None:
    models = bundled()
    options = CompareOptions(budget, reading=ReadOptions(cache=False))  # type: ignore[arg-type]
    assert failed(compare(str(models[a]), str(models[b]), options)) == []


# The checks themselves.


def test_zeros_against_drawn_orders() -> None:
    """Excess and variance are those of all orders of the rows of one side."""
    rng = np.random.default_rng(5)
    left, right = (rng.normal(size=(12, 30)) * (rng.random((12, 30)) < rng.random((12, 1))) for _ in range(2))
    found = zeros(left, right)
    together = [np.count_nonzero((left == 0) & (right[rng.permutation(12)] == 0)) for _ in range(20_000)]
    seen = np.count_nonzero((left == 0) & (right == 0))
    assert found.excess == pytest.approx(seen - np.mean(together), abs=5 * np.std(together) / np.sqrt(20_000))
    assert found.variance == pytest.approx(np.var(together), rel=0.05)
    assert (found.a, found.b, found.numbers) == (int((left == 0).sum()), int((right == 0).sum()), 360)


def test_zeros_in_places_of_their_own_hardly_ever_alarm() -> None:
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(2000):
        left, right = (rng.normal(size=(24, 40)) * (rng.random((24, 40)) < 0.6) for _ in range(2))
        (found,) = zeros_apart([zeros(left, right)])
        alarms += found.held is False
    assert alarms <= 8  # of 2,000 at one in a thousand; more has a chance of 1 in 4,000


def test_without_zeros_in_both_there_is_nothing_to_say() -> None:
    rng = np.random.default_rng(7)
    dense, sparse = rng.normal(size=(20, 50)), rng.normal(size=(20, 50)) * (rng.random((20, 50)) < 0.5)
    assert zeros_apart([zeros(dense, sparse)]) == zeros_apart([zeros(dense, dense)]) == zeros_apart([]) == ()
    assert zeros(np.zeros((4, 5)), np.zeros((4, 5))) == Zeros()


def test_zeros_where_whole_rows_or_columns_are_zero_tell_no_index() -> None:
    rng = np.random.default_rng(8)
    left, right = rng.normal(size=(2, 64, 64))
    for side in (left, right):
        side[:16], side[:, ::2] = 0, 0
    (found,) = zeros_apart([zeros(left, right)])
    assert found.held is True


def test_one_model_whose_index_means_nothing_is_enough() -> None:
    rng = np.random.default_rng(9)
    plain, pinned = list(rng.normal(size=(4, 32, 40))), list(rng.normal(size=(4, 32, 40)) + 3 * np.eye(32, 40))
    assert index_means_nothing(plain, pinned, rng).held is True
    assert index_means_nothing(pinned, pinned, rng).held is False
    assert index_means_nothing(pinned[:1], pinned[:1], rng).held is None


def test_what_does_not_hold_reads_plainly() -> None:
    """Every text follows "this does not hold:"."""
    rng = np.random.default_rng(10)
    pinned = list(rng.normal(size=(4, 32, 40)) + 9 * np.eye(32, 40))
    mask = rng.random((32, 40)) < 0.5
    (zero,) = zeros_apart([zeros(*(rng.normal(size=(2, 32, 40)) * mask))])
    sized = list(rng.normal(size=(4, 32, 40)) * np.linspace(3, 1, 32)[:, None])
    checks = [
        index_means_nothing(pinned, pinned, rng),
        follow_no_index([traits([x]) for x in pinned], [traits([x]) for x in pinned], rng),
        in_no_order(sized, sized, rng),
        zero,
    ]
    assert [check.held for check in checks] == [False] * 4
    assert [check.text.partition(" (")[0] for check in checks] == [
        "rows stand in no order that the architecture fixes, in one model at least",
        "what a row holds is independent of its index, in one model at least",
        "neurons stand in any order of size, in one model at least",
        "the zeros of rows at equal index stand in places of their own",
    ]


def test_one_model_whose_rows_follow_nothing_is_enough() -> None:
    rng = np.random.default_rng(11)
    plain, pinned = (traits([rng.normal(size=(32, 40)) + weight * np.eye(32, 40)]) for weight in (0, 9))
    assert follow_no_index([plain], [pinned], rng).held is True
    assert follow_no_index([pinned], [pinned], rng).held is False
    assert follow_no_index([pinned], [traits([np.ones((8, 4))])], rng).held is None
