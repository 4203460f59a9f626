"""What the yardsticks read of a model: whole matrices in float64, heads made equal in number, embeddings by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelkin.architectures import Anatomy
from modelkin.records import Role, Slot

Floats = NDArray[np.float64]
MOST_TOKENS = 4096  # as many as the papers that draw tokens draw


class NotApplicable(Exception):
    """The method is not defined for this pair, and finds nothing."""


def matrix(anatomy: Anatomy, role: Role, layer: str) -> Floats:
    """(out, in); of a layer with experts their sum, which no order of theirs changes."""
    slots = [slot for slot in anatomy.of(role) if slot.layer_name == layer]
    if not slots:
        raise NotApplicable(f"layer {layer} has no {role}")
    return np.sum([anatomy.read(slot) for slot in slots], axis=0, dtype=np.float64)


def attention_products(anatomy: Anatomy, layer: str) -> tuple[Floats, Floats]:
    """What queries ask of keys and what values write, Σ qᵀk and Σ (o v)ᵀ over the heads: (d, d) each.

    Gains stand outside, as in the papers.
    """
    q, k, v, o = (matrix(anatomy, role, layer) for role in (Role.Q, Role.K, Role.V, Role.O))
    return q.T @ _for_every_head(anatomy, k, len(q)), _for_every_head(anatomy, v, o.shape[1]).T @ o.T


def _for_every_head(anatomy: Anatomy, rows: Floats, wanted: int) -> Floats:
    """Each key or value head once for every query that meets it."""
    size = anatomy.facts.head_dim
    if not size or len(rows) % size or wanted % len(rows):
        raise NotApplicable("the heads of this attention do not divide as the method supposes")
    heads = rows.reshape(-1, size, rows.shape[1])
    return np.repeat(heads, wanted // len(rows), axis=0).reshape(wanted, -1)


def same_slots(a: Anatomy, b: Anatomy, roles: Sequence[Role] | None = None) -> list[Slot]:
    """Slots of both in the same shape; those of `roles`, or all."""
    found = [slot for slot in a.slots if slot in b.slots and a.shape(slot) == b.shape(slot)]
    found = [slot for slot in found if roles is None or slot.role in roles]
    if not found:
        raise NotApplicable("no tensor stands at the same place in the same shape")
    return found


def shared_embeddings(a: Anatomy, b: Anatomy) -> tuple[Floats, Floats]:
    """Rows (n, d) of the tokens that both vocabularies spell alike, the rarest first: late numbers are rare tokens."""
    mine, theirs = _ids(a), _ids(b)
    tokens = sorted(mine.keys() & theirs.keys(), key=lambda token: (-mine[token], token))[:MOST_TOKENS]
    if len(tokens) < 2:
        raise NotApplicable("the vocabularies have nothing in common")
    return _rows(a, [mine[token] for token in tokens]), _rows(b, [theirs[token] for token in tokens])


def _ids(anatomy: Anatomy) -> dict[bytes, int]:
    vocabulary = anatomy.checkpoint.vocabulary
    if vocabulary is None or not anatomy.of(Role.EMBEDDING):
        raise NotApplicable("a model has no tokenizer, or no embedding")
    height = anatomy.shape(anatomy.of(Role.EMBEDDING)[0])[0]
    return {token: id for token, id in vocabulary.ids.items() if id < height}


def _rows(anatomy: Anatomy, ids: Sequence[int]) -> Floats:
    return np.asarray(anatomy.read(anatomy.of(Role.EMBEDDING)[0])[list(ids)], dtype=np.float64)


def cosine(a: Floats, b: Floats) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / size if size else 0.0


def units(rows: Floats) -> Floats:
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(size > 0, size, 1)


def best_assignment(likeness: Floats) -> NDArray[np.intp]:
    """For every row a column of its own, most likeness in all; rows at most as many as columns."""
    return np.asarray(linear_sum_assignment(likeness, maximize=True)[1], dtype=np.intp)
