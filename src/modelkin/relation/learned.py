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
from modelkin.relation.inheritance import share_in_place
from modelkin.relation.tensors import gains, linear

SMALLEST = 1e-5
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


def degree_features(facts: Sequence[TensorFact]) -> tuple[float, float] | None:
    """How far matrices and gains moved, in powers of ten.

    Where gains cannot be compared they are taken to have moved as far for theirs as matrices did for matrices.
    """
    body = [_apart(fact) for fact in linear(inherited(facts))]
    if not body:
        return None
    ones = [_apart(fact) for fact in gains(facts)]
    matrices = _power(body)
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
