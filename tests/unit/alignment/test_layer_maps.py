"""Which layers are continued, and which only have something in common."""

from __future__ import annotations

from modelkin.alignment.layer_maps import Shown, layer_map

SURE, CHANCE = -100.0, -0.3
A = ["0", "1", "2", "3"]


def table(likeness: list[list[float]]) -> dict[tuple[str, str], Shown]:
    """Rows are layers of a. What shares a twentieth is beyond doubt, and so is what shares all."""
    return {
        (str(i), str(j)): Shown(SURE if alike >= 0.05 else CHANCE, alike)
        for i, row in enumerate(likeness)
        for j, alike in enumerate(row)
    }


def test_neighbours_do_not_stand_in_for_the_layer_itself() -> None:
    swapped = [[1, 0.1, 0.1, 0], [0.1, 0.1, 1, 0.1], [0.1, 1, 0.1, 0.1], [0, 0.1, 0.1, 1]]
    assert layer_map(table(swapped), A, A) == ["0", "2", "1", "3"]


def test_a_layer_with_no_counterpart_is_new_though_its_neighbours_are_like_it() -> None:
    grown = [[1, 0.1, 0, 0], [0.1, 0.12, 1, 0.1], [0, 0.1, 0.1, 1]]
    assert layer_map(table(grown), A[:3], A) == ["0", None, "1", "2"]


def test_of_equals_the_next_in_order_is_taken() -> None:
    doubled = [[1, 0, 0], [0, 0.9, 0], [0, 0, 1], [0, 1, 0]]
    assert layer_map(table(doubled), A, A[:3]) == ["0", "1", "2"]


def test_layers_that_all_kept_little_are_found() -> None:
    drifted = [[0.06, 0.001, 0], [0, 0.07, 0.001], [0.001, 0, 0.05]]
    assert layer_map(table(drifted), A[:3], A[:3]) == ["0", "1", "2"]


def test_nothing_shown_is_nothing_continued() -> None:
    assert layer_map({}, A, A[:2]) == [None, None]
    assert layer_map(table([[0.01, 0.02], [0.0, 0.01]]), A[:2], A[:2]) == [None, None]
