"""The table of outcomes, from top to bottom: the first row that fits decides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modelkin.records import Answer, Kind, KindShare, Verdict
from modelkin.verdict import words
from modelkin.verdict.depth import depth_kind, layer_map
from modelkin.verdict.policy import (
    ALPHA,
    EMBEDDINGS,
    EVERY_NEURON,
    FLOORS,
    GAINS,
    IDENTITY,
    LARGEST_DETECTABLE,
    SETS_NEEDED,
    Tally,
    as_pvalue,
    log10_adjusted,
    meets_floor,
    tally,
)

Depths = tuple[int | None, int | None]


def judge(answers: Sequence[Answer], *, identical: bool = False, depths: Depths = (None, None)) -> Verdict:
    """What the policy makes of the answers.

    `identical`: every tensor of a is byte for byte one of b, and the other way round; the identity question can say
    so itself. `depths`: layers of a and of b.
    """
    found = tally(answers)
    if identical or _is_identical(found):
        return _related(found, words.IDENTICAL, ("identical",))
    if found.tainted and len(found.sets) < SETS_NEEDED and found.byte_equal is None:
        return _undecided(words.TAINTED, words.tainted_reasons(found.tainted))
    if found.rejecting:
        return _beyond_chance(found, depth_kind(found.rejecting, depths))
    if found.byte_equal is not None:
        return _related(found, words.byte_equal(found), ("component-reuse",))
    return _nothing_found(found)


def _is_identical(found: Tally) -> bool:
    """All files are the same; or all tensors, in their places, under whatever names."""
    same = found.byte_equal
    return same is not None and (same.statistic == same.n if same.question == IDENTITY else same.effect == 1)


def _beyond_chance(found: Tally, depth: Kind | None) -> Verdict:
    more: tuple[Kind, ...] = (depth,) if depth else ()
    if depth is None and _is_shared_init(found):
        return _related(found, words.SHARED_INIT, ("shared-init",))
    if found.byte_equal is not None and len(found.sets) < SETS_NEEDED:
        return _related(found, words.byte_equal(found), ("component-reuse", *more))
    if found.sets == ("hidden axes",):
        return _related(found, words.hidden_axes_alone(found), ("component-reuse", *more))
    if len(found.sets) < SETS_NEEDED:
        faint = found.sets == ("neurons",) and not any(meets_floor(answer) for answer in found.rejecting)
        sentence = words.small_part(found, _places(found)) if faint else words.one_set(found)
        return _related(found, sentence, ("component-reuse", *more))
    if found.is_quiet(GAINS) and (few := _few_layers(found)):
        return _related(found, words.small_part(found, few), ("component-reuse", *more))
    if any(meets_floor(answer) for answer in found.rejecting):
        return _related(found, words.RELATED, more or ("undetermined",))
    places = _places(found)
    if places:
        return _related(found, words.small_part(found, places), ("component-reuse", *more))
    return _undecided(words.FAINT, words.found_reasons(found.rejecting))


def _is_shared_init(found: Tally) -> bool:
    """Rows agree wherever they were compared, and what starts at one or zero does not.

    Embeddings alone, some layers alone, or a few neurons of each are a part that was reused, not an initialisation.
    Nor does training apart leave most numbers as they were.
    """
    if found.byte_equal is not None and found.byte_equal.statistic > found.byte_equal.n / 2:
        return False
    neurons = [answer for answer in found.rejecting if answer.index_set == "neurons"]
    layers = [finding for answer in neurons for finding in answer.per_layer if finding.log10_pvalue is not None]
    everywhere = all((finding.log10_pvalue or 0.0) <= math.log10(0.05) for finding in layers)
    enough = any(meets_floor(answer) for answer in neurons)
    return found.is_quiet(GAINS) and enough and everywhere and not found.is_quiet(EMBEDDINGS)


def _places(found: Tally) -> tuple[str, ...]:
    """Layers of b whose rows reject alone: a small likeness counts where one can point at it."""
    findings = [finding for answer in found.rejecting if answer.question in FLOORS for finding in answer.per_layer]
    alone = (f.b or f.a for f in findings if f.log10_pvalue is not None and f.log10_pvalue <= math.log10(ALPHA))
    return tuple(dict.fromkeys(alone))


def _few_layers(found: Tally) -> tuple[str, ...]:
    """The layers of b that continue layers of a, where that is a minority: then they were taken, not inherited."""
    pairs = layer_map(found.rejecting)
    kept = tuple(b for b, a in pairs if a is not None)
    return kept if len(kept) < len(pairs) / 2 else ()


def _nothing_found(found: Tally) -> Verdict:
    if not found.answered:
        return _undecided(words.NOTHING_ASKED, ())
    reasons = (*words.quiet_reasons(found), words.power_reason(found.detectable))
    if found.constant_gains:
        return _undecided(words.CONSTANT, reasons)
    seen = found.detectable is not None and found.detectable <= LARGEST_DETECTABLE
    if len(found.quiet_sets) < SETS_NEEDED or not seen:
        return _undecided(words.TOO_LITTLE, reasons)
    few = () if found.is_quiet(EVERY_NEURON) else (words.FEW_NEURONS,)
    limits = (*words.NOT_LOOKED_FOR, *few, *words.LIMITS[1:])
    return Verdict(
        outcome="unrelated",
        grade=None,
        pvalue=None,
        log10_pvalue=None,
        sentence=words.UNRELATED,
        reasons=reasons,
        limits=limits,
    )


def _related(found: Tally, sentence: str, kinds: tuple[Kind, ...]) -> Verdict:
    log10 = min((log10_adjusted(answer) for answer in found.rejecting), default=None)
    bytes_too = (found.byte_equal,) if found.byte_equal is not None else ()
    more = (words.SIMILAR_KIND,) if "depth-prune" in kinds else ()
    return Verdict(
        outcome="related",
        grade="A",
        pvalue=None if log10 is None else as_pvalue(log10),
        log10_pvalue=log10,
        kinds=tuple(KindShare(kind, None) for kind in kinds),
        layer_map=layer_map(found.rejecting),
        sentence=sentence,
        reasons=(*words.found_reasons((*found.rejecting, *bytes_too)), *words.tainted_reasons(found.tainted)),
        limits=(*words.LIMITS, *more),
    )


def _undecided(sentence: str, reasons: tuple[str, ...]) -> Verdict:
    return Verdict(
        outcome="undecided",
        grade=None,
        pvalue=None,
        log10_pvalue=None,
        sentence=sentence,
        reasons=reasons,
        limits=(*words.NOT_LOOKED_FOR, words.FEW_NEURONS, *words.LIMITS),
    )
