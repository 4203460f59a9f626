"""Two pictures: K of strangers against its law, and raw cosine beside the p-value for the same pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from benchmarks.calibration.contrast import measured
from benchmarks.calibration.laws import SHOWN, law, stranger_counts
from benchmarks.calibration.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRANGERS, RELATIVES, LAW = "#8a8f98", "#c2410c", "#111827"
DOTS = 110
COLUMNS = 3
LEAST = 1e-6  # of 1 - cosine that is drawn: what is nearer to 1 stands at the edge


def write(results: Sequence[Result], folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    _counts_figure(stranger_counts(results), folder / "strangers.png")
    _cosine_figure(results, folder / "cosine.png")


def _counts_figure(named: Mapping[str, Mapping[tuple[int, int], int]], path: Path) -> None:
    from matplotlib.figure import Figure

    rows = max(1, -(-len(named) // COLUMNS))
    figure = Figure(figsize=(10, 0.7 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True)
    figure.suptitle("How many find themselves between strangers: seen, and what chance alone gives", fontsize=12)
    for place, axes in enumerate(grid.flat):
        axes.set_visible(place < len(named))
    for axes, (name, counts) in zip(grid.flat, named.items(), strict=False):
        _draw_law(axes, name, counts)
    for axes in grid[-1]:
        axes.set_xlabel("K, those that found themselves")
    for row in grid:
        row[0].set_ylabel("roll calls")
    grid[0, 0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def _draw_law(axes: Axes, name: str, counts: Mapping[tuple[int, int], int]) -> None:
    found = law(counts)
    places = np.arange(SHOWN + 1)
    axes.bar(places, found.seen, color=STRANGERS, width=0.75, label="seen")
    axes.plot(places, found.expected, "o", color=LAW, markersize=5, label="law of chance")
    axes.set_title(f"{name}\n{found.total:,} roll calls, largest K = {found.largest}", fontsize=9)
    axes.set_xticks(places, [*map(str, range(SHOWN)), f"{SHOWN}+"])
    _plain(axes)


def _cosine_figure(results: Sequence[Result], path: Path) -> None:
    """Every pair once in both panels: what is mixed on the left is apart on the right."""
    from matplotlib.figure import Figure

    relatives, strangers = measured(results)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups = ((strangers, STRANGERS, "strangers"), (relatives, RELATIVES, "single-step derivatives"))
    _draw_cosines(left, groups)
    _draw_chances(right, groups)
    _save(figure, path)


Groups = Sequence[tuple[Sequence[Result], str, str]]


def _draw_cosines(axes: Axes, groups: Groups) -> None:
    bins = np.logspace(np.log10(LEAST), 0, 60)
    for results, colour, _ in groups:
        values = [max(LEAST, 1 - r.naive.cosine) for r in results if r.naive.cosine is not None]
        weights = np.full(len(values), 100 / max(1, len(values)))
        axes.hist(values, bins=bins.tolist(), weights=weights, color=colour, alpha=0.65)
    axes.set_xscale("log")
    axes.invert_xaxis()
    ticks = (1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    axes.set_xticks(ticks, ["0", "0.9", "0.99", "0.999", "0.9999", "0.99999", "1"], fontsize=8)
    axes.axvline(1 - 0.95, color=LAW, linewidth=1, linestyle=":")
    axes.annotate(
        "0.95",
        (1 - 0.95, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3, -10),
        textcoords="offset points",
        fontsize=8,
    )
    axes.set_xlabel("mean raw cosine of norm gains")
    axes.set_ylabel("% of the group")
    highest = max((r.naive.cosine for r in groups[0][0] if r.naive.cosine is not None), default=0.0)
    axes.set_title(f"Raw cosine: strangers reach {highest:.4f}", fontsize=11)
    _plain(axes)


def _draw_chances(axes: Axes, groups: Groups) -> None:
    top = max((-r.least for results, _, _ in groups for r in results), default=1.0)
    bins = np.concatenate([np.linspace(0, 6, 13), np.linspace(6, max(12.0, top), 40)[1:]])
    for results, colour, name in groups:
        values = [-result.least for result in results]
        weights = np.full(len(values), 100 / max(1, len(values)))
        axes.hist(
            values, bins=bins.tolist(), weights=weights, color=colour, alpha=0.65, label=f"{name} ({len(values):,})"
        )
    axes.set_xscale("symlog", linthresh=6)
    axes.axvline(6, color=LAW, linewidth=1, linestyle=":")
    axes.annotate(
        "1e-6", (6, 1), xycoords=("data", "axes fraction"), xytext=(3, -10), textcoords="offset points", fontsize=8
    )
    axes.set_xticks([0, 2, 4, 6, 12, 50, 200], ["1", "1e-2", "1e-4", "1e-6", "1e-12", "1e-50", "1e-200"], fontsize=8)
    axes.set_xlabel("p over all questions of `quick`")
    axes.set_title("The same pairs by their p-value", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.08, 0.95))
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _save(figure: object, path: Path) -> None:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})
