"""Rows of the vocabulary: which tokens both models have, and whether the others look like rows that were added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from modelkin.architectures import Anatomy
from modelkin.errors import UnreadableError
from modelkin.records import Role, Slot
from modelkin.records.relation import TensorFact, TokenFacts
from modelkin.relation.inheritance import share_of_rows
from modelkin.relation.reading import Floats, Indices, Tokens, Weights, spread, tokens_by_content, tokens_by_number
from modelkin.vocabulary import Vocabulary

EMBEDDING = Slot(Role.EMBEDDING)
MOST_ROWS = 2048
SPECIAL = b"\x00special "  # names, not text, and no text begins so
FEWEST_NEW = 4
FEWEST_MERGES = 64


def shared_tokens(a: Anatomy, b: Anatomy) -> Tokens | None:
    """By the tokenizers of both, or by number where one has none that can be read; None without embeddings."""
    if EMBEDDING not in a.slots or EMBEDDING not in b.slots:
        return None
    rows = a.shape(EMBEDDING)[0], b.shape(EMBEDDING)[0]
    try:
        mine, theirs = a.checkpoint.vocabulary, b.checkpoint.vocabulary
    except UnreadableError:  # rows by number say less, and `known` tells
        return tokens_by_number(rows)
    if mine is None or theirs is None:
        return tokens_by_number(rows)
    named = [
        vocabulary.ids | {SPECIAL + name.encode(): i for name, i in vocabulary.special.items()}
        for vocabulary in (mine, theirs)
    ]
    return replace(tokens_by_content(named[0], named[1], rows), ascending=(ascending(mine), ascending(theirs)))


def ascending(vocabulary: Vocabulary) -> float | None:
    """Share of merges whose token has a higher number than the one merged before; the same token counts too.

    Tokens get their numbers in the order in which they are merged, so nearly all do. Numbers drawn by chance leave a
    half. None without merges to speak of.
    """
    merged = (merge.replace(" ", "") for merge in vocabulary.merges)
    numbers = [vocabulary.base[token] for token in merged if token in vocabulary.base]
    return float(np.mean(np.diff(numbers) >= 0)) if len(numbers) >= FEWEST_MERGES else None


def token_facts(a: Weights, b: Weights, tokens: Tokens, facts: Sequence[TensorFact]) -> TokenFacts:
    faced = next((fact for fact in facts if fact.role is Role.EMBEDDING and fact.rows >= 2), None)
    return TokenFacts(
        tokens_a=len(tokens.a) + len(tokens.only_a),
        tokens_b=len(tokens.b) + len(tokens.only_b),
        shared=len(tokens.a),
        moved_ids=int(np.sum(tokens.a != tokens.b)),
        only_a=len(tokens.only_a),
        only_b=len(tokens.only_b),
        near_mean_a=_near_mean(a, tokens.a, tokens.only_a),
        near_mean_b=_near_mean(b, tokens.b, tokens.only_b),
        found=None if faced is None else max(0.0, share_of_rows(faced.found, faced.rows)[0]),
        ascending_a=tokens.ascending[0],
        ascending_b=tokens.ascending[1],
    )


def _near_mean(weights: Weights, shared: Indices, alone: Indices) -> float | None:
    """Median distance from the mean row, of rows that one model has alone over that of the others.

    Rows are added at the mean of the old ones, or close to it, and a little training leaves them there.
    """
    if len(alone) < FEWEST_NEW or len(shared) < FEWEST_NEW:
        return None
    old, new = (weights.read(EMBEDDING, index[spread(len(index), MOST_ROWS)]) for index in (shared, alone))
    centre = old.mean(axis=0)
    usual = float(np.median(_sizes(old - centre)))
    beside = float(np.median(_sizes(new - centre))) / usual if usual else math.nan
    return beside if math.isfinite(beside) else None


def _sizes(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1))
