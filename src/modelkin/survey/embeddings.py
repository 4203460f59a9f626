"""Embeddings of tokens that both vocabularies have: as they stand, and after the best rotation of one onto the other.

As they stand, rows are alike only where the hidden axes are shared. After a rotation they are alike wherever tokens
mean the same, which those of any two models trained on like text do: a rotation is fitted on half of the tokens and
judged on the other half, and still says nothing of descent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from modelkin.metrics.inputs import LARGEST
from modelkin.records import Role, Slot, Table
from modelkin.records.survey import Value
from modelkin.survey.reading import Collected, Model
from modelkin.survey.renumbering import may_be_renumbered, renumbered
from modelkin.survey.stored import read_stored
from modelkin.survey.tokenizers import vocabulary_table

TOKENS = 2048  # read of a pair at most
SHOWN = 500  # rows a pair in the table of tokens, held-out ones and fitted ones by turns
DIRECTIONS = 128  # strongest directions that are rotated; in all 4,096 a rotation fits 1,024 tokens whatever they are
TOKENS_A_DIRECTION = 4  # fitted tokens for each direction at least
FEWEST_TOKENS = 16
ROUNDING = 1e-9  # of cosines that are all 1
TOKEN_COLUMNS = ("a", "b", "token", "id_a", "id_b", "cosine", "cosine_after_alignment", "held_out")
COLUMNS = (
    "a", "b", "tokens", "mean", "std", "naive_z", "random_pairs_a", "random_pairs_b", "aligned_train",
    "aligned_held_out", "aligned_null", "z_renumbered", "p", "directions", "identical_rows",
)  # fmt: skip

Row = tuple[Value, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shared:
    """Tokens of two models, in an order that the seed gives, with the rows of both as far as they can be compared."""

    a: Model
    b: Model
    tokens: tuple[bytes, ...]
    ids: tuple[tuple[int, int], ...]
    left: Floats
    right: Floats


@dataclass(frozen=True, eq=False)
class Aligned:
    """Cosines of all tokens after a rotation fitted on those of `fitted`; `null`: of the held-out ones, fitted on
    tokens that were shuffled."""

    cosines: Floats
    fitted: NDArray[np.bool_]
    null: float
    directions: int


def tables(collected: Collected) -> list[Table]:
    """`tokens`, `embeddings` and `vocabulary`, where embeddings were asked for."""
    if Role.EMBEDDING not in collected.roles or len(collected.models) < 2:
        return []
    tokens: list[Row] = []
    rows: list[Row] = []
    pairs = list(collected.pairs())
    for number, (a, b) in enumerate(pairs):
        collected.progress("comparing embeddings", number, len(pairs))
        shared = _shared(collected, a, b)
        if shared is None:
            continue
        aligned = align(shared.left, shared.right, collected.rng(f"alignment:{a.label}:{b.label}"))
        rows.append(_row(shared, aligned))
        tokens += _token_rows(shared, aligned)
    made = [_tokens_table(tokens), _embeddings_table(rows)] if rows else []
    return [*made, *vocabulary_table(collected)]


def _shared(collected: Collected, a: Model, b: Model) -> Shared | None:
    who = f"embeddings of {a.label} and {b.label}"
    mine, theirs = _embedding(a), _embedding(b)
    if mine is None or theirs is None:
        collected.leave_out(f"{who}: {(a if mine is None else b).label} has no embedding")
        return None
    widths = a.anatomy.shape(mine)[1], b.anatomy.shape(theirs)[1]
    if widths[0] != widths[1]:
        collected.leave_out(f"{who}: rows of other widths, {widths[0]} and {widths[1]}")
        return None
    ids_a, ids_b = _ids(collected, a, mine), _ids(collected, b, theirs)
    common = sorted(ids_a.keys() & ids_b.keys(), key=lambda token: sha256(b"%d:%b" % (collected.seed, token)).digest())
    chosen = common[:TOKENS]
    ids = tuple((ids_a[token], ids_b[token]) for token in chosen)
    if len(chosen) < FEWEST_TOKENS:
        collected.leave_out(f"{who}: {len(chosen)} tokens in common, {FEWEST_TOKENS} are needed")
        return None
    (left,) = read_stored(a.anatomy, [(mine, [i for i, _ in ids])])
    (right,) = read_stored(b.anatomy, [(theirs, [j for _, j in ids])])
    return _clear(collected, Shared(a, b, tuple(chosen), ids, left.astype(np.float64), right.astype(np.float64)))


def _clear(collected: Collected, shared: Shared) -> Shared | None:
    """Without rows that have no direction, or values that are not finite."""
    clear = np.ones(len(shared.tokens), dtype=np.bool_)
    for side in (shared.left, shared.right):
        clear &= (np.abs(side) <= LARGEST).all(axis=1) & (side != 0).any(axis=1)
    kept = np.flatnonzero(clear)
    if kept.size < clear.size:
        collected.leave_out(
            f"embeddings of {shared.a.label} and {shared.b.label}: {clear.size - kept.size} of {clear.size} tokens "
            "have rows of zeros or values that are not finite"
        )
    if kept.size < FEWEST_TOKENS:
        return None
    tokens, ids = tuple(shared.tokens[i] for i in kept), tuple(shared.ids[i] for i in kept)
    return Shared(shared.a, shared.b, tokens, ids, shared.left[kept], shared.right[kept])


def _embedding(model: Model) -> Slot | None:
    """The last one: of two stacks, the decoder's."""
    found = [slot for slot in model.anatomy.of(Role.EMBEDDING) if len(model.anatomy.shape(slot)) == 2]
    return found[-1] if found else None


def _ids(collected: Collected, model: Model, slot: Slot) -> dict[bytes, int]:
    """Ordinary tokens that have a row."""
    vocabulary = model.anatomy.checkpoint.vocabulary
    if vocabulary is None:
        collected.leave_out(f"{model.label} has no tokenizer, so nobody knows which row is whose")
        return {}
    apart = {*vocabulary.added.values(), *vocabulary.special.values()}
    rows = model.anatomy.shape(slot)[0]
    return {token: id for token, id in vocabulary.ids.items() if id not in apart and id < rows}


def align(left: Floats, right: Floats, rng: np.random.Generator) -> Aligned:
    """Rotate one onto the other by half of the rows.  (tokens, d) twice.

    Both are centred and seen in their own strongest directions, found from the fitted half alone; the rotation between
    these is the one of smallest squared error. [Schönemann 1966]
    """
    fitted = np.arange(len(left)) % 2 == 0  # the order is the seed's
    directions = max(1, min(left.shape[1], DIRECTIONS, int(fitted.sum()) // TOKENS_A_DIRECTION))
    mine, theirs = _strongest(left, fitted, directions), _strongest(right, fitted, directions)
    cosines = _cosines(mine @ _rotation(mine[fitted], theirs[fitted]), theirs)
    shuffled = theirs[fitted][rng.permutation(int(fitted.sum()))]
    null = _cosines(mine @ _rotation(mine[fitted], shuffled), theirs)[~fitted]
    return Aligned(cosines, fitted, float(null.mean()), directions)


def _strongest(rows: Floats, fitted: NDArray[np.bool_], count: int) -> Floats:
    """All rows in the `count` principal directions of the fitted ones."""
    centred = rows - rows[fitted].mean(axis=0)
    some = centred[fitted]
    if len(some) < some.shape[1]:
        # The smaller of the two Gram matrices has the same directions.
        vectors = np.linalg.eigh(some @ some.T)[1]
        axes = some.T @ vectors[:, ::-1][:, :count]
        lengths = np.linalg.norm(axes, axis=0)
        return np.asarray(centred @ np.divide(axes, lengths, out=np.zeros_like(axes), where=lengths > 0))
    return np.asarray(centred @ np.linalg.eigh(some.T @ some)[1][:, ::-1][:, :count])


def _rotation(left: Floats, right: Floats) -> Floats:
    u, _, vt = np.linalg.svd(left.T @ right)
    return np.asarray(u @ vt)


def _cosines(left: Floats, right: Floats) -> Floats:
    """Row by row; 0 where a row has no length."""
    below = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    above = np.einsum("ij,ij->i", left, right)
    ratios = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return np.asarray(np.clip(ratios, -1, 1), dtype=np.float64)


def random_pairs(rows: Floats) -> float:
    """The mean cosine of all pairs of different rows: (|Σ u|² − n) / (n (n − 1)) for rows u of length one."""
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    total, n = units.sum(axis=0), len(units)
    return (float(total @ total) - n) / (n * (n - 1))


def _row(shared: Shared, aligned: Aligned) -> Row:
    cosines, n = _cosines(shared.left, shared.right), len(shared.tokens)
    mean, std = float(cosines.mean()), float(cosines.std(ddof=1))
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (shared.left, shared.right)]
    test = renumbered(*units)
    return (
        shared.a.label,
        shared.b.label,
        n,
        mean,
        std,
        mean * math.sqrt(n) / std if std > ROUNDING else None,
        random_pairs(shared.left),
        random_pairs(shared.right),
        float(aligned.cosines[aligned.fitted].mean()),
        float(aligned.cosines[~aligned.fitted].mean()),
        aligned.null,
        test.z,
        test.p if may_be_renumbered(shared.a, shared.b) else None,
        aligned.directions,
        int(np.all(shared.left == shared.right, axis=1).sum()),
    )


def _token_rows(shared: Shared, aligned: Aligned) -> list[Row]:
    cosines = _cosines(shared.left, shared.right)
    return [
        (
            shared.a.label,
            shared.b.label,
            shared.tokens[i].decode(errors="backslashreplace"),
            *shared.ids[i],
            float(cosines[i]),
            float(aligned.cosines[i]),
            "no" if aligned.fitted[i] else "yes",
        )
        for i in range(min(SHOWN, len(shared.tokens)))
    ]


def _tokens_table(rows: list[Row]) -> Table:
    return Table(
        name="tokens",
        title="Embedding rows of single tokens",
        caption=f"{len(rows)} tokens that both vocabularies have, matched by their bytes, at most {SHOWN} a pair of "
        "models, drawn by the seed; special and added tokens are left out. cosine_after_alignment counts where "
        "held_out is yes: the rotation was fitted on the others.",
        strangers="cosine near 0, within a few times 1/√width; after alignment above 0 as well, where both models "
        "learnt from like text",
        columns=TOKEN_COLUMNS,
        rows=tuple(rows),
    )


def _embeddings_table(rows: list[Row]) -> Table:
    counts = sorted({int(row[2]) for row in rows if isinstance(row[2], int)})
    span = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return Table(
        name="embeddings",
        title="Embeddings of shared tokens",
        caption=f"{len(rows)} pairs of models, {span} shared tokens each (at most {TOKENS:,} are drawn). naive_z, the "
        "mean cosine over std/√n, is no evidence: it takes tokens for independent, which they are not, and grows "
        "without bound with their number; it stands here because such numbers get published. "
        "z_renumbered compares the mean with that of "
        "renumbered hidden axes, with exact mean and standard deviation, and p is its normal tail, not shown below "
        f"1e-6. Alignment: rows centred, in their {DIRECTIONS} strongest directions at most, one for every "
        f"{TOKENS_A_DIRECTION} fitted tokens (`directions`), rotated by every second token and judged on the others; "
        "aligned_null is the same with the fitted tokens shuffled.",
        strangers="naive_z anything, tens either way; "
        "mean near 0 and z_renumbered between −2 and 2 in 19 of 20; random_pairs is what two tokens of one "
        "model have in common; aligned_train is high always; aligned_held_out is well above aligned_null (near 0) "
        "between strangers too: small models trained apart on one text reach 0.4 to 0.7. It is no evidence of descent",
        columns=COLUMNS,
        rows=tuple(rows),
    )
