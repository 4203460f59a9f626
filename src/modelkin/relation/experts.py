"""Experts made of an MLP: every neuron of an expert looks for itself among the neurons of the dense layer, twice.

Once by what opens it and once by what it reads (without a gate: by what it writes). That both choose the same neuron
happens by chance to one in as many as the dense layer has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from modelkin.records import Role, Slot
from modelkin.relation.reading import Floats, Indices, LayerMap, Weights, in_layer, spread

MOST_NEURONS, MOST_EXPERTS = 256, 16
PARTS = (Role.GATE, Role.UP, Role.DOWN)
WHOLE, SOME = 0.9, 0.05  # shares of neurons found
How = Literal["copied", "split", "partly"]


@dataclass(frozen=True, eq=False)
class ExpertMatch:
    """One expert: neurons asked, those found in the dense layer, their numbers there, and how many kept their own.

    `exact`: how many are those found to the bit, in all that they read and write.
    """

    layer: str
    expert: int
    asked: int
    found: Indices
    in_place: int
    exact: int = 0


@dataclass(frozen=True, eq=False)
class Upcycling:
    """How the experts of one model hold the neurons of the other. `experts_in_b`: b is the one with experts."""

    matches: tuple[ExpertMatch, ...]
    experts_in_b: bool
    dense_neurons: int

    @property
    def share(self) -> float:
        asked = sum(match.asked for match in self.matches)
        return sum(len(match.found) for match in self.matches) / asked if asked else 0.0

    @property
    def holds(self) -> bool:
        """Far beyond the one in `dense_neurons` that agree by chance."""
        return self.share > max(SOME, 8 / self.dense_neurons)

    @property
    def how(self) -> How:
        # Copies that were partly drawn anew share the square of what each kept; parts share nothing.
        if self._overlap() < 0.3 * self.share**2:
            return "split"
        return "copied" if self.share >= WHOLE else "partly"

    @property
    def unparted(self) -> bool:
        """Whether every expert is still the MLP to the bit. From others the MLP may have been taken: one of them, their
        mean, or all of them joined."""
        experts = Counter(match.layer for match in self.matches)
        return self.how == "copied" and min(experts.values()) > 1 and all(m.exact == m.asked for m in self.matches)

    def _overlap(self) -> float:
        """Share of neurons of an expert that the next expert of its layer has too."""
        by_layer: dict[str, list[ExpertMatch]] = {}
        for match in self.matches:
            by_layer.setdefault(match.layer, []).append(match)
        both = asked = 0
        for layer in by_layer.values():
            for one, other in pairwise(layer):
                both += len(np.intersect1d(one.found, other.found))
                asked += one.asked
        return both / asked if asked else 1.0


def upcycling(a: Weights, b: Weights, layers: LayerMap) -> Upcycling | None:
    """None unless one model has experts where the other has one MLP of the same width."""
    found: list[ExpertMatch] = []
    sides = [(side, _experts(side)) for side in (a, b)]
    if bool(sides[0][1]) == bool(sides[1][1]):
        return None
    in_b = bool(sides[1][1])
    moe, dense = (b, a) if in_b else (a, b)
    neurons = 0
    for name_b, name_a in layers:
        if name_a is None:
            continue
        name_moe, name_dense = (name_b, name_a) if in_b else (name_a, name_b)
        here = _matched(moe, dense, name_moe, name_dense)
        found += here
        up = in_layer(Slot(Role.UP), name_dense)
        neurons = max(neurons, dense.shape(up)[0] if up in dense.slots else 0)
    return Upcycling(tuple(found), in_b, neurons) if found else None


def _experts(weights: Weights) -> bool:
    return any(slot.role is Role.UP and slot.expert is not None for slot in weights.slots)


def _matched(moe: Weights, dense: Weights, name_moe: str, name_dense: str) -> list[ExpertMatch]:
    theirs = _neurons(dense, in_layer(Slot(Role.UP), name_dense), None)
    numbers = sorted(
        slot.expert
        for slot in moe.slots
        if slot.role is Role.UP and slot.layer_name == name_moe and slot.expert is not None
    )
    found = []
    for expert in (numbers[i] for i in spread(len(numbers), MOST_EXPERTS)):
        up = in_layer(Slot(Role.UP, expert=expert), name_moe)
        chosen = spread(moe.shape(up)[0], MOST_NEURONS)
        mine = _neurons(moe, up, chosen)
        if len(mine) < 2 or len(theirs) < 2 or mine[0].shape[1] != theirs[0].shape[1]:
            continue
        first, second = (
            np.argmax(np.abs(_unit(x) @ _unit(y).T), axis=1) for x, y in zip(mine[:2], theirs[:2], strict=True)
        )
        agreed = first == second
        in_place, exact = int(np.sum(agreed & (first == chosen))), _exact(mine, [part[first] for part in theirs])
        found.append(ExpertMatch(name_moe, expert, len(chosen), np.unique(first[agreed]), in_place, exact))
    return found


def _exact(mine: list[Floats], theirs: list[Floats]) -> int:
    """Rows that are the same to the bit in all parts that both have."""
    if [part.shape for part in mine] != [part.shape for part in theirs]:
        return 0
    return int(np.sum(np.all([np.all(x == y, axis=1) for x, y in zip(mine, theirs, strict=True)], axis=0)))


def _neurons(weights: Weights, up: Slot, chosen: Indices | None) -> list[Floats]:
    """Rows of up and gate and columns of down, as far as there are any."""
    slots = [Slot(role, up.layer, up.expert, up.stack) for role in PARTS]
    rows: list[Floats] = []
    for slot in (slots[1], slots[0], slots[2]):
        if slot in weights.slots:
            whole = weights.read(slot)
            part = whole.T if slot.role is Role.DOWN else whole
            rows.append(part if chosen is None else part[chosen])
    return rows


def _unit(rows: Floats) -> Floats:
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(size > 0, size, 1), dtype=np.float32)
