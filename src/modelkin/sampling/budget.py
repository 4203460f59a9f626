"""How much of the weights of a model `standard` may read, and how much of that is left."""

from __future__ import annotations

from modelkin.architectures import Anatomy
from modelkin.sources.protocol import TENSOR_KINDS

STANDARD_BYTES = 64_000_000


def bytes_left(anatomy: Anatomy) -> int:
    return STANDARD_BYTES - anatomy.checkpoint.source.ledger.bytes(TENSOR_KINDS)


def whole(anatomy: Anatomy) -> int:
    """Bytes of every tensor that has a role."""
    return anatomy.bytes_of([(slot, None) for slot in anatomy.slots])
