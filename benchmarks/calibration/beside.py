"""What `quick` read of two models, side by side; and the statistics that others would compute from it.

None of these convicts anybody here. They stand in the tables because they have convicted in public: the mean raw cosine
of norm gains, its distance in "sigma" from a baseline of layer 0 against later layers of the same model, Pearson's r
over all layers at once with a p-value for independent entries, and the cosine of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.calibration.results import Counts, Naive
from numpy.typing import NDArray
from scipy.special import betainc, betaln

from modelkin.architectures import Anatomy
from modelkin.metrics import Unmeasurable, centred_cosine_similarity, cosine_similarity
from modelkin.records import Cut, KeptRows, Role
from modelkin.sampling.facing import facing, two_depths
from modelkin.sampling.readings import Floats, unpack
from modelkin.stats import roll_call

BASELINE_LAYERS = 4  # the published argument used layers 10, 20, 30 and 40 of 46
SERIES = 400


@dataclass(frozen=True, eq=False)
class Facing:
    """One tensor of both models in layers that face each other; `layer` of a, "" outside the layers."""

    role: Role
    layer: str
    a: Floats
    b: Floats


def side_by_side(kept: KeptRows) -> list[Facing]:
    """Of equal role, shape and rows; experts by their number, and a dense MLP beside the first expert."""
    mine, theirs = unpack(kept.a), unpack(kept.b)
    beside = dict(facing(kept.portrait_a.layers, kept.portrait_b.layers)) | {"": ""}
    found = {_key(cut, cut.slot.layer_name): array for cut, array in theirs.items()}
    pairs = []
    for cut, array in mine.items():
        other = found.get(_key(cut, beside.get(cut.slot.layer_name, "?")))
        if other is not None and other.shape == array.shape:
            pairs.append(Facing(cut.slot.role, cut.slot.layer_name, array, other))
    return pairs


def _key(cut: Cut, layer: str) -> tuple[object, ...]:
    return cut.slot.role, layer, cut.slot.expert or 0, cut.start, cut.stop, cut.rows, cut.columns


def naive(pairs: Sequence[Facing]) -> Naive:
    gains = [pair for pair in pairs if pair.role.is_gain and pair.a.ndim == 1]
    rows = [pair for pair in pairs if pair.a.ndim == 2]
    joined = [np.concatenate([getattr(pair, side) for pair in gains]) for side in "ab"] if gains else []
    return Naive(
        cosine=_mean([_measured(cosine_similarity, pair.a, pair.b) for pair in gains]),
        pooled_r=_measured(centred_cosine_similarity, *joined) if joined else None,
        mean_r=_mean([_measured(centred_cosine_similarity, pair.a, pair.b) for pair in gains]),
        entries=sum(pair.a.size for pair in gains),
        rows_cosine=_mean([_measured(cosine_similarity, x, y) for p in rows for x, y in zip(p.a, p.b, strict=True)]),
        sigma=baseline_sigma([pair for pair in gains if pair.role is Role.INPUT_NORM]),
    )


def baseline_sigma(inputs: Sequence[Facing]) -> float | None:
    """Cohen's d of four cosines across models against four cosines of layer 0 with later layers of a.

    `inputs` are the input norms of facing layers by depth. With the pooled population standard deviation of the two
    foursomes, as the published 182 sigma had it.
    """
    layers = sorted(inputs, key=lambda pair: _depth(pair.layer))
    if len(layers) < 3:
        return None
    later = [layers[i] for i in sorted({round(i) for i in np.linspace(1, len(layers) - 1, BASELINE_LAYERS)})]
    across = [_measured(cosine_similarity, pair.a, pair.b) for pair in later]
    within = [_measured(cosine_similarity, layers[0].a, pair.a) for pair in later]
    if any(value is None for value in (*across, *within)):
        return None
    left, right = np.array(across, dtype=np.float64), np.array(within, dtype=np.float64)
    spread = math.sqrt((left.var() + right.var()) / 2)
    return float((left.mean() - right.mean()) / spread) if spread > 0 else None


def _depth(layer: str) -> tuple[str, int]:
    stack, _, place = layer.rpartition(".")
    return stack, int(place)


def log10_pearson(r: float, entries: int) -> float:
    """log10 of the chance that independent normal entries show this r or more.

    1 - r² has a beta law; where it leaves the range of floats the first terms of its series are summed in logarithms.
    """
    half, rest = (entries - 2) / 2, max(1 - r * r, 1e-300)
    tail = float(betainc(half, 0.5, rest)) / 2
    if r <= 0:
        return math.log10(1 - tail)
    if tail > 1e-290:
        return math.log10(tail)
    ratios = rest * (half + 0.5 + np.arange(SERIES)) / (half + 1 + np.arange(SERIES))
    series = 1 + float(np.sum(np.cumprod(ratios)))
    front = half * math.log(rest) + 0.5 * math.log1p(-rest) - math.log(half) - float(betaln(half, 0.5))
    return (front + math.log(series / 2)) / math.log(10)


def roll_calls(pairs: Sequence[Facing], role: Role, rng: np.random.Generator) -> Counts:
    """K of n for the rows of one projection, a layer each: no choosing among projections, so that K has its plain law.

    Of a layer's experts only the first, for experts copied from one block have one order.
    """
    first: dict[str, Facing] = {}
    for pair in pairs:
        if pair.role is role and pair.a.ndim == 2 and np.all(np.isfinite(pair.a)) and np.all(np.isfinite(pair.b)):
            first.setdefault(pair.layer, pair)
    calls = [roll_call(pair.a, pair.b, rng) for pair in first.values()]
    return tuple((call.fixed, call.n) for call in calls if call.n)


def value_calls(a: Anatomy, b: Anatomy, rng: np.random.Generator) -> Counts:
    """K of n for the value rows of the first head, at two depths: the question itself chooses among several views."""
    size = a.facts.head_dim
    if not size or size != b.facts.head_dim or a.facts.hidden != b.facts.hidden:
        return ()
    mine, theirs = ({slot.layer_name: slot for slot in side.of(Role.V)} for side in (a, b))
    layers = [(i, j) for i, j in two_depths(a.layers, b.layers) if i in mine and j in theirs]
    left = a.read_many([(mine[i], slice(0, size)) for i, _ in layers])
    right = b.read_many([(theirs[j], slice(0, size)) for _, j in layers])
    calls = [roll_call(x, y, rng) for x, y in zip(left, right, strict=True)]
    return tuple((call.fixed, call.n) for call in calls if call.n)


def _measured(metric: object, a: NDArray[np.float32], b: NDArray[np.float32]) -> float | None:
    assert callable(metric)
    try:
        return float(metric(a, b))
    except Unmeasurable:
        return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
