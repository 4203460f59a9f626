"""What a line of argument consists of: what it reads, its null in words, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.records import Assumption, Cut, Evidence, IndexSet, Significance
from modelkin.sampling.readings import Readings

BudgetName = Literal["quick", "standard", "full"]
QUICK_STAGES = (1, 2)  # asked by every budget, read together, from rows that the record keeps
Cuts = tuple[Sequence[Cut], Sequence[Cut]]


class CannotAsk(Exception):
    """The reason why a question makes no sense for this pair, as a sentence. Becomes an `Unanswered`."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models as far as their headers tell, before a weight is read."""

    a: Anatomy
    b: Anatomy
    seed: int
    budget: BudgetName


@dataclass(frozen=True)
class Question:
    """One line of argument.

    `cuts` says what must be read of a and of b, and `answer` sees nothing but that: so that the answer can be given
    again from the kept rows. Both may raise CannotAsk. `weight` is the question's share of the error budget of grade A;
    a question without one informs and cannot convict. `stage` is its rung of the ladder: 1 and 2 are asked by every
    budget, the others by `standard` and `full`.
    """

    id: str
    asks: str
    index_set: IndexSet
    stage: int
    weight: float
    null: str
    cuts: Callable[[Pair], Cuts]
    answer: Callable[[Readings, Readings, np.random.Generator], Evidence]


def weighed(
    question: str, index_set: IndexSet, test: Significance, assumptions: tuple[Assumption, ...], **told: Any
) -> Evidence:
    """An answer from an exact test: grade A, unless something that it rests on was found not to hold.

    `told` is the rest of the Evidence; it may name another `statistic` and `n` than the test's.
    """
    sound = test.exact and all(assumption.held is not False for assumption in assumptions)
    return Evidence(
        question=question,
        index_set=index_set,
        grade="A" if sound else None,
        pvalue=test.pvalue,
        log10_pvalue=test.log10_pvalue,
        null=test.null,
        assumptions=assumptions,
        **{"statistic": test.statistic, "n": test.n, **told},
    )
