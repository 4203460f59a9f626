"""Two models while they are being aligned: unit rows of their neurons, read again where keeping them costs too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import Block, Span, Unfit, blocks, gated, neurons
from modelkin.architectures import Anatomy

Floats = NDArray[np.float32]
Key = tuple[Block, Span | None]
Views = tuple[Floats | None, Floats, Floats]  # gate, up, down
Item = TypeVar("Item")
KEPT_BYTES = 512 << 20  # of unit rows a model
MOST_NEURONS = 1024  # that choose, a layer
LEAST_OF_A_BLOCK = 64
SMALL = 1 << 28  # numbers in all neurons of a model up to which every layer is looked at
MOST_EXPERTS = 8  # of a layer that are looked at


@dataclass(eq=False)
class Side:
    """One model. What was read of its neurons is kept up to KEPT_BYTES, first come, first kept; the last always."""

    anatomy: Anatomy
    kept: dict[Key, Views] = field(default_factory=dict)
    last: tuple[Key, Views] | None = None
    bytes: int = 0

    @cached_property
    def small(self) -> bool:
        return is_small(self.anatomy)

    def views(self, block: Block, span: Span | None, with_gate: bool) -> tuple[Floats, ...]:
        """Unit rows by which a neuron may be recognised: gate (if asked for), up and down.  (n, d) each"""
        key = block, span
        rows = self.last[1] if self.last is not None and self.last[0] == key else self.kept.get(key)
        gate, up, down = rows or self._read(key)
        return (up, down) if gate is None or not with_gate else (gate, up, down)

    def _read(self, key: Key) -> Views:
        self.last = None  # or two layers would lie in memory while the next is read
        raw = neurons(self.anatomy, *key)
        rows = (None if raw.gate is None else unit(raw.gate), unit(raw.up), unit(raw.down))
        size = sum(part.nbytes for part in rows if part is not None)
        if self.bytes + size <= KEPT_BYTES:
            self.bytes += size
            self.kept[key] = rows
        else:
            self.last = key, rows
        return rows


@dataclass(frozen=True)
class BlockPair:
    """A block of a beside one of b; of one of them all neurons, of the other those of a span may look for theirs."""

    a: Block
    b: Block
    span_a: Span | None = None
    span_b: Span | None = None


@dataclass(frozen=True, eq=False)
class Sides:
    a: Side
    b: Side
    rng: np.random.Generator
    reasons: list[str] = field(default_factory=list)  # why something was left out

    def note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def has_gates(self, pair: BlockPair) -> bool:
        return gated(self.a.anatomy, pair.a) and gated(self.b.anatomy, pair.b)

    def views(self, pair: BlockPair) -> list[tuple[Floats, Floats]]:
        """The same ways of looking at both."""
        gates = self.has_gates(pair)
        left = self.a.views(pair.a, pair.span_a, gates)
        return list(zip(left, self.b.views(pair.b, pair.span_b, gates), strict=True))

    def paired(
        self, a: str, b: str, experts: Sequence[tuple[int, int]] | None = None, most: int = MOST_NEURONS
    ) -> list[BlockPair]:
        """The blocks of two layers that may continue each other.

        Dense beside dense; dense beside every expert, for any may be made of it; experts beside the ones that
        `experts` names, by number where it is None. Of many experts a few.
        """
        mine, theirs = blocks(self.a.anatomy, a), blocks(self.b.anatomy, b)
        if not mine or not theirs:
            raise Unfit(f"layer {a if not mine else b} has no MLP neurons that were recognised")
        pairs = _beside(mine, theirs, experts)
        return [self._sampled(left, right, max(LEAST_OF_A_BLOCK, most // len(pairs))) for left, right in pairs]

    def _sampled(self, a: Block, b: Block, most: int) -> BlockPair:
        """Experts choose among the neurons of a dense layer; else those of b choose among those of a."""
        if a.expert >= 0 and b.expert < 0:
            return BlockPair(a, b, span(self.a.anatomy, a, most), None)
        return BlockPair(a, b, None, span(self.b.anatomy, b, most))


def span(anatomy: Anatomy, block: Block, most: int) -> Span | None:
    """Neurons stand in no order: those next to each other are as good as a scatter, and cheaper to read."""
    return None if anatomy.shape(block.slots()[1])[0] <= most else (0, most)


def _beside(
    mine: list[Block], theirs: list[Block], experts: Sequence[tuple[int, int]] | None
) -> list[tuple[Block, Block]]:
    dense = [[block for block in side if block.expert < 0] for side in (mine, theirs)]
    routed = [{block.expert: block for block in side if block.expert >= 0} for side in (mine, theirs)]
    if routed[0] and routed[1]:
        named = experts if experts is not None else [(number, number) for number in routed[0].keys() & routed[1].keys()]
        pairs = [(routed[0][i], routed[1][j]) for i, j in named if i in routed[0] and j in routed[1]]
        shared = [(left, right) for left in dense[0] for right in dense[1] if left.shared == right.shared]
        return [*evenly(pairs, MOST_EXPERTS), *shared]
    if not routed[0] and not routed[1]:
        return [(dense[0][0], dense[1][0])]
    left, right = (evenly([*routed[s].values()], MOST_EXPERTS) or [b for b in dense[s] if not b.shared] for s in (0, 1))
    return [(a, b) for a in left for b in right]


def is_small(anatomy: Anatomy) -> bool:
    """Whether all layers of it can be looked at in a few minutes."""
    sizes = (anatomy.shape(block.slots()[1]) for layer in anatomy.layers for block in blocks(anatomy, layer))
    return sum(3 * rows * width for rows, width in sizes) <= SMALL


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many, first and last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, most - 1))] for i in range(most)]


def unit(rows: Floats) -> Floats:
    """Rows of length one, in place; rows of zeros stay."""
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    np.divide(rows, largest, out=rows, where=largest > 0)
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, sizes, out=rows, where=sizes > 0)
    return rows
