"""p-values by drawing: never zero, never below one over the number of draws, never grade A."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from modelkin.stats.arrays import Floats

DRAWS = 999
KEPT = 200  # draws that a Null keeps for its picture


def drawn_pvalue(observed: float, draws: Floats | Sequence[float]) -> float:
    """(1 + #{draws ≥ observed}) / (draws + 1). Equal up to rounding counts as equal."""
    values = np.asarray(draws, dtype=np.float64)
    return (1 + int(np.count_nonzero(values >= observed - _slack(observed)))) / (values.size + 1)


def stopped_pvalue(observed: float, draw: Callable[[], float], most: int, enough: int = 20) -> tuple[float, Floats]:
    """Draw until `enough` draws reach the observed value or `most` are drawn: p, and the draws.

    p = enough / draws at an early stop, else (1 + reached) / (most + 1). Valid as it stands; strangers cost a few dozen
    draws, and only small p-values cost them all. [Besag and Clifford 1991]
    """
    values: list[float] = []
    reached = 0
    while len(values) < most:
        values.append(draw())
        reached += values[-1] >= observed - _slack(observed)
        if reached == enough:
            return enough / len(values), np.array(values)
    return (1 + reached) / (most + 1), np.array(values)


def kept(draws: Floats | Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in draws[:KEPT])


def _slack(observed: float) -> float:
    return 1e-12 * max(1.0, abs(observed))
