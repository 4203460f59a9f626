"""What a test found, and what it would have found between strangers."""

from __future__ import annotations

from typing import Literal

import msgspec


class Null(msgspec.Struct, frozen=True):
    """What the statistic does between strangers: in words, and a sample of it to draw beside the observed value."""

    text: str
    sample: tuple[float, ...] = ()


class Significance(msgspec.Struct, frozen=True, kw_only=True):
    """What every test returns. `n` is the size of the index set, or whatever the statistic ranges over.

    p-values far below what a float holds are kept as `log10_pvalue`; `pvalue` is then the smallest positive float, and
    never zero. `exact` marks what may count as grade A: closed forms, proven bounds and e-values.
    """

    statistic: float
    log10_pvalue: float
    null: Null
    n: int
    exact: bool
    log10_evalue: float | None = None

    def __bool__(self) -> bool:
        raise TypeError("a Significance is neither true nor false: read .log10_pvalue")

    @property
    def pvalue(self) -> float:
        return max(10.0**self.log10_pvalue, 5e-324) if self.log10_pvalue > -323 else 5e-324


class Assumption(msgspec.Struct, frozen=True):
    """Something an answer rests on. `held` is None where it can be stated but not checked."""

    text: str
    held: bool | None = None


class LayerFinding(msgspec.Struct, frozen=True):
    """One layer of a (or none) beside one of b: what was counted, of how many, and the p of that alone."""

    a: str
    b: str
    statistic: float
    n: int
    log10_pvalue: float | None = None
    effect: float | None = None


IndexSet = Literal["hidden axes", "neurons", "kv groups", "experts", "files", "tensors", "none"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="evidence"):
    """An answer. Without a grade it informs and never counts.

    `observed` and `strangers` are the same statistic in words, as found and as it would be by chance. `effect` is the
    size of the thing where that has one: a median row correlation, a share of rows. `detectable` is the smallest
    correlation of rows that the test would have noticed 99 times in 100, where that was worked out.
    """

    question: str
    index_set: IndexSet
    grade: Literal["A", "B"] | None
    statistic: float
    pvalue: float | None
    log10_pvalue: float | None
    adjusted_pvalue: float | None = None
    null: Null
    n: int
    effect: float | None
    observed: str
    strangers: str
    per_layer: tuple[LayerFinding, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    detectable: float | None = None


class Unanswered(msgspec.Struct, frozen=True, tag_field="answer", tag="unanswered"):
    """A question that could not be asked of this pair, and why."""

    question: str
    unanswered: str


Answer = Evidence | Unanswered


class NotEvidence(msgspec.Struct, frozen=True):
    """A number that looks like evidence, what chance or convention makes of it, and why it does not count."""

    measure: str
    value: float | str
    expected_from_means_alone: float | str | None
    why: str
