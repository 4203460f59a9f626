"""The numbers of the policy, and the answers sorted by them. Whatever here can flip a verdict changes POLICY too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from modelkin.records import Answer, Evidence, Unanswered
from modelkin.stats.multiplicity import Budget

POLICY = "2026-11k"
ALPHA = 1e-6
ALPHA_B = 1e-3  # of grade B, all of it for what looks through disguises
GAINS = "hidden-axes-by-gains"
EMBEDDINGS = "hidden-axes-by-embeddings"
LAYER_MAP = "layer-map"
IDENTITY = "identity"
COPIES = "copies"
EVERY_NEURON = "every-neuron"
GAUGE = "gauge"
COVERAGE = "coverage"
UNMASKED = "unmasked-neurons"

EQUAL_BYTES = (IDENTITY, COPIES)  # answers without a p-value: there is no chance in them

# Each question's share of ALPHA. A question that is not here informs and cannot convict.
WEIGHTS: Mapping[str, float] = {
    GAINS: 0.20,
    "neurons": 0.30,
    EVERY_NEURON: 0.10,
    EMBEDDINGS: 0.10,
    LAYER_MAP: 0.10,
    "attention": 0.10,
    "experts": 0.05,
    "pooled-rows": 0.05,
}
BUDGET = Budget(ALPHA, WEIGHTS)

# The smallest effect of rows that is more than a part: a median correlation of rows at one index, or, for axes by
# embeddings, the share that found itself. Gains are constants, not rows.
CORRELATION_FLOOR, SHARE_FLOOR = 0.02, 0.05
FLOORS: Mapping[str, float] = {
    "neurons": CORRELATION_FLOOR,
    EVERY_NEURON: CORRELATION_FLOOR,
    "pooled-rows": CORRELATION_FLOOR,
    EMBEDDINGS: SHARE_FLOOR,
    LAYER_MAP: CORRELATION_FLOOR,
    "attention": CORRELATION_FLOOR,
    "experts": CORRELATION_FLOOR,
}
LARGEST_DETECTABLE = 0.1
LOCATING = 1e-3  # Holm's p at which a layer is named, once all layers together have rejected: it convicts nobody
CLEARING = 1e-3  # nobody is cleared by an answer, adjusted, that fewer pairs of strangers give
SETS_NEEDED = 2
NEURON_ROWS = ("neurons", EVERY_NEURON, LAYER_MAP)  # what compares neurons as they are stored
NEARLY_SAME = 0.98  # a median correlation of rows that training apart from the same random numbers does not leave
FOLDED = 0.2  # by how much rows are more alike with their gains folded in, where gains were moved into matrices
CLEAR_GAINS = 0.1  # the share of axes that must find themselves by gains before a common random start is ruled out
LEAST_RECOGNISED = 0.4  # of the neurons, once a disguise is undone: below it only a part was taken
LEAST_COMPARED = 0.5  # of the parameters, by parts that were compared: below it nobody is cleared


@dataclass(frozen=True)
class Tally:
    """The answers by what they may do. `tainted` would have rejected, had its assumptions held.

    `gauge` is there if it saw a sign that something was rearranged, `coverage` if it was worked out. `unmasked` is the
    answer of stage 5, which looks through disguises, where it was given with a grade.
    """

    rejecting: tuple[Evidence, ...]
    tainted: tuple[Evidence, ...]
    quiet: tuple[Evidence, ...]
    byte_equal: Evidence | None
    gauge: Evidence | None
    coverage: Evidence | None
    unmasked: Evidence | None
    constant_gains: bool
    answered: int

    @property
    def sets(self) -> tuple[str, ...]:
        """The index sets that reject, each once, in the order of the answers."""
        return tuple(dict.fromkeys(answer.index_set for answer in self.rejecting))

    @property
    def quiet_sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a.index_set for a in self.quiet if a.index_set not in self.sets))

    @property
    def detectable(self) -> float | None:
        found = [a.detectable for a in self.quiet if a.question in FLOORS and a.detectable is not None]
        return min((value for value in found if not math.isnan(value)), default=None)

    def rejects(self, *questions: str) -> bool:
        return any(answer.question in questions for answer in self.rejecting)

    @property
    def is_recognised(self) -> bool:
        """Were neurons recognised beyond what unrelated models show, whatever was done to them?"""
        if self.unmasked is None or self.tainted:
            return False  # rows that a formula fills are alike in any order
        return log10_adjusted(self.unmasked) <= math.log10(ALPHA_B)

    @property
    def likeness(self) -> float:
        """The median cosine of recognised neurons, gains folded in."""
        layers = () if self.unmasked is None else self.unmasked.per_layer
        return median(finding.effect or 0.0 for finding in layers) if layers else 0.0

    @property
    def has_moved_gains(self) -> bool:
        """Do neurons agree once their gains are folded in, and without them less? Training apart does not do that."""
        rows = [a.effect or 0.0 for a in (*self.rejecting, *self.quiet) if a.question in NEURON_ROWS]
        return self.is_recognised and self.likeness >= min(NEARLY_SAME, max(rows, default=1.0) + FOLDED)

    @property
    def is_mostly_equal(self) -> bool:
        """Are most of the numbers that were looked at the same in both?"""
        return self.byte_equal is not None and self.byte_equal.statistic > self.byte_equal.n / 2

    @property
    def is_between(self) -> bool:
        """Is an answer too rare between strangers to clear anybody, and not rare enough to be evidence?"""
        return any(log10_adjusted(answer) <= math.log10(CLEARING) for answer in self.quiet)

    def is_quiet(self, question: str) -> bool:
        return any(answer.question == question for answer in self.quiet)


def tally(answers: Sequence[Answer]) -> Tally:
    names = [answer.question for answer in answers]
    if len(set(names)) < len(names):
        raise ValueError(f"a question answered twice would spend its share of the error budget twice: {names}")
    given = [answer for answer in answers if isinstance(answer, Evidence)]
    weighed = [answer for answer in given if answer.question in WEIGHTS and log10_pvalue(answer) is not None]
    return Tally(
        rejecting=tuple(a for a in weighed if is_sound(a) and _is_beyond_chance(a)),
        tainted=tuple(a for a in weighed if _has_failed(a) and _is_beyond_chance(a)),
        quiet=tuple(a for a in weighed if is_sound(a) and not _is_beyond_chance(a) and _could_reject(a)),
        byte_equal=next((a for a in given if a.question in EQUAL_BYTES and is_sound(a) and a.statistic > 0), None),
        gauge=next((a for a in given if a.question == GAUGE and a.statistic > 0), None),
        coverage=next((a for a in given if a.question == COVERAGE), None),
        unmasked=next((a for a in given if a.question == UNMASKED and a.grade == "B"), None),
        constant_gains=any(_says_constant(answer) for answer in answers),
        answered=sum(answer.question not in (GAUGE, COVERAGE) for answer in given),
    )


def adjusted(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """The answers with `adjusted_pvalue` filled in where the question has a share of the budget."""
    return tuple(_with_adjusted(answer) if isinstance(answer, Evidence) else answer for answer in answers)


def log10_pvalue(answer: Evidence) -> float | None:
    if answer.log10_pvalue is not None:
        return answer.log10_pvalue
    return None if answer.pvalue is None else math.log10(max(answer.pvalue, 5e-324))


def log10_adjusted(answer: Evidence) -> float:
    """Stage 5 has all of its grade's budget, and nothing to share."""
    value = log10_pvalue(answer)
    if value is None or answer.question == UNMASKED:
        return value or 0.0
    return BUDGET.adjusted(answer.question, value)


def as_pvalue(log10: float) -> float:
    """Never zero: the smallest positive float stands for what a float cannot hold."""
    return max(10.0**log10, 5e-324) if log10 > -323 else 5e-324


def is_sound(answer: Evidence) -> bool:
    return answer.grade == "A" and not _has_failed(answer)


def meets_floor(answer: Evidence) -> bool:
    return answer.question in FLOORS and answer.effect is not None and answer.effect >= FLOORS[answer.question]


def _has_failed(answer: Evidence) -> bool:
    return any(assumption.held is False for assumption in answer.assumptions)


def _is_beyond_chance(answer: Evidence) -> bool:
    return log10_adjusted(answer) <= math.log10(ALPHA)


def _could_reject(answer: Evidence) -> bool:
    """Eight experts cannot give less than 1/8!: what could not have rejected has not been answered by staying quiet."""
    layers = math.fsum(math.lgamma(finding.n + 1) for finding in answer.per_layer)
    return max(layers, math.lgamma(answer.n + 1)) >= -math.log(ALPHA * WEIGHTS[answer.question])


def _says_constant(answer: Answer) -> bool:
    """Gains folded into other tensors are constant, and what is left may be in another gauge."""
    return isinstance(answer, Unanswered) and answer.question == GAINS and "constant" in answer.unanswered


def _with_adjusted(answer: Evidence) -> Evidence:
    counts = answer.question in WEIGHTS or (answer.question == UNMASKED and answer.grade == "B")
    if not counts or log10_pvalue(answer) is None:
        return answer
    return msgspec.structs.replace(answer, adjusted_pvalue=as_pvalue(log10_adjusted(answer)))
