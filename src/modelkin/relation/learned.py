"""Two small fitted models: fine-tune against continued pretraining, and who came first. Constants are data.

Both are logistic. The first is a matter of degree, and its boundary is where the zoo's two recipes meet. The second
has features that change their sign when the two models change places, and no constant: neither side is favoured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np

from modelkin.records import Role
from modelkin.records.relation import TensorFact
from modelkin.relation.inheritance import COMPUTED, share_in_place
from modelkin.relation.tensors import gains, linear

SMALLEST = 1e-5
ZEROS = 0.005
NOISE = 1.02  # see `spectra.excess`: of rounding and noise in the zoo at most 0.98, after training 1.06 at least
DEGREE = ("log10 difference of matrices", "log10 difference of gains")
DIRECTION = ("kurtosis", "leading share", "gains from one", "norm", "effective rank")


class Fitted(msgspec.Struct, frozen=True):
    """weights · (features - centre) / scale + intercept are the log-odds. `provenance` says from what."""

    features: tuple[str, ...]
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    intercept: float
    provenance: dict[str, object]

    def log_odds(self, values: Sequence[float]) -> float:
        off = [(v - c) / s for v, c, s in zip(values, self.centre, self.scale, strict=True)]
        return self.intercept + sum(w * x for w, x in zip(self.weights, off, strict=True))

    def probability(self, values: Sequence[float]) -> float:
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, self.log_odds(values)))))


@cache
def fitted() -> Mapping[str, Fitted]:
    """`degree` and `direction`, as shipped."""
    body = files("modelkin.relation").joinpath("fitted.json").read_bytes()
    return msgspec.json.decode(body, type=dict[str, Fitted])


def inherited(facts: Sequence[TensorFact]) -> list[TensorFact]:
    """Tensors most of whose rows, or whose values, go back to the other's as they stand."""
    return [fact for fact in facts if share_in_place(fact)[0] > 0.5]


def excesses(facts: Sequence[TensorFact]) -> list[tuple[TensorFact, float]]:
    """What `spectra.excess` says of matrices that go on, of those that were taken apart."""
    asked = [(fact, fact.spectra) for fact in inherited(facts) if fact.spectra is not None]
    return [(fact, spectra.excess) for fact, spectra in asked if spectra.excess is not None]


def excess_by_part(facts: Sequence[TensorFact]) -> dict[str, float]:
    """The median of every role and every layer: training may have changed no more than one of them.

    Not of matrices of which one was emptied: with half of the values set to zero a role reached 1.17 without training
    (two models), while rounding and noise reached 1.003 at most (29 pairs of eight models).
    """
    parts: dict[str, list[float]] = {}
    for fact, each in excesses(facts):
        if not was_emptied(fact):
            for part in (fact.role.value, fact.layer):
                parts.setdefault(part, []).append(each)
    return {part: float(np.median(seen)) for part, seen in parts.items() if len(seen) > 1}


def was_emptied(fact: TensorFact) -> bool:
    """Whether one has zeros that the other lacks, and that no grid accounts for."""
    return abs(fact.zeros_a - fact.zeros_b) > ZEROS and not (fact.lattice_a or fact.lattice_b)


def moved(facts: Sequence[TensorFact]) -> list[TensorFact]:
    """Matrices that go on, by which training is measured: all, or where it changed less than half of them those alone.

    The others are the same to the bit or no further apart than noise, and would hide the few that learnt something.
    All, too, where one of them does not show which it is.
    """
    body = linear(inherited(facts))
    changed = [fact for fact in body if fact.same < 1 and fact.difference > COMPUTED]
    own, parts = {id(fact): each for fact, each in excesses(changed)}, excess_by_part(changed)
    if any(id(fact) not in own or was_emptied(fact) for fact in changed):
        return body
    learnt = [f for f in changed if min(own[id(f)], max(parts.get(f.role.value, 0.0), parts.get(f.layer, 0.0))) > NOISE]
    return learnt if 0 < len(learnt) * 2 < len(body) else body


def degree_features(facts: Sequence[TensorFact]) -> tuple[float, float] | None:
    """How far matrices and gains moved, in powers of ten.

    Where gains cannot be compared, or were left alone like most matrices, they are taken to have moved as far for
    theirs as matrices did for matrices.
    """
    told = moved(facts)
    if not told:
        return None
    in_part = len(told) < len(linear(inherited(facts)))
    ones = [_apart(fact) for fact in gains(facts) if not in_part or fact.same < 1]
    matrices = _power([_apart(fact) for fact in told])
    if ones:
        return matrices, _power(ones)
    model = fitted()["degree"]
    return matrices, model.centre[1] + (matrices - model.centre[0]) / model.scale[0] * model.scale[1]


def _apart(fact: TensorFact) -> float:
    """The difference beside the smaller of the two, whichever stands first; without what zeros and grids explain."""
    if fact.beyond is not None:
        return fact.beyond
    return fact.difference * max(1.0, (fact.norm_a / fact.norm_b) ** 2) if fact.norm_b else fact.difference


def _power(values: Sequence[float]) -> float:
    return math.log10(max(SMALLEST, float(np.median(values))))


def direction_features(facts: Sequence[TensorFact]) -> tuple[float, ...] | None:
    """Logarithms of b's value over a's, each the median over inherited tensors; all turn with the pair."""
    body = [fact for fact in linear(inherited(facts)) if fact.same < 1]
    taken = [fact.spectra for fact in body if fact.spectra is not None]
    if not taken:
        return None
    ones = [(fact.from_one_a, fact.from_one_b) for fact in gains(facts) if fact.role is not Role.HEAD_NORM]
    return (
        _median(_ratio(fact.kurtosis_a, fact.kurtosis_b) for fact in body),
        _median(_ratio(s.leading_a, s.leading_b) for s in taken),
        _median(_ratio(one, other) for one, other in ones),
        _median(_ratio(fact.norm_a, fact.norm_b) for fact in body),
        _median(_ratio(s.effective_rank_a, s.effective_rank_b) for s in taken),
    )


def _ratio(a: float | None, b: float | None) -> float:
    return math.log(b / a) if a and b else 0.0


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else 0.0
