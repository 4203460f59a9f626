"""What the relation reads: two models through one interface, slot beside slot, in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.alignment import Rewritten
from modelkin.architectures.anatomy import Facts
from modelkin.records import Role, Slot
from modelkin.sampling.facing import facing

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
LayerMap = tuple[tuple[str, str | None], ...]
ExpertMap = Mapping[str, Mapping[int, int]]  # by layer of b: expert of b, expert of a
BLOCK = 8 << 20  # numbers held at once where only sums are taken
MOST_HELD = 128 << 20  # numbers of one tensor
NUMBERED: ExpertMap = {}
EMBEDDING, HEAD = Slot(Role.EMBEDDING), Slot(Role.HEAD)
VOCABULARY = (Role.EMBEDDING, Role.HEAD, Role.HEAD_BIAS)
ROUTING = (Role.ROUTER, Role.ROUTER_BIAS)
# Matrices inside the layers: what training moves, quantisers quantise and adapters change.
LINEAR = frozenset({
    Role.Q, Role.K, Role.V, Role.O, Role.Q_A, Role.Q_B, Role.KV_A, Role.KV_B, Role.CROSS_Q, Role.CROSS_K, Role.CROSS_V,
    Role.CROSS_O, Role.GATE, Role.UP, Role.DOWN, Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN,
})  # fmt: skip
ATTENTION = frozenset({
    Role.Q, Role.K, Role.V, Role.O, Role.Q_A, Role.Q_B, Role.KV_A, Role.KV_B, Role.CROSS_Q, Role.CROSS_K, Role.CROSS_V,
    Role.CROSS_O,
})  # fmt: skip
MLP = LINEAR - ATTENTION


class Weights(Protocol):
    """An Anatomy, or one rewritten in the coordinates of another."""

    @property
    def facts(self) -> Facts: ...
    @property
    def slots(self) -> Mapping[Slot, Any]: ...
    @property
    def layers(self) -> tuple[str, ...]: ...
    def read(self, slot: Slot, rows: Any = None) -> Floats: ...
    def shape(self, slot: Slot) -> tuple[int, ...]: ...
    def dtype(self, slot: Slot) -> str: ...


def as_stored(weights: Weights) -> Weights:
    """The model as its files have it, where it was rewritten in the coordinates of another."""
    return weights.alignment.b if isinstance(weights, Rewritten) else weights


@dataclass(eq=False)
class Held:
    """Reads of a rewritten model, one tensor held: turning a matrix back for every block of its rows would take long.

    Vocabularies are too large for that, and are read in rows as before.
    """

    whole: Rewritten
    _slot: Slot | None = None
    _values: Floats | None = None

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        if slot.role in VOCABULARY or int(np.prod(self.whole.shape(slot))) > MOST_HELD:
            return self.whole.read(slot, rows)
        if self._values is None or self._slot != slot:
            self._values = None  # before the next is made: two would be one too many
            self._slot, self._values = slot, self.whole.read(slot)
        return self._values if rows is None else self._values[rows]


class Reader(Protocol):
    def read(self, slot: Slot, rows: Any = None) -> Floats: ...


def reader(weights: Weights) -> Reader:
    """What to read tensor after tensor with."""
    return Held(weights) if isinstance(weights, Rewritten) else weights


@dataclass(frozen=True, eq=False)
class Tokens:
    """Rows of the vocabulary that stand for the same token in both models, and those of tokens that one has alone.

    `known`: by their tokenizers. Otherwise rows are taken by number, and what they stand for nobody knows.
    """

    a: Indices
    b: Indices
    only_a: Indices
    only_b: Indices
    known: bool = True
    ascending: tuple[float | None, float | None] = (None, None)  # share of merges whose numbers rise, in a and in b

    def exchanged(self) -> Tokens:
        """With the models in the other order."""
        return Tokens(self.b, self.a, self.only_b, self.only_a, self.known, self.ascending[::-1])


def tokens_by_content(a: Mapping[bytes, int], b: Mapping[bytes, int], rows: tuple[int, int]) -> Tokens:
    """From what two vocabularies call `ids`; numbers beyond the rows of an embedding stand for nothing."""
    mine, theirs = ({t: i for t, i in side.items() if i < limit} for side, limit in zip((a, b), rows, strict=True))
    common = sorted(mine.keys() & theirs.keys(), key=lambda token: theirs[token])
    only = [sorted(i for t, i in side.items() if t not in other) for side, other in ((mine, theirs), (theirs, mine))]
    return Tokens(
        np.array([mine[t] for t in common], dtype=np.intp),
        np.array([theirs[t] for t in common], dtype=np.intp),
        np.array(only[0], dtype=np.intp),
        np.array(only[1], dtype=np.intp),
    )


def tokens_by_number(rows: tuple[int, int]) -> Tokens:
    """Where no tokenizer tells: as many rows as both have."""
    both = np.arange(min(rows), dtype=np.intp)
    more_a, more_b = (np.arange(len(both), count, dtype=np.intp) for count in rows)
    return Tokens(both, both, more_a, more_b, known=False)


@dataclass(frozen=True, eq=False)
class FacingSlots:
    """A slot of a beside one of b; for rows of a vocabulary, or of a router, which row stands for which.

    `read_as`: as what b's is read, where one table does two things.
    """

    a: Slot
    b: Slot
    tokens: Tokens | None = None
    read_as: Slot | None = None

    @property
    def read_b(self) -> Slot:
        return self.b if self.read_as is None else self.read_as

    def shape(self, a: Weights) -> tuple[int, ...]:
        """What can be compared."""
        return a.shape(self.a) if self.tokens is None else (len(self.tokens.a), *a.shape(self.a)[1:])


def facing_slots(
    a: Weights, b: Weights, layers: LayerMap, tokens: Tokens | None, experts: ExpertMap = NUMBERED
) -> list[FacingSlots]:
    """Every slot of b beside the slot of a that it continues by the layer map, if the shapes allow.

    Where one of the two has one table for embedding and head, the head of the other stands beside that. Experts of
    layers that `experts` does not name stand beside those of the same number.
    """
    continued = dict(layers)
    found = []
    for slot in b.slots:
        other = counterpart(slot, continued, experts)
        if slot.role is Role.HEAD and other not in a.slots and a.facts.tied:
            other = msgspec.structs.replace(slot, role=Role.EMBEDDING)
        if other is None or other not in a.slots:
            continue
        shape_a, shape_b = a.shape(other), b.shape(slot)
        by_token = tokens if slot.role in VOCABULARY and not _as_numbered(tokens, shape_a, shape_b) else None
        if slot.role in ROUTING and slot.layer_name in experts:
            by_token = _routed(experts[slot.layer_name], shape_a[0], shape_b[0])
        fits = shape_a == shape_b if by_token is None else shape_a[1:] == shape_b[1:] and len(by_token.a) > 0
        if fits and np.prod(shape_b):
            found.append(FacingSlots(other, slot, by_token))
    return found + _head_beside_embedding(a, b, found)


def _head_beside_embedding(a: Weights, b: Weights, found: Sequence[FacingSlots]) -> list[FacingSlots]:
    """The head of a beside the one table of b; read as a head where b is turned back, for then gains matter."""
    if HEAD not in a.slots or HEAD in b.slots or not b.facts.tied:
        return []
    tables = [pair for pair in found if pair.b == EMBEDDING and a.shape(HEAD) == a.shape(pair.a)]
    read_as = HEAD if isinstance(b, Rewritten) else None
    return [FacingSlots(HEAD, pair.b, pair.tokens, read_as) for pair in tables]


def _as_numbered(tokens: Tokens | None, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """One vocabulary in one order: rows that pad it count too."""
    return tokens is None or (
        a == b and not len(tokens.only_a) + len(tokens.only_b) and np.array_equal(tokens.a, tokens.b)
    )


def _routed(experts: Mapping[int, int], rows_a: int, rows_b: int) -> Tokens:
    """Rows of two routers that choose the same expert."""
    in_a, in_b = (np.array(list(some), dtype=np.intp) for some in (experts.values(), experts))
    return Tokens(in_a, in_b, np.setdiff1d(np.arange(rows_a), in_a), np.setdiff1d(np.arange(rows_b), in_b))


def counterpart(slot: Slot, continued: Mapping[str, str | None], experts: ExpertMap = NUMBERED) -> Slot | None:
    """The slot of a that one of b continues by the layer map, and by that of experts."""
    if slot.layer is None:
        return slot
    name = continued.get(slot.layer_name)
    if name is None:
        return None
    if slot.expert is None or slot.layer_name not in experts:
        return in_layer(slot, name)
    expert = experts[slot.layer_name].get(slot.expert)
    return None if expert is None else in_layer(msgspec.structs.replace(slot, expert=expert), name)


def in_layer(slot: Slot, name: str) -> Slot:
    """The same slot of another layer, called `3` or `encoder.3`."""
    stack, _, layer = name.rpartition(".")
    return Slot(slot.role, layer=int(layer), expert=slot.expert, stack=stack)


def default_map(a: Sequence[str], b: Sequence[str]) -> LayerMap:
    """Where no layer map was found, layers as they face each other."""
    beside = {name_b: name_a for name_a, name_b in facing(a, b)}
    return tuple((name, beside.get(name)) for name in b)


def blocks(a: Weights, b: Reader, pair: FacingSlots) -> Iterator[tuple[Floats, Floats]]:
    """Both tensors from the first row to the last, a part at a time."""
    shape = pair.shape(a)
    height, width = shape[0], int(np.prod(shape[1:]))
    step = max(1, BLOCK // max(1, width))
    for start in range(0, height, step):
        stop = min(start + step, height)
        if pair.tokens is not None:
            yield a.read(pair.a, pair.tokens.a[start:stop]), b.read(pair.read_b, pair.tokens.b[start:stop])
        else:
            rows = None if step >= height else slice(start, stop)
            yield a.read(pair.a, rows), b.read(pair.read_b, rows)


def spread(count: int, most: int) -> Indices:
    """At most so many numbers below `count`, evenly."""
    return np.arange(count, dtype=np.intp) if count <= most else np.linspace(0, count - 1, most).astype(np.intp)
