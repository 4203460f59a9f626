"""Tables of a study by name, and axes of its pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelkin.records import Study, Table
from modelkin.report.figures.rows import Numbers

MOST_TICKS = 9
LEAST_TICKS = 3
CLOSE = (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8)  # for an axis that hardly spans one power of ten


def named(study: Study, name: str) -> Table:
    return next(table for table in study.tables if table.name == name)


def about(table: Table) -> str:
    """The sentences of its caption that name no column: a picture shows some of them, under names of its own."""
    sentences = table.caption.rstrip(".").split(". ")
    return " ".join(f"{sentence}." for sentence in sentences if "`" not in sentence)


def plain_ticks(panel: Any, found: Numbers) -> None:
    """A logarithmic axis over these numbers: a few round ones, written as plain numbers."""
    known = found[found > 0]
    low, high = (known.min() / 2, known.max() * 2) if known.size else (0.5, 2.0)
    powers = range(-9, 7)
    shown = [10.0**power * digit for power in powers for digit in (1, 2, 5) if low <= 10.0**power * digit <= high]
    within = [value for value in shown if known.size and known.min() <= value <= known.max()]
    if len(within) < LEAST_TICKS and high < 50 * low:
        shown = [digit * power for power in (0.01, 0.1, 1.0, 10.0) for digit in CLOSE if low <= digit * power <= high]
    elif len(shown) > MOST_TICKS:
        shown = [10.0**power for power in powers if low <= 10.0**power <= high]
    panel.set_xticks(shown, [np.format_float_positional(value, precision=9, trim="-") for value in shown])
    panel.minorticks_off()
