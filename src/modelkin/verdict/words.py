"""The sentences. For readers who know nothing of the method; none of them accuses anybody."""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.records import Evidence
from modelkin.verdict.policy import EMBEDDINGS, EVERY_NEURON, GAINS, LAYER_MAP, Tally

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
}
SETS = {
    "hidden axes": "hidden axes",
    "neurons": "MLP neurons",
    "kv groups": "attention heads",
    "experts": "experts",
}
IDENTICAL = "The two models are identical: every tensor of one is byte for byte in the other."
RELATED = (
    "The two models are related: one continues from the weights of the other, or both continue from those of a third, "
    "and which of these it is cannot be told from this."
)
SHARED_INIT = (
    "The two models are related only in that they seem to have started from the same random weights and were trained "
    "apart, which is not descent of one from the other; norm constants that were reset or folded into other weights "
    "can imitate this."
)
UNRELATED = (
    "The two models are unrelated: no shared origin was found, and one would have been noticed unless it was "
    "deliberately disguised."
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
TOO_LITTLE = (
    "It is undecided whether the two models are related: nothing beyond chance was found, but too little could be "
    "compared to rule out a shared origin."
)
LIMITS = (
    "It cannot say which of the two came first.",
    "It says nothing of licences, permission or intent.",
    "It says nothing of the data that either model was trained on.",
)
NOT_LOOKED_FOR = (
    "Weights that were deliberately rearranged to hide their origin were not looked for.",
    "A model trained only on the answers of another inherits no weights, and would not be noticed.",
)
FEW_NEURONS = "A few neurons taken from another model could lie outside the rows that were read."
SIMILAR_KIND = "Layers left out of one model and new layers added to the other look alike from here."


def joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def hidden_axes_alone(found: Tally) -> str:
    return (
        f"The two models are related in part: their {joined(_names(found))} agree beyond chance, which is tensor "
        f"reuse or hidden-state distillation, which this cannot tell apart; {_rest(found)}."
    )


def one_set(found: Tally) -> str:
    shared = SETS.get(found.sets[0], found.sets[0])
    return f"The two models are related in part: they share {shared}; {_rest(found)}."


def small_part(found: Tally, places: Sequence[str]) -> str:
    names = joined([SETS.get(name, name) for name in found.sets])
    where = f" ({_layers(places)})" if places else ""
    return f"The two models are related in part: they share a part of their {names}{where}, and the rest is not."


def byte_equal(found: Tally) -> str:
    what = "some of their tensors are the same number for number, taken from one another or both from a third"
    return f"The two models are related in part: {what}; {_rest(found)}."


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
    if not found.quiet:
        return ()
    names = joined([SETS.get(name, name) for name in dict.fromkeys(a.index_set for a in found.quiet)])
    return (f"No more alike than strangers: {names}.",)


def power_reason(detectable: float | None) -> str:
    if detectable is None:
        return "How faint a likeness of rows would have been noticed is not known here."
    return f"Rows alike by a correlation of {detectable:.2g} or more would have been noticed 99 times in 100."


def _named(answer: Evidence) -> str:
    name = NAMES.get(answer.question, answer.question)
    return name[0].upper() + name[1:]


def _names(found: Tally) -> list[str]:
    return [NAMES[answer.question] for answer in found.rejecting]


def _rest(found: Tally) -> str:
    """Only what was compared may be called not shared."""
    names = [SETS.get(name, name) for name in found.quiet_sets]
    return f"the rest that was compared ({joined(names)}) is not shared" if names else "the rest could not be compared"


def _layers(places: Sequence[str]) -> str:
    shown = joined(list(places)) if len(places) <= 4 else f"{len(places)} layers"
    return shown if len(places) > 4 else f"layer{'s' if len(places) > 1 else ''} {shown}"
