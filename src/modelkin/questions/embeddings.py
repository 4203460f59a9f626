"""Do the hidden axes know each other by the embeddings of tokens that both vocabularies have?

Tokens keep their names and are not permuted; only the hidden axes of one model are. So it does not matter that the
rows of frequent tokens look alike everywhere, nor that the same text shaped both. Where neither model ties its head to
its embedding, the head has a row for every token too: one permutation serves both, so they make one call.

A table that a formula makes of the numbers of tokens pins the axes. It is noticed where it orders the axes (waves, or a
few that are large), and where many axes hold but two numbers, as a code does. Trained on, a table that orders nothing
(a hash, one-hot codes, vectors published by a third) looks like what training made of noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.errors import UnreadableError
from modelkin.questions.exchangeability import zeros, zeros_apart
from modelkin.questions.gains import FEWEST_AXES, hidden_assumptions, same_width
from modelkin.questions.neuron_blocks import bytes_a_model
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, Role, Slot
from modelkin.sampling.readings import Readings
from modelkin.stats import hidden_axes

ID = "hidden-axes-by-embeddings"
TOKENS = {"quick": 64, "standard": 256, "full": 1024}
FEWEST_TOKENS = 32
MOST_CODES = 2  # axes that hold two numbers in both models, and are still taken for an accident
STANDARD_BYTES = 4_200_000  # of the 64 MB a model that all questions together may read
FEWER = (192, 128, 96, 64)  # tokens, where rows are dear; with fewer, embeddings alone
ALONE = (128, 96, 64, 48, FEWEST_TOKENS)
NO_TABLE = "no table that is the same for everybody fills the embeddings, such as vectors that a third published"
PARTS = {Role.EMBEDDING: "embedding", Role.HEAD: "head"}
ONE_STREAM = ("", "decoder")  # stacks whose hidden axes are those that the head reads

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Rows of the same tokens, (tokens, d), not yet centred; `equal` of the `read` ones are the same to the bit."""

    part: Role
    a: Floats
    b: Floats
    read: int
    strange: int  # left out: not finite, or without variance in one of the models
    equal: int
    without_equal: bool


def cuts(pair: Pair) -> Cuts:
    """The rows of shared tokens, chosen by the seed and their bytes alone, in the same order for both."""
    same_width(pair.a.facts.hidden, pair.b.facts.hidden)
    slots = _slots(pair)
    mine, theirs = _ids(pair.a, slots[0][0]), _ids(pair.b, slots[0][1])
    shared = sorted(mine.keys() & theirs.keys(), key=lambda token: _draw(pair.seed, token))
    if len(shared) < FEWEST_TOKENS:
        raise CannotAsk(f"the vocabularies share {len(shared)} tokens; {FEWEST_TOKENS} are needed")
    ids = [(mine[token], theirs[token]) for token in shared[: TOKENS[pair.budget]]]
    plans = _plans(slots, ids)
    if pair.budget == "full":
        return next(plans)
    found = next((plan for plan in plans if bytes_a_model(pair, plan) <= STANDARD_BYTES), None)
    if found is None:
        raise CannotAsk(f"{FEWEST_TOKENS} tokens cost more than {STANDARD_BYTES // 1_000_000} MB as they are stored")
    return found


def _plans(slots: Sequence[tuple[Slot, Slot]], ids: Sequence[tuple[int, int]]) -> Iterator[Cuts]:
    """What could be read, the most first: tokens of all matrices, then of the embedding alone."""
    for parts, counts in ((slots, (len(ids), *FEWER)), (slots[:1], ALONE)):
        for count in counts:
            rows_a, rows_b = (tuple(pair[side] for pair in ids[:count]) for side in (0, 1))
            yield [Cut(a, rows=rows_a) for a, _ in parts], [Cut(b, rows=rows_b) for _, b in parts]


def answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    same_width(a.portrait.hidden, b.portrait.hidden)
    parts = _parts(a, b)
    left = np.concatenate([_centred(part.a) for part in parts])
    right = np.concatenate([_centred(part.b) for part in parts])
    call = hidden_axes(left, right, rng)
    if call.n < FEWEST_AXES:
        raise CannotAsk(f"too few hidden axes can be told apart by their embeddings: {call.n}")
    assumptions = (
        Assumption(NO_TABLE),
        *hidden_assumptions(a.portrait, b.portrait, left, right, rng),
        *zeros_apart(zeros(part.a.T, part.b.T) for part in parts),
        *(remark for part in parts for remark in _remarks(part)),
    )
    return weighed(
        ID,
        "hidden axes",
        call.significance,
        assumptions,
        effect=call.fixed / call.n,
        observed=f"{call.fixed:,} of {call.n:,} hidden axes found themselves, by {_told(parts)}",
        strangers=f"1 of {call.n:,} on average",
    )


def _slots(pair: Pair) -> list[tuple[Slot, Slot]]:
    """The embedding of both, of the same stack where there are several; and the head, where both have one apart."""
    mine, theirs = _as_wide(pair.a, Role.EMBEDDING), _as_wide(pair.b, Role.EMBEDDING)
    if not mine or not theirs:
        raise CannotAsk(f"{'A' if not mine else 'B'} has no embedding as wide as its residual stream")
    first = next(((slot, slot) for slot in mine if slot in theirs), (mine[-1], theirs[-1]))
    heads = _head(pair.a, first[0]), _head(pair.b, first[1])
    return [first] if heads[0] is None or heads[1] is None else [first, (heads[0], heads[1])]


def _head(anatomy: Anatomy, embedding: Slot) -> Slot | None:
    """The head that reads the axes of this embedding and has a row for every token of it; a tied one has no slot."""
    fits = (slot for slot in _as_wide(anatomy, Role.HEAD) if anatomy.shape(slot)[0] >= anatomy.shape(embedding)[0])
    return next(fits, None) if embedding.stack in ONE_STREAM else None


def _as_wide(anatomy: Anatomy, role: Role) -> list[Slot]:
    return [slot for slot in anatomy.of(role) if anatomy.shape(slot)[1:] == (anatomy.facts.hidden,)]


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


def _parts(a: Readings, b: Readings) -> list[Tokens]:
    """Embedding and head, as far as they were read of both and enough of their rows can be compared."""
    found: list[Tokens] = []
    reasons: list[CannotAsk] = []
    for part in PARTS:
        mine, theirs = _listed(a, part), _listed(b, part)
        try:
            if mine is not None and theirs is not None:
                found.append(_tokens(part, mine, theirs))
        except CannotAsk as reason:
            reasons.append(reason)
    if not found:
        raise next(iter(reasons), CannotAsk("no embeddings of shared tokens were read"))
    return found


def _tokens(part: Role, mine: Floats, theirs: Floats) -> Tokens:
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
        raise CannotAsk(f"only {len(left)} shared tokens have rows of the {PARTS[part]} that can be compared")
    return Tokens(part, left, right, len(mine), len(mine) - int(clear.sum()), int(equal.sum()), without)


def _listed(readings: Readings, part: Role) -> Floats | None:
    return next((rows for cut, rows in readings.arrays.items() if cut.slot.role is part and cut.rows), None)


def _alive(rows: Floats) -> NDArray[np.bool_]:
    numbers = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0)
    return np.asarray(np.ptp(numbers, axis=1) > 0, dtype=np.bool_)


def _two_valued(rows: Floats) -> NDArray[np.bool_]:
    """Axes that hold two different numbers among all tokens, each of them several times.  (tokens, d) -> (d,)."""
    least, most = rows.min(axis=0), rows.max(axis=0)
    low, high = np.count_nonzero(rows == least, axis=0), np.count_nonzero(rows == most, axis=0)
    return np.asarray((low + high == len(rows)) & (low > 1) & (high > 1), dtype=np.bool_)


def _centred(rows: Floats) -> NDArray[np.float64]:
    """Over tokens: what every token has in common says which axes are large, not what they mean."""
    double = rows.astype(np.float64)
    return np.asarray(double - double.mean(axis=0), dtype=np.float64)


def _told(parts: Sequence[Tokens]) -> str:
    """By how many tokens, and by which rows of them."""
    counts = dict.fromkeys(len(part.a) for part in parts)
    tokens = f"{' and '.join(map(str, counts))} shared tokens"
    names = " and ".join(PARTS[part.part] for part in parts)
    return tokens if names == PARTS[Role.EMBEDDING] else f"{tokens} ({names})"


def _remarks(tokens: Tokens) -> list[Assumption]:
    found, name = [], PARTS[tokens.part]
    rows = "rows" if tokens.part is Role.EMBEDDING else f"rows of the {name}"
    codes = int(np.count_nonzero(_two_valued(tokens.a) & _two_valued(tokens.b)))
    if codes:
        told = f"{codes} of {tokens.a.shape[1]} axes hold but two numbers in both models; trained ones: none"
        text = f"the {name} is no code ({told})"
        found.append(Assumption(text, codes <= MOST_CODES))
    if tokens.equal:
        how = "left out" if tokens.without_equal else f"too many to be left out: the {name} itself was taken over"
        found.append(Assumption(f"{tokens.equal} of {tokens.read} {rows} are bit-equal, {how}"))
    if tokens.strange:
        found.append(Assumption(f"{tokens.strange} of {tokens.read} {rows} left out: constant, or not finite"))
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
