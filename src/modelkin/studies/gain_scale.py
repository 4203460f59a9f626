"""How the gains of a model grow with depth: their scale, and apart from that their pattern."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin import __version__
from modelkin.demo import NAMES
from modelkin.metrics import Undefined, centred_cosine_similarity
from modelkin.records.survey import Study, Table, Value
from modelkin.studies import Settings
from modelkin.studies.columns import numbers
from modelkin.studies.gains import ModelGains, bundled_gains, read_gains
from modelkin.studies.published import MODELS, WIDTH, published_moments

RESAMPLES = 2000
FEWEST_LAYERS = 4  # below this a line through resampled layers is no line
WORDS = {
    "scale": "The scale",
    "pattern": "The pattern relative to the scale",
    "pattern_as_stored": "The pattern as stored",
}
QUANTITIES = tuple(WORDS)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slope:
    """How fast ln y rises from the first layer to the last, with a 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def study(settings: Settings) -> Study:
    began = time.perf_counter()
    models = read_gains(settings.models, settings.reading) if settings.models else bundled_gains(NAMES)
    layers = _layer_table(models)
    slopes, published = _slope_table(layers, np.random.default_rng(settings.seed)), _published()
    return Study(
        modelkin=__version__,
        name="gain-scale",
        title="How gains grow with depth: scale and pattern",
        text=_text(layers, slopes, published),
        seed=settings.seed,
        tables=(layers, slopes, published),
        seconds=time.perf_counter() - began,
    )


def apart(vector: Floats) -> tuple[float, Floats]:
    """(scale, pattern): the root mean square, and what is left of the vector once divided by it and centred."""
    scale = math.sqrt(float(np.mean(vector**2)))
    if scale == 0:
        return 0.0, np.zeros_like(vector)
    relative = vector / scale
    return scale, np.asarray(relative - relative.mean())


def growth(depth: Floats, values: Floats, rng: np.random.Generator) -> Slope:
    """The slope of ln(values) over depth by least squares; layers are resampled with replacement for the interval.

    Resamples that hit one layer only have no slope and are drawn again.
    """
    logs = np.log(values)
    drawn = rng.integers(depth.size, size=(2 * RESAMPLES, depth.size))
    usable = drawn[np.ptp(drawn, axis=1) > 0][:RESAMPLES]
    low, high = np.quantile(_slopes(depth[usable], logs[usable]), (0.025, 0.975))
    return Slope(float(_slopes(depth[None], logs[None])[0]), float(low), float(high))


def _slopes(x: Floats, y: Floats) -> Floats:
    """Row by row.  (samples, n) twice -> (samples,)."""
    centred = x - x.mean(axis=1, keepdims=True)
    return np.asarray(np.einsum("ij,ij->i", centred, y) / np.einsum("ij,ij->i", centred, centred))


def _layer_table(models: Sequence[ModelGains]) -> Table:
    rows = tuple(row for model in models for row in _layer_rows(model))
    return Table(
        name="layers",
        title="Scale and pattern of every gain vector",
        caption=f"{len(rows)} gain vectors of {len(models)} models. `scale` is the root mean square; `pattern` the "
        "standard deviation of the vector divided by its scale; `pattern_as_stored` that of the vector itself; "
        "`same_as_before` Pearson's r with the vector of the same role one layer earlier.",
        strangers="gains of models trained apart grow with depth too, so like curves are no evidence; between two "
        "models Pearson's r would be 0 ± 1/sqrt(n − 1)",
        columns=(
            "model",
            "role",
            "layer",
            "depth",
            "n",
            "mean",
            "scale",
            "l2",
            "l2_of_ones",
            *QUANTITIES[1:],
            "same_as_before",
        ),
        rows=rows,
    )


def _layer_rows(model: ModelGains) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for role, layers in model.vectors.items():
        before: Floats | None = None
        for place, (layer, vector) in enumerate(layers.items()):
            scale, pattern = apart(vector)
            depth = place / max(1, len(layers) - 1)
            size = math.sqrt(vector.size)
            spread, stored = float(pattern.std()), float(vector.std())
            same = None if before is None else _likeness(before, vector)
            described = (float(vector.mean()), scale, scale * size, size, spread, stored, same)
            rows.append((model.label, str(role), layer, depth, vector.size, *described))
            before = vector
    return rows


def _likeness(a: Floats, b: Floats) -> float | None:
    try:
        return centred_cosine_similarity(a, b)
    except Undefined:  # a vector that never left its first value has no pattern
        return None


def _slope_table(layers: Table, rng: np.random.Generator) -> Table:
    rows = tuple(
        (model, role, quantity, *_slope_cells(layers, (model, role), quantity, rng))
        for model, role in dict.fromkeys((row[0], row[1]) for row in layers.rows)
        for quantity in QUANTITIES
    )
    return Table(
        name="slopes",
        title="Growth from the first layer to the last",
        caption=f"`growth` is the factor by which a straight line through the logarithms rises over the whole depth, "
        f"with a 95 % interval from {RESAMPLES} resamples of the layers. Neighbouring layers are alike, which "
        f"resampling ignores: true intervals are wider. No value below {FEWEST_LAYERS} layers, or where a layer has "
        "no scale or pattern at all.",
        strangers="1 would be no growth; strangers trained in like ways grow alike, so this tells no relatives",
        columns=("model", "role", "quantity", "layers", "growth", "growth_low", "growth_high"),
        rows=rows,
    )


def _slope_cells(
    layers: Table, who: tuple[Value, Value], quantity: str, rng: np.random.Generator
) -> tuple[Value, Value, Value, Value]:
    at = layers.columns.index
    of = [row for row in layers.rows if row[:2] == who]
    depth, values = (np.array([row[at(name)] for row in of], dtype=np.float64) for name in ("depth", quantity))
    if len(of) < FEWEST_LAYERS or not (values > 0).all():
        return len(of), None, None, None
    slope = growth(depth, values, rng)
    return len(of), math.exp(slope.value), math.exp(slope.low), math.exp(slope.high)


def _published() -> Table:
    vectors = published_moments()
    size = math.sqrt(WIDTH)
    rows = []
    for one in vectors:
        scale = math.hypot(one.mean, one.std)
        rows.append((one.model, one.role, one.layer, one.mean, scale, scale * size, size, one.std / scale, one.std))
    return Table(
        name="published",
        title="Scale and pattern of two large models",
        caption=f"{len(vectors)} gain vectors of {' and '.join(MODELS.values())}, from their published means and "
        "standard deviations; columns as in the table of layers. No weights are read.",
        strangers="gains of models trained apart grow with depth too: like curves are no evidence",
        columns=("model", "role", "layer", "mean", "scale", "l2", "l2_of_ones", *QUANTITIES[1:]),
        rows=tuple(rows),
    )


def _text(layers: Table, slopes: Table, published: Table) -> str:
    lengths = _lengths(layers)
    large = _lengths(published)
    grown = [_counted(slopes, quantity) for quantity in QUANTITIES]
    same = numbers(layers, "same_as_before")
    steady = (
        f"The pattern goes on from layer to layer: neighbouring layers of one model have a median correlation of "
        f"{np.median(same):.2f} (between strangers 0)."
        if same
        else "No two neighbouring layers have a pattern to compare."
    )
    return (
        "A norm layer multiplies every channel of a model by a gain. The gains of a layer have two parts: a scale, "
        "which they all share (the root mean square), and a pattern, the differences between channels once the scale "
        "is divided out. Cosines see the scale's direction and hardly the pattern; relatives share the pattern. "
        "If all gains were one, a vector's length would be the square root of its width; here it is between "
        f"{min(lengths):.2f} and {max(lengths):.2f} times that, and in two large models, by their published means and "
        f"standard deviations, between {min(large):.2f} and {max(large):.2f} times.\n\n{' '.join(grown)} {steady} "
        "Growth with depth comes from training as such: it is found in models that have nothing to do with each "
        "other, and is therefore no sign of descent."
    )


def _lengths(table: Table) -> list[float]:
    return [length / ones for length, ones in zip(numbers(table, "l2"), numbers(table, "l2_of_ones"), strict=True)]


def _counted(slopes: Table, quantity: str) -> str:
    factors, low, high = (numbers(slopes, name, quantity=quantity) for name in ("growth", "growth_low", "growth_high"))
    if not factors:
        return f"{WORDS[quantity]} has no slope: too few layers, or layers without any."
    up, down = sum(value > 1 for value in low), sum(value < 1 for value in high)
    return (
        f"{WORDS[quantity]} grows with depth in {up} and shrinks in {down} of {len(factors)} cases beyond the interval "
        f"(median factor {np.median(factors):.2f} from first to last layer)."
    )
