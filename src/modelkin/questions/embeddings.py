"""Do the hidden axes know each other by the embeddings of tokens that both vocabularies have?

Tokens keep their names and are not permuted; only the hidden axes of one model are. So it does not matter that the
rows of frequent tokens look alike everywhere, nor that the same text shaped both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.errors import UnreadableError
from modelkin.questions.gains import FEWEST_AXES, hidden_assumptions, same_width
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, Role, Slot
from modelkin.sampling.readings import Readings
from modelkin.stats import hidden_axes

ID = "hidden-axes-by-embeddings"
TOKENS = {"quick": 64, "standard": 256, "full": 1024}
FEWEST_TOKENS = 32

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Rows of the same tokens, (tokens, d), not yet centred; `equal` of the `read` ones are the same to the bit."""

    a: Floats
    b: Floats
    read: int
    strange: int  # left out: not finite, or without variance in one of the models
    equal: int
    without_equal: bool


def cuts(pair: Pair) -> Cuts:
    """The rows of shared tokens, chosen by the seed and their bytes alone, in the same order for both."""
    same_width(pair.a.facts.hidden, pair.b.facts.hidden)
    a, b = _slots(pair)
    mine, theirs = _ids(pair.a, a), _ids(pair.b, b)
    shared = sorted(mine.keys() & theirs.keys(), key=lambda token: _draw(pair.seed, token))
    if len(shared) < FEWEST_TOKENS:
        raise CannotAsk(f"the vocabularies share {len(shared)} tokens; {FEWEST_TOKENS} are needed")
    chosen = shared[: TOKENS[pair.budget]]
    return [Cut(a, rows=tuple(mine[t] for t in chosen))], [Cut(b, rows=tuple(theirs[t] for t in chosen))]


def answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    same_width(a.portrait.hidden, b.portrait.hidden)
    tokens = _tokens(a, b)
    left, right = _centred(tokens.a), _centred(tokens.b)
    call = hidden_axes(left, right, rng)
    if call.n < FEWEST_AXES:
        raise CannotAsk(f"only {call.n} hidden axes can be told apart by their embeddings")
    assumptions = (*hidden_assumptions(a.portrait, b.portrait, left, right, rng), *_remarks(tokens))
    return weighed(
        ID,
        "hidden axes",
        call.significance,
        assumptions,
        effect=call.fixed / call.n,
        observed=f"{call.fixed} of {call.n} hidden axes found themselves, by {len(left)} shared tokens",
        strangers=f"1 of {call.n} on average",
    )


def _slots(pair: Pair) -> tuple[Slot, Slot]:
    """The embedding of both: of the same stack where there are several."""
    mine, theirs = _embeddings(pair.a), _embeddings(pair.b)
    if not mine or not theirs:
        raise CannotAsk(f"{'A' if not mine else 'B'} has no embedding as wide as its residual stream")
    return next(((slot, slot) for slot in mine if slot in theirs), (mine[-1], theirs[-1]))


def _embeddings(anatomy: Anatomy) -> list[Slot]:
    return [slot for slot in anatomy.of(Role.EMBEDDING) if anatomy.shape(slot)[1:] == (anatomy.facts.hidden,)]


def _ids(anatomy: Anatomy, slot: Slot) -> dict[bytes, int]:
    """Ordinary tokens that have a row: special ones and those added later are left out."""
    try:
        vocabulary = anatomy.checkpoint.vocabulary
    except UnreadableError as error:
        raise CannotAsk(f"a tokenizer cannot be read: {error}") from error
    if vocabulary is None:
        raise CannotAsk(f"{anatomy.checkpoint.id} has no tokenizer, so nobody knows which row is whose")
    apart = {*vocabulary.added.values(), *vocabulary.special.values()}
    ids: Mapping[bytes, int] = vocabulary.ids
    return {token: id for token, id in ids.items() if id not in apart and id < anatomy.shape(slot)[0]}


def _draw(seed: int, token: bytes) -> bytes:
    return sha256(b"%d:tokens:%b" % (seed, token)).digest()


def _tokens(a: Readings, b: Readings) -> Tokens:
    mine, theirs = _listed(a), _listed(b)
    if mine.shape != theirs.shape:
        raise CannotAsk("different numbers of tokens were read of the two models")
    clear = _alive(mine) & _alive(theirs)
    left, right = mine[clear], theirs[clear]
    equal = np.all(left == right, axis=1)
    others = int(np.count_nonzero(~equal))
    # Rows that were put into place cannot tell more than that they were; the others are what training made of them.
    without = others >= FEWEST_TOKENS
    if without:
        left, right = left[~equal], right[~equal]
    if len(left) < FEWEST_TOKENS:
        raise CannotAsk(f"only {len(left)} shared tokens have embeddings that can be compared")
    return Tokens(left, right, len(mine), len(mine) - int(clear.sum()), int(equal.sum()), without)


def _listed(readings: Readings) -> Floats:
    wanted = (rows for cut, rows in readings.arrays.items() if cut.slot.role is Role.EMBEDDING and cut.rows)
    found = next(wanted, None)
    if found is None:
        raise CannotAsk("no embeddings of shared tokens were read")
    return found


def _alive(rows: Floats) -> NDArray[np.bool_]:
    numbers = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0)
    return np.asarray(np.ptp(numbers, axis=1) > 0, dtype=np.bool_)


def _centred(rows: Floats) -> NDArray[np.float64]:
    """Over tokens: what every token has in common says which axes are large, not what they mean."""
    double = rows.astype(np.float64)
    return np.asarray(double - double.mean(axis=0), dtype=np.float64)


def _remarks(tokens: Tokens) -> list[Assumption]:
    found = []
    if tokens.equal:
        how = "left out" if tokens.without_equal else "too many to be left out: the embedding itself was taken over"
        found.append(Assumption(f"{tokens.equal} of {tokens.read} rows are bit-equal, {how}"))
    if tokens.strange:
        found.append(Assumption(f"{tokens.strange} of {tokens.read} rows left out: constant, or not finite"))
    return found


EMBEDDINGS = Question(
    id=ID,
    asks="Do the hidden axes know each other by the embeddings of tokens that both vocabularies have?",
    index_set="hidden axes",
    stage=3,
    weight=0.10,
    null="the hidden axes of one model may be numbered in any order: one of them finds itself on average",
    cuts=cuts,
    answer=answer,
)
