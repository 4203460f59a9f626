"""The long passes of a comparison: every neuron, two layers at a time, and every tensor, part by part.

What a step showed is kept in a journal before the next is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from modelkin.journal import Journal
from modelkin.questions import CannotAsk, Cuts, Pair, copied_tensors, every_neuron
from modelkin.questions.layers import layer_map as matched_layers
from modelkin.questions.neuron_stream import LayerCalls, Task, call_layers
from modelkin.records import Answer, Evidence, ReadDigest, Reads, Unanswered
from modelkin.sampling.readings import Readings
from modelkin.sources.protocol import NOTE, Progress


def ask_every_neuron(
    pair: Pair, layer_map: Answer | None, map_cuts: Cuts | Unanswered, journal: Journal, progress: Progress
) -> tuple[Answer, Reads]:
    """The answer, and the digests of what it was given from. Goes on where the journal ends."""
    try:
        tasks = every_neuron.tasks(pair, *_chosen(layer_map, map_cuts))
        layers = _called(pair, tasks, journal, progress)
        rng = np.random.default_rng([pair.seed, crc32(every_neuron.ID.encode())])
        return every_neuron.answer(layers, len(pair.b.layers), rng), _reads(layers)
    except CannotAsk as reason:
        return Unanswered(every_neuron.ID, str(reason)), Reads()


def _chosen(layer_map: Answer | None, cuts: Cuts | Unanswered) -> tuple[dict[str, str], tuple[int, int] | None]:
    """The layer map's choice (layer of b: layer of a), and the rows that it looked at."""
    if not isinstance(layer_map, Evidence) or isinstance(cuts, Unanswered):
        return {}, None
    spans = [(cut.start or 0, cut.stop or 0) for side in cuts for cut in side]
    looked_at = min(start for start, _ in spans), max(stop for _, stop in spans)
    return {b: a for b, a in matched_layers(layer_map) if a}, looked_at


def _called(pair: Pair, tasks: Sequence[Task], journal: Journal, progress: Progress) -> list[LayerCalls]:
    sizes = [sum(every_neuron.bytes_of(pair, task)) for task in tasks]
    total, done = sum(sizes), 0
    found = []
    for task, size in zip(tasks, sizes, strict=True):
        name = f"layers {task.names[0]} and {task.names[1]}"
        report = _Meter(progress, f"calling every neuron, {name}", done, total)
        report(0)
        calls = journal.recall(name, LayerCalls)
        if calls is None:
            calls = call_layers(pair, task, report)
            journal.keep(name, calls)
        _tell_notes(journal, progress)
        found.append(calls)
        done += size
    return found


def compare_tensors(pair: Pair, a: Readings, b: Readings, journal: Journal, progress: Progress) -> Answer:
    """Are tensors of the two the same, number for number? `a` and `b`: what was read so far."""
    answer = copied_tensors(pair, a, b, progress, journal)
    _tell_notes(journal, progress)
    return answer


def _tell_notes(journal: Journal, progress: Progress) -> None:
    for note in journal.take_notes():
        progress(f"{NOTE}{note}", 0, 0)


class _Meter:
    """Bytes of one step as progress of the whole."""

    def __init__(self, progress: Progress, what: str, before: int, total: int) -> None:
        self._progress, self._what, self._done, self._total = progress, what, before, total

    def __call__(self, count: int) -> None:
        self._done += count
        self._progress(self._what, self._done, self._total)


def _reads(layers: Sequence[LayerCalls]) -> Reads:
    """Each range once: a layer may have stood beside two."""
    a: dict[str, ReadDigest] = {str(read.cut): read for layer in layers for read in layer.a.reads}
    b: dict[str, ReadDigest] = {str(read.cut): read for layer in layers for read in layer.b.reads}
    return Reads(a=tuple(a.values()), b=tuple(b.values()))
