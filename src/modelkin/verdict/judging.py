"""The table of outcomes, from top to bottom: the first row that fits decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from modelkin.records import Answer, Evidence, Json, Kind, KindShare, Relation, Verdict
from modelkin.stats import holm
from modelkin.verdict import words
from modelkin.verdict.depth import depth_kind, layer_map, layers_apart
from modelkin.verdict.policy import (
    ALPHA,
    CLEAR_GAINS,
    EMBEDDINGS,
    EVERY_NEURON,
    FLOORS,
    GAINS,
    IDENTITY,
    LARGEST_DETECTABLE,
    LEAST_COMPARED,
    LEAST_RECOGNISED,
    LOCATING,
    NEARLY_SAME,
    SETS_NEEDED,
    Tally,
    as_pvalue,
    log10_adjusted,
    meets_floor,
    tally,
)
from modelkin.verdict.telling import told

Depths = tuple[int | None, int | None]


def judge(
    answers: Sequence[Answer],
    *,
    identical: bool = False,
    depths: Depths = (None, None),
    budget: Literal["quick", "standard", "full"] = "standard",
    alignment: Json | None = None,
    relation: Relation | None = None,
) -> Verdict:
    """What the policy makes of the answers.

    `identical`: every tensor of a is byte for byte one of b, and the other way round; the identity question can say
    so itself. `depths`: layers of a and of b. `budget`: how much was read, for `quick` never clears anybody.
    `alignment`: the record's, where stage 5 was asked. `relation`: what was told of the pair once it was known to be
    one; it names what was done and who came first, and never makes or unmakes a relation.
    """
    found = tally(answers)
    undone = tuple((alignment or {}).get("undone", ()))
    verdict = _by_table(found, depths, budget, identical, alignment or {})
    if verdict.outcome == "related" and found.is_recognised:
        verdict = _with_better_map(verdict, tuple((b, a) for b, a in (alignment or {}).get("layer_map", ())))
    return verdict if relation is None or verdict.outcome != "related" else told(verdict, found, undone, relation)


def _by_table(found: Tally, depths: Depths, budget: str, identical: bool, alignment: Json) -> Verdict:
    if identical or _is_identical(found):
        return _related(found, words.IDENTICAL, ("identical",))
    if found.is_recognised and (alignment.get("undone") or not found.rejecting):
        return _recognised(found, alignment)
    if found.tainted and len(found.sets) < SETS_NEEDED and found.byte_equal is None:
        return _undecided(found, words.TAINTED, words.tainted_reasons(found.tainted))
    if found.rejecting:
        return _beyond_chance(found, depth_kind(found.rejecting, depths))
    if found.byte_equal is not None:
        return _related(found, words.byte_equal(found), ("component-reuse",))
    return _nothing_found(found, budget == "quick")


def _is_identical(found: Tally) -> bool:
    """All files are the same; or all tensors, in their places, under whatever names."""
    same = found.byte_equal
    return same is not None and (same.statistic == same.n if same.question == IDENTITY else same.effect == 1)


def _beyond_chance(found: Tally, depth: Kind | None) -> Verdict:
    more: tuple[Kind, ...] = (depth,) if depth else ()
    if found.has_moved_gains and not _is_part(found):  # then what does not agree as it stands agrees all the same
        return _related(found, words.related(), more or ("undetermined",))
    if found.byte_equal is not None and len(found.sets) < SETS_NEEDED:
        return _related(found, words.byte_equal(found), ("component-reuse", *more))
    if found.sets == ("hidden axes",):
        return _related(found, words.hidden_axes_alone(found), ("component-reuse", *more))
    if not any(meets_floor(answer) for answer in found.rejecting):
        return _faint(found, more)
    if found.is_quiet(GAINS):
        return _rows_without_constants(found, more)
    if len(found.sets) < SETS_NEEDED:
        return _related(found, words.one_set(found), ("component-reuse", *more))
    clear = any(answer.question == GAINS and (answer.effect or 0.0) >= CLEAR_GAINS for answer in found.rejecting)
    return _related(found, words.related() if clear else words.RELATED_OR_START, more or ("undetermined",))


def _recognised(found: Tally, alignment: Json) -> Verdict:
    """Stage 5: the neurons of one are those of the other, rearranged or in another shape."""
    undone = tuple(alignment.get("undone", ()))
    part: tuple[Kind, ...] = ("component-reuse",) if _is_part(found) else ()
    kinds: tuple[Kind, ...] = (*(("obfuscated",) if undone else ()), *part)
    return _related(found, words.turned(found, undone), kinds or ("undetermined",))


def _is_part(found: Tally) -> bool:
    """Whether stage 5 recognised so few neurons that they are a part, and not the whole."""
    return found.unmasked is not None and (found.unmasked.effect or 0.0) < LEAST_RECOGNISED


def _with_better_map(verdict: Verdict, layers: tuple[tuple[str, str | None], ...]) -> Verdict:
    """What was put back in its place may match where nothing did in its own."""

    def matched(pairs: tuple[tuple[str, str | None], ...]) -> int:
        return sum(a is not None for _, a in pairs)

    return msgspec.structs.replace(verdict, layer_map=max(verdict.layer_map, layers, key=matched))


def _faint(found: Tally, more: tuple[Kind, ...]) -> Verdict:
    """Rows that agree beyond chance and hardly more: a part, where one can point at it or only one set agrees."""
    places = _places(found)
    if len(found.sets) < SETS_NEEDED and found.sets != ("neurons",):
        return _related(found, words.one_set(found), ("component-reuse", *more))
    if places or len(found.sets) < SETS_NEEDED:
        return _related(found, words.small_part(found, located(found.rejecting)), ("component-reuse", *more))
    return _undecided(found, words.FAINT, words.found_reasons(found.rejecting))


def _rows_without_constants(found: Tally, more: tuple[Kind, ...]) -> Verdict:
    """Rows agree, and what starts at one or zero does not: the same random start, unless a part was taken over.

    A part it is where the rows have hardly changed, where whole layers have no partner in either model, or where other
    rows were asked and do not agree.
    """
    if found.has_moved_gains:
        return _related(found, words.related(), more or ("undetermined",))
    if kept := _matched_in_part(found, more):
        return _related(found, words.some_layers(found, kept), ("component-reuse", *more))
    if _is_nearly_same(found):
        return _related(found, words.taken_over(found), ("component-reuse", *more))
    if len(found.sets) < SETS_NEEDED and (found.sets != ("neurons",) or not _agrees_everywhere(found)):
        return _related(found, words.one_set(found), ("component-reuse", *more))
    return _related(found, words.SHARED_INIT, ("shared-init", *more))


def _is_nearly_same(found: Tally) -> bool:
    """Training apart leaves neither rows nearly as they were, nor most numbers exactly so."""
    rows = [answer for answer in found.rejecting if answer.question in FLOORS and answer.question != EMBEDDINGS]
    return found.is_mostly_equal or any((answer.effect or 0.0) >= NEARLY_SAME for answer in rows)


def _agrees_everywhere(found: Tally) -> bool:
    """One set rejects: no other rows that were asked stay quiet, nor a layer of it."""
    others = any(answer.question in FLOORS and answer.index_set not in found.sets for answer in found.quiet)
    layers = [finding for answer in found.rejecting for finding in answer.per_layer if finding.log10_pvalue is not None]
    aligned = bool(layer_map(found.rejecting))  # then layers need not agree with those that face them by number
    return not others and (aligned or all((f.log10_pvalue or 0.0) <= math.log10(0.05) for f in layers))


def _places(found: Tally) -> tuple[str, ...]:
    """Layers of b whose rows reject alone: a small likeness counts where one can point at it."""
    findings = [finding for answer in found.rejecting if answer.question in FLOORS for finding in answer.per_layer]
    alone = (f.b or f.a for f in findings if f.log10_pvalue is not None and f.log10_pvalue <= math.log10(ALPHA))
    return tuple(dict.fromkeys(alone))


def located(rejecting: Sequence[Evidence]) -> tuple[str, ...]:
    """Layers of b that hold more than chance allows, of answers that reject as a whole."""
    names = []
    for answer in rejecting:
        known = [(f.b or f.a, f.log10_pvalue) for f in answer.per_layer if f.log10_pvalue is not None]
        adjusted = holm([log10 for _, log10 in known]) if answer.question in FLOORS else ()
        names += [name for (name, _), log10 in zip(known, adjusted, strict=False) if log10 <= math.log10(LOCATING)]
    return tuple(dict.fromkeys(names))


def _matched_in_part(found: Tally, depth: tuple[Kind, ...]) -> tuple[str, ...]:
    """The layers of b that match layers of a, where others come near none: then they were taken, not inherited.

    Where the models differ in depth, as many as half may be new.
    """
    pairs, apart = layer_map(found.rejecting), layers_apart(found.rejecting)
    allowed = len(pairs) / 2 if depth else 0
    return () if len(apart) <= allowed else tuple(b for b, a in pairs if a is not None)


def _nothing_found(found: Tally, quick: bool) -> Verdict:
    if not found.answered:
        return _undecided(found, words.NOTHING_ASKED, ())
    reasons = (*words.quiet_reasons(found), words.power_reason(found.detectable))
    missing = words.not_compared(found.coverage)
    if found.gauge is not None:
        return _undecided(
            found, words.rearranged(found.gauge), (*words.found_reasons((found.gauge,)), *reasons), missing
        )
    sentence = _why_not_cleared(found, quick)
    if sentence is not None:
        return _undecided(found, sentence, reasons, missing)
    few = () if found.is_quiet(EVERY_NEURON) else (words.FEW_NEURONS,)
    return Verdict(
        outcome="unrelated",
        grade=None,
        pvalue=None,
        log10_pvalue=None,
        sentence=words.UNRELATED if found.unmasked is None else words.UNRELATED_UNMASKED,
        reasons=reasons,
        limits=(*missing, *words.not_looked_for(found), *few, *words.LIMITS[1:]),
    )


def _why_not_cleared(found: Tally, quick: bool) -> str | None:
    if quick:
        return words.QUICK
    if found.constant_gains:
        return words.CONSTANT
    if found.is_between:
        return words.BETWEEN
    seen = found.detectable is not None and found.detectable <= LARGEST_DETECTABLE
    if len(found.quiet_sets) < SETS_NEEDED or not seen:
        return words.TOO_LITTLE
    if found.coverage is not None and found.coverage.statistic < LEAST_COMPARED:
        return words.OUT_OF_SIGHT
    return None


def _related(found: Tally, sentence: str, kinds: tuple[Kind, ...]) -> Verdict:
    # There is no chance in equal bytes, whatever the rows show too.
    counted = () if "identical" in kinds else found.rejecting
    log10 = min((log10_adjusted(answer) for answer in counted), default=None)
    grade: Literal["A", "B"] = "A"
    seen = (found.unmasked,) if found.unmasked is not None and found.is_recognised else ()
    if seen and log10 is None and found.byte_equal is None:
        grade, log10 = "B", log10_adjusted(seen[0])
    bytes_too = (found.byte_equal,) if found.byte_equal is not None else ()
    return Verdict(
        outcome="related",
        grade=grade,
        pvalue=None if log10 is None else as_pvalue(log10),
        log10_pvalue=log10,
        kinds=tuple(KindShare(kind, None) for kind in kinds),
        layer_map=layer_map(found.rejecting),
        sentence=sentence,
        reasons=(*words.found_reasons((*found.rejecting, *bytes_too, *seen)), *words.tainted_reasons(found.tainted)),
        limits=(*words.LIMITS, *words.limits_of(kinds)),
    )


def _undecided(found: Tally, sentence: str, reasons: tuple[str, ...], missing: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        outcome="undecided",
        grade=None,
        pvalue=None,
        log10_pvalue=None,
        sentence=sentence,
        reasons=reasons,
        limits=(*missing, *words.not_looked_for(found), words.FEW_NEURONS, *words.LIMITS),
    )
