"""Two models in, one Comparison out: open, identify, read, ask, judge."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from zlib import crc32

import msgspec
import numpy as np

from modelkin import __version__, beside
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint
from modelkin.descent import descent
from modelkin.errors import NothingComparable
from modelkin.fingerprints import identity as same_weights
from modelkin.fingerprints import is_one_place, known_again
from modelkin.full import ask_every_neuron, compare_tensors
from modelkin.inspection import SMALL_FILE, open_model
from modelkin.journal import Journal, open_journal
from modelkin.parties import party, with_claims_weighed
from modelkin.planning import plan_lines
from modelkin.questions import (
    QUESTIONS,
    QUICK_STAGES,
    CannotAsk,
    Cuts,
    Pair,
    Question,
    not_evidence,
    tokenizers_of,
)
from modelkin.questions.coverage import compared_parts
from modelkin.questions.gauge import rearranged
from modelkin.questions.identity import rows_alike
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.neurons import NEURONS
from modelkin.questions.pooled import POOLED
from modelkin.records import (
    Answer,
    BudgetName,
    Comparison,
    Cost,
    Cut,
    Evidence,
    KeptRows,
    Reads,
    Relation,
    Role,
    Side,
    Unanswered,
    Verdict,
)
from modelkin.records.comparison import sealed
from modelkin.sampling.budget import Room
from modelkin.sampling.noting import Noted, noted
from modelkin.sampling.readings import Floats, Readings, bytes_of, digests, keep, portrait, read
from modelkin.sources import ReadOptions
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import TENSOR_KINDS, Progress, no_progress
from modelkin.unmasking import Unmasked, unmask
from modelkin.verdict import POLICY, adjusted, judge
from modelkin.verdict.policy import tally

KEPT = "the files, layers and tensors that were finished are kept, and the same command goes on from there"
Arrays = dict[Cut, Floats]
Further = tuple[Anatomy, ...]
Late = tuple[Noted, Noted]


@dataclass(frozen=True)
class CompareOptions:
    """`candidates`: possible further parents, siblings, outgroups; `controls`: models that should be strangers.

    `made` is the date that the record bears, as 2026-01-31T12:00:00Z: the caller's, so that nothing here asks a clock
    what a record says.
    """

    budget: BudgetName = "standard"
    seed: int = 0
    reading: ReadOptions = field(default_factory=ReadOptions)
    candidates: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    made: str | None = None


def compare(a: str, b: str, options: CompareOptions = CompareOptions(), progress: Progress = no_progress) -> Comparison:
    """Do the weights of b descend from those of a, or the reverse?"""
    began = time.perf_counter()
    with open_pair(a, b, options, progress) as pair, open_further(options, progress) as (controls, candidates):
        found = _resumable(pair, began, progress, options.reading.cache, candidates)
        if controls or candidates:
            found = _beside(found, pair, controls, candidates, progress)
        return sealed(msgspec.structs.replace(found, made=options.made)) if options.made else found


@contextmanager
def open_further(options: CompareOptions, progress: Progress) -> Iterator[tuple[Further, Further]]:
    """Controls and candidates, open and identified."""

    def opened(model: str) -> Checkpoint:
        return _open(model, options, progress, hashed=True)

    with (
        beside.opened(options.controls, "control", opened, progress) as controls,
        beside.opened(options.candidates, "candidate", opened, progress) as candidates,
    ):
        yield controls, candidates


def _beside(found: Comparison, pair: Pair, controls: Further, candidates: Further, progress: Progress) -> Comparison:
    """The comparison with what was found of the further models; its cost stays that of the pair."""

    def compared(further: Pair) -> Comparison:
        return compare_pair(further, time.perf_counter())

    strangers = beside.compared(pair, controls, "control", compared, progress)
    kin = beside.compared(pair, candidates, "candidate", compared, progress)
    told = msgspec.structs.replace(found, controls=strangers, candidates=kin)
    return sealed(with_claims_weighed(told))


@contextmanager
def open_pair(
    a: str, b: str, options: CompareOptions, progress: Progress = no_progress, *, hashed: bool = True
) -> Iterator[Pair]:
    """Both models opened side by side and identified; closed again whatever happens."""
    with ThreadPoolExecutor(2) as both:
        opened = [both.submit(_open, model, options, progress, hashed) for model in (a, b)]
    checkpoints = [future.result() for future in opened if future.exception() is None]
    try:
        for future in opened:
            future.result()  # the first that failed says why
        yield Pair(identify(checkpoints[0]), identify(checkpoints[1]), options.seed, options.budget)
    finally:
        for checkpoint in checkpoints:
            checkpoint.close()


def _resumable(pair: Pair, began: float, progress: Progress, on_disk: bool, candidates: Further = ()) -> Comparison:
    """With what an earlier run of the same comparison found, and keeping what this one finds, where that is long."""
    if pair.budget == "quick" or not on_disk:
        return compare_pair(pair, began, progress, candidates=candidates)
    models = [known_again(pair.a), known_again(pair.b)]
    journal = open_journal(models, pair.seed, pair.budget, __version__, POLICY)
    try:
        comparison = compare_pair(pair, began, progress, journal, candidates)
    except KeyboardInterrupt:
        if not journal.kept:
            raise
        raise KeyboardInterrupt(KEPT) from None
    journal.forget()
    return comparison


def _open(model: str, options: CompareOptions, progress: Progress, hashed: bool) -> Checkpoint:
    """Small local files are hashed at once, large ones when it turns out that this is worth it."""
    checkpoint = open_model(model, options.reading, progress)
    if hashed and isinstance(checkpoint.source, LocalSource):
        checkpoint.source.hash_files(SMALL_FILE, progress)
    return checkpoint


def plan(a: str, b: str, options: CompareOptions = CompareOptions()) -> list[str]:
    """What `compare` would read of the weights, a line a question. Headers are read for this, weights are not."""
    with open_pair(a, b, options, hashed=False) as pair:
        rungs = [QUICK_STAGES] if is_one_place(pair) else _rungs(pair)
        asked = [question for stages in rungs for question in QUESTIONS if question.stage in stages]
        lines = plan_lines(pair, {question.id: planned(question, pair) for question in asked}, is_one_place(pair))
        return [*lines, *_plan_beside(pair, options)]


def _plan_beside(pair: Pair, options: CompareOptions) -> list[str]:
    """A line for every further model and side of the pair."""
    with open_further(options, no_progress) as (controls, candidates):
        wanted = [*beside.pairs(pair, controls, "control"), *beside.pairs(pair, candidates, "candidate")]
        return [_plan_further(side, further) for side, further in wanted]


def _plan_further(side: Side, pair: Pair) -> str:
    asked = [question for stages in _rungs(pair) for question in QUESTIONS if question.stage in stages]
    plans = [cuts for cuts in (planned(question, pair) for question in asked) if not isinstance(cuts, Unanswered)]
    mine, theirs = (
        bytes_of(anatomy, dict.fromkeys(cut for cuts in plans for cut in cuts[place]))
        for place, anatomy in enumerate((pair.a, pair.b))
    )
    return f"{pair.b.checkpoint.id} with {side.upper()}: {mine:,} + {theirs:,} bytes"


def compare_pair(
    pair: Pair,
    began: float,
    progress: Progress = no_progress,
    journal: Journal = Journal(None),
    candidates: Further = (),
) -> Comparison:
    """The same for two models that are open already."""
    arrays: tuple[Arrays, Arrays] = ({}, {})
    room = Room.of(pair.a, pair.b, limited=pair.budget != "full")
    found = _ask_stages(pair, QUICK_STAGES, arrays, progress)
    quick = _sides(pair, (dict(arrays[0]), dict(arrays[1])))
    kept = keep(*quick)
    found.insert(0, same_weights(pair, rows_alike(*quick), journal, progress))
    reads, same = Reads(), _is_same(found[0])
    if pair.budget != "quick":
        found += _ask_stages(pair, later_stages(), arrays, progress, _spared(found))
        reads = _later_reads(arrays, kept)
    if pair.budget == "full" and not same:
        found_map = next((answer for answer in found if answer.question == LAYER_MAP.id), None)
        answer, more = ask_every_neuron(pair, found_map, planned(LAYER_MAP, pair), journal, progress)
        found.append(answer)
        reads = Reads(a=(*reads.a, *more.a), b=(*reads.b, *more.b))
    tokenizers = None
    if pair.budget != "quick" and not same:
        found.insert(1, compare_tensors(pair, *_sides(pair, arrays), journal, progress))
        tokenizers = tokenizers_of(pair)
    if pair.budget != "quick" and not same:
        found += [rearranged(*_sides(pair, arrays)), compared_parts(pair, found, _roles_read(arrays, reads))]
    late = noted(pair.a), noted(pair.b)
    lengthy = Pair(*late, pair.seed, pair.budget)
    seen = unmask(lengthy, found, room, progress) if pair.budget != "quick" and not same else Unmasked()
    found += [] if seen.answer is None else [seen.answer]
    _something_asked(pair, found)
    answers = adjusted(found)
    parties = [party(anatomy, pair.budget) for anatomy in (pair.a, pair.b)]
    verdict, relation = _judged(lengthy, answers, seen, candidates, room, progress)
    made = Comparison(
        modelkin=__version__,
        policy=POLICY,
        seed=pair.seed,
        budget=pair.budget,
        a=parties[0],
        b=parties[1],
        verdict=verdict,
        answers=answers,
        alignment=seen.told,
        relation=relation,
        not_evidence=(
            *not_evidence(*quick, pair.a.checkpoint.config, pair.b.checkpoint.config, tokenizers),
            *seen.not_evidence,
        ),
        tokenizers=tokenizers,
        rows=kept,
        reads=_with_further(reads, late),
        cost=cost(pair, time.perf_counter() - began),
    )
    return sealed(with_claims_weighed(made))


def _judged(
    pair: Pair, answers: tuple[Answer, ...], seen: Unmasked, candidates: Further, room: Room, progress: Progress
) -> tuple[Verdict, Relation | None]:
    """The verdict, and once that is `related` what the whole of both models says to it."""
    depths = tuple(len(anatomy.layers) or None for anatomy in (pair.a, pair.b))
    verdict = judge(answers, depths=(depths[0], depths[1]), budget=pair.budget, alignment=seen.told)
    relation = descent(pair, verdict, seen.alignment, candidates, room, progress)
    if relation is None:
        return verdict, None
    told = judge(answers, depths=(depths[0], depths[1]), budget=pair.budget, alignment=seen.told, relation=relation)
    return told, relation


def _with_further(reads: Reads, late: Late) -> Reads:
    """With what was read at length; each range once."""
    a, b = ({read.cut: read for read in early} for early in (reads.a, reads.b))
    return Reads(a=tuple((late[0].reads | a).values()), b=tuple((late[1].reads | b).values()))


def _roles_read(arrays: tuple[Arrays, Arrays], reads: Reads) -> set[Role]:
    """Of which something was read of both models."""
    a, b = (
        {*(cut.slot.role for cut in have), *(read.cut.slot.role for read in more)}
        for have, more in zip(arrays, (reads.a, reads.b), strict=True)
    )
    return a & b


def _is_same(identity: Answer) -> bool:
    return isinstance(identity, Evidence) and identity.effect == 1


def _spared(found: Sequence[Answer]) -> dict[str, str]:
    """Early stopping: the later questions that can add nothing to what was found, each with the reason."""
    if _is_same(found[0]):
        return {question.id: "the files of weights are the same to the byte" for question in QUESTIONS}
    if tally(found).rejects(NEURONS.id):
        return {POOLED.id: "neurons were recognised one by one, so how alike they are on the whole adds nothing"}
    return {}


def _something_asked(pair: Pair, found: Sequence[Answer]) -> None:
    """That two files or tensors differ is no answer: rows must have been compared, or something be the same."""
    given = [answer for answer in found if isinstance(answer, Evidence) and answer.index_set != "none"]
    if any(answer.index_set not in ("files", "tensors") or answer.statistic for answer in given):
        return
    reasons = "; ".join(dict.fromkeys(a.unanswered for a in found if isinstance(a, Unanswered)))
    more = "--budget standard looks for equal tensors too, whatever their names" if pair.budget == "quick" else ""
    raise NothingComparable(f"nothing could be asked of this pair: {reasons}", where=pair.b.checkpoint.id, hint=more)


def _rungs(pair: Pair) -> list[tuple[int, ...]]:
    return [QUICK_STAGES] if pair.budget == "quick" else [QUICK_STAGES, later_stages()]


def later_stages() -> tuple[int, ...]:
    return tuple(sorted({question.stage for question in QUESTIONS} - set(QUICK_STAGES)))


def _later_reads(arrays: tuple[Arrays, Arrays], kept: KeptRows) -> Reads:
    """Digests of what was read beyond the rows that the record keeps."""
    a, b = ({part.cut for part in side} for side in (kept.a, kept.b))
    return Reads(
        a=digests({cut: array for cut, array in arrays[0].items() if cut not in a}),
        b=digests({cut: array for cut, array in arrays[1].items() if cut not in b}),
    )


def _ask_stages(
    pair: Pair,
    stages: Iterable[int],
    arrays: tuple[Arrays, Arrays],
    progress: Progress,
    spared: Mapping[str, str] = MappingProxyType({}),
) -> list[Answer]:
    """Everything these questions need in one batch a model; then their answers, in the order of the table."""
    asked = [question for question in QUESTIONS if question.stage in stages]
    wanted = {
        question.id: Unanswered(question.id, spared[question.id]) if question.id in spared else planned(question, pair)
        for question in asked
    }
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
