"""What a test found, and what it would have found between strangers."""

from __future__ import annotations

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
