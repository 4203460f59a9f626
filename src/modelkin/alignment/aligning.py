"""Two models aligned: the route is chosen by their shapes, and the result says what was found and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelkin.alignment.folding import blocks
from modelkin.alignment.heads import HeadMap, head_map
from modelkin.alignment.judging import Cell, HeldOut, Judged, LayerNames, completed, judge
from modelkin.alignment.kinds import Hidden, hidden_kind
from modelkin.alignment.matching import Rotation
from modelkin.alignment.routes import facing_route, scanning_route
from modelkin.alignment.sides import Side, Sides, evenly
from modelkin.alignment.teaching import LayerPair
from modelkin.alignment.tokens import ByTokens, NoTokens, by_tokens
from modelkin.architectures import Anatomy

Progress = Callable[[str, int, int], None]
Route = Literal["facing layers", "any two layers", "none"]
MOST_JUDGED = 8  # layers, where judging all would take long
FEWEST_LAYERS = 2  # one teaches and one is judged


@dataclass(frozen=True, eq=False)
class Alignment:
    """What of b is what of a.

    `rotation` (d of a, d of b) takes rows of a to those of b; None where no layer was found. `layers` has (layer of b,
    the layer of a that it continues, or None) for all that were judged. Every layer in `held_out` was judged by a
    rotation that it had no part in.
    """

    a: Anatomy
    b: Anatomy
    route: Route
    hidden: Hidden
    rotation: Rotation | None
    layers: tuple[tuple[str, str | None], ...]
    held_out: tuple[HeldOut, ...]
    cells: tuple[Cell, ...]
    heads: tuple[HeadMap, ...]
    tokens: ByTokens | None
    reasons: tuple[str, ...]

    @property
    def found(self) -> bool:
        return bool(self.cells)

    def continued(self) -> dict[str, str]:
        """The layer of a that every layer of b continues. What was not judged, for there was much, is as it faces."""
        judged = {b: a for b, a in self.layers if a is not None}
        if self.route != "facing layers" or not self.found:
            return judged
        seen = {b for b, _ in self.layers}
        facing = zip(usable_layers(self.a), usable_layers(self.b), strict=True)
        return {b: a for a, b in facing if b not in seen} | judged


def align(a: Anatomy, b: Anatomy, rng: np.random.Generator, progress: Progress | None = None) -> Alignment:
    """Layers side by side where depths are equal; any two layers where they are not, or where that shows nothing."""

    def step(what: str) -> None:
        if progress is not None:
            progress(what, 0, 0)

    sides = Sides(Side(a), Side(b), rng)
    route, judged = _judged(sides, step)
    kind = hidden_kind(sides, judged.cells)
    if kind.rotation is not None:
        judged = completed(sides, judged, kind.rotation, _beside_again(sides, route), step)
    pairs = [(cell.found.a, cell.found.b) for cell in judged.cells]
    heads = []
    for left, right in pairs if kind.rotation is not None else ():
        step(f"looking for the heads of layer {right}")
        found = None if kind.rotation is None else head_map(sides, left, right, kind.rotation)
        heads += [] if found is None else [found]
    step("comparing the embeddings of shared tokens")
    return Alignment(
        a=a,
        b=b,
        route=route,
        hidden=kind.hidden,
        rotation=kind.rotation,
        layers=judged.layers,
        held_out=judged.held_out,
        cells=judged.cells,
        heads=tuple(heads),
        tokens=_tokens(sides),
        reasons=tuple(sides.reasons),
    )


def _judged(sides: Sides, step: Callable[[str], None]) -> tuple[Route, Judged]:
    names = usable_layers(sides.a.anatomy), usable_layers(sides.b.anatomy)
    judged = Judged((), (), ())
    if min(len(names[0]), len(names[1])) < FEWEST_LAYERS:
        sides.note(f"{FEWEST_LAYERS} layers with MLP neurons are needed, one to teach and one to be judged")
        return "none", judged
    if len(names[0]) == len(names[1]):
        judged = _side_by_side(sides, names, step)
        if judged.plain:
            return "facing layers", judged
        if not (sides.a.small and sides.b.small):
            sides.note("whether layers were moved was not looked at: it would take long in models of this size")
            return "facing layers", judged
    chosen = names[0], names[1] if sides.b.small else evenly(names[1], MOST_JUDGED)
    found = judge(sides, scanning_route(sides, *chosen, step), (), True, chosen, step)
    # What faces what without being chosen is the better account of strangers, and of whoever shows no more otherwise.
    facing = bool(judged.held_out) and found.agreed <= judged.agreed
    return ("facing layers", judged) if facing else ("any two layers", found)


def _beside_again(sides: Sides, route: Route) -> list[LayerPair]:
    """What may belong together beside what was found: any two layers, unless they face each other or are many."""
    a, b = usable_layers(sides.a.anatomy), usable_layers(sides.b.anatomy)
    if route == "facing layers":
        return list(zip(a, b, strict=True))
    return [(x, y) for y in b for x in a] if sides.a.small and sides.b.small else []


def _side_by_side(sides: Sides, names: LayerNames, step: Callable[[str], None]) -> Judged:
    everywhere: list[LayerPair] = list(zip(*names, strict=True))
    chosen = everywhere if sides.a.small and sides.b.small else evenly(everywhere, MOST_JUDGED)
    taught = facing_route(sides, everywhere, chosen, step)
    return judge(sides, taught, chosen, False, ([a for a, _ in chosen], [b for _, b in chosen]), step)


def usable_layers(anatomy: Anatomy) -> Sequence[str]:
    """Layers with neurons on the stream."""
    return [layer for layer in anatomy.layers if blocks(anatomy, layer)]


def _tokens(sides: Sides) -> ByTokens | None:
    try:
        return by_tokens(sides.a.anatomy, sides.b.anatomy, sides.rng)
    except NoTokens as reason:
        sides.note(f"embeddings: {reason}")
        return None
