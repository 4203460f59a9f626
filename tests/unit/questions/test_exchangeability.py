"""Strangers whose architecture fixes what a neuron reads are never called related; relatives lose nothing by it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from mlp_models import Arrays, layered, written
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.questions.exchangeability import Zeros, index_means_nothing, zeros, zeros_apart
from modelkin.records import Comparison, Evidence
from modelkin.sources import ReadOptions

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


def compared(tmp_path: Path, a: Arrays, b: Arrays, budget: str) -> Comparison:
    folders = written(tmp_path / "a", a), written(tmp_path / "b", b)
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
