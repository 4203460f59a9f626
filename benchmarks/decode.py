"""How fast stored numbers become floats, beside a plain copy and ml_dtypes in the same run.

    python benchmarks/decode.py [MEBIBYTES]

Figures are GB of stored bytes a second on one core, best of several; `into` reuses one buffer, `fresh` allocates.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from modelkin.formats import Layout
from modelkin.formats.dtypes import FP8, decode, item_size
from modelkin.formats.reading import iter_blocks
from modelkin.records import TensorRef
from modelkin.sources.memory import MemorySource

KINDS = {"BF16": "bfloat16", **FP8}
REPEATS = 7
WIDTH = 4096


def rate(work: Callable[[], object], size: int) -> float:
    work()
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return size / best / 1e9


def line(name: str, speed: float) -> None:
    print(f"  {name:<34}{speed:8.2f} GB/s")


def stream(source: MemorySource, layout: Layout, ref: TensorRef) -> float:
    """Every block touched once, as a statistic would."""
    return sum(float(block[0, 0]) for block in iter_blocks(source, layout, ref))


def measure(dtype: str, size: int) -> None:
    bits = np.random.default_rng(0).standard_normal(size // item_size(dtype), np.float32)
    stored = bits.astype(getattr(ml_dtypes, KINDS[dtype]))
    raw = stored.tobytes()
    buffer, copy = np.empty(stored.size, np.float32), np.empty(size, np.uint8)
    ref = TensorRef("x", dtype, (stored.size // WIDTH, WIDTH), "x", 0, len(raw))
    source, layout = MemorySource({"x": raw}), Layout("safetensors", {"x": ref})
    print(f"{dtype}, {size >> 20} MiB")
    line("memcpy of the stored bytes", rate(lambda: np.copyto(copy, np.frombuffer(raw, np.uint8)), size))
    line("modelkin decode, into", rate(lambda: decode(raw, dtype, out=buffer), size))
    line("modelkin decode, fresh", rate(lambda: decode(raw, dtype), size))
    line("modelkin iter_blocks, 4 MiB", rate(lambda: stream(source, layout, ref), size))
    line("ml_dtypes copyto, into", rate(lambda: np.copyto(buffer, stored), size))
    line("ml_dtypes astype, fresh", rate(lambda: stored.astype(np.float32), size))


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
    for dtype in KINDS:
        measure(dtype, size)


if __name__ == "__main__":
    main()
