"""One comparison as a line of results; every model is opened once."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
from benchmarks.calibration.beside import naive, roll_calls, side_by_side, value_calls
from benchmarks.calibration.looking import Looks, one_look
from benchmarks.calibration.results import (
    ANSWER,
    Job,
    Naive,
    columns,
    counts_text,
    is_made,
    kinds_text,
    map_text,
    number,
    reason,
)

from modelkin import __version__
from modelkin.architectures import Anatomy, identify
from modelkin.compare import compare_pair
from modelkin.errors import ModelkinError, NothingComparable
from modelkin.inspection import open_model
from modelkin.questions import QUESTIONS, Pair
from modelkin.questions.controls import PairClass, shape_of, shipped
from modelkin.records import Answer, Comparison, Evidence, Role, Unanswered
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import TENSOR_KINDS, Ledger
from modelkin.verdict.judging import located
from modelkin.verdict.policy import EVERY_NEURON, POLICY, UNMASKED, WEIGHTS, tally

SEED = 0
MOST_OPEN = 300  # models; each holds up to three file descriptors
# Questions whose findings are roll calls of their own, one a layer, none chosen by what it found.
COUNTED_APART = ("experts",)
NOTHING = "nothing could be asked of this pair: "
# `full` asks one question that needs no plan, and where weights do not agree in their places, disguises are looked for.
ASKED = tuple(dict.fromkeys([*(question.id for question in QUESTIONS), *WEIGHTS, UNMASKED]))


class Models:
    """The models of a folder, open; those not used for longest are closed first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = Looks()
        self._open: OrderedDict[str, Anatomy] = OrderedDict()

    def __getitem__(self, name: str) -> Anatomy:
        if name not in self._open:
            self._open[name] = self._opened(self.folder / name)
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].checkpoint.close()
        self._open.move_to_end(name)
        _forget_reads(self._open[name])
        return self._open[name]

    @contextmanager
    def pair(self, job: Job) -> Iterator[tuple[Anatomy, Anatomy]]:
        """Both models; one that is made for its comparison is gone afterwards."""
        a, b = job.pair["a"], job.pair["b"]
        if not is_made(b):
            yield self[a], self[b]
            return
        from benchmarks.calibration.made import make

        with TemporaryDirectory(prefix="modelkin-calibration-") as place:
            make(b, self.folder, Path(place))
            made = self._opened(Path(place))
            try:
                yield self[a], made
            finally:
                made.checkpoint.close()

    def _opened(self, place: Path) -> Anatomy:
        checkpoint = open_model(str(place))
        if isinstance(checkpoint.source, LocalSource):
            checkpoint.source.hash_files()  # as `compare` does for small files: identity needs them
        anatomy = identify(checkpoint)
        _ = checkpoint.vocabulary  # read now, so that no pair pays for it
        return anatomy


def _forget_reads(anatomy: Anatomy) -> None:
    """Every comparison begins as if the model were opened for it: what others read is not taken from its budget."""
    if isinstance(anatomy.checkpoint.source, LocalSource):
        anatomy.checkpoint.source.ledger = Ledger()


def compared(models: Models, job: Job) -> dict[str, str]:
    """Every column of the results, as text."""
    row = dict.fromkeys(columns(ASKED), "") | {name: job.pair[name] for name in job.pair.keys() & set(columns(()))}
    row |= {"budget": job.budget, "modelkin": __version__, "policy": POLICY}
    with models.pair(job) as (a, b):
        return row | _found(models.looks, job, a, b)


def _found(looks: Looks, job: Job, a: Anatomy, b: Anatomy) -> dict[str, str]:
    began = time.perf_counter()
    try:
        with one_look(looks):
            found = compare_pair(Pair(a, b, SEED, job.budget), began)
    except ModelkinError as error:
        return {"nothing": why_not(error)}
    seconds = time.perf_counter() - began + looks.spared
    row = {"bytes_a": str(_bytes(a)), "bytes_b": str(_bytes(b)), "seconds": f"{seconds:.3f}"}
    row |= judged(found) | looked(found, a, b) | _beside(found, job, (a, b))
    for answer in found.answers:
        row |= _told(answer)
    return row


def why_not(error: ModelkinError) -> str:
    """Nothing in common, or a model that could not be read: both are results, and stand in the tables."""
    told = reason(error.message.removeprefix(NOTHING))
    return told if isinstance(error, NothingComparable) else f"{type(error).__name__}: {told}"


def _bytes(anatomy: Anatomy) -> int:
    return anatomy.checkpoint.source.ledger.bytes(TENSOR_KINDS)


def judged(found: Comparison) -> dict[str, str]:
    """The verdict, and what is told after a rejection."""
    verdict = found.verdict
    sound = [answer for answer in found.answers if not isinstance(answer, Unanswered) and answer.grade == "A"]
    adjusted = [answer.adjusted_pvalue for answer in sound if answer.adjusted_pvalue is not None]
    smallest = float(np.log10(min(adjusted, default=1.0)))
    least = verdict.log10_pvalue if verdict.grade == "A" and verdict.log10_pvalue is not None else smallest
    return {
        "verdict": verdict.outcome,
        "named": kinds_text((share.kind, share.probability) for share in verdict.kinds),
        "log10_p": number(verdict.log10_pvalue),
        "least": number(least),
        "grade": verdict.grade or "",
        "said": verdict.direction,
        "said_p": number(verdict.direction_probability, 3),
        "shared": "" if verdict.shared is None else number(verdict.shared.fraction, 3),
        "map": map_text(verdict.layer_map),
        "at": " ".join(_at(found)),
    }


def _at(found: Comparison) -> list[str]:
    """Layers of b in which more neurons are a's than chance allows; asked at `full`."""
    answer = next((answer for answer in found.answers if answer.question == EVERY_NEURON), None)
    return (
        list(located([answer])) if isinstance(answer, Evidence) and tally(found.answers).rejects(EVERY_NEURON) else []
    )


def looked(found: Comparison, a: Anatomy, b: Anatomy) -> dict[str, str]:
    """What was counted once axes were turned back, and whom it was held against; nothing where nobody looked."""
    if found.alignment is None:
        return {}
    layers = found.alignment["held_out"]["layers"]
    counts = {name: str(sum(layer[name] for layer in layers)) for name in ("two", "three")}
    sets = str(sum(layer["blocks"] for layer in layers))
    return counts | {"sets": sets, "against": _against(a, b, found.alignment["route"])}


def _against(a: Anatomy, b: Anatomy, route: str) -> str:
    """The class of controls of this pair, and their range; they decide only as far as that reaches."""
    gated = all(side.of(Role.GATE) or side.of(Role.SHARED_GATE) for side in (a, b))
    wanted = PairClass(gated=gated, experts=sum(bool(side.facts.experts) for side in (a, b)), route=route)
    controls = shipped()[0]
    found = controls.of(wanted)
    if found is None:
        others = "others of its route, extrapolated" if controls.means(route) else "no controls"
        return f"{wanted}: {others}"
    widths, layers = ("–".join(map(str, dict.fromkeys(span))) for span in (found.widths, found.layers))
    reach = "" if found.covers([shape_of(a), shape_of(b)]) else ", extrapolated"
    return f"{wanted}: {len(found.pairs)} pairs of {found.models} models, {widths} wide, {layers} layers{reach}"


def _beside(found: Comparison, job: Job, models: tuple[Anatomy, Anatomy]) -> dict[str, str]:
    """The naive statistics, and plain roll calls of gate, up and value rows; once a pair is enough."""
    if found.rows is None or job.budget != "quick":
        return {}
    pairs = side_by_side(found.rows)
    rng = np.random.default_rng([SEED, crc32("|".join(job.key).encode())])
    told = naive(pairs)
    texts = {name: number(getattr(told, name), 6) for name in Naive.__dataclass_fields__ if name != "entries"}
    counts = {name: counts_text(roll_calls(pairs, role, rng)) for name, role in (("gate", Role.GATE), ("up", Role.UP))}
    counts["values"] = counts_text(value_calls(*models, rng))
    return texts | counts | {"entries": str(told.entries)}


def _told(answer: Answer) -> dict[str, str]:
    """What has no share of the error budget convicts by equal bytes, not by chance, and has no columns."""
    if answer.question not in ASKED:
        return {}
    if isinstance(answer, Unanswered):
        return {f"{answer.question}.u": reason(re.sub(r"\S*/", "", answer.unanswered))}  # no paths
    apart = answer.per_layer if answer.question in COUNTED_APART else ()
    values = (
        number(answer.statistic),
        str(answer.n),
        number(answer.log10_pvalue),
        answer.grade or "-",
        number(answer.detectable, 3),
        counts_text((int(finding.statistic), finding.n) for finding in apart if finding.n),
        "",
    )
    return {f"{answer.question}.{letter}": text for letter, text in zip(ANSWER, values, strict=True)}


def open_once(folder: Path, work: Sequence[Job]) -> list[dict[str, str]]:
    """All of it in this process: for tests, and to see what a pair costs."""
    models = Models(folder)
    return [compared(models, job) for job in work]
