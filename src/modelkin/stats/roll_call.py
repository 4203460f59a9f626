"""The roll call: hide the numbers of one side, let every index choose its counterpart, count who chose their own.

Between strangers the choice is a uniform permutation, whatever the size, the data or the likeness used for choosing, if
the indices of at least one model are exchangeable. So the count K has a known law: mean one, P(K ≥ k) ≤ 1/k!. No
control models and no threshold are needed. All of it is exact: the p-value is the tail of that law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from modelkin.records import Null, Significance
from modelkin.stats.arrays import LN10, Floats, Indices, matched, rank_scores
from modelkin.stats.assignment import Likeness, answerable, matches
from modelkin.stats.rencontres import even_quantiles, log_e_value, log_rencontres_tail, total_law

MOST_AXES = 1024  # assignment takes 0.15 s here and thirty times as long at 4,096
OWN_NOISE = 0.3  # of a vector's variance: what training adds to each vector apart, and no other repeats


@dataclass(frozen=True, slots=True)
class RollCall:
    """`fixed` of `n` chose their own. `matches[i]` is the index that i chose, or -1 where i was not asked; `dropped`
    of those had no variance or an equal on either side."""

    fixed: int
    n: int
    dropped: int
    matches: tuple[int, ...]
    significance: Significance


@dataclass(frozen=True, slots=True)
class Neurons:
    """One layer of MLP neurons, recognised by their rows of gate and, apart from that, of up."""

    gate: RollCall
    up: RollCall
    agreed: int  # neurons that chose the same counterpart both times, their own or not
    significance: Significance


def roll_call(left: ArrayLike, right: ArrayLike, rng: np.random.Generator, likeness: Likeness = "cosine") -> RollCall:
    """Rows i of `left` and `right` (n, p) belong to one index: how many find each other by likeness alone?

    For neurons, KV groups and experts, one flattened row each. `cosine` compares centred rows, `inner` takes scored
    rows as they are.
    """
    first, second = matched(left, right)
    return _called(first, second, rng, likeness)


def hidden_axes(left: ArrayLike, right: ArrayLike, rng: np.random.Generator, most: int = MOST_AXES) -> RollCall:
    """The roll call of the hidden axes by vectors on the residual stream.  (vectors, d) twice.

    Vector l of both models plays the same part (a gain, a bias, the centred embedding row of a token), is rank-scored,
    and axes are matched by the inner product of their columns, with what vectors repeat of each other counted once. One
    permutation serves the whole model, so all vectors that are to count go into one call. Of more than `most` axes as
    many are drawn at random and only these are asked.
    """
    first, second = (rank_scores(side).T for side in matched(left, right))
    return _called(first, second, rng, "inner", most, told_apart=_without_repeats(first, second))


def _without_repeats(first: Floats, second: Floats) -> Floats:
    """`first` (d, vectors) times the inverse of the vectors' covariance, shrunk.

    Gains of neighbouring layers are much alike, and summed as they are they drown what tells axes apart. A covariance
    does not depend on how axes are numbered, so the law of the count is the same.
    """
    vectors = first.shape[1]
    common = (first.T @ first + second.T @ second) / 2
    shrunk = common + OWN_NOISE * float(np.trace(common)) / max(1, vectors) * np.eye(vectors)
    return np.linalg.solve(shrunk, first.T).T if np.any(common) else first


def neurons(
    gate_left: ArrayLike, gate_right: ArrayLike, up_left: ArrayLike, up_right: ArrayLike, rng: np.random.Generator
) -> Neurons:
    """One layer's neurons by gate and by up rows, all (n, d); p = 2·min of the two.

    Gate and up are permuted together, so their counts are dependent and only Bonferroni's bound holds for them; for the
    same reason the e-value is the mean of the two.
    """
    gate, up = roll_call(gate_left, gate_right, rng), roll_call(up_left, up_right, rng)
    if len(gate.matches) != len(up.matches):
        raise ValueError(f"gate and up must have one neuron a row, found {len(gate.matches)} and {len(up.matches)}")
    agreed = sum(a == b >= 0 for a, b in zip(gate.matches, up.matches, strict=True))
    return Neurons(gate, up, agreed, better_of([gate.significance, up.significance], "gate and up rows"))


def better_of(tests: Sequence[Significance], what: str) -> Significance:
    """The smallest p of several tests of one hypothesis, times their number; the mean of their e-values.

    Valid under any dependence. `what` names the tests in the text of the null.
    """
    best, count = min(tests, key=lambda test: test.log10_pvalue), len(tests)
    evalues = [test.log10_evalue for test in tests if test.log10_evalue is not None]
    mean = float(np.logaddexp.reduce(np.array(evalues) * LN10)) / LN10 - math.log10(count) if evalues else None
    return Significance(
        statistic=best.statistic,
        log10_pvalue=min(0.0, best.log10_pvalue + math.log10(count)),
        null=Null(
            f"{best.null.text}; the smallest of {len(tests)} p-values ({what}) times {len(tests)}", best.null.sample
        ),
        n=best.n,
        exact=all(test.exact for test in tests),
        log10_evalue=mean if len(evalues) == count else None,
    )


def _called(
    first: Floats,
    second: Floats,
    rng: np.random.Generator,
    likeness: Likeness,
    most: int | None = None,
    told_apart: Floats | None = None,
) -> RollCall:
    """`told_apart` takes the place of `first` where counterparts are chosen; who can be asked, `first` itself says."""
    choosing = first if told_apart is None else told_apart
    clear: Indices = np.flatnonzero(answerable(first, second, likeness))
    asked = clear if most is None or clear.size <= most else np.sort(rng.choice(clear, most, replace=False))
    chosen = np.full(len(first), -1, dtype=np.intp)
    if asked.size:
        chosen[asked] = asked[matches(choosing[asked], second[asked], rng, likeness)]
    fixed = int(np.count_nonzero(chosen[asked] == asked))
    dropped = len(first) - clear.size
    return RollCall(fixed, asked.size, dropped, tuple(chosen.tolist()), count_significance(fixed, asked.size))


def count_significance(fixed: int, n: int) -> Significance:
    """What `fixed` fixed points among n are worth."""
    return Significance(
        statistic=float(fixed),
        log10_pvalue=log_rencontres_tail(n, fixed) / LN10,
        null=Null(
            f"of {n:,} numbers, hidden and given back, one finds itself on average; k or more with a chance below 1/k!",
            _drawn(n),
        ),
        n=n,
        exact=True,
        log10_evalue=log_e_value(fixed) / LN10,
    )


@lru_cache(maxsize=1024)
def _drawn(n: int) -> tuple[float, ...]:
    return even_quantiles(total_law([n]))
