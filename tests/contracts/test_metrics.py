"""Every entry of METRICS keeps what the table promises, and promises everything that it keeps."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import modelkin.metrics
from modelkin.metrics import METRICS, Invariance, Metric, NotFinite, ShapeMismatch, Shapes, Undefined, Unmeasurable

Array = NDArray[np.float64]
Change = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
ENTRIES = [pytest.param(metric, id=name) for name, metric in METRICS.items()]
every_metric = pytest.mark.parametrize("metric", ENTRIES)
every_invariance = pytest.mark.parametrize("invariance", list(Invariance), ids=lambda item: item.name)


def pair(seed: int, shape: tuple[int, ...] = (24, 6)) -> tuple[Array, Array]:
    """Multiples of 1/64 with a mean, correlated, a fifth of the places equal: sums with dyadic numbers are exact."""
    rng = np.random.default_rng(seed)
    a = rng.normal(0.4, 1.0, shape)
    b = np.where(rng.random(shape) < 0.2, a, 0.6 * a + rng.normal(0.1, 0.7, shape))
    return np.round(a * 64) / 64, np.round(b * 64) / 64


def orthogonal(n: int, rng: np.random.Generator) -> Array:
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def _permute(a: Array, b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.permutation(a), rng.permutation(b)


def _permute_jointly(a: Array, b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    order = rng.permutation(len(a))
    return a[order], b[order]


def _sign_jointly(a: Array, b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    signs = rng.choice([-1.0, 1.0], size=(len(a), *[1] * (a.ndim - 1)))
    return a * signs, b * signs


def _rotate_rows_jointly(a: Array, b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    q = orthogonal(len(a), rng)
    return q @ a, q @ b


DONE: dict[Invariance, Change] = {
    Invariance.PERMUTE_JOINTLY: _permute_jointly,
    Invariance.PERMUTE: _permute,
    Invariance.SIGN_JOINTLY: _sign_jointly,
    Invariance.NEGATE_JOINTLY: lambda a, b, _: (-a, -b),
    Invariance.NEGATE: lambda a, b, _: (-a, b),
    Invariance.SCALE_JOINTLY: lambda a, b, _: (a * 2.5, b * 2.5),
    Invariance.SCALE: lambda a, b, _: (a * 3.0, b * 0.25),
    Invariance.SHIFT_JOINTLY: lambda a, b, _: (a + 2.25, b + 2.25),
    Invariance.SHIFT: lambda a, b, _: (a + 5.5, b - 1.75),
    Invariance.RESHAPE_VALUES: lambda a, b, _: (np.exp(a), b**3),
    Invariance.ROTATE_ROWS_JOINTLY: _rotate_rows_jointly,
    Invariance.ROTATE_ROWS: lambda a, b, rng: (orthogonal(len(a), rng) @ a, orthogonal(len(b), rng) @ b),
    Invariance.ROTATE_COLUMNS: lambda a, b, rng: (
        a @ orthogonal(a.shape[-1], rng),
        b @ orthogonal(b.shape[-1], rng),
    ),
}


def likeness(metric: Metric) -> float:
    return 1.0 if metric.function.__name__.endswith("_similarity") else 0.0


def test_the_table_lists_every_function_of_two_arrays_that_gives_a_number() -> None:
    public = {name: getattr(modelkin.metrics, name) for name in modelkin.metrics.__all__}
    scores = [name for name in public if name.endswith(("_similarity", "_distance"))]
    assert sorted(METRICS) == sorted(scores)
    for name, metric in METRICS.items():
        assert name == metric.function.__name__
        assert metric.function is public[name]
        assert list(inspect.signature(metric.function).parameters) == ["a", "b"]
        assert metric.about
        assert metric.function.__doc__


def test_published_names_belong_to_one_metric_each() -> None:
    names = [*METRICS, *(other for metric in METRICS.values() for other in metric.also)]
    assert len(names) == len(set(names))


def test_every_invariance_can_be_carried_out() -> None:
    assert DONE.keys() == set(Invariance)


@every_invariance
@every_metric
def test_an_invariance_holds_if_and_only_if_it_is_declared(metric: Metric, invariance: Invariance) -> None:
    moved = []
    for seed in range(4):
        a, b = pair(seed)
        after = DONE[invariance](a, b, np.random.default_rng(seed))
        moved.append(abs(metric.function(*after) - metric.function(a, b)))
    if invariance in metric.invariant_to:
        assert max(moved) < 1e-12
    else:
        assert max(moved) > 1e-6


@every_metric
def test_vectors_keep_the_same_promises(metric: Metric) -> None:
    if metric.shapes in (Shapes.ROWS, Shapes.MATRICES):
        with pytest.raises(ShapeMismatch, match=r"needs two axes, found shape \(40,\)"):
            metric.function(*pair(0, (40,)))
        return
    for invariance in metric.invariant_to - {Invariance.ROTATE_COLUMNS}:
        a, b = pair(1, (40,))
        after = DONE[invariance](a, b, np.random.default_rng(0))
        assert metric.function(*after) == pytest.approx(metric.function(a, b), abs=1e-12), invariance


@every_metric
def test_values_lie_in_the_range(metric: Metric) -> None:
    low, high = metric.range
    for seed in range(10):
        a, b = pair(seed, (5, 3))
        for left, right in ((a, b), (a, -a), (a, a), (a, 1e6 * b), (np.abs(a) + 1, np.abs(b) + 1)):
            value = metric.function(left, right)
            assert type(value) is float
            assert low <= value <= high
            assert math.isfinite(value)


@every_metric
def test_an_array_is_like_itself(metric: Metric) -> None:
    a, _ = pair(3)
    assert metric.function(a, a) == pytest.approx(likeness(metric), abs=1e-12)
    assert metric.function(a, a.copy()) == pytest.approx(likeness(metric), abs=1e-12)


@every_metric
def test_symmetry_is_as_declared(metric: Metric) -> None:
    a, b = pair(5)
    there, back = metric.function(a, b), metric.function(b, a)
    assert (there == pytest.approx(back, rel=1e-12)) is metric.symmetric


@every_metric
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_narrow_input_is_summed_in_float64(metric: Metric, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(300.0, 1.0, (2, 400, 8)).astype(dtype)  # squares overflow float16
    assert metric.function(a, b) == metric.function(a.astype(np.float64), b.astype(np.float64))


@every_metric
def test_the_memory_layout_does_not_matter(metric: Metric) -> None:
    a, b = pair(7, (30, 8))
    value = metric.function(a, b)
    spread = np.zeros((60, 16))
    spread[::2, ::2] = a
    assert metric.function(np.asfortranarray(a), b) == pytest.approx(value, rel=1e-12)
    assert metric.function(spread[::2, ::2], b.astype(">f8")) == pytest.approx(value, rel=1e-12)


@every_metric
def test_inputs_stay_untouched(metric: Metric) -> None:
    a, b = pair(8)
    kept = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    metric.function(a, b)
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


@every_metric
@pytest.mark.parametrize(
    ("bad", "said"),
    [(np.nan, "holds NaN"), (np.inf, "to inf"), (-np.inf, "from -inf"), (1e100, r"beyond 2\*\*240")],
)
def test_what_is_not_finite_is_refused(metric: Metric, bad: float, said: str) -> None:
    a, b = pair(9)
    wild = a.copy()
    wild[3, 2] = bad
    with pytest.raises(NotFinite, match=f"^a .*{said}"):
        metric.function(wild, b)
    with pytest.raises(NotFinite, match=f"^b .*{said}"):
        metric.function(a, wild)


@every_metric
def test_nothing_has_no_likeness(metric: Metric) -> None:
    a, _ = pair(0)
    for empty in (np.empty((0, 6)), np.empty((24, 0))):
        with pytest.raises(Undefined, match=r"^a is empty"):
            metric.function(empty, empty)
        with pytest.raises(Unmeasurable):
            metric.function(a, empty)


@every_metric
def test_a_constant_gives_a_number_in_the_range_or_a_reason(metric: Metric) -> None:
    a, _ = pair(0)
    answers, reasons = [], []
    for constant in (np.zeros_like(a), np.ones_like(a), np.full_like(a, 0.1)):
        for left, right in ((constant, a), (a, constant), (constant, constant)):
            try:
                answers.append(metric.function(left, right))
            except Undefined as why:
                reasons.append(str(why))
    assert all(metric.range[0] <= value <= metric.range[1] for value in answers)
    assert all(reasons)


@every_metric
def test_only_real_numbers_are_measured(metric: Metric) -> None:
    a, b = pair(0)
    with pytest.raises(Unmeasurable, match="found dtype complex128"):
        metric.function(a * 1j, b)
    with pytest.raises(Unmeasurable, match="found dtype object"):
        metric.function(a, b.astype(object))


@every_metric
def test_shapes_go_together_as_declared(metric: Metric) -> None:
    a, b = pair(2, (24, 6))
    narrower, shorter, flat = b[:, :4], b[:20], b.reshape(-1)
    fits = {
        Shapes.EQUAL: [],
        Shapes.ROWS: [narrower],
        Shapes.MATRICES: [narrower, shorter],
        Shapes.ANY: [narrower, shorter, flat],
    }[metric.shapes]
    for other in (narrower, shorter, flat):
        if any(other is one for one in fits):
            assert math.isfinite(metric.function(a, other))
        else:
            with pytest.raises(ShapeMismatch):
                metric.function(a, other)


def test_one_value_against_its_broadcast_is_a_mismatch() -> None:
    with pytest.raises(ShapeMismatch, match=r"one shape, found \(4, 1\) and \(1, 4\)"):
        modelkin.metrics.l2_distance(np.ones((4, 1)), np.ones((1, 4)))
