"""Two models in, one Comparison out: open, identify, read, ask, judge."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

import numpy as np

from modelkin import __version__
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint
from modelkin.errors import NothingComparable
from modelkin.inspection import SMALL_FILE, identity, open_model
from modelkin.questions import QUESTIONS, CannotAsk, Cuts, Pair, Question, identical_files, not_evidence
from modelkin.records import Answer, Comparison, Cost, Cut, Evidence, KeptRows, Party, Unanswered
from modelkin.sampling.readings import Floats, Readings, pack, portrait, read
from modelkin.sources import ReadOptions
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import TENSOR_KINDS, Progress, no_progress
from modelkin.verdict import POLICY, adjusted, judge

QUICK_STAGES = (1, 2)  # asked by every budget, from rows that the record keeps
Arrays = dict[Cut, Floats]


@dataclass(frozen=True)
class CompareOptions:
    budget: Literal["quick", "standard", "full"] = "standard"
    seed: int = 0
    reading: ReadOptions = field(default_factory=ReadOptions)


def compare(a: str, b: str, options: CompareOptions = CompareOptions(), progress: Progress = no_progress) -> Comparison:
    """Do the weights of b descend from those of a, or the reverse?"""
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as both:
        opened = [both.submit(_open, model, options, progress) for model in (a, b)]
        checkpoints = [future.result() for future in opened]
    try:
        pair = Pair(identify(checkpoints[0]), identify(checkpoints[1]), options.seed, options.budget)
        return compare_pair(pair, began, progress)
    finally:
        for checkpoint in checkpoints:
            checkpoint.source.close()


def _open(model: str, options: CompareOptions, progress: Progress) -> Checkpoint:
    """Small local files are hashed at once, large ones only where everything is read anyway."""
    checkpoint = open_model(model, options.reading, progress)
    if isinstance(checkpoint.source, LocalSource):
        checkpoint.source.hash_files(None if options.budget == "full" else SMALL_FILE, progress)
    return checkpoint


def plan(a: str, b: str, options: CompareOptions = CompareOptions()) -> list[str]:
    """What `compare` would read of the weights, a line a question. Headers are read for this, weights are not."""
    checkpoints = [_open(model, options, no_progress) for model in (a, b)]
    try:
        pair = Pair(identify(checkpoints[0]), identify(checkpoints[1]), options.seed, options.budget)
        asked = [question for stages in _rungs(pair) for question in QUESTIONS if question.stage in stages]
        return [_plan_line(pair, question) for question in asked]
    finally:
        for checkpoint in checkpoints:
            checkpoint.source.close()


def _plan_line(pair: Pair, question: Question) -> str:
    cuts = planned(question, pair)
    if isinstance(cuts, Unanswered):
        return f"{question.id}: not asked, {cuts.unanswered}"
    sizes = [sum(_bytes(anatomy, cut) for cut in side) for anatomy, side in zip((pair.a, pair.b), cuts, strict=True)]
    return f"{question.id}: {len(cuts[0])} + {len(cuts[1])} ranges, {sizes[0]:,} + {sizes[1]:,} bytes"


def _bytes(anatomy: Anatomy, cut: Cut) -> int:
    rows, *rest = anatomy.shape(cut.slot)
    count = len(cut.rows) or (rows if cut.start is None else (cut.stop or rows) - cut.start)
    ref = anatomy.checkpoint.tensors[anatomy.view(cut.slot).tensor]
    return count * math.prod(rest) * (ref.stop - ref.start) // max(1, math.prod(ref.shape))


def compare_pair(pair: Pair, began: float, progress: Progress = no_progress) -> Comparison:
    """The same for two models that are open already."""
    found: list[Answer] = [identical_files(pair)]
    arrays: tuple[Arrays, Arrays] = ({}, {})
    kept: KeptRows | None = None
    for stages in _rungs(pair):
        answered = _ask_stages(pair, stages, arrays, progress)
        found += answered
        if stages == QUICK_STAGES:
            kept = KeptRows(
                portrait_a=portrait(pair.a), portrait_b=portrait(pair.b), a=pack(arrays[0]), b=pack(arrays[1])
            )
    _something_asked(pair, found)
    answers = adjusted(found)
    parties = party(pair.a), party(pair.b)
    return Comparison(
        modelkin=__version__,
        policy=POLICY,
        seed=pair.seed,
        budget=pair.budget,
        a=parties[0],
        b=parties[1],
        verdict=judge(answers, depths=(parties[0].layers, parties[1].layers)),
        answers=answers,
        not_evidence=not_evidence(*_sides(pair, arrays), pair.a.checkpoint.config, pair.b.checkpoint.config),
        rows=kept,
        cost=cost(pair, time.perf_counter() - began),
    )


def _something_asked(pair: Pair, found: Sequence[Answer]) -> None:
    """That two files differ is no answer: something of the weights must have been compared, or be the same bytes."""
    if any(isinstance(answer, Evidence) and (answer.index_set != "files" or answer.effect) for answer in found):
        return
    reasons = "; ".join(dict.fromkeys(a.unanswered for a in found if isinstance(a, Unanswered)))
    raise NothingComparable(f"nothing could be asked of this pair: {reasons}", where=pair.b.checkpoint.id)


def _rungs(pair: Pair) -> list[tuple[int, ...]]:
    later = tuple(sorted({question.stage for question in QUESTIONS} - set(QUICK_STAGES)))
    return [QUICK_STAGES] if pair.budget == "quick" else [QUICK_STAGES, later]


def _ask_stages(pair: Pair, stages: Iterable[int], arrays: tuple[Arrays, Arrays], progress: Progress) -> list[Answer]:
    """Everything these questions need in one batch a model; then their answers, in the order of the table."""
    asked = [question for question in QUESTIONS if question.stage in stages]
    wanted = {question.id: planned(question, pair) for question in asked}
    progress("reading weights", 0, 0)
    for anatomy, have, side in zip((pair.a, pair.b), arrays, (0, 1), strict=True):
        plans = [cuts[side] for cuts in wanted.values() if not isinstance(cuts, Unanswered)]
        have |= read(anatomy, [cut for cut in dict.fromkeys(c for cuts in plans for c in cuts) if cut not in have])
    left, right = _sides(pair, arrays)
    return [_answer(question, wanted[question.id], left, right, pair.seed) for question in asked]


def _answer(question: Question, cuts: Cuts | Unanswered, a: Readings, b: Readings, seed: int) -> Answer:
    """Each question sees what it asked for, and nothing that was read for others."""
    return cuts if isinstance(cuts, Unanswered) else ask(question, a.only(cuts[0]), b.only(cuts[1]), seed)


def planned(question: Question, pair: Pair) -> Cuts | Unanswered:
    try:
        return question.cuts(pair)
    except CannotAsk as reason:
        return Unanswered(question.id, str(reason))


def ask(question: Question, a: Readings, b: Readings, seed: int) -> Answer:
    """One seed, split by question: a new question never moves an old p-value."""
    try:
        return question.answer(a, b, np.random.default_rng([seed, crc32(question.id.encode())]))
    except CannotAsk as reason:
        return Unanswered(question.id, str(reason))


def _sides(pair: Pair, arrays: tuple[Arrays, Arrays]) -> tuple[Readings, Readings]:
    return Readings(portrait(pair.a), arrays[0]), Readings(portrait(pair.b), arrays[1])


def party(anatomy: Anatomy) -> Party:
    known = identity(anatomy.checkpoint, anatomy)
    return Party(
        id=known.id,
        revision=known.revision,
        format=known.format,
        parameters=known.parameters,
        layers=known.layers,
        hidden=known.hidden,
        vocabulary=known.vocabulary,
        files=known.files,
        claims={},
    )


def cost(pair: Pair, seconds: float) -> Cost:
    a, b = (anatomy.checkpoint.source.ledger for anatomy in (pair.a, pair.b))
    return Cost(
        bytes_a=a.bytes() - a.bytes({"hash"}),  # hashing a local file is not what the comparison costs
        bytes_b=b.bytes() - b.bytes({"hash"}),
        tensor_bytes_a=a.bytes(TENSOR_KINDS),
        tensor_bytes_b=b.bytes(TENSOR_KINDS),
        requests=a.requests + b.requests,
        seconds=seconds,
    )
