"""The layer map in text: a line a layer of b, with the layers of a across."""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.relation.reading import LayerMap

MOST_COLUMNS = 64


def drawn(layers: LayerMap, layers_a: Sequence[str]) -> tuple[str, ...]:
    """`■` where a layer of b continues a layer of a, `·` elsewhere; wide models are drawn several layers a column.

    A copy is a diagonal, a layer left out a step to the right, a repeated stretch two parallel diagonals.
    """
    if not layers or not layers_a:
        return ()
    per_column = -(-len(layers_a) // MOST_COLUMNS)
    places = {name: place // per_column for place, name in enumerate(layers_a)}
    columns = max(places.values()) + 1
    width = max(len(name) for name, _ in layers)
    head = f"{'B':>{width}}  layers of A, {layers_a[0]} to {layers_a[-1]}"
    head += f", {per_column} a column" if per_column > 1 else ""
    return (head, *(_line(b, a, places, columns, width) for b, a in layers))


def _line(b: str, a: str | None, places: dict[str, int], columns: int, width: int) -> str:
    cells = ["·"] * columns
    if a is not None:
        cells[places[a]] = "■"
    return f"{b:>{width}}  {''.join(cells)}  {'new' if a is None else a}"
