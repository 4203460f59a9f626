"""Every neuron of two layers called, a few blocks of rows at a time, and what was read hashed on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy
from modelkin.questions.exchangeability import Zeros, zeros
from modelkin.questions.experts import greatest_likeness
from modelkin.questions.question import Pair
from modelkin.records import Cut, ReadDigest, Role, Slot
from modelkin.stats import places_of
from modelkin.stats.arrays import unit_rows
from modelkin.stats.assignment import answerable, matches

BLOCK = 512  # an assignment takes some 20 ms; twice the neurons eight times as long
GROUP_NUMBERS = 16 << 20
NORMS = 128  # a layer, evenly spaced, for the check that neurons are not sorted by size
SUREST = 16  # one in so many of a block, those most like the one they chose
SKETCH_ROWS, SKETCH_COLUMNS = 64, 256  # enough to see that one layer is a copy of another, or what an index means

NO_ZEROS = Zeros()
WRITERS = {Role.DOWN: "down", Role.SHARED_DOWN: "down"}  # their columns are the neurons
SHARED_ROLES = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN)

Names = tuple[str, str]
Floats = NDArray[np.float64]
Single = NDArray[np.float32]
Span = tuple[int, int]
Told = Callable[[int], None]  # bytes of the weights that were read


class Calls(msgspec.Struct, frozen=True):
    """One projection of one set of neurons of two layers: how many found themselves in each block, of how many."""

    label: str
    fixed: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: int
    likeness: float | None  # median correlation of rows at one index
    zeros: Zeros = NO_ZEROS
    sure: int = 0  # of those that found themselves, in the surest part of every block
    chosen: int = 0  # neurons in that part
    share: float = 0.0  # of them that find themselves by chance

    @property
    def part(self) -> str:
        """Gate, up or down."""
        return self.label.rpartition(" ")[2]


class Places(msgspec.Struct, frozen=True):
    """Where the first rows of a set of neurons are largest, by all of its projections: int32 (looks, parts, rows)."""

    parts: int
    rows: int
    numbers: bytes

    @property
    def array(self) -> NDArray[np.intp]:
        return np.frombuffer(self.numbers, "<i4").astype(np.intp).reshape(-1, self.parts, self.rows)


class Side(msgspec.Struct, frozen=True):
    """What later steps need of one layer: row norms, a few rows, and the digests of what was read."""

    norms: tuple[float, ...]
    sketch: bytes  # float16, (rows, columns) as `width` says, the largest number of every row ±1
    width: int
    reads: tuple[ReadDigest, ...]
    experts_alike: float = (
        0.0  # mean correlation of rows of the two experts that are most alike; 1 where one serves all
    )
    places: tuple[Places, ...] = ()  # of the neurons whose rows the sketch holds, and of the first of the other kind


class LayerCalls(msgspec.Struct, frozen=True):
    """Two layers, called. `chosen`: the layer map chose them, and the rows that it looked at were left out."""

    names: Names
    chosen: bool
    calls: tuple[Calls, ...]
    a: Side
    b: Side


@dataclass(frozen=True)
class Matrices:
    """One projection of one set of neurons, of both models; `rows` that both have.

    Of a matrix whose columns are the neurons so many hidden `axes` are read; None where the rows are the neurons.
    """

    label: str
    a: Slot
    b: Slot
    rows: int
    axes: int | None = None


@dataclass(frozen=True)
class Task:
    """Two layers to be called; rows [looked_at) are left out."""

    names: Names
    chosen: bool
    matrices: tuple[Matrices, ...]
    looked_at: Span | None = None


def call_layers(pair: Pair, task: Task, told: Told) -> LayerCalls:
    """Every neuron of two layers. Chance depends on the seed and on names alone, never on what was called before."""
    a, b = _Stream(pair.a, told), _Stream(pair.b, told)
    key = f"every-neuron {task.names[0]} {task.names[1]}"
    rngs = {m.label: np.random.default_rng([pair.seed, crc32(f"{key} {m.label}".encode())]) for m in task.matrices}
    rows = [calls for rows in _by_rows(task.matrices) for calls in _called(rows, task.looked_at, a, b, rngs)]
    columns = [_called_by_columns(part, task.looked_at, a, b, rngs[part.label]) for part in task.matrices if part.axes]
    experts = a.experts_alike([part.a for part in task.matrices]), b.experts_alike([part.b for part in task.matrices])
    return LayerCalls(task.names, task.chosen, (*rows, *columns), a.side(experts[0]), b.side(experts[1]))


def _by_rows(matrices: Sequence[Matrices]) -> list[list[Matrices]]:
    found: dict[int, list[Matrices]] = {}
    for part in (part for part in matrices if part.axes is None):
        found.setdefault(part.rows, []).append(part)
    return list(found.values())


@dataclass
class _Tally:
    fixed: list[int]
    sizes: list[int]
    dropped: int
    likeness: list[Floats]
    zeros: Zeros = NO_ZEROS
    sure: int = 0
    chosen: int = 0
    share: float = 0.0

    def calls(self, label: str) -> Calls:
        likeness, sure = _median(self.likeness), (self.sure, self.chosen, self.share)
        return Calls(label, tuple(self.fixed), tuple(self.sizes), self.dropped, likeness, self.zeros, *sure)


def _called(
    matrices: Sequence[Matrices],
    looked_at: Span | None,
    a: _Stream,
    b: _Stream,
    rngs: Mapping[str, np.random.Generator],
) -> list[Calls]:
    """Matrices of equally many neurons, group by group, so that one that stands beside several is read once."""
    found = {part.label: _Tally([], [], 0, []) for part in matrices}
    for start, stop, blocks in _groups(matrices, looked_at, a, b):
        for part in matrices:
            left, right = a.rows(part.a, start, stop), b.rows(part.b, start, stop)
            for block in blocks:
                _call(left[block - start], right[block - start], found[part.label], rngs[part.label])
    return [tally.calls(label) for label, tally in found.items()]


def _called_by_columns(
    part: Matrices, looked_at: Span | None, a: _Stream, b: _Stream, rng: np.random.Generator
) -> Calls:
    """Neurons by what they write, each to the same hidden axes."""
    left, right = (side.rows(slot, 0, part.axes or 0).T for side, slot in ((a, part.a), (b, part.b)))
    tally = _Tally([], [], 0, [])
    for block in _blocks(part.rows, looked_at):
        _call(left[block], right[block], tally, rng)
    return tally.calls(part.label)


def _call(left: Single, right: Single, tally: _Tally, rng: np.random.Generator) -> None:
    """A roll call by the correlation of rows; in float64, so that no processor's rounding moves a count."""
    mine, theirs = _numbers(left), _numbers(right)
    clear = answerable(mine, theirs)
    tally.zeros += zeros(mine[clear], theirs[clear])
    mine, theirs = unit_rows(mine[clear]), unit_rows(theirs[clear])
    chosen = matches(mine, theirs, rng, "inner")
    tally.fixed.append(int(np.count_nonzero(chosen == np.arange(len(chosen)))))
    tally.sizes.append(len(chosen))
    tally.dropped += len(left) - len(chosen)
    tally.likeness.append(np.einsum("ij,ij->i", mine, theirs))
    _count_surest(tally, chosen, np.einsum("ij,ij->i", mine, theirs[chosen]))


def _count_surest(tally: _Tally, chosen: NDArray[np.intp], likeness: Floats) -> None:
    """Who is surest depends on the rows, never on the numbers that they have in b."""
    if not chosen.size:
        return
    surest = np.argsort(-likeness, kind="stable")[: -(-len(chosen) // SUREST)]
    tally.sure += int(np.count_nonzero(chosen[surest] == surest))
    tally.chosen += len(surest)
    tally.share += len(surest) / len(chosen)


def _numbers(rows: Single) -> Floats:
    """Rows that are not finite become zeros, and so are left out like other dead rows."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    return np.where(finite, rows, np.float32(0)).astype(np.float64)


def _median(likeness: Sequence[Floats]) -> float | None:
    values = np.concatenate(likeness) if likeness else np.empty(0)
    return float(np.median(values)) if values.size else None


def _groups(
    matrices: Sequence[Matrices], looked_at: Span | None, a: _Stream, b: _Stream
) -> Iterator[tuple[int, int, list[NDArray[np.intp]]]]:
    """Rows [start, stop) to read at a time, without gaps, and the blocks of neurons among them to call."""
    blocks = _blocks(matrices[0].rows, looked_at)
    by_rows = all(a.is_by_rows(part.a) and b.is_by_rows(part.b) for part in matrices)
    step = max(1, GROUP_NUMBERS // (BLOCK * a.anatomy.shape(matrices[0].a)[1])) if by_rows else len(blocks)
    start = 0
    for at in range(0, len(blocks), step):
        group = blocks[at : at + step]
        stop = int(group[-1][-1]) + 1
        yield start, stop, group
        start = stop


def _blocks(count: int, looked_at: Span | None) -> list[NDArray[np.intp]]:
    neurons = called_neurons(count, looked_at)
    return np.array_split(neurons, -(-len(neurons) // BLOCK))


def called_neurons(count: int, looked_at: Span | None) -> NDArray[np.intp]:
    neurons = np.arange(count)
    return neurons if looked_at is None else neurons[(neurons < looked_at[0]) | (neurons >= looked_at[1])]


class _Stream:
    """Rows of one layer of one model, in order, two matrices held at a time; what is read is hashed and sampled."""

    def __init__(self, anatomy: Anatomy, told: Told) -> None:
        self.anatomy = anatomy
        self._told = told
        self._held: dict[Slot, tuple[int, int, Single]] = {}
        self._hashes: dict[Slot, hashlib._Hash] = {}
        self._stops: dict[Slot, int] = {}
        self._norms: list[NDArray[np.float64]] = []
        self._sketches: dict[Slot, Single] = {}  # of the first of all matrices, and of the same one of every expert
        self._places: dict[bool, dict[Slot, NDArray[np.intp]]] = {}  # of shared experts or not, (looks, 1, rows) each
        self._first: Slot | None = None

    def is_by_rows(self, slot: Slot) -> bool:
        return self.anatomy.view(slot).axis == "rows"

    def rows(self, slot: Slot, start: int, stop: int) -> Single:
        held = self._held.get(slot)
        if held is not None and held[:2] == (start, stop):
            return held[2]
        while len(self._held) > 1 and slot not in self._held:
            del self._held[next(iter(self._held))]
        self._held.pop(slot, None)
        wanted = (slot, slice(start, stop))
        (array,) = self.anatomy.read_many([wanted], kind="stream")
        self._told(self.anatomy.bytes_of([wanted]))
        self._held[slot] = start, stop, array
        self._seen(slot, stop, array)
        return array

    def _seen(self, slot: Slot, stop: int, array: Single) -> None:
        self._hashes.setdefault(slot, hashlib.sha256()).update(np.ascontiguousarray(array, "<f4").data)
        self._stops[slot] = stop
        self._first = self._first or slot
        self._place(slot, array)
        if slot == self._first:
            self._norms.append(np.linalg.norm(_numbers(array), axis=1))
        if slot.role is self._first.role and slot not in self._sketches:
            self._sketches[slot] = _numbers(array[:SKETCH_ROWS, :SKETCH_COLUMNS]).astype(np.float32)

    def _place(self, slot: Slot, array: Single) -> None:
        """Of the first shared expert and of the first other one, or the dense MLP, the places by every projection."""
        found = self._places.setdefault(slot.role in SHARED_ROLES, {})
        if slot not in found and all(slot.expert == other.expert for other in found):
            rows = array.T if slot.role in WRITERS else array
            found[slot] = places_of([_numbers(rows[:SKETCH_ROWS])])

    def experts_alike(self, slots: Sequence[Slot]) -> float:
        """Of all that stand beside experts of the other model: 1 where one set of neurons does so several times."""
        asked = [slot for slot in slots if slot in self._sketches]
        return 1.0 if len(set(asked)) < len(asked) else greatest_likeness([self._sketches[slot] for slot in asked])

    def side(self, experts_alike: float) -> Side:
        norms = np.concatenate(self._norms)
        kept = norms[_evenly(len(norms), NORMS)]
        sketch = next(iter(self._sketches.values()))
        largest = np.maximum(np.max(np.abs(sketch), axis=1, keepdims=True), np.finfo(np.float32).tiny)
        rows = (sketch / largest).astype(np.float16)
        reads, places = tuple(self._reads()), tuple(_joined(list(found.values())) for found in self._places.values())
        return Side(tuple(kept.tolist()), rows.tobytes(), rows.shape[1], reads, experts_alike, places)

    def _reads(self) -> Iterator[ReadDigest]:
        """One digest a matrix; experts of a layer together, or the record of a wide mixture would be all digests."""
        found: dict[Slot, list[str]] = {}
        for slot, digest in self._hashes.items():
            found.setdefault(msgspec.structs.replace(slot, expert=None), []).append(digest.hexdigest())
        stops = {msgspec.structs.replace(slot, expert=None): stop for slot, stop in self._stops.items()}
        for slot, digests in found.items():
            one = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
            yield ReadDigest(cut=Cut(slot, 0, stops[slot]), sha256=one, matrices=len(digests))


def _joined(parts: Sequence[NDArray[np.intp]]) -> Places:
    rows = min(part.shape[2] for part in parts)
    joined = np.concatenate([part[:, :, :rows] for part in parts], axis=1)
    return Places(joined.shape[1], rows, joined.astype("<i4").tobytes())


def _evenly(count: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
