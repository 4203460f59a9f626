"""The words of the contract: outcomes, kinds, directions, and how much is shared."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["related", "unrelated", "undecided"]
Side = Literal["a", "b"]
Standing = Literal["confirmed", "not contradicted", "contradicted", "cannot be told"]
BudgetName = Literal["quick", "standard", "full"]
Direction = Literal["a->b", "b->a", "neither", "unknown"]
Kind = Literal[
    "identical",
    "re-encoded",
    "fine-tune",
    "continued-pretraining",
    "merged-lora",
    "merge",
    "moe-upcycle",
    "depth-upscale",
    "depth-prune",
    "width-prune",
    "vocabulary-surgery",
    "component-reuse",
    "obfuscated",
    "shared-init",
    "shared-ancestor",
    "undetermined",
]


class KindShare(msgspec.Struct, frozen=True):
    """`probability` is None where the kind follows from what was counted and nothing was calibrated."""

    kind: Kind
    probability: float | None


class Shared(msgspec.Struct, frozen=True):
    """Share of the parameters that was inherited, with a 95 % interval; `of` which of the two models.

    Older records do not say, and hold that of the child: of a where b came first, else of b.
    """

    fraction: float
    low: float
    high: float
    of: Side | None = None

    def side(self, order: Direction) -> Side:
        return self.of or ("a" if order == "b->a" else "b")
