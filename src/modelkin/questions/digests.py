"""A tensor recognised by its numbers, block by block, whatever its name, its place, or the number format it is in.

A cast rounds: of two tensors in different formats the finer one is rounded to the coarser format before they are
compared. Constants and tables that follow from the config are equal between strangers, so a tensor also says how many
different numbers it holds, and whether it looks like a formula.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.questions.formulas import is_formula, unfolded

FORMATS: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}  # from fine to coarse, by the bits of the fraction
ENOUGH_VALUES = 1000  # different numbers that a tensor must hold for its equality to say something
COUNTED_AT_ONCE = 1 << 16

Floats = NDArray[np.float32]


def format_of(dtype: str) -> str:
    """How a tensor's numbers arrive: what has no float format of its own is decoded to F32."""
    return dtype if dtype in FORMATS else "F32"


def coarser(a: str, b: str) -> str:
    return max(a, b, key=list(FORMATS).index)


def rounded(array: Floats, form: str) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, as it is after a cast
        return np.ascontiguousarray(array, dtype=np.float32).astype(FORMATS[form], copy=False)


def same_numbers(a: Floats, b: Floats) -> str | None:
    """The format in which two arrays of one shape are equal to the bit; None where neither is a cast of the other."""
    for form in FORMATS:
        left, right = rounded(a, form), rounded(b, form)
        # Both rounded would be a likeness, not a cast: one of the two must be in that format already.
        if left.tobytes() == right.tobytes() and (_holds(left, a) or _holds(right, b)):
            return form
    return None


def _holds(small: NDArray[Any], array: Floats) -> bool:
    return bool(np.array_equal(_widened(small), array, equal_nan=True))


def _widened(small: NDArray[Any]) -> Floats:
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
        return small.astype(np.float32)


class Fingerprint(msgspec.Struct, frozen=True):
    """A tensor that was read: sha256 of its numbers in each format, and whether equal ones say anything."""

    hashes: dict[str, str]
    says_something: bool


class TensorDigest:
    """Fed with the rows of a tensor in order, in any blocks; holds a few thousand numbers, whatever its size.

    `shape`: that of the whole tensor, where the rows that come are those of more than two axes.
    """

    def __init__(self, forms: Collection[str], shape: Sequence[int] = ()) -> None:
        self.forms = tuple(forms)
        self._shape = tuple(shape)
        self._hashes = {form: sha256() for form in forms}
        self._coarsest = max(forms, key=list(FORMATS).index)
        self._values: NDArray[np.float32] = np.empty(0, np.float32)
        self._formula: bool | None = None

    def update(self, block: Floats) -> None:
        for form, digest in self._hashes.items():
            digest.update(rounded(block, form).tobytes())
        if self._formula is None:
            self._formula = is_formula(unfolded(block, self._shape or block.shape))
        if self._values.size < ENOUGH_VALUES:
            some = _widened(rounded(block.reshape(-1)[:COUNTED_AT_ONCE], self._coarsest))
            self._values = np.unique(np.concatenate([self._values, some]))[:ENOUGH_VALUES]

    def in_format(self, form: str) -> str:
        return self._hashes[form].hexdigest()

    def finished(self) -> Fingerprint:
        return Fingerprint({form: self.in_format(form) for form in self.forms}, self.says_something)

    @property
    def says_something(self) -> bool:
        """Enough different numbers, and no formula. Of large blocks only the start is counted: fewer, never more."""
        return self._values.size >= ENOUGH_VALUES and not self._formula
