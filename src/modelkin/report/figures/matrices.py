"""All metrics over models at one layer, over models at a layer of their own, and over the layers of one model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Matrix, Survey
from modelkin.report.figures.canvas import (
    ACROSS,
    ALONG,
    SLIDE,
    Picture,
    Room,
    empty_rest,
    heat,
    ink_on,
    layer_ticks,
    norm_across,
    norm_along,
    page,
    shape_for,
    side_bar,
)
from modelkin.report.figures.rows import cells, decimals, labelled, listed, named_parts, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROLES = 2  # to a page of layers
PAGES = 4  # layers of one role drawn at most; the tables have all
WRITTEN = 9  # a number in each cell up to so many rows
DIGIT_WIDTH = 0.65  # of a letter's height, with a little room around
SMALLEST_LETTERS = 5.0  # points
SHORT = 4  # letters of names that need not stand aslant
READ = ("cosine", "centred_cosine", "rel_l2")  # the metrics whose cells carry numbers


def over_models(survey: Survey) -> Iterator[Picture]:
    """Models against models at one layer."""
    for role, by_layer in _grouped(survey, "models").items():
        for layer in spread(list(by_layer), PAGES):
            matrices = by_layer[layer]
            left = len(by_layer) - PAGES
            rest = f" {left} more layers are in the tables." if left > 0 else ""
            yield _page(
                f"matrices-models.{role}.{layer}", f"Models against models: {role}, layer {layer}", matrices, rest
            )


def mixed(survey: Survey) -> Iterator[Picture]:
    """Models against models, each at another layer: what a match of layers is worth."""
    for role, by_layer in _grouped(survey, "mixed").items():
        for matrices in by_layer.values():
            yield _page(f"matrices-mixed.{role}", f"Models at layers of their own: {role}", matrices, "")


def within(survey: Survey) -> Iterator[Picture]:
    """Layers against layers of one model: two roles to a page, the metrics that are read; the tables have all."""
    by_role = _grouped(survey, "within")
    for part in dict.fromkeys(part for by_model in by_role.values() for part in by_model):
        roles = [role for role in by_role if part in by_role[role]]
        for start in range(0, len(roles), ROLES):
            some = roles[start : start + ROLES]
            matrices = [matrix for role in some for matrix in by_role[role][part] if matrix.metric in READ]
            title = f"Layers of {labelled(survey, part)}: {listed(some)}"
            yield _page(
                f"matrices-within.{part}.{start // ROLES + 1}", title, matrices, " The tables have more metrics."
            )


def _grouped(survey: Survey, kind: str) -> dict[str, dict[str, list[Matrix]]]:
    """Role -> what else the name holds (a layer, a model, nothing) -> one matrix a metric."""
    found: dict[str, dict[str, list[Matrix]]] = {}
    for matrix in survey.matrices:
        if matrix.name.startswith(f"{kind}."):
            rest = ".".join(part for part in named_parts(matrix) if part != matrix.role)
            found.setdefault(matrix.role, {}).setdefault(rest, []).append(matrix)
    return found


def _page(name: str, title: str, matrices: list[Matrix], rest: str) -> Picture:
    across, down = shape_for(len(matrices))
    figure, panels = page(across, down, _room(matrices[0]))
    several = len({matrix.role for matrix in matrices}) > 1
    for place, (panel, matrix) in enumerate(zip(panels, matrices, strict=False)):
        _draw(panel, matrix)
        if place % across and len(matrix.rows) <= WRITTEN:
            panel.set_yticklabels([])  # the same names as on the left
        if place + across < len(matrices) and len(matrix.rows) <= WRITTEN:
            panel.set_xticklabels([])
        panel.set_title(f"{matrix.role}: {matrix.metric}" if several else matrix.metric, loc="left", fontsize=11)
    empty_rest(panels, len(matrices))
    nulls = {matrix.metric: matrix.strangers for matrix in matrices}
    said = " ".join(f"{metric}: {null}." for metric, null in nulls.items())
    caption = (
        f"{matrices[0].caption} Between strangers, {said} Colours run from the least to the greatest cell off the "
        "diagonal, of the centred cosine to the greatest of either sign; grey: a thing with itself, or nothing to "
        f"compare. In rel_l2 the row is the denominator.{rest}"
    )
    return Picture(name, title, caption, figure, tuple(matrices))


def _room(matrix: Matrix) -> Room:
    """Names of models are longer than those of layers, and stand aslant below."""
    longest = max(len(name) for name in matrix.rows) if len(matrix.rows) <= WRITTEN else 3
    side = 0.006 * longest
    return Room(left=0.02 + side, right=0.96, below=0.03 + 1.1 * side, across=0.32, down=0.25)


def _draw(panel: Axes, matrix: Matrix) -> None:
    found = cells(matrix)
    same = (
        np.eye(*found.shape, dtype=np.bool_)
        if matrix.diagonal and matrix.rows == matrix.columns
        else np.zeros(found.shape, np.bool_)
    )
    off = np.where(same, np.nan, found)  # a thing with itself is 1 or 0 and would stretch the scale
    pattern = matrix.metric in ("centred_cosine", "pearson")
    image = heat(panel, off, norm_across(off) if pattern else norm_along(off), ACROSS if pattern else ALONG)
    if len(found) <= WRITTEN:
        if matrix.metric in READ:
            _write_cells(panel, found, same, image)
        aslant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        short = max(map(len, matrix.columns)) <= SHORT
        panel.set_xticks(range(len(matrix.columns)), matrix.columns, fontsize=8, **({} if short else aslant))
        panel.set_yticks(range(len(matrix.rows)), matrix.rows, fontsize=8)
    else:
        layer_ticks(panel, matrix.columns, most=6)
        layer_ticks(panel, matrix.rows, "y", most=6)
    side_bar(panel, image)


def _write_cells(panel: Axes, found: np.ndarray, same: np.ndarray, image: object) -> None:
    """As large as the cells allow; where that is too small to read, the colours alone are left."""
    off = np.where(same, np.nan, found)
    for least in (3, 2):
        digits = decimals(off, least)
        shown = {at: _short(value, digits) for at, value in np.ndenumerate(off) if np.isfinite(value)}
        size = min(10.0, _cell_points(panel, found) / (DIGIT_WIDTH * max(map(len, shown.values()), default=1)))
        if size >= SMALLEST_LETTERS:
            break
    for (i, j), text in shown.items() if size >= SMALLEST_LETTERS else ():
        panel.text(j, i, text, ha="center", va="center", color=ink_on(image, float(found[i, j])), fontsize=size)


def _cell_points(panel: Axes, found: np.ndarray) -> float:
    """The width of a cell on the page; a colour bar, added later, takes a fifth of the panel."""
    return float(0.8 * panel.get_position().width * SLIDE[0] * 72 / found.shape[1])


def _short(value: float, digits: int) -> str:
    """At least three digits in the width of a cell, and as many as tell the cells apart."""
    if abs(value) >= 10:
        return f"{value:.0f}"
    written = f"{value:.{digits}f}".replace("-", "−")
    if written.lstrip("−").startswith("0."):
        return written.replace("0.", ".", 1)
    return written[:-1] if set(written) <= set("−1.0") else written  # 1.0000 in the room of .9992
