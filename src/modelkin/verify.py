"""A comparison checked: quick answers given again from the kept rows, the verdict drawn again from all answers.

`verify` needs neither network nor models. It recomputes what the record itself can show, and its seal shows that the
rest was not altered by somebody who did not think of the seal. `verify_fetched` opens both models again, reads what was
read and compares everything: the numbers that were read by their digests first, for where these differ the answers may.
"""

from __future__ import annotations

import codecs
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from modelkin.compare import CompareOptions, ask, compare_pair, open_further, open_pair
from modelkin.errors import ModelkinError, NotFound, NothingComparable, UnreadableError
from modelkin.questions import QUESTIONS, QUICK_STAGES, not_evidence
from modelkin.questions.folded import MEASURE as FOLDED
from modelkin.questions.identity import QUESTION as IDENTITY
from modelkin.questions.identity import SAME_PLACE, Weights, contradicting_row, rows_alike, same_files
from modelkin.records import (
    Answer,
    Beside,
    Comparison,
    Cut,
    Evidence,
    KeptRows,
    NotEvidence,
    Party,
    Portrait,
    ReadDigest,
    Survey,
    Unanswered,
)
from modelkin.records.comparison import seal
from modelkin.sampling.readings import Readings, sealed, unpack
from modelkin.sources import ReadOptions
from modelkin.sources.protocol import Progress, no_progress
from modelkin.verdict import POLICY, adjusted, judge
from modelkin.verdict.policy import tally

TOLERANCE = 1e-9  # relative: another processor may round another way
LARGEST_FILE = 64 << 20
SCHEMA, SURVEY = "modelkin.comparison/1", "modelkin.survey/1"
NOUNS = {"Comparison": "comparison", "Survey": "survey"}
LAYER = re.compile(r"([A-Za-z_]+\.)?[0-9]{1,6}")
SEAL = "sha256"
Record = TypeVar("Record", bound=msgspec.Struct)
OF_MODELS = ("config.json", FOLDED)  # measures that the record does not hold everything for


class Difference(msgspec.Struct, frozen=True):
    """`where` is a path into the record."""

    where: str
    stored: str
    recomputed: str


def read_comparison(path: Path) -> Comparison:
    """From a file that `compare --json` wrote."""
    hint = "give the file that `modelkin compare --json` wrote"
    record = _decoded(_body(path, hint), Comparison, path, hint)
    if record.schema != SCHEMA:
        raise UnreadableError(f"has the schema {record.schema!r}, not {SCHEMA!r}", where=str(path), hint=hint)
    return record


def read_record(path: Path) -> Comparison | Survey:
    """From a file that `compare --json` or `survey --json` wrote."""
    hint = "give the file that `modelkin compare --json` or `modelkin survey --json` wrote"
    body = _body(path, hint)
    schema = _decoded(body, _Named, path, hint).schema
    if schema == SURVEY:
        return _decoded(body, Survey, path, hint)
    if schema == SCHEMA:
        return _decoded(body, Comparison, path, hint)
    raise UnreadableError(f"has the schema {schema!r}, not {SCHEMA!r} or {SURVEY!r}", where=str(path), hint=hint)


class _Named(msgspec.Struct):
    schema: str


def _body(path: Path, hint: str) -> bytes:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UnreadableError(f"is larger than {LARGEST_FILE >> 20} MB", where=str(path), hint=hint)
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)  # some editors put it there
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", where=str(path)) from error


def _decoded(body: bytes, kind: type[Record], path: Path, hint: str) -> Record:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        noun = NOUNS.get(kind.__name__, "record of ours")
        raise UnreadableError(f"is no {noun}: {error}", where=str(path), hint=hint) from error


def verify(comparison: Comparison) -> tuple[Difference, ...]:
    """What does not come out again; nothing if all does."""
    rows = _checked(comparison)
    try:
        return tuple(_offline(comparison, rows))
    except UnreadableError:
        raise
    except (ModelkinError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        # The record comes from anybody: rows that no model has must end in a sentence, wherever they are noticed.
        raise UnreadableError(f"nothing can be worked out from its rows: {error}", where="rows") from error


def check_verdict(comparison: Comparison, where: str) -> None:
    """An error unless the verdict is the one that its own answers lead to; by another policy nobody can say."""
    if comparison.policy != POLICY:
        return
    try:
        found = next(_verdict_again(comparison), None)
    except (ModelkinError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UnreadableError(f"no verdict can be drawn from its answers: {error}", where=where) from error
    if found is not None:
        raise UnreadableError(
            f"the record contradicts itself: {found.where} is {found.stored}, and its answers lead to "
            f"{found.recomputed}",
            where=where,
            hint="ask for the file as modelkin wrote it; modelkin verify shows all that does not come out again",
        )


def not_recomputed(comparison: Comparison) -> tuple[str, ...]:
    """The questions whose answers need the models again."""
    given = [answer.question for answer in comparison.answers if isinstance(answer, Evidence)]
    return tuple(question for question in given if question not in {*_quick_questions(), IDENTITY})


def verify_fetched(
    comparison: Comparison, reading: ReadOptions = ReadOptions(), progress: Progress = no_progress
) -> tuple[Difference, ...]:
    """The same, and everything that the models must be opened for, at the revisions of the record."""
    offline = verify(comparison)
    further = tuple(dict.fromkeys(_address(row) for row in comparison.candidates))
    options = CompareOptions(comparison.budget, comparison.seed, reading, candidates=further)
    with (
        open_pair(_address(comparison.a), _address(comparison.b), options, progress) as pair,
        open_further(options, progress) as (_, candidates),
    ):
        again = compare_pair(pair, time.perf_counter(), progress, candidates=candidates)
    found = [
        *_of_party("a", comparison.a, again.a),
        *_of_party("b", comparison.b, again.b),
        *_of_rows(comparison.rows, again.rows),
        *_of_reads("a", comparison.reads.a, again.reads.a),
        *_of_reads("b", comparison.reads.b, again.reads.b),
        *_of_answers(comparison.answers, again.answers),
        *differences("not_evidence", comparison.not_evidence, again.not_evidence),
        *differences("tokenizers", comparison.tokenizers, again.tokenizers),
        *differences("alignment", comparison.alignment, again.alignment),
        *differences("relation", comparison.relation, again.relation),
        *differences("verdict", comparison.verdict, again.verdict),
    ]
    told = {difference.where for difference in found}
    return (*found, *(difference for difference in offline if difference.where not in told))


def differences(where: str, stored: Any, again: Any) -> Iterator[Difference]:
    """Numbers to TOLERANCE, everything else exactly."""
    yield from _between(where, msgspec.to_builtins(stored), msgspec.to_builtins(again))


# Without the models.


def _checked(comparison: Comparison) -> KeptRows:
    """The kept rows, if they are such as could be asked."""
    if comparison.policy != POLICY:
        raise NothingComparable(
            f"the record was judged by policy {comparison.policy!r}, this version has {POLICY}", where="policy"
        )
    if comparison.rows is None:
        raise UnreadableError("the record keeps no rows to recompute from", where="rows")
    for portrait in (comparison.rows.portrait_a, comparison.rows.portrait_b):
        _check_layers(portrait)
    names = [answer.question for answer in comparison.answers]
    if len(set(names)) < len(names):
        raise UnreadableError("a question is answered twice", where="answers")
    return comparison.rows


def _check_layers(portrait: Portrait) -> None:
    strange = next((name for name in portrait.layers if not LAYER.fullmatch(name)), None)
    if strange is not None:
        raise UnreadableError(f"{strange[:40]!r} is no name of a layer", where="rows")
    if len(set(portrait.layers)) < len(portrait.layers):
        raise UnreadableError("a layer is named twice", where="rows")


def _offline(comparison: Comparison, rows: KeptRows) -> Iterator[Difference]:
    a, b = Readings(rows.portrait_a, unpack(rows.a)), Readings(rows.portrait_b, unpack(rows.b))
    yield from differences(SEAL, comparison.sha256, seal(comparison))
    yield from differences("rows.sha256", rows.sha256, sealed(rows).sha256)
    yield from _portrayed("a", comparison.a, rows.portrait_a)
    yield from _portrayed("b", comparison.b, rows.portrait_b)
    stored = {answer.question: answer for answer in comparison.answers}
    identity = _identity_again(comparison, stored.get(IDENTITY), rows_alike(a, b))
    yield from differences(f"answers.{IDENTITY}", stored.get(IDENTITY), identity)
    yield from _contradicted(comparison, identity, a, b)
    for question in (question for question in QUESTIONS if question.stage in QUICK_STAGES):
        (again,) = adjusted([ask(question, a, b, comparison.seed)])
        if not _both_unanswered(stored.get(question.id), again):
            yield from differences(f"answers.{question.id}", stored.get(question.id), again)
    yield from _adjusted_again(comparison)
    yield from _measured_again(comparison, a, b)
    yield from _verdict_again(comparison)


def _verdict_again(comparison: Comparison) -> Iterator[Difference]:
    verdict = judge(
        comparison.answers,
        depths=(comparison.a.layers, comparison.b.layers),
        budget=comparison.budget,
        alignment=comparison.alignment,
        relation=comparison.relation,
    )
    yield from differences("verdict", comparison.verdict, verdict)


def _both_unanswered(stored: Answer | None, again: Answer) -> bool:
    """What could not be asked by the headers has another reason by its rows, which were not read. Either will do.

    But for gains that are constant, which the verdict takes notice of.
    """
    if not (isinstance(stored, Unanswered) and isinstance(again, Unanswered)):
        return False
    return tally([stored]).constant_gains == tally([again]).constant_gains


def _portrayed(side: str, party: Party, portrait: Portrait) -> Iterator[Difference]:
    """What a party says of its model must be what its questions were asked by."""
    yield from differences(f"{side}.hidden", party.hidden, portrait.hidden)
    yield from differences(f"{side}.layers", party.layers, len(portrait.layers) or None)
    sizes = {fact.name: fact.size for fact in party.files}
    for name in (name for name in party.weights if name not in sizes):
        yield Difference(f"{side}.weights", repr(name), "no file of this name")


def _contradicted(comparison: Comparison, identity: Answer, a: Readings, b: Readings) -> Iterator[Difference]:
    """Equal hashes stand for equal bytes, so that neither sizes nor kept rows can differ."""
    sizes: dict[str, int] = {}
    for fact in (fact for party in (comparison.a, comparison.b) for fact in party.files if fact.sha256):
        known = sizes.setdefault(fact.sha256 or "", fact.size)
        if known != fact.size:
            yield Difference(f"files.{fact.name}.size", f"{known:,} and {fact.size:,} bytes", "one sha256 has one size")
    if isinstance(identity, Evidence) and identity.effect == 1:
        cut = contradicting_row(a, b)
        if cut is not None:
            yield Difference(f"answers.{IDENTITY}", identity.observed, f"the kept rows differ: {cut}")


def _identity_again(comparison: Comparison, stored: Answer | None, alike: bool | None) -> Answer:
    """From the hashes of the files. That two paths led to one place is believed where nothing contradicts it."""
    a, b = _weights(comparison.a), _weights(comparison.b)
    claimed = isinstance(stored, Evidence) and SAME_PLACE in stored.assumptions
    same_sizes = [fact.size for fact in a] == [fact.size for fact in b]
    return same_files(a, b, alike, one_place=claimed and alike is not False and same_sizes)


def _weights(party: Party) -> Weights:
    return [fact for fact in party.files if fact.name in party.weights]


def _quick_questions() -> set[str]:
    return {question.id for question in QUESTIONS if question.stage in QUICK_STAGES}


def _adjusted_again(comparison: Comparison) -> Iterator[Difference]:
    """Answers that need the models must at least agree with themselves: p, its logarithm, its share of the budget."""
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    for answer in (answer for answer in given if answer.question not in _quick_questions()):
        where = f"answers.{answer.question}"
        (again,) = adjusted([msgspec.structs.replace(answer, adjusted_pvalue=None)])
        if isinstance(again, Evidence):
            yield from differences(f"{where}.adjusted_pvalue", answer.adjusted_pvalue, again.adjusted_pvalue)
        if answer.log10_pvalue is not None:
            value = max(10.0 ** min(0.0, max(answer.log10_pvalue, -400.0)), 5e-324)
            yield from differences(f"{where}.pvalue", answer.pvalue, value)


def _measured_again(comparison: Comparison, a: Readings, b: Readings) -> Iterator[Difference]:
    """Every number that is no evidence, but for those that need the models."""
    again = {entry.measure: entry for entry in not_evidence(a, b, {}, {}, comparison.tokenizers)}
    stored = {entry.measure: entry for entry in comparison.not_evidence if not _needs_models(entry)}
    for measure in {**stored, **again}:
        yield from differences(f"not_evidence.{measure}", stored.get(measure), again.get(measure))


def _needs_models(entry: NotEvidence) -> bool:
    return any(part in entry.measure for part in OF_MODELS)


# With them.


def _address(party: Party | Beside) -> str:
    return party.id if party.revision is None else f"hf://{party.id}@{party.revision}"


def _of_party(side: str, stored: Party, again: Party) -> Iterator[Difference]:
    """What the model is; of its files those that another reading of the same folder can be compared by."""
    for field in ("format", "parameters", "layers", "hidden", "vocabulary", "revision"):
        yield from differences(f"{side}.{field}", getattr(stored, field), getattr(again, field))
    files = {fact.name: fact for fact in again.files}
    for fact in stored.files:
        other = files.get(fact.name)
        yield from differences(f"{side}.files.{fact.name}.size", fact.size, other and other.size)
        if fact.sha256 and other and other.sha256:
            yield from differences(f"{side}.files.{fact.name}.sha256", fact.sha256, other.sha256)


def _of_rows(stored: KeptRows | None, again: KeptRows | None) -> Iterator[Difference]:
    if stored is None or again is None:
        return
    yield from differences("rows.portrait_a", stored.portrait_a, again.portrait_a)
    yield from differences("rows.portrait_b", stored.portrait_b, again.portrait_b)
    for side, mine, theirs in (("a", stored.a, again.a), ("b", stored.b, again.b)):
        yield from _of_ranges(f"rows.{side}", {p.cut: p for p in mine}, {p.cut: p for p in theirs})


def _of_reads(side: str, stored: Iterable[ReadDigest], again: Iterable[ReadDigest]) -> Iterator[Difference]:
    yield from _of_ranges(f"reads.{side}", {read.cut: read for read in stored}, {read.cut: read for read in again})


def _of_ranges(where: str, stored: Mapping[Cut, Any], again: Mapping[Cut, Any]) -> Iterator[Difference]:
    """One line a range, whatever it is that differs in it."""
    for cut in {**stored, **again}:
        mine, theirs = stored.get(cut), again.get(cut)
        if mine != theirs:
            yield Difference(f"{where}: {cut}", _known(mine), _known(theirs))


def _known(range_read: Any) -> str:
    if range_read is None:
        return "not read"
    return f"sha256 {range_read.sha256[:12]}" if isinstance(range_read, ReadDigest) else "other numbers"


def _of_answers(stored: Iterable[Answer], again: Iterable[Answer]) -> Iterator[Difference]:
    mine, theirs = ({answer.question: answer for answer in answers} for answers in (stored, again))
    for question in {**mine, **theirs}:
        yield from differences(f"answers.{question}", mine.get(question), theirs.get(question))


# Two values.


def _between(where: str, stored: Any, again: Any) -> Iterator[Difference]:
    if isinstance(stored, dict) and isinstance(again, dict) and stored.keys() == again.keys():
        for key in stored:
            yield from _between(f"{where}.{key}", stored[key], again[key])
    elif isinstance(stored, list | tuple) and isinstance(again, list | tuple) and len(stored) == len(again):
        for i, (mine, theirs) in enumerate(zip(stored, again, strict=True)):
            yield from _between(f"{where}[{i}]", mine, theirs)
    elif not _equal(stored, again):
        yield Difference(where, _short(stored), _short(again))


def _equal(stored: Any, again: Any) -> bool:
    if isinstance(stored, float) and isinstance(again, float):
        return math.isclose(stored, again, rel_tol=TOLERANCE, abs_tol=1e-300)
    return type(stored) is type(again) and bool(stored == again)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
