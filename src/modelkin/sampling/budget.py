"""How much of the weights of a model `standard` may read, and how much of that is left."""

from __future__ import annotations

from dataclasses import dataclass

from modelkin.architectures import Anatomy
from modelkin.sources.protocol import TENSOR_KINDS

STANDARD_BYTES = 64_000_000


@dataclass(frozen=True)
class Room:
    """What a comparison may still read of two models: either may have been read for other comparisons before."""

    sides: tuple[Anatomy, Anatomy]
    before: tuple[int, int]
    limited: bool

    @classmethod
    def of(cls, a: Anatomy, b: Anatomy, limited: bool) -> Room:
        return cls((a, b), (_read(a), _read(b)), limited)

    def has(self, needed: tuple[int, int]) -> bool:
        sides = zip(self.sides, self.before, needed, strict=True)
        return not self.limited or all(_read(side) - was + more <= STANDARD_BYTES for side, was, more in sides)


def _read(anatomy: Anatomy) -> int:
    return anatomy.checkpoint.source.ledger.bytes(TENSOR_KINDS)


def whole(anatomy: Anatomy) -> int:
    """Bytes of every tensor that has a role."""
    return anatomy.bytes_of([(slot, None) for slot in anatomy.slots])
