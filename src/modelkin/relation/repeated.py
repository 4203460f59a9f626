"""Attention of two models that have different numbers of heads: which heads of one are some head of the other.

Each head is set beside every head of the other model, as far as its rows may be mixed without changing what the model
does. Between strangers nearly all of a head is left over, for the copy of a head nearly nothing. Heads of keys and
values may also have been joined, several to one: then their mean is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.records import Role, Slot
from modelkin.relation.inheritance import Share
from modelkin.relation.reading import Floats, LayerMap, Weights, counterpart, spread

MATRICES = (Role.Q, Role.K, Role.V, Role.O)
BIASES = (Role.Q_BIAS, Role.K_BIAS, Role.V_BIAS)
# Of a head. Strangers leave at least sqrt(1 - head size / width), which is 0.7 or more; heads that look at one stream
# have more in common, and leave 0.53 or more in trained models.
LEFT_OVER = 0.5
ROWS = 32  # of a head that are looked for
NOT_FOUND: Share = (0.0, 0.0, 1.0)  # heads can be joined or drawn anew, and cut in size: nobody can tell


@dataclass(frozen=True)
class RepeatedHeads:
    """Slots of both, and the share of the heads of either that are found in the other."""

    a: Slot
    b: Slot
    values_a: int
    values_b: int
    share_a: Share
    share_b: Share


def repeated_heads(a: Weights, b: Weights, layers: LayerMap) -> list[RepeatedHeads]:
    """Of every layer whose heads are more in b, or fewer, or of another size."""
    continued, found = dict(layers), []
    for slot in (each for each in b.slots if each.role in (*MATRICES, *BIASES)):
        other = counterpart(slot, continued)
        if other is None or other not in a.slots or not _other_heads(slot.role, a.shape(other), b.shape(slot)):
            continue
        shares = _shares(a, b, other, slot) or (NOT_FOUND, NOT_FOUND)
        sizes = int(np.prod(a.shape(other))), int(np.prod(b.shape(slot)))
        found.append(RepeatedHeads(other, slot, *sizes, *shares))
    return found


def _other_heads(role: Role, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two tensors differ along their heads alone."""
    heads = 1 if role is Role.O else 0
    return len(a) == len(b) and all((x != y) == (axis == heads) for axis, (x, y) in enumerate(zip(a, b, strict=True)))


def _shares(a: Weights, b: Weights, slot_a: Slot, slot_b: Slot) -> tuple[Share, Share] | None:
    """None where no head is found, or where heads are of other sizes, or large beside the width."""
    size = a.facts.head_dim
    if slot_b.role not in MATRICES or not size or b.facts.head_dim != size:
        return None
    mine, theirs = (_by_head(each.read(slot), slot.role, size) for each, slot in ((a, slot_a), (b, slot_b)))
    if mine is None or theirs is None or size * 2 > mine.shape[2]:
        return None
    of_b = _found(mine, theirs)
    if not any(of_b):
        return None
    used = {head for some in of_b for head in some}
    kept_a, kept_b = len(used) / len(mine), sum(map(bool, of_b)) / len(theirs)
    return (kept_a, kept_a, kept_a), (kept_b, kept_b, kept_b)


def _by_head(matrix: Floats, role: Role, size: int) -> Floats | None:
    """Heads, their rows, and what these read; of outputs, what they write."""
    rows = matrix.T if role is Role.O else matrix
    return None if len(rows) % size else rows.reshape(-1, size, rows.shape[1])


def _found(a: Floats, b: Floats) -> list[tuple[int, ...]]:
    """For every head of b the head of a that it is, mixed; or the heads that it is the mean of; none where it is new.

    Heads are asked from behind the one that was found last: most stand in their order.
    """
    single = [(head,) for head in range(len(a))]
    joined = len(a) // len(b) if len(a) % len(b) == 0 else 1
    means = [tuple(range(at, at + joined)) for at in range(0, len(a), joined)] if joined > 1 else []
    bases: dict[tuple[int, ...], Floats] = {}
    found, after = [], 0
    for head in b:
        order = [*single[after:], *single[:after], *means]
        here = next((some for some in order if _left_over(head, _basis(a, some, bases)) <= LEFT_OVER), ())
        found.append(here)
        after = here[-1] + 1 if here else after
    return found


def _basis(a: Floats, heads: Sequence[int], known: dict[tuple[int, ...], Floats]) -> Floats:
    some = tuple(heads)
    if some not in known:
        known[some] = np.linalg.qr(a[list(some)].mean(axis=0).T)[0]
    return known[some]


def _left_over(head: Floats, basis: Floats) -> float:
    rows = head[spread(len(head), ROWS)]
    whole = float(np.linalg.norm(rows))
    return float(np.linalg.norm(rows - rows @ basis @ basis.T)) / whole if whole else 1.0
