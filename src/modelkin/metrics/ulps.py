"""How far stored values moved, in steps of the format they are stored in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics.inputs import Array, Unmeasurable, Vector, paired_blocks


@dataclass(frozen=True, slots=True)
class UlpChange:
    """Of n places `changed` hold another value; `median` and `maximum` are the steps taken by those alone.

    Where nothing changed there is no median, and the maximum is 0.
    """

    n: int
    changed: int
    median: float | None
    maximum: int

    @property
    def share(self) -> float:
        return self.changed / self.n


def ulp_change(a: Array, b: Array, dtype: str) -> UlpChange:
    """Counts the representable values from a to b, place by place; `dtype` is BF16, F16 or F32.

    The arrays may be wider (a BF16 tensor decoded to float32), but every value has to be one of `dtype`: nothing is
    rounded here. −0 and 0 are one value, and the count runs through zero: from the smallest negative to the smallest
    positive value it is 2.
    """
    n, moved = 0, []
    for x, y in paired_blocks(a, b):
        steps = np.abs(_order(x, dtype, "a") - _order(y, dtype, "b"))
        n += x.size
        moved.append(steps[steps > 0].astype(np.uint32))  # at most 2 (2**31 − 2**23) in F32
    steps_taken = np.concatenate(moved)
    if steps_taken.size == 0:
        return UlpChange(n, 0, None, 0)
    return UlpChange(n, steps_taken.size, float(np.median(steps_taken)), int(steps_taken.max()))


def _order(values: Vector, dtype: str, name: str) -> NDArray[np.int64]:
    """Integers in the order of the numbers, neighbours one apart: the bits as magnitude, with the sign in front."""
    stored, bits = _formats(dtype)
    with np.errstate(over="ignore", under="ignore"):
        items = values.astype(stored)
    if not np.array_equal(items.astype(np.float64), values):
        raise Unmeasurable(f"{name} holds values that {dtype} cannot: steps of {dtype} are not defined for them")
    integers = items.view(bits).astype(np.int64)
    return np.asarray(np.where(integers < 0, np.iinfo(bits).min - integers, integers), dtype=np.int64)


def _formats(dtype: str) -> tuple[Any, Any]:
    import ml_dtypes

    formats = {
        "BF16": (ml_dtypes.bfloat16, np.int16),
        "F16": (np.float16, np.int16),
        "F32": (np.float32, np.int32),
    }
    if dtype not in formats:
        raise Unmeasurable(f"steps are counted in {', '.join(formats)}, not in {dtype}")
    return formats[dtype]
