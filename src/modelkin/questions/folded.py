"""Attention over shared tokens, whatever was rotated or renumbered: numbers that look like evidence and are none.

Tokens mean the same in unrelated models too, so their queries and keys lie alike; layers that do not face each other
show how much that alone makes alike.
"""

from __future__ import annotations

import numpy as np

from modelkin.alignment.folding import Unfit
from modelkin.alignment.invariants import invariants
from modelkin.alignment.tokens import NoTokens
from modelkin.questions.question import Pair
from modelkin.records import NotEvidence

MEASURE = "attention over shared tokens"
WHY = (
    "Gains folded in, this survives every rotation and renumbering; but tokens mean the same in every model, so those "
    "of strangers lie alike too; layers of the two models at different depths give the expected value."
)


def folded_attention(pair: Pair, rng: np.random.Generator) -> tuple[NotEvidence, ...]:
    """Unbiased CKA of queries and keys, and the correlation of what they ask; nothing where it cannot be measured."""
    try:
        found = invariants(pair.a, pair.b, rng)
    except (NoTokens, Unfit):
        return ()
    if found is None or not found.facing or not found.others:
        return ()
    cka, asked = (
        [float(np.median([getattr(layer, name) for layer in layers])) for layers in (found.facing, found.others)]
        for name in ("cka", "asked")
    )
    return (
        NotEvidence(f"{MEASURE}: unbiased CKA of queries and keys, {found.tokens} tokens", cka[0], cka[1], WHY),
        NotEvidence(f"{MEASURE}: correlation of what queries ask of keys", asked[0], asked[1], WHY),
    )
