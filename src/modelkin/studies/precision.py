"""How much of a gain's pattern survives a small number format, when scale and pattern share a number and when not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from modelkin import __version__
from modelkin.demo import NAMES
from modelkin.records.survey import Study, Table, Value
from modelkin.studies import Settings
from modelkin.studies.columns import numbers
from modelkin.studies.gains import ModelGains, bundled_gains, read_gains
from modelkin.studies.published import MODELS, Moments, published_moments
from modelkin.studies.rounding import FORMATS, Format, Left, exactly, measured, rounded, step, uniform_noise

Floats = NDArray[np.float64]

PATTERN_STD = 2.0**-7
SCALES = np.geomspace(2.0**-3, 2.0**6, 37)
VECTORS, VALUES = 16, 1024  # a point of the sweep
BINADE = (1.25, 1.75)  # inside one binade: every format has one step there
LADDER = np.geomspace(0.08, 1.0, 23)
LADDER_VECTORS = 64
HALF = 0.5
GAIN, MINUS_ONE, APART = "gain", "gain minus one", "scale × pattern"


def study(settings: Settings) -> Study:
    began = time.perf_counter()
    rng = np.random.default_rng(settings.seed)
    models = read_gains(settings.models, settings.reading) if settings.models else bundled_gains(NAMES)
    sweep, ladder = _sweep(rng), _ladder(rng)
    threshold, published = _threshold(ladder), _published(published_moments())
    return Study(
        modelkin=__version__,
        name="precision",
        title="How much of a pattern survives a small number format",
        text=_text(sweep, threshold, published),
        seed=settings.seed,
        tables=(sweep, ladder, threshold, published, _of_models(models)),
        seconds=time.perf_counter() - began,
    )


def _as_gain(values: Floats, kind: Format) -> Floats:
    return rounded(values, kind)


def _minus_one(values: Floats, kind: Format) -> Floats:
    return 1 + rounded(values - 1, kind)


def _apart(values: Floats, kind: Format) -> Floats:
    """Mean and standard deviation of a vector kept as two numbers of full precision, the rest in the format."""
    mean, std = values.mean(axis=-1, keepdims=True), values.std(axis=-1, keepdims=True)
    unit = np.divide(values - mean, std, out=np.zeros_like(values), where=std > 0)
    return np.asarray(mean + std * rounded(unit, kind))


STORED: dict[str, Callable[[Floats, Format], Floats]] = {GAIN: _as_gain, MINUS_ONE: _minus_one, APART: _apart}


def expected(mean: float, std: float, kind: Format, stored: str) -> Left:
    """What a normal pattern keeps, in closed form, in each way of storing it."""
    if stored == APART:
        unit = exactly(0.0, 1.0, kind)
        return Left(unit.survived, unit.noise * std**2)
    return exactly(mean - 1 if stored == MINUS_ONE else mean, std, kind)


def _sweep(rng: np.random.Generator) -> Table:
    rows = []
    for scale in SCALES.tolist():  # around each many means: no point may hang on where one lies between two steps
        around = scale * 2 ** rng.uniform(-0.125, 0.125, VECTORS)
        values = around[:, None] + PATTERN_STD * rng.standard_normal((VECTORS, VALUES))
        rows += [_sweep_row(scale, around, values, kind, stored) for kind in FORMATS for stored in STORED]
    return Table(
        name="sweep",
        title="A pattern beside a growing scale",
        caption=f"{VECTORS} vectors of {VALUES} values a point, normal with standard deviation {PATTERN_STD:g} around "
        f"means within a quarter of an octave of the scale, for {SCALES.size} scales from {SCALES[0]:g} to "
        f"{SCALES[-1]:g}. `survived` is the share of the pattern's variance that the stored values still tell, "
        "`expected` the closed form for the same means, `rule_of_thumb` std²/(std² + ulp²/12) with the step (ulp) at "
        "the number that is stored.",
        strangers="this is one vector before and after rounding; two unrelated vectors share 1/(n − 1) of their "
        f"variance on average, here {1 / (VALUES - 1):.4f}",
        columns=(
            "format",
            "stored_as",
            "scale",
            "pattern_std",
            "ulp",
            "std_in_ulps",
            "survived",
            "expected",
            "rule_of_thumb",
            "noise_variance",
            "expected_noise",
            "ulp_squared_over_12",
        ),
        rows=tuple(rows),
    )


def _sweep_row(scale: float, means: Floats, values: Floats, kind: Format, stored: str) -> tuple[Value, ...]:
    found = measured(values, STORED[stored](values, kind))
    exact = [expected(mean, PATTERN_STD, kind, stored) for mean in means.tolist()]
    ulp = PATTERN_STD * step(1.0, kind) if stored == APART else step(scale - 1 if stored == MINUS_ONE else scale, kind)
    rule = uniform_noise(PATTERN_STD, ulp)
    survived, noise = (float(np.mean([getattr(left, name) for left in exact])) for name in ("survived", "noise"))
    sizes = (scale, PATTERN_STD, ulp, PATTERN_STD / ulp)
    return (kind.name, stored, *sizes, found.survived, survived, rule.survived, found.noise, noise, rule.noise)


def _ladder(rng: np.random.Generator) -> Table:
    rows = tuple(_ladder_row(kind, ratio, rng) for kind in FORMATS for ratio in LADDER.tolist())
    return Table(
        name="ladder",
        title="Where a pattern drowns",
        caption=f"{LADDER_VECTORS} vectors of {VALUES} values a point, stored as gains, with means from {BINADE[0]} to "
        f"{BINADE[1]} (inside one binade, where a format has one step) that lie evenly "
        "between two steps. `beyond_half_a_step` is the chance that "
        "a value differs from its mean by more than half a step.",
        strangers=f"two unrelated vectors share 1/(n − 1) of their variance on average, here {1 / (VALUES - 1):.4f}",
        columns=("format", "std_in_ulps", "survived", "expected", "rule_of_thumb", "beyond_half_a_step"),
        rows=rows,
    )


def _ladder_row(kind: Format, ratio: float, rng: np.random.Generator) -> tuple[Value, ...]:
    ulp = step(BINADE[0], kind)
    std = ratio * ulp
    place = np.arange(LADDER_VECTORS)
    means = BINADE[0] + ulp * (place % round((BINADE[1] - BINADE[0]) / ulp) + (place + 0.5) / LADDER_VECTORS)
    values = means[:, None] + std * rng.standard_normal((LADDER_VECTORS, VALUES))
    exact = float(np.mean([exactly(mean, std, kind).survived for mean in means.tolist()]))
    beyond = math.erfc(0.5 / ratio / math.sqrt(2))
    found = measured(values, rounded(values, kind)).survived
    return kind.name, ratio, found, exact, uniform_noise(std, ulp).survived, beyond


def _threshold(ladder: Table) -> Table:
    rows = []
    for kind in FORMATS:
        of = [row for row in ladder.rows if row[0] == kind.name]
        found, exact, rule = (_crossing([(row[1], row[at]) for row in of]) for at in (2, 3, 4))
        finest = 2.0**-kind.significand  # of a step to the number, at the top of a binade; twice that at its bottom
        ratios = (None, None) if found is None else (1 / (2 * finest * found), 1 / (finest * found))
        rows.append((kind.name, kind.significand, found, exact, rule, *ratios))
    return Table(
        name="threshold",
        title="The swamping threshold",
        caption="The standard deviation of the pattern, in steps (ulp) of the format at the scale, at which half of "
        "its variance survives: measured, in closed form, and by the rule of thumb (1/sqrt(12) of a step); and how "
        "many times the pattern's standard deviation the scale may then be, at the bottom and the top of a binade.",
        strangers="a pattern of less than the threshold is lost: rounded, two vectors of one scale are the same "
        "whether they were related or not",
        columns=(
            "format",
            "significand_bits",
            "std_in_ulps_measured",
            "std_in_ulps_expected",
            "std_in_ulps_rule_of_thumb",
            "scale_over_std_from",
            "scale_over_std_to",
        ),
        rows=tuple(rows),
    )


def _crossing(points: Sequence[tuple[Value, Value]]) -> float | None:
    """Where the curve through the points last rises through one half, by straight lines between them."""
    x, y = (np.array(side, dtype=np.float64) for side in zip(*points, strict=True))
    below = np.flatnonzero(y < HALF)
    if not below.size or below[-1] + 1 == x.size:
        return None
    i = int(below[-1])
    return float(x[i] + (HALF - y[i]) * (x[i + 1] - x[i]) / (y[i + 1] - y[i]))


def _published(vectors: Sequence[Moments]) -> Table:
    rows = tuple(
        (one.model, one.role, one.layer, one.mean, one.std, kind.name, stored, left.survived)
        for one in vectors
        for kind in FORMATS
        for stored in (GAIN, MINUS_ONE, APART)
        for left in (expected(one.mean, one.std, kind, stored),)
    )
    return Table(
        name="published",
        title="At the scales of two large models",
        caption=f"What a normal pattern with the published mean and standard deviation of each of {len(vectors)} gain "
        f"vectors of {' and '.join(MODELS.values())} would keep, in closed form. No weights are read.",
        strangers="about rounding one vector; says nothing of whether two models are related",
        columns=("model", "role", "layer", "mean", "std", "format", "stored_as", "expected"),
        rows=rows,
    )


def _of_models(models: Sequence[ModelGains]) -> Table:
    rows = tuple(
        (model.label, str(role), layer, kind.name, stored, *_kept(vector, kind, stored))
        for model in models
        for role, layers in model.vectors.items()
        for layer, vector in layers.items()
        for kind in FORMATS
        for stored in STORED
    )
    return Table(
        name="models",
        title="On the gains of models",
        caption=f"Every gain vector of {len(models)} models, rounded to each format in each way. `lossless` says that "
        "every value came back unchanged: what was stored in a format survives that format. No value where a "
        "vector is constant.",
        strangers="about rounding one vector; says nothing of whether two models are related",
        columns=("model", "role", "layer", "format", "stored_as", "mean", "std", "survived", "lossless"),
        rows=rows,
    )


def _kept(vector: Floats, kind: Format, stored: str) -> tuple[Value, Value, Value, Value]:
    back = STORED[stored](vector, kind)
    survived = measured(vector, back).survived if np.ptp(vector) else None
    lossless = "yes" if np.array_equal(back, vector) else "no"
    return float(vector.mean()), float(vector.std()), survived, lossless


def _text(sweep: Table, threshold: Table, published: Table) -> str:
    halves = {str(row[0]): row for row in threshold.rows}
    bf16 = halves["BF16"]
    pairs = zip(numbers(sweep, "survived"), numbers(sweep, "expected"), strict=True)
    errors = [abs(found - closed) for found, closed in pairs]
    fates = "; ".join(f"{kind.name} {_fate(published, kind)}" for kind in FORMATS)
    return (
        "A gain is a large common number plus a small pattern. A computer keeps only so many digits of it, counted "
        "from its first; the larger the common part, the fewer digits are left for the pattern. Once the pattern is "
        "smaller than the distance between neighbouring numbers (a step, or ulp) it drowns: all gains are rounded to "
        "the same number. Half of the pattern's variance is lost where its standard deviation is "
        f"{bf16[2]:.2f} steps in BF16 (in closed form {bf16[3]:.2f}; by the rule that rounding adds noise of variance "
        f"ulp²/12, {bf16[4]:.2f}), that is where the scale is {_ratio(bf16)} the pattern. In F16 that is "
        f"{_ratio(halves['F16'])}, in the two FP8 formats {_ratio(halves['F8_E4M3'])} and {_ratio(halves['F8_E5M2'])}. "
        f"Measured and expected shares differ by at most {max(errors):.3f} over {len(errors)} points.\n\n"
        "Storing the gain minus one helps only while gains stay near one; away from it the number that is stored is "
        "as large as before, and for gains below one half larger. Storing scale and pattern apart keeps the same share "
        f"at every scale. At the published means and standard deviations of {' and '.join(MODELS.values())}, the "
        f"vector that fares worst would keep of its pattern: {fates}."
    )


def _fate(published: Table, kind: Format) -> str:
    worst = {stored: min(numbers(published, "expected", format=kind.name, stored_as=stored)) for stored in STORED}
    return f"{worst[GAIN]:.1%} as a gain, {worst[MINUS_ONE]:.1%} as gain minus one, {worst[APART]:.1%} apart"


def _ratio(row: tuple[Value, ...]) -> str:
    return f"{row[5]:.0f} to {row[6]:.0f} times" if row[5] is not None else "nowhere in the measured range"
