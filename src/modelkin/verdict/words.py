"""The sentences. For readers who know nothing of the method; none of them accuses anybody."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from modelkin.records import Direction, Evidence, Kind, Side
from modelkin.verdict.policy import COVERAGE, EMBEDDINGS, EVERY_NEURON, GAINS, GAUGE, LAYER_MAP, UNMASKED, Tally

NAMES = {
    GAINS: "norm gains",
    "neurons": "MLP neurons",
    EVERY_NEURON: "every MLP neuron",
    EMBEDDINGS: "token embeddings",
    LAYER_MAP: "MLP neurons, layer by layer",
    "attention": "attention heads",
    "experts": "experts",
    "pooled-rows": "MLP rows taken together",
    "identity": "files",
    "copies": "tensors",
    GAUGE: "signs of rearranged weights",
    COVERAGE: "what was compared",
    UNMASKED: "neurons with disguises undone",
}
SETS = {
    "hidden axes": "hidden axes",
    "neurons": "MLP neurons",
    "kv groups": "attention heads",
    "experts": "experts",
}
SIGNS = {"norm gains": "norm gains put in order of size", "token angles": "angles between token embeddings"}
IDENTICAL = "The two models are identical: every tensor of one is byte for byte in the other."
WHOSE: dict[Direction, str] = {
    "a->b": "B continues from the weights of A, or of a model very near to A, unless the order was made to look so",
    "b->a": "A continues from the weights of B, or of a model very near to B, unless the order was made to look so",
    "neither": "both continue from the weights of a third, and neither from the other",
    "unknown": (
        "one continues from the weights of the other, or both continue from those of a third, and which of these it is "
        "cannot be told from this"
    ),
}
RELATED_OR_START = (
    "The two models are related: one continues from the weights of the other, both continue from those of a third, or "
    "both started from the same random weights, and which of these it is cannot be told from this."
)
SHARED_INIT = (
    "The two models are related only in that they seem to have started from the same random weights and were trained "
    "apart, which is not descent of one from the other; a merge that took a small share of the other model, blocks "
    "taken over and trained on, and norm constants that were reset or folded into other weights can imitate this."
)
UNRELATED = (
    "The two models are unrelated: no shared origin was found in what was compared, and descent of the whole model "
    "would have been noticed unless it was deliberately disguised."
)
UNRELATED_UNMASKED = (
    "The two models are unrelated: no shared origin was found in what was compared, and descent of the whole model "
    "would have been noticed, also if its weights had been turned and renumbered to hide it and not been trained far "
    "since."
)
QUICK = (
    "It is undecided whether the two models are related: nothing beyond chance was found in the little that `quick` "
    "reads; `standard` reads more and can tell more."
)
OUT_OF_SIGHT = (
    "It is undecided whether the two models are related: nothing beyond chance was found, but parts that hold more "
    "than half of the parameters could not be compared."
)
NOTHING_ASKED = (
    "It is undecided whether the two models are related: none of the questions could be answered for this pair."
)
TAINTED = (
    "It is undecided whether the two models are related: a likeness was found, but the way these models are built can "
    "produce it between strangers too, so it does not count."
)
FAINT = (
    "It is undecided whether the two models are related: a faint likeness is spread over both, too weak to say what it "
    "comes from."
)
CONSTANT = (
    "It is undecided whether the two models are related: nothing beyond chance was found, but norm gains that are all "
    "the same left one comparison out, so a shared origin is not ruled out."
)
BETWEEN = (
    "It is undecided whether the two models are related: nothing counts as evidence of it, but one answer is of a kind "
    "that a pair of strangers in a thousand gives by chance, and a faint shared origin could give it too."
)
TOO_LITTLE = (
    "It is undecided whether the two models are related: nothing beyond chance was found, but too little could be "
    "compared to rule out a shared origin."
)
LIMITS = (
    "It cannot say which of the two came first.",
    "It says nothing of licences, permission or intent.",
    "It says nothing of the data that either model was trained on.",
)
NO_DISGUISE_LOOKED_FOR = "Weights that were deliberately rearranged to hide their origin were not looked for."
ANSWERS_ALONE = "A model trained only on the answers of another inherits no weights, and would not be noticed."
FEW_NEURONS = "A few neurons taken from another model could lie outside the rows that were read."
ORDER_OF_TWO = (
    "An order of two says that one comes from the other or from a model very near to it; only a third relative tells "
    "siblings."
)
CAN_BE_FORGED = (
    "The order rests on what one of them lost; who adds digits or rows to a copy on purpose can turn it round."
)
SIMILAR_KIND = "Layers left out of one model and new layers added to the other look alike from here."
GOOD_FAITH = (
    "`obfuscated` says that weights were rearranged, not why: some quantisers rotate them in good faith (QuaRot "
    "and SpinQuant, for example)."
)


def related(direction: Direction = "unknown", mixed: Sequence[str] = ()) -> str:
    """`mixed`: the models that the descendant is a mixture of, where that is told."""
    return f"The two models are related: {_whose(direction, mixed)}."


def at_least_shared(low: float, side: Side, direction: Direction) -> str:
    """Where much could not be compared, or not found again: nobody knows whether that is shared too."""
    return (
        f"The two models are related in part: {low:.0%} or more of the parameters of {side.upper()} are shared, and "
        f"whether the others are cannot be told; in what is shared {WHOSE[direction]}."
    )


def shared_in_part(share: float, side: Side, direction: Direction) -> str:
    part = "over 99%" if share > 0.99 else "under 1%" if share < 0.01 else f"{share:.0%}"
    return (
        f"The two models are related in part: {part} of the parameters of {side.upper()} are shared and the others "
        f"are not; in what is shared {WHOSE[direction]}."
    )


def _whose(direction: Direction, mixed: Sequence[str]) -> str:
    if not mixed:
        return WHOSE[direction]
    child, rest = WHOSE[direction].split(" ", 1)
    return f"{child} is a mixture of {joined(mixed)}, and so {rest}"


def turned(found: Tally, undone: Sequence[str], direction: Direction = "unknown", mixed: Sequence[str] = ()) -> str:
    """Stage 5 recognised the neurons. Whether somebody meant to hide them no weight can tell."""
    seen = found.unmasked
    count = "" if seen is None else f" {seen.statistic:,.0f} of {seen.n:,} MLP neurons are recognised, and"
    if not undone:
        return f"The two models are related, though their shapes differ:{count} {_whose(direction, mixed)}."
    return (
        f"The two models are related, and the weights of one are rearranged ({joined(list(undone))}): with that undone"
        f"{count} {_whose(direction, mixed)}."
    )


def limits_of(kinds: Collection[Kind]) -> tuple[str, ...]:
    """What the names of these kinds could be taken for and do not say."""
    told: dict[Kind, str] = {"depth-prune": SIMILAR_KIND, "obfuscated": GOOD_FAITH}
    return tuple(text for kind, text in told.items() if kind in kinds)


def joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def hidden_axes_alone(found: Tally) -> str:
    return (
        f"The two models are related in part: their {joined(_names(found))} agree beyond chance: tensor reuse or "
        f"hidden-state distillation, which this cannot tell apart; {_rest(found)}."
    )


def one_set(found: Tally) -> str:
    return f"The two models are related in part: they share {_shared(found)}; {_rest(found)}."


def small_part(found: Tally, places: Sequence[str]) -> str:
    """Few rows that are much alike and many that are faintly so look the same from here."""
    rows = joined(
        list(dict.fromkeys(SETS.get(a.index_set, a.index_set) for a in found.rejecting if a.question != GAINS))
    )
    where = f", most clearly in {_layers(places)}" if places else ""
    gains = "; so are their norm gains" if found.rejects(GAINS) else ""
    return (
        f"The two models are related in part: some of their {rows} are alike beyond chance, or many faintly{where}"
        f"{gains}; {_rest(found)}."
    )


def some_layers(found: Tally, kept: Sequence[str]) -> str:
    return (
        f"The two models are related in part: they share {_shared(found)} in {_layers(kept)} of B; the other layers "
        f"match none of A beyond chance."
    )


def taken_over(found: Tally) -> str:
    return (
        f"The two models are related in part: {_shared(found)} are nearly the same number for number in both, taken "
        "from one another or both from a third; in their norm gains nothing beyond chance was seen."
    )


def rearranged(gauge: Evidence) -> str:
    seen = [SIGNS.get(finding.b, finding.b) for finding in gauge.per_layer if finding.effect == 1]
    return (
        "It is undecided whether the two models are related: nothing beyond chance was found in its place, but "
        f"{joined(seen or list(SIGNS.values()))} are nearly the same in both; renumbered or rotated weights can look "
        "so, and it does not count as evidence yet."
    )


def byte_equal(found: Tally) -> str:
    same = found.byte_equal.observed if found.byte_equal is not None else ""
    more = f"; {_shared(found)} agree beyond chance too" if found.rejecting else ""
    rest = "; in the other rows that were compared nothing beyond chance was seen" if found.quiet else ""
    return (
        f"The two models are related in part: {same}; what is the same was taken from one another or both from a third"
        f"{more}{rest}."
    )


def not_compared(coverage: Evidence | None) -> tuple[str, ...]:
    return () if coverage is None else tuple(remark.text for remark in coverage.assumptions)


def found_reasons(answers: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(f"{_named(a)}: {a.observed}; between strangers: {a.strangers}." for a in answers)


def tainted_reasons(answers: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(
        f"{_named(answer)}: does not count, as this does not hold: {assumption.text}."
        for answer in answers
        for assumption in answer.assumptions
        if assumption.held is False
    )


def quiet_reasons(found: Tally) -> tuple[str, ...]:
    reasons = []
    if found.quiet:
        names = joined([SETS.get(name, name) for name in dict.fromkeys(a.index_set for a in found.quiet)])
        reasons.append(f"No more alike than strangers: {names}.")
    if found.unmasked is not None:
        reasons += found_reasons((found.unmasked,))
    return tuple(reasons)


def not_looked_for(found: Tally) -> tuple[str, ...]:
    return (*(() if found.unmasked is not None else (NO_DISGUISE_LOOKED_FOR,)), ANSWERS_ALONE)


def power_reason(detectable: float | None) -> str:
    if detectable is None:
        return "How faint a likeness of rows would have been noticed is not known here."
    return f"Rows alike by a correlation of {detectable:.2g} or more would have been noticed 99 times in 100."


def _named(answer: Evidence) -> str:
    name = NAMES.get(answer.question, answer.question)
    return name[0].upper() + name[1:]


def _names(found: Tally) -> list[str]:
    return [NAMES[answer.question] for answer in found.rejecting]


def _shared(found: Tally) -> str:
    """The sets that reject, by the names of what they hold; hidden axes by what showed them.

    Where another question about the same set stays quiet, not all that describes its members agrees.
    """
    names = []
    for name in found.sets:
        if name == "hidden axes":
            names += [NAMES[answer.question] for answer in found.rejecting if answer.index_set == name]
        else:
            some = "some weights of " if any(answer.index_set == name for answer in found.quiet) else ""
            names.append(some + SETS.get(name, name))
    return joined(names)


def _rest(found: Tally) -> str:
    """Rows at equal places were compared, no more: what shows nothing there is not therefore different."""
    names = [SETS.get(name, name) for name in found.quiet_sets]
    if not names:
        return "the rest could not be compared"
    return f"in the rest that was compared ({joined(names)}) nothing beyond chance was seen"


def _layers(places: Sequence[str]) -> str:
    if len(places) > 4:
        return f"{len(places)} layers"
    return f"layer{'s' if len(places) > 1 else ''} {joined(list(places))}"
