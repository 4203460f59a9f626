"""Pictures of the study cosine-bias: two arrows before and after their means are taken away, and many dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.records import Study
from modelkin.report.figures.canvas import COLOURS, MARKERS, NULL_COLOUR, Picture, Room, page
from modelkin.report.figures.rows import Numbers, grouped, null_said, numbers, where
from modelkin.report.study_rows import about, named, plain_ticks

TURN, GOING = 14, 24  # frames that turn the stage, before and after; frames in which the means go
PER_SECOND = 10
STORED_STAGE, CENTRED_STAGE = (-0.1, 1.1), (-0.3, 0.3)  # from, to, on every axis
STORED_VIEW, CENTRED_VIEW = (18.0, -65.0), (30.0, 30.0)  # degrees above and around

Floats = NDArray[np.float64]


def pictures(study: Study) -> Iterator[Picture]:
    yield _geometry(study)
    yield _synthetic(study)


def animate(study: Study, path: Path) -> None:
    """The stage turns, the means go, the stage turns on: a GIF."""
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), dpi=72)
    FigureCanvasAgg(figure)
    stage = figure.add_subplot(projection="3d")
    whole, centred = _arrows(study)

    def frame(number: int) -> list[Any]:
        gone, turned = min(1.0, max(0.0, (number - TURN) / GOING)), number / (2 * TURN + GOING - 1)
        stage.clear()
        _stage(stage, whole + gone * (centred - whole), gone, turned)
        return []

    moving = FuncAnimation(figure, frame, frames=2 * TURN + GOING)
    moving.save(path, writer=PillowWriter(fps=PER_SECOND))


def _arrows(study: Study) -> tuple[Floats, Floats]:
    """As stored, and centred.  (2, 3) each."""
    table = named(study, "vectors")
    whole, centred = (
        np.stack([numbers(table, f"{prefix}{axis}") for axis in "xyz"], axis=1) for prefix in ("", "centred_")
    )
    return whole, centred


def _geometry(study: Study) -> Picture:
    figure, stages = page(2, room=Room(left=0.03, below=0.0, across=0.05), subplot_kw={"projection": "3d"})
    for stage, arrows, gone in zip(stages, _arrows(study), (0.0, 1.0), strict=True):
        _stage(stage, arrows, gone, gone)
    caption = (
        "Left: the two vectors as stored, with the direction in which all values are equal. Right: each less its own "
        "mean, on a larger scale; what is left lies in the plane across that direction. "
        f"{null_said(named(study, 'angles'))}"
    )
    title = "Two arrows that look alike until their means are taken away"
    return Picture("cosine-bias-geometry", title, caption, figure, (named(study, "vectors"),))


def _stage(stage: Any, arrows: Floats, gone: float, turned: float) -> None:
    """Arrows from zero, the diagonal, the plane across it, and the angle that the arrows have just now.

    `gone` is the share of the means that is taken away, `turned` how far the view is on its way; both from 0 to 1.
    """
    low, high = (a + gone * (b - a) for a, b in zip(STORED_STAGE, CENTRED_STAGE, strict=True))
    stage.plot(*np.outer(np.ones(3), [low, high]), color=NULL_COLOUR, ls="--", lw=1.2)
    stage.text(high, high, high, "all values equal", color=NULL_COLOUR, fontsize=10, ha="right")
    if gone:
        _draw_plane(stage)
    for arrow, colour, name in zip(arrows, COLOURS, ("V1", "V2"), strict=False):
        stage.quiver(0, 0, 0, *arrow, color=colour, lw=3, arrow_length_ratio=0.12)
        beyond = arrow * (1 + 0.08 * (high - low) / np.linalg.norm(arrow))
        side = "right" if name == "V2" and not gone else "left"  # clear of the diagonal
        stage.text(*beyond, name, color=colour, fontsize=14, weight="bold", ha=side)
    lengths = np.linalg.norm(arrows, axis=1)
    cosine = float(arrows[0] @ arrows[1] / lengths.prod())
    said = f"cosine {cosine:.3f}, an angle of {np.degrees(np.arccos(cosine)):.1f}°".replace("-", "−")
    stage.set_title(said, fontsize=15, y=1.01)
    for axis in "xyz":
        getattr(stage, f"set_{axis}lim")(low, high)
        getattr(stage, f"set_{axis}label")({"x": "1st value", "y": "2nd value", "z": "3rd value"}[axis])
        getattr(stage, f"set_{axis}ticks")([tick for tick in (-0.2, 0, 0.2, 0.5, 1) if low <= tick <= high])
    stage.set_box_aspect((1, 1, 1))
    above, around = (a + turned * (b - a) for a, b in zip(STORED_VIEW, CENTRED_VIEW, strict=True))
    stage.view_init(elev=above, azim=around)


def _draw_plane(stage: Any) -> None:
    across = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    sides = 0.3 * np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    corners = (sides @ across).reshape(2, 2, 3)[:, [0, 1]]
    corners[1] = corners[1, ::-1]  # rows of a sheet, not a round
    stage.plot_surface(*corners.transpose(2, 0, 1), color=NULL_COLOUR, alpha=0.25, lw=0)


def _synthetic(study: Study) -> Picture:
    figure, (left, right) = page(2)
    table, curve = named(study, "synthetic"), named(study, "curve")
    equal = where(table, mean_a=1.0, mean_b=1.0)
    left.plot(numbers(curve, "mean_over_std"), numbers(curve, "expected_cosine"), color="black", label="closed form")
    for place, ((dimension,), rows) in enumerate(grouped(equal, "dimension")):
        ratio = numbers(rows, "mean_a") / numbers(rows, "std") * 1.04 ** (place - 1)  # side by side
        style: dict[str, Any] = {
            "color": COLOURS[place],
            "marker": MARKERS[place],
            "label": f"{dimension} dimensions, simulated",
        }
        left.errorbar(ratio, numbers(rows, "cosine_mean"), _reach(rows), ls="", capsize=3, **style)
    left.set(xscale="log", xlabel="mean / standard deviation (both vectors alike)", ylabel="cosine")
    plain_ticks(left, numbers(curve, "mean_over_std"))
    left.set_title("The cosine follows from mean and spread")
    left.legend(loc="lower right")
    _by_dimension(right, study)
    caption = (
        f"{about(table)} Left: equal means, bars from the least to the greatest of the simulated cosines. Right: "
        "standard deviation 0.2, bars are one standard deviation; Pearson is of the same vectors. "
        f"{null_said(table)}"
    )
    return Picture("cosine-bias-synthetic", "Strangers in many dimensions", caption, figure, (table, curve))


def _reach(rows: Any) -> Numbers:
    middle = numbers(rows, "cosine_mean")
    return np.stack([middle - numbers(rows, "cosine_min"), numbers(rows, "cosine_max") - middle])


def _by_dimension(panel: Any, study: Study) -> None:
    table = named(study, "synthetic")
    narrow = where(table, std=0.2)
    for place, ((first, second), rows) in enumerate(grouped(narrow, "mean_a", "mean_b")):
        dimension = numbers(rows, "dimension") * 1.08 ** (place - 1.5)
        style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "ls": "", "capsize": 3}
        label = f"cosine, means {first} and {second}"
        panel.errorbar(dimension, numbers(rows, "cosine_mean"), numbers(rows, "cosine_std"), label=label, **style)
        panel.axhline(numbers(rows, "expected_cosine")[0], color=COLOURS[place], lw=1)
        hollow = {**style, "mfc": "white", "label": "Pearson, all means" if place == 0 else None}
        panel.errorbar(dimension, numbers(rows, "pearson_mean"), numbers(rows, "pearson_std"), **hollow)
    panel.axhline(0, color=NULL_COLOUR, lw=0.8)
    panel.set(xscale="log", xlabel="dimensions", ylabel="cosine, or Pearson's r (hollow)", ylim=(-0.2, 1.25))
    panel.set_xticks(
        sorted(set(numbers(narrow, "dimension"))), [f"{d:.0f}" for d in sorted(set(numbers(narrow, "dimension")))]
    )
    panel.minorticks_off()
    panel.set_title("More dimensions only pin it down (lines: closed form)")
    panel.legend(loc="upper left", ncols=2)
