"""One comparison as a line of results; every model is opened once."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from benchmarks.calibration.beside import naive, roll_calls, side_by_side, value_calls
from benchmarks.calibration.results import ANSWER, Job, Naive, columns, counts_text, number, reason

from modelkin import __version__
from modelkin.architectures import Anatomy, identify
from modelkin.compare import compare_pair
from modelkin.errors import ModelkinError, NothingComparable
from modelkin.inspection import open_model
from modelkin.questions import QUESTIONS, Pair
from modelkin.records import Answer, Comparison, Role, Unanswered
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import TENSOR_KINDS
from modelkin.verdict.policy import POLICY, WEIGHTS

SEED = 0
MOST_OPEN = 300  # models; each holds up to three file descriptors
# Questions whose findings are roll calls of their own, one a layer, none chosen by what it found.
COUNTED_APART = ("experts",)
NOTHING = "nothing could be asked of this pair: "
ASKED = tuple(dict.fromkeys([*(question.id for question in QUESTIONS), *WEIGHTS]))  # `full` asks one that needs no plan


class Models:
    """The models of a folder, open; those not used for longest are closed first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: OrderedDict[str, Anatomy] = OrderedDict()

    def __getitem__(self, name: str) -> Anatomy:
        if name not in self._open:
            self._open[name] = self._opened(name)
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].checkpoint.close()
        self._open.move_to_end(name)
        return self._open[name]

    def _opened(self, name: str) -> Anatomy:
        checkpoint = open_model(str(self.folder / name))
        if isinstance(checkpoint.source, LocalSource):
            checkpoint.source.hash_files()  # as `compare` does for small files: identity needs them
        anatomy = identify(checkpoint)
        _ = checkpoint.vocabulary  # read now, so that no pair pays for it
        return anatomy


def compared(models: Models, job: Job) -> dict[str, str]:
    """Every column of the results, as text."""
    a, b = models[job.pair["a"]], models[job.pair["b"]]
    row = dict.fromkeys(columns(ASKED), "") | {name: job.pair[name] for name in job.pair.keys() & set(columns(()))}
    row |= {"budget": job.budget, "modelkin": __version__, "policy": POLICY}
    before = [_bytes(anatomy) for anatomy in (a, b)]
    began = time.perf_counter()
    try:
        found = compare_pair(Pair(a, b, SEED, job.budget), began)
    except ModelkinError as error:
        return row | {"nothing": _why(error)}
    seconds = time.perf_counter() - began
    cost = [_bytes(anatomy) - already for anatomy, already in zip((a, b), before, strict=True)]
    row |= _judged(found) | {"bytes_a": str(cost[0]), "bytes_b": str(cost[1]), "seconds": f"{seconds:.3f}"}
    row |= _beside(found, job, (a, b))
    for answer in found.answers:
        row |= _told(answer)
    return row


def _why(error: ModelkinError) -> str:
    """Nothing in common, or a model that could not be read: both are results, and stand in the tables."""
    told = reason(error.message.removeprefix(NOTHING))
    return told if isinstance(error, NothingComparable) else f"{type(error).__name__}: {told}"


def _bytes(anatomy: Anatomy) -> int:
    return anatomy.checkpoint.source.ledger.bytes(TENSOR_KINDS)


def _judged(found: Comparison) -> dict[str, str]:
    verdict = found.verdict
    sound = [answer for answer in found.answers if not isinstance(answer, Unanswered) and answer.grade == "A"]
    adjusted = [answer.adjusted_pvalue for answer in sound if answer.adjusted_pvalue is not None]
    least = verdict.log10_pvalue if verdict.log10_pvalue is not None else float(np.log10(min(adjusted, default=1.0)))
    return {
        "verdict": verdict.outcome,
        "named": " ".join(share.kind for share in verdict.kinds),
        "log10_p": number(verdict.log10_pvalue),
        "least": number(least),
    }


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
