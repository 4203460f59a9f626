"""Keys and values of one model that repeat the heads of another, where the two have different numbers of them.

Each head is set beside every head of the other model, as far as its rows may be mixed without changing what the model
does. Between strangers nearly all of a head is left over, for the copy of a head nearly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelkin.records import Role, Slot
from modelkin.relation.inheritance import Share
from modelkin.relation.reading import Floats, LayerMap, Weights, counterpart

KEYS_AND_VALUES = (Role.K, Role.V)
LEFT_OVER = 0.5  # of a head; strangers leave at least sqrt(1 - head size / width), which is 0.7 or more


@dataclass(frozen=True)
class RepeatedHeads:
    """Slots of both, and the share of the heads of b that are found in a."""

    a: Slot
    b: Slot
    values_a: int
    values_b: int
    share: Share


def repeated_heads(a: Weights, b: Weights, layers: LayerMap) -> list[RepeatedHeads]:
    """Of every layer whose heads of keys or values are more in b, or fewer, and of which some are found."""
    size, continued, found = a.facts.head_dim, dict(layers), []
    if not size or b.facts.head_dim != size:
        return []
    for slot in (each for each in b.slots if each.role in KEYS_AND_VALUES):
        other = counterpart(slot, continued)
        if other is None or other not in a.slots or not _other_heads(a.shape(other), b.shape(slot), size):
            continue
        mine, theirs = a.read(other), b.read(slot)
        share = _found(mine, theirs, size)
        if share:
            found.append(RepeatedHeads(other, slot, mine.size, theirs.size, (share, share, share)))
    return found


def _other_heads(a: tuple[int, ...], b: tuple[int, ...], size: int) -> bool:
    """Whether two matrices differ in the number of heads alone, each small beside the width."""
    return len(a) == 2 and a != b and a[1] == b[1] and not a[0] % size and not b[0] % size and size * 2 <= a[1]


def _found(a: Floats, b: Floats, size: int) -> float:
    """The share of the heads of b that are some head of a, mixed."""
    bases = [np.linalg.qr(head.T)[0] for head in a.reshape(-1, size, a.shape[1])]
    heads = b.reshape(-1, size, b.shape[1])
    return sum(min(_left_over(head, basis) for basis in bases) <= LEFT_OVER for head in heads) / len(heads)


def _left_over(head: Floats, basis: Floats) -> float:
    whole = float(np.linalg.norm(head))
    return float(np.linalg.norm(head - head @ basis @ basis.T)) / whole if whole else 1.0
