"""The second, independent route: the rotation that the embeddings of shared tokens show, judged on other tokens.

Tokens that mean the same stand alike in unrelated models too, so a little likeness is no evidence: strangers trained on
the same text with the same tokens have some. It says how the stream was turned where embeddings were kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.matching import Rotation, assigned, procrustes
from modelkin.alignment.sides import unit
from modelkin.architectures import Anatomy
from modelkin.errors import UnreadableError
from modelkin.records import Role, Slot

Floats = NDArray[np.float32]
FEWEST, MOST = 64, 16_384
SHUFFLES = 20
AS_GOOD = 0.99  # of the cosine under the rotation: what a signed permutation must keep to explain it


@dataclass(frozen=True, eq=False)
class ByTokens:
    """Half of `n` shared tokens gave `rotation`; on the others the mean cosine is `held_out`.

    `chance` and its `spread` are what it is when tokens are dealt out at random. `axes` is the mean cosine when every
    axis of the narrower model may only be one of the other, or its negative: near `held_out` if axes were renumbered.
    """

    n: int
    held_out: float
    chance: float
    spread: float
    axes: float
    rotation: Rotation

    @property
    def renumbered(self) -> bool:
        return self.axes >= AS_GOOD * self.held_out


class NoTokens(ValueError):
    """Why embeddings cannot be compared, as a sentence."""


def by_tokens(a: Anatomy, b: Anatomy, rng: np.random.Generator) -> ByTokens:
    mine, theirs = shared_rows(a, b, rng)
    half = len(mine) // 2
    taught = _centred(mine[:half], mine[:half]), _centred(theirs[:half], theirs[:half])
    left, right = (unit(_centred(side[half:], side[:half])) for side in (mine, theirs))
    rotation = procrustes(*taught)
    shown = left @ rotation
    likeness = _mean_cosine(shown, right)
    dealt = [_mean_cosine(shown, right[rng.permutation(len(right))]) for _ in range(SHUFFLES)]
    return ByTokens(
        n=len(mine),
        held_out=likeness,
        chance=float(np.mean(dealt)),
        spread=float(np.std(dealt)),
        axes=_mean_cosine(left @ axes_of(taught[0].T @ taught[1], rng), right),
        rotation=rotation,
    )


def axes_of(product: NDArray[np.floating], rng: np.random.Generator) -> Rotation:
    """The signed permutation (of some axes, if one model is wider) nearest to a product of rows.  (d of a, d of b)"""
    chosen = assigned(np.abs(product.T), rng)
    found = np.zeros(product.shape, dtype=np.float32)
    b = np.flatnonzero(chosen >= 0)
    found[chosen[b], b] = np.where(product[chosen[b], b] < 0, -1.0, 1.0)
    return found


def _mean_cosine(left: Floats, right: Floats) -> float:
    """Rows of the second have length one already."""
    sizes = np.linalg.norm(left, axis=1)
    return float(np.mean(np.einsum("ij,ij->i", left, right) / np.where(sizes > 0, sizes, 1)))


def _centred(rows: Floats, over: Floats) -> Floats:
    """What all tokens have in common says nothing of any."""
    return np.asarray(rows - over.mean(axis=0), dtype=np.float32)


def shared_rows(a: Anatomy, b: Anatomy, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Embeddings of shared tokens, in an order of chance."""
    slots = _slot(a), _slot(b)
    ids = _ids(a, slots[0]), _ids(b, slots[1])
    shared = sorted(ids[0].keys() & ids[1].keys())
    most = min(MOST, 4 * max(a.shape(slots[0])[1], b.shape(slots[1])[1]))
    drawn = [shared[i] for i in rng.permutation(len(shared))[:most]]
    if len(drawn) < FEWEST:
        raise NoTokens(f"the vocabularies share {len(drawn)} tokens; {FEWEST} are needed")
    left, right = (
        side.read(slot, [known[token] for token in drawn]) for side, slot, known in zip((a, b), slots, ids, strict=True)
    )
    alive = _alive(left) & _alive(right)
    if int(alive.sum()) < FEWEST:
        raise NoTokens(f"only {int(alive.sum())} shared tokens have embeddings that can be compared")
    return left[alive], right[alive]


def _slot(anatomy: Anatomy) -> Slot:
    width = anatomy.facts.hidden
    found = [slot for slot in anatomy.of(Role.EMBEDDING) if anatomy.shape(slot)[1:] == (width,)]
    if not found:
        raise NoTokens(f"{anatomy.checkpoint.id} has no embedding as wide as its residual stream")
    return found[-1]


def _ids(anatomy: Anatomy, slot: Slot) -> dict[bytes, int]:
    try:
        vocabulary = anatomy.checkpoint.vocabulary
    except UnreadableError as error:
        raise NoTokens(f"a tokenizer cannot be read: {error}") from error
    if vocabulary is None:
        raise NoTokens(f"{anatomy.checkpoint.id} has no tokenizer, so nobody knows which row is whose")
    apart = {*vocabulary.added.values(), *vocabulary.special.values()}
    return {token: id for token, id in vocabulary.ids.items() if id not in apart and id < anatomy.shape(slot)[0]}


def _alive(rows: Floats) -> NDArray[np.bool_]:
    numbers = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0)
    return np.asarray(np.ptp(numbers, axis=1) > 0, dtype=np.bool_)
