"""Rows of the vocabulary: which tokens both models have, and whether the others look like rows that were added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.errors import UnreadableError
from modelkin.records import Role, Slot
from modelkin.records.relation import TensorFact, TokenFacts
from modelkin.relation.elementwise import spacing
from modelkin.relation.inheritance import share_of_rows
from modelkin.relation.reading import (
    BLOCK,
    Floats,
    Indices,
    Tokens,
    Weights,
    spread,
    tokens_by_content,
    tokens_by_number,
)
from modelkin.vocabulary import Vocabulary

Doubles = NDArray[np.float64]
EMBEDDING = Slot(Role.EMBEDDING)
MOST_ROWS = 2048
SPECIAL = b"\x00special "  # names, not text, and no text begins so
FEWEST_NEW = 4
FEWEST_MERGES = 64
# Of a column's standard deviation: what libraries add to a mean has 3e-5 of it (a covariance times 1e-9), six times.
NOISE = 2e-4
MOST = 0.5
NEW_ROWS = 0.6  # times the usual distance from the mean row, below which rows may have been added


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
    near_a, near_b = _near_mean(a, tokens.a, tokens.only_a), _near_mean(b, tokens.b, tokens.only_b)
    more_in_a, more_in_b = _may_be_added(near_a, tokens.only_b), _may_be_added(near_b, tokens.only_a)
    faced = next((fact for fact in facts if fact.role is Role.EMBEDDING and fact.rows >= 2), None)
    return TokenFacts(
        tokens_a=len(tokens.a) + len(tokens.only_a),
        tokens_b=len(tokens.b) + len(tokens.only_b),
        shared=len(tokens.a),
        moved_ids=int(np.sum(tokens.a != tokens.b)),
        only_a=len(tokens.only_a),
        only_b=len(tokens.only_b),
        near_mean_a=near_a,
        near_mean_b=near_b,
        at_mean_a=more_in_a and _at_mean(a, tokens.only_a, b, tokens.b),
        at_mean_b=more_in_b and _at_mean(b, tokens.only_b, a, tokens.a),
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


def _may_be_added(near_mean: float | None, others: Indices) -> bool:
    """Whether rows that one model has alone lie near the mean, and the other has none that this one lacks."""
    return not len(others) and near_mean is not None and near_mean < NEW_ROWS


def _at_mean(weights: Weights, alone: Indices, other: Weights, shared: Indices) -> bool:
    """Whether most rows that one model has alone are the mean of the other's rows, as exactly as they are stored.

    Such rows were computed when the others had their values. Rows that lie near the mean were not: training moves the
    mean of all rows by 0.002 to 0.02 of their usual distance from it in the zoo, and with added rows left out a trained
    model looks like what it was made from.
    """
    if weights.shape(EMBEDDING)[1:] != other.shape(EMBEDDING)[1:]:
        return False
    rows = weights.read(EMBEDDING, alone[spread(len(alone), MOST_ROWS)]).astype(np.float64)
    everything = np.arange(other.shape(EMBEDDING)[0], dtype=np.intp)
    return any(_are(rows, *_centre(other, index), weights.dtype(EMBEDDING)) for index in (everything, shared))


def _are(rows: Doubles, mean: Doubles, spread_out: Doubles, form: str) -> bool:
    """`spread_out`: the standard deviation of every column; a little noise of that shape is often added."""
    off = np.abs(rows - mean)
    allowed = spacing(mean.astype(np.float32), form) / 2 + NOISE * spread_out
    return float(np.mean(np.all(off <= allowed, axis=1))) > MOST


def _centre(weights: Weights, index: Indices) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of every column, of these rows."""
    total, squares = (np.zeros(weights.shape(EMBEDDING)[1]) for _ in range(2))
    for some in np.array_split(index, 1 + len(index) * len(total) // BLOCK):
        rows = weights.read(EMBEDDING, some).astype(np.float64)
        total += rows.sum(axis=0)
        squares += (rows**2).sum(axis=0)
    mean = total / len(index)
    return mean, np.sqrt(np.maximum(squares / len(index) - mean**2, 0))


def _sizes(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1))


def grown(tokens: TokenFacts | None) -> dict[str, bool]:
    """For either side whether it has all tokens of the other and more, whose rows are the mean of the other's."""
    if tokens is None:
        return {}
    return {"a": tokens.only_b == 0 and tokens.at_mean_a, "b": tokens.only_a == 0 and tokens.at_mean_b}


def perhaps_grown(tokens: TokenFacts | None) -> dict[str, bool]:
    """The same of rows that lie near the mean, as do those that were trained little, or never."""
    if tokens is None:
        return {}
    near = {"a": (tokens.only_b, tokens.near_mean_a), "b": (tokens.only_a, tokens.near_mean_b)}
    are_means = grown(tokens)
    return {
        side: not others and beside is not None and beside < NEW_ROWS and not are_means[side]
        for side, (others, beside) in near.items()
    }
