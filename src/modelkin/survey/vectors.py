"""Vectors of one role, of all models that share a width, in one array: whatever is asked of pairs is one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from modelkin.records import Role
from modelkin.sampling.facing import facing
from modelkin.stats.arrays import unit_rows
from modelkin.survey.reading import Collected, Model

Doubles = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Stack:
    """Row n of `rows` (n, d) is layer `layers[n]` of the model with label `owners[n]`.

    A vector with a value that is not finite is NaN throughout, so that every number made from it is NaN, and None in
    a table.
    """

    role: Role
    owners: tuple[str, ...]
    layers: tuple[str, ...]
    rows: Doubles

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    @property
    def labels(self) -> tuple[str, ...]:
        """The models in it, in order."""
        return tuple(dict.fromkeys(self.owners))

    def places(self, label: str) -> Places:
        return np.array([n for n, owner in enumerate(self.owners) if owner == label], dtype=np.intp)

    def place(self, label: str, layer: str) -> int | None:
        found = (n for n, key in enumerate(zip(self.owners, self.layers, strict=True)) if key == (label, layer))
        return next(found, None)

    def layers_of(self, label: str) -> tuple[str, ...]:
        return tuple(self.layers[n] for n in self.places(label))

    def facing(self, a: str, b: str) -> tuple[Places, Places]:
        """Rows of a and rows of b that stand beside each other."""
        mine, theirs = ({self.layers[n]: n for n in self.places(label)} for label in (a, b))
        beside = facing(list(mine), list(theirs))
        return np.array([mine[i] for i, _ in beside], np.intp), np.array([theirs[j] for _, j in beside], np.intp)

    @cached_property
    def mean(self) -> Doubles:
        return np.asarray(self.rows[:, 0] + self._from_first.mean(axis=1))

    @cached_property
    def std(self) -> Doubles:
        """The population's."""
        return np.asarray(self._from_first.std(axis=1))

    @cached_property
    def l2(self) -> Doubles:
        return np.asarray(np.linalg.norm(self.rows, axis=1))

    @cached_property
    def cv(self) -> Doubles:
        """std / |mean|; NaN where the mean is zero."""
        return divided(self.std, np.abs(self.mean))

    @cached_property
    def p99(self) -> Doubles:
        return np.asarray(np.quantile(np.abs(self.rows), 0.99, axis=1))

    @cached_property
    def from_mean(self) -> Doubles:
        """The share of every vector's length that its mean alone makes up, with its sign: m / sqrt(m² + s²).

        The cosine of two vectors that have no pattern in common is the product of theirs.
        """
        return divided(self.mean * np.sqrt(self.width), self.l2)

    @cached_property
    def from_pattern(self) -> Doubles:
        """The share that its deviations from the mean make up: s / sqrt(m² + s²)."""
        return divided(self.std * np.sqrt(self.width), self.l2)

    @cached_property
    def directions(self) -> Doubles:
        """Every row over its length: inner products are cosines."""
        return divided(self.rows, self.l2[:, None])

    @cached_property
    def deviations(self) -> Doubles:
        """The same of gains minus one, where gains begin."""
        moved = self.rows - 1
        return divided(moved, np.linalg.norm(moved, axis=1)[:, None])

    @cached_property
    def patterns(self) -> Doubles:
        """Every row without its mean, over its length: inner products are Pearson's r."""
        return _patterns(self.rows)

    @cached_property
    def ranks(self) -> Doubles:
        """The patterns of the ranks: inner products are Spearman's."""
        broken = np.isnan(self.rows[:, 0])
        ranked = rankdata(np.where(broken[:, None], 0.0, self.rows), axis=1)
        ranked[broken] = np.nan
        return _patterns(ranked)

    @cached_property
    def cosines(self) -> Doubles:
        return np.clip(self.directions @ self.directions.T, -1, 1)

    @cached_property
    def pearsons(self) -> Doubles:
        return np.clip(self.patterns @ self.patterns.T, -1, 1)

    @cached_property
    def _from_first(self) -> Doubles:
        return self.rows - self.rows[:, :1]  # a constant vector then varies by exactly nothing


def divided(above: Doubles, below: Doubles) -> Doubles:
    """above / below, NaN where below is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(below == 0, np.nan, above / below))


def stacks(collected: Collected) -> list[Stack]:
    """One a role and width, in the order of the roles; vectors that are broken or flat are said to be."""
    found = []
    for role in collected.roles:
        by_width: dict[int, list[tuple[Model, str, NDArray[np.float32]]]] = {}
        for model in collected.models:
            for layer in model.layers(role):
                array = model.array(role, layer)
                if array is not None and array.ndim == 1 and array.size > 1:
                    by_width.setdefault(array.size, []).append((model, layer, array))
        found += [_stack(role, members) for members in by_width.values()]
        if len(by_width) > 1:
            collected.leave_out(_widths(by_width))
    for stack in found:
        _say_what_is_broken(collected, stack)
    return found


def exchangeable(collected: Collected, stack: Stack) -> dict[str, bool]:
    """Whether a model's axes may be renumbered: only then has a correlation along them a permutation p-value."""
    models = {model.label: model for model in collected.models}
    answers = {}
    for label in stack.labels:
        facts = models[label].anatomy.facts
        answers[label] = facts.exchangeable_hidden and facts.hidden == stack.width
        if not answers[label]:
            why = facts.why if facts.hidden == stack.width else f"{stack.role} does not stand on the hidden axes"
            collected.leave_out(f"{label}, {stack.role}: no permutation p-values, for {why}")
    return answers


def _stack(role: Role, members: list[tuple[Model, str, NDArray[np.float32]]]) -> Stack:
    rows = np.array([array for _, _, array in members], dtype=np.float64)
    rows[~np.isfinite(rows).all(axis=1)] = np.nan
    return Stack(role, tuple(m.label for m, _, _ in members), tuple(layer for _, layer, _ in members), rows)


def _patterns(rows: Doubles) -> Doubles:
    broken = np.isnan(rows[:, 0])
    flat = np.ptp(rows, axis=1) == 0
    found = unit_rows(np.where(broken[:, None], 0.0, rows))
    found[broken | flat] = np.nan
    return found


def _widths(by_width: dict[int, list[tuple[Model, str, NDArray[np.float32]]]]) -> str:
    parts = [
        f"{width}: {', '.join(dict.fromkeys(model.label for model, _, _ in members))}"
        for width, members in sorted(by_width.items())
    ]
    return f"models of different widths are not set beside each other ({'; '.join(parts)})"


def _say_what_is_broken(collected: Collected, stack: Stack) -> None:
    broken = np.isnan(stack.rows[:, 0])
    flat = ~broken & (np.ptp(stack.rows, axis=1) == 0)
    for label in stack.labels:
        places = stack.places(label)
        for which, what in ((broken, "hold values that are not finite"), (flat, "are constant: they have no pattern")):
            names = [stack.layers[n] for n in places if which[n]]
            if names:
                collected.leave_out(f"{label}, {stack.role}: layers {', '.join(names)} {what}")
