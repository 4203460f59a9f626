"""Disguises are looked for once a pair: what is seen does not depend on the budget, where both models fit into all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from modelkin.questions import Pair
from modelkin.records import Answer
from modelkin.sampling.budget import Room
from modelkin.sources.protocol import Progress
from modelkin.unmasking import Unmasked, all_in_place, unmask

COMPARE, STEP = import_module("modelkin.compare"), "unmask"  # `modelkin.compare` itself is the function


class Looks:
    """The step of `compare` that looks through disguises, which remembers the last pair.

    `spared`: seconds of the last call that an earlier one had paid for. Bytes are not counted again.
    """

    def __init__(self) -> None:
        self.spared = 0.0
        self._models: tuple[str, str] | None = None
        self._seen = Unmasked()
        self._cost = 0.0

    def __call__(self, pair: Pair, found: Sequence[Answer], room: Room, progress: Progress) -> Unmasked:
        """Weights that agree in their places by what `full` found are not looked at, whatever was seen before."""
        models = pair.a.checkpoint.id, pair.b.checkpoint.id
        if self._models == models and not all_in_place(found):
            self.spared = self._cost
            return self._seen
        began = time.perf_counter()
        seen = unmask(pair, found, room, progress)
        if seen.alignment is not None:
            self._models, self._seen, self._cost = models, seen, time.perf_counter() - began
        return seen


@contextmanager
def one_look(looks: Looks) -> Iterator[None]:
    """While this lasts `compare` looks through these."""
    looks.spared = 0.0
    before = vars(COMPARE)[STEP]
    setattr(COMPARE, STEP, looks)
    try:
        yield
    finally:
        setattr(COMPARE, STEP, before)
