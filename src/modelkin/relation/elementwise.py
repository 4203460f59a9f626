"""Two tensors of one shape value by value, in one pass over their blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# From coarse to fine, by the bits of the fraction.
FORMATS: dict[str, np.dtype[Any]] = {
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
}
PROBE = 64
FRACTION = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7, "F8_E4M3": 3, "F8_E5M2": 2}
# Numbers below the normal ones of a format all stand this power of two apart.
SMALLEST = {"F64": -1074, "F32": -149, "F16": -24, "BF16": -133, "F8_E4M3": -9, "F8_E5M2": -16}


@dataclass
class Side:
    """Power sums of one tensor's values about the first block's mean, zeros, and the formats that hold them all."""

    shift: float = 0.0
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)
    zeros: int = 0
    formats: set[str] = field(default_factory=lambda: set(FORMATS))

    def add(self, values: Floats) -> None:
        self.zeros += int(values.size - np.count_nonzero(values))
        self.formats = {name for name in self.formats if _is_rounded(values, values, name)}
        off = values.astype(np.float64) - self.shift
        square = off * off
        parts = off.sum(), square.sum(), (square * off).sum(), (square * square).sum()
        self.sums = [total + float(part) for total, part in zip(self.sums, parts, strict=True)]

    def held(self) -> str:
        """The coarsest format that holds every value; a tensor of zeros and ones is held by any."""
        return next((name for name in FORMATS if name in self.formats), "F32")

    def distance(self, point: float, n: int) -> float:
        """Root mean square of the distances from a point."""
        mean, two = self.sums[0] / n, self.sums[1] / n
        off = self.shift - point
        return math.sqrt(max(0.0, two + 2 * off * mean + off * off))

    def kurtosis(self, n: int) -> float | None:
        """Fourth central moment over the squared variance: 3 for a normal law. None without variation."""
        mean, two, three, four = (total / n for total in self.sums)
        variance = two - mean**2
        if variance <= 1e-30:
            return None
        return (four - 4 * mean * three + 6 * mean**2 * two - 3 * mean**4) / variance**2


@dataclass
class Elementwise:
    """Everything that sums tell of two tensors; `d` is b - a."""

    n: int = 0
    a: Side = field(default_factory=Side)
    b: Side = field(default_factory=Side)
    same: int = 0
    a_or_zero: int = 0  # places where b is a's value or zero
    b_or_zero: int = 0
    aa: float = 0.0
    bb: float = 0.0
    ad: float = 0.0
    dd: float = 0.0
    cross: float = 0.0  # of the shifted values
    full: int = 0  # places where neither is zero, and the same sums of these alone
    full_aa: float = 0.0
    full_ad: float = 0.0
    full_dd: float = 0.0
    casts_b: set[str] = field(default_factory=lambda: set(FORMATS))
    casts_a: set[str] = field(default_factory=lambda: set(FORMATS))

    def add(self, a: Floats, b: Floats) -> None:
        if self.n == 0:
            self.a.shift, self.b.shift = float(a.mean()), float(b.mean())
        equal = a == b
        self.n += a.size
        self.same += int(np.count_nonzero(equal))
        self.a_or_zero += int(np.count_nonzero(equal | (b == 0)))
        self.b_or_zero += int(np.count_nonzero(equal | (a == 0)))
        self.a.add(a)
        self.b.add(b)
        self.casts_b = {name for name in self.casts_b if _is_rounded(a, b, name)}
        self.casts_a = {name for name in self.casts_a if _is_rounded(b, a, name)}
        x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
        d = y - x
        self.aa += float(x @ x)
        self.bb += float(y @ y)
        self.ad += float(x @ d)
        self.dd += float(d @ d)
        self.cross += float((x - self.a.shift) @ (y - self.b.shift))
        kept = (x != 0) & (y != 0)
        self.full += int(np.count_nonzero(kept))
        self.full_aa += float(x[kept] @ x[kept])
        self.full_ad += float(x[kept] @ d[kept])
        self.full_dd += float(d[kept] @ d[kept])

    @property
    def slope(self) -> float:
        """Least squares of b on a, through zero."""
        return 1 + self.ad / self.aa if self.aa else 1.0

    @property
    def difference(self) -> float:
        """What the slope leaves over, beside the norm of a: |b - slope · a| / |a|."""
        left = self.dd - self.ad**2 / self.aa if self.aa else self.dd
        return math.sqrt(max(0.0, left) / self.aa) if self.aa else float(self.bb > 0)

    @property
    def difference_of_full(self) -> float:
        """The same of places where neither is zero, as large as it would be over all, beside the larger norm."""
        if not self.full or not self.full_aa:
            return self.difference
        left = max(0.0, self.full_dd - self.full_ad**2 / self.full_aa) / self.full
        return math.sqrt(left * self.n / max(self.aa, self.bb))

    @property
    def correlation(self) -> float | None:
        """Pearson's r; None where one side is constant."""
        mean_a, mean_b = self.a.sums[0] / self.n, self.b.sums[0] / self.n
        var_a, var_b = self.a.sums[1] / self.n - mean_a**2, self.b.sums[1] / self.n - mean_b**2
        if min(var_a, var_b) <= 1e-30:
            return None
        return float(np.clip((self.cross / self.n - mean_a * mean_b) / math.sqrt(var_a * var_b), -1, 1))

    def cast_b(self) -> str | None:
        """The format that a was rounded to, if that is all that happened, and something did."""
        return _coarsest(self.casts_b) if self.same < self.n else None

    def cast_a(self) -> str | None:
        return _coarsest(self.casts_a) if self.same < self.n else None


def _coarsest(names: set[str]) -> str | None:
    return next((name for name in FORMATS if name in names), None)


def _is_rounded(values: Floats, result: Floats, name: str) -> bool:
    """Whether rounding the values to a format gives the result; most do not, and a few places show it."""
    few = (slice(0, PROBE),) if values.ndim == 1 else (slice(0, 1), slice(0, PROBE))
    if not np.array_equal(rounded(values[few], name), result[few]):
        return False
    return bool(np.array_equal(rounded(values, name), result))


def rounded(values: Floats, name: str) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, as it is after a cast
        return np.asarray(values.astype(FORMATS[name]).astype(np.float32))


def steps_off(coarse: Floats, fine: Floats, name: str) -> Floats:
    """How far values lie from what they are rounded to, in half steps of the format; NaN where that is zero."""
    told = coarse != 0
    half = spacing(np.where(told, coarse, 1), name) / 2
    return np.asarray(np.where(told, (fine - coarse) / half, np.nan), dtype=np.float32)


def half_step(form: str) -> float:
    """The most that storing in a format moves a number, beside its size; quantised ones are taken for four bits."""
    return float(2.0 ** -(1 + FRACTION.get(form, 2)))


def spacing(values: Floats, form: str) -> Floats:
    """Distance of neighbouring numbers of a format around each value: 2^(exponent - bits of the fraction)."""
    _, exponent = np.frexp(values)
    power = np.maximum(exponent - 1 - FRACTION.get(form, 7), SMALLEST.get(form, -133))
    return np.asarray(np.ldexp(np.float32(1), power), dtype=np.float32)
