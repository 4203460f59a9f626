"""What unrelated models show when they are aligned: the controls of grade B, shipped with the package.

`controls.json` is made by `benchmarks/controls.py` from trained models of known lineage. Pairs are of one class where
both have gates or one has none, as many of the two have experts, and their layers were set side by side or had to be
looked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec
from scipy.special import pdtrc

from modelkin.alignment import Alignment, HeldOut
from modelkin.architectures import Anatomy
from modelkin.records import Role

ENOUGH = 1000  # pairs of a class, below which it decides nothing
CAP = -6.0  # log10 of the smallest p that is believed beyond the range of the controls
Span = tuple[int, int]


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Of one pair: neurons that two and three ways of looking agreed on, in so many sets, of the layers judged."""

    two: int
    three: int
    sets: int

    @property
    def score(self) -> float:
        """Agreements a set: one or two between strangers."""
        return (self.two + self.three) / max(1, self.sets)


class PairClass(msgspec.Struct, frozen=True):
    """`experts`: how many of the two models have some. `route`: see `Alignment`."""

    gated: bool
    experts: int
    route: str

    def __str__(self) -> str:
        kinds = ("without experts", "one with experts", "with experts")[self.experts]
        return f"{'gated' if self.gated else 'without gates'}, {kinds}, {self.route}"


class ControlClass(msgspec.Struct, frozen=True, kw_only=True):
    """Unrelated pairs of one class. Ranges are of both models of a pair."""

    of: PairClass
    models: int
    widths: Span
    layers: Span
    pairs: tuple[Counts, ...]

    def covers(self, shapes: Sequence[Span]) -> bool:
        """Whether models of these (width, layers) lie within, and there are enough pairs to tell."""
        inside = all(
            self.widths[0] <= width <= self.widths[1] and self.layers[0] <= layers <= self.layers[1]
            for width, layers in shapes
        )
        return inside and len(self.pairs) >= ENOUGH

    def log10_pvalue(self, score: float) -> float:
        """The share of controls that show as much, this pair counted among them."""
        as_much = sum(counts.score >= score for counts in self.pairs)
        return math.log10((1 + as_much) / (1 + len(self.pairs)))

    @property
    def means(self) -> tuple[float, float]:
        """Agreements a set by two and by three ways: the most of any pair, and one more to be safe."""
        return (
            max((counts.two + 1) / counts.sets for counts in self.pairs),
            max((counts.three + 1) / counts.sets for counts in self.pairs),
        )


class Controls(msgspec.Struct, frozen=True):
    classes: tuple[ControlClass, ...]

    def of(self, wanted: PairClass) -> ControlClass | None:
        return next((each for each in self.classes if each.of == wanted), None)

    def means(self, route: str) -> tuple[float, float] | None:
        """The largest of any class of this route; None where there is none."""
        means = [each.means for each in self.classes if each.of.route == route]
        return (max(two for two, _ in means), max(three for _, three in means)) if means else None

    def scores(self, route: str) -> list[float]:
        """Of all pairs of this route, whatever their class."""
        return [pair.score for each in self.classes if each.of.route == route for pair in each.pairs]


def pair_class(alignment: Alignment) -> PairClass:
    sides = alignment.a, alignment.b
    return PairClass(
        gated=all(side.of(Role.GATE) or side.of(Role.SHARED_GATE) for side in sides),
        experts=sum(bool(side.facts.experts) for side in sides),
        route=alignment.route,
    )


def counts_of(held_out: Sequence[HeldOut]) -> Counts:
    return Counts(
        two=sum(found.two for found in held_out),
        three=sum(found.three for found in held_out),
        sets=sum(len(found.sizes) for found in held_out),
    )


def shape_of(anatomy: Anatomy) -> Span:
    return anatomy.facts.hidden or 0, len(anatomy.layers)


def structural(held_out: Sequence[HeldOut], means: tuple[float, float]) -> float:
    """log10 p if agreements of strangers are Poisson with these means a set, as they nearly are.

    Layers side by side are judged apart from each other, so their counts add up. Where a layer is the best of many the
    surest alone counts, and pays for all that were tried.
    """
    if all(found.tried == 1 for found in held_out):
        return min(0.0, math.log10(2) + _least_tail(counts_of(held_out), means))
    tails = [_least_tail(counts_of([found]), means) + math.log10(found.tried) for found in held_out]
    return min(0.0, math.log10(2 * len(tails)) + min(tails))


def _least_tail(counts: Counts, means: tuple[float, float]) -> float:
    """The smaller of the two tails, log10; of what three agree on two agree, so they are no two witnesses."""
    return min(_tail(counts.two, means[0] * counts.sets), _tail(counts.three, means[1] * counts.sets))


def _tail(count: int, mean: float) -> float:
    """log10 P(N ≥ count) for Poisson N; beyond what a float holds its smallest."""
    return 0.0 if count <= 0 else math.log10(max(float(pdtrc(count - 1, mean)), 5e-324))


@cache
def shipped() -> tuple[Controls, str]:
    """The controls of the package, and the sha256 of their file."""
    body = files("modelkin.questions").joinpath("controls.json").read_bytes()
    return msgspec.json.decode(body, type=Controls), sha256(body).hexdigest()
