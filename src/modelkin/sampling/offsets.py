"""Where a contiguous block of rows begins: one offset an index set, from the seed alone."""

from __future__ import annotations

from hashlib import sha256


def offset(seed: int, index_set: str, size: int, rows: int) -> int:
    """The first of `rows` rows inside an index set of `size`: the same for every layer, every matrix, both models.

    Otherwise layer i of one model and layer j of the other would show different neurons. The content is not looked at.
    """
    room = max(0, size - rows)
    digest = sha256(f"{seed}:{index_set}".encode()).digest()
    # A share of the room rather than a remainder: a little more or less room then moves the block only a little.
    return int.from_bytes(digest[:8], "big") * (room + 1) >> 64
