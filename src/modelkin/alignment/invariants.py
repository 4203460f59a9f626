"""What attention makes of shared tokens: unchanged by every rotation and renumbering, and alike between strangers too.

Gains are folded into queries and keys. Two measures of facing layers, over the embeddings of the same tokens: how alike
the queries (and keys) lie, by unbiased CKA; and how alike what queries ask of keys is, over all pairs of tokens. Tokens
mean the same in every model, so strangers share some of both: layers that do not face each other show how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Unfit, attention, attention_slots, heads
from modelkin.alignment.sides import evenly
from modelkin.alignment.tokens import shared_rows
from modelkin.architectures import Anatomy
from modelkin.metrics import Unmeasurable, unbiased_cka_similarity

Floats = NDArray[np.float32]
MOST_TOKENS, MOST_LAYERS = 256, 8


@dataclass(frozen=True)
class LayerInvariants:
    """One layer of a beside one of b: CKA of queries and keys, taken together, and the correlation of what is asked."""

    a: str
    b: str
    cka: float
    asked: float


@dataclass(frozen=True)
class Invariants:
    """`facing` layers, and `others`: each layer of a beside the next one of b."""

    tokens: int
    facing: tuple[LayerInvariants, ...]
    others: tuple[LayerInvariants, ...]


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one layer makes of the tokens: queries and keys (tokens, rows), and what is asked (tokens, tokens)."""

    read: tuple[Floats, Floats]
    asked: Floats


def invariants(a: Anatomy, b: Anatomy, rng: np.random.Generator) -> Invariants | None:
    """None where depths differ or a layer has no plain attention. Raises NoTokens without enough shared tokens."""
    pairs = list(zip(a.layers, b.layers, strict=False))
    known = [(x, y) for x, y in pairs if attention_slots(a, x) is not None and attention_slots(b, y) is not None]
    if len(a.layers) != len(b.layers) or len(known) < 2:
        return None
    mine, theirs = (rows[:MOST_TOKENS] for rows in shared_rows(a, b, rng))
    chosen = evenly(known, MOST_LAYERS)
    left = [_seen(a, x, mine) for x, _ in chosen]
    right = [_seen(b, y, theirs) for _, y in chosen]
    facing = [_alike(*names, x, y) for names, x, y in zip(chosen, left, right, strict=True)]
    turned = [*range(1, len(chosen)), 0]
    others = [_alike(chosen[i][0], chosen[j][1], left[i], right[j]) for i, j in enumerate(turned)]
    return Invariants(len(mine), _measured(facing), _measured(others))


def _seen(anatomy: Anatomy, layer: str, tokens: Floats) -> _Seen:
    rows, factors = heads(anatomy, layer), attention(anatomy, layer)
    if rows is None or factors is None:
        raise Unfit(f"layer {layer} of {anatomy.checkpoint.id} has no plain attention")
    queries, keys = (part.reshape(-1, part.shape[2]) for part in (rows.q, rows.k))
    asked = (tokens @ factors[0].left.T) @ (tokens @ factors[0].right.T).T
    return _Seen((tokens @ queries.T, tokens @ keys.T), asked)


def _alike(name_a: str, name_b: str, a: _Seen, b: _Seen) -> LayerInvariants | None:
    """None where all tokens are treated alike, so that nothing can be compared."""
    try:
        cka = [unbiased_cka_similarity(x, y) for x, y in zip(a.read, b.read, strict=True)]
    except Unmeasurable:
        return None
    x, y = _centred(a.asked), _centred(b.asked)
    sizes = float(np.linalg.norm(x) * np.linalg.norm(y))
    return LayerInvariants(name_a, name_b, float(np.mean(cka)), float(np.vdot(x, y)) / sizes if sizes else 0.0)


def _centred(asked: Floats) -> NDArray[np.float64]:
    """What a token asks of all, and all ask of it, is not about any two."""
    table = asked.astype(np.float64)
    return np.asarray(table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean())


def _measured(found: Sequence[LayerInvariants | None]) -> tuple[LayerInvariants, ...]:
    return tuple(each for each in found if each is not None)
