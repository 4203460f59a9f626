"""The pass over every neuron: two layers at a time, what they showed kept in a journal before the next are read."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from modelkin.journal import Journal
from modelkin.questions import CannotAsk, Cuts, Pair, every_neuron
from modelkin.questions.neuron_stream import LayerCalls, Task, call_layers
from modelkin.records import Answer, Evidence, ReadDigest, Reads, Unanswered
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
    return {finding.b: finding.a for finding in layer_map.per_layer if finding.a}, looked_at


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
        for note in journal.take_notes():
            progress(f"{NOTE}{note}", 0, 0)
        found.append(calls)
        done += size
    return found


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
