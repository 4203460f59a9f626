"""Every tensor of two models compared to its end: which of them are the same, under any name, place or float format.

The first row of every tensor is read of both models, and only tensors whose first row stands in the other model are
read to their end. So strangers cost a row a tensor, and a copy costs reading both models once. In memory are one block
of rows, or one matrix where a model stores it transposed, and a digest a tensor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from modelkin.architectures import Anatomy
from modelkin.questions.copies import ID, Copied, Sighting, Thing, answered, equal_rows, may_count
from modelkin.questions.digests import ENOUGH_VALUES, Floats, TensorDigest, coarser, format_of, rounded
from modelkin.questions.question import Pair
from modelkin.records import Answer, Evidence, Slot, Unanswered
from modelkin.sampling.readings import Readings

BLOCK = 4 << 20  # numbers held at once
ROWS_AT_ONCE = 256  # first rows asked for in one batch
UNREADABLE = ("packed weights", "stored as", "empty tensor")
ALREADY_SEEN = ("the same bytes as", "tied to")
FIXED = "buffer determined by the config"
WHAT = "comparing whole tensors"
FEWEST_WITHOUT_ROLE = 2  # one may be something drawn from the seed of a library; a tower has many

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model: where it stands, and what `Side` needs to read it."""

    thing: Thing
    shape: tuple[int, ...]
    form: str

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        return self.shape[-1] if len(self.shape) > 1 else self.values

    @property
    def rows(self) -> int:
        return self.values // self.width


class Side:
    """One model as tensors that can be read row by row."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        refs = anatomy.checkpoint.tensors
        slots = [Tensor(slot, view.shape, format_of(anatomy.dtype(slot))) for slot, view in anatomy.slots.items()]
        names = [Tensor(name, refs[name].shape, format_of(refs[name].dtype)) for name in _without_role(anatomy)]
        self.tensors = [tensor for tensor in (*slots, *names) if tensor.values]

    @property
    def parameters(self) -> int:
        return sum(tensor.values for tensor in self.tensors)

    def first_rows(self) -> Iterator[tuple[Tensor, Floats]]:
        by_rows = [tensor for tensor in self.tensors if self._is_stored_by_rows(tensor)]
        for start in range(0, len(by_rows), ROWS_AT_ONCE):
            batch = by_rows[start : start + ROWS_AT_ONCE]
            yield from zip(batch, self._read([(tensor.thing, slice(0, 1)) for tensor in batch]), strict=True)
        for tensor in self.tensors:
            if not self._is_stored_by_rows(tensor):
                yield tensor, next(self.blocks(tensor)).reshape(tensor.rows, -1)[:1]

    def blocks(self, tensor: Tensor) -> Iterator[Floats]:
        """The rows in order, about 16 MB at a time."""
        step = max(1, BLOCK // tensor.width) if self._is_stored_by_rows(tensor) else tensor.rows
        for start in range(0, tensor.rows, step):
            rows = None if step >= tensor.rows else slice(start, min(start + step, tensor.rows))
            yield from self._read([(tensor.thing, rows)])

    def _read(self, wanted: Sequence[tuple[Thing, slice | None]]) -> list[Floats]:
        slots = [(thing, rows) for thing, rows in wanted if isinstance(thing, Slot)]
        names = [(thing, rows) for thing, rows in wanted if isinstance(thing, str)]
        by_slot, by_name = (
            iter(self.anatomy.read_many(slots, "stream")),
            iter(self.anatomy.checkpoint.read_many(names, "stream")),
        )
        return [next(by_slot if isinstance(thing, Slot) else by_name) for thing, _ in wanted]

    def _is_stored_by_rows(self, tensor: Tensor) -> bool:
        """A few rows of a transposed matrix cost all of it."""
        return isinstance(tensor.thing, str) or self.anatomy.view(tensor.thing).axis == "rows"


def _without_role(anatomy: Anatomy) -> list[str]:
    """Names of tensors that no slot claims and that could count; a tied copy has been seen in its first place."""
    skipped = (*UNREADABLE, *ALREADY_SEEN, FIXED)
    names = [name for name, why in anatomy.apart.items() if not why.startswith(skipped)]
    packed, tensors = anatomy.checkpoint.layout.packed, anatomy.checkpoint.tensors
    found = (name for name in (*anatomy.unmapped, *names) if name not in packed)
    floats = [name for name in found if tensors[name].dtype.startswith(("F", "BF"))]
    return [name for name in floats if len(tensors[name].shape) > 1 and tensors[name].parameters >= ENOUGH_VALUES]


def copied_tensors(pair: Pair, a: Readings, b: Readings, files: Answer, progress: Progress) -> Answer:
    """From what was read anyway; at `full`, and where the files do not say it already, from whole tensors."""
    if pair.budget == "full" and not (isinstance(files, Evidence) and files.effect == 1):
        return equal_tensors(pair.a, pair.b, progress)
    return equal_rows(a, b, max(Side(pair.a).parameters, Side(pair.b).parameters))


def equal_tensors(a: Anatomy, b: Anatomy, progress: Progress) -> Answer:
    """Reads both models as far as they may be the same."""
    sides = Side(a), Side(b)
    if not all(side.tensors for side in sides):
        return Unanswered(ID, f"{'A' if not sides[0].tensors else 'B'} has no tensors that can be read")
    forms = [_forms(side, other) for side, other in (sides, sides[::-1])]
    starts = [_starts(side, some) for side, some in zip(sides, forms, strict=True)]
    digests = _digests(sides, forms, starts, progress)
    copied = _not_alone(_matches(*digests))
    looked_at = {tensor.thing: tensor.values for tensor in sides[1].tensors}
    return answered(Sighting(looked_at, copied, max(side.parameters for side in sides), whole=True))


Forms = Mapping[Tensor, Collection[str]]
Starts = Mapping[Tensor, Collection[tuple[str, str]]]  # (format, digest of the first row in it)
Digests = Mapping[Tensor, TensorDigest]


def _forms(side: Side, other: Side) -> dict[Tensor, list[str]]:
    """In which formats a tensor may meet one of the other model of its shape."""
    there: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for tensor in other.tensors:
        there[tensor.shape].add(tensor.form)
    return {
        tensor: sorted({coarser(tensor.form, form) for form in there[tensor.shape]})
        for tensor in side.tensors
        if tensor.shape in there
    }


def _starts(side: Side, forms: Forms) -> dict[Tensor, list[tuple[str, str]]]:
    """Of tensors whose shape the other model has too."""
    return {
        tensor: [(form, f"{tensor.shape}{sha256(rounded(row, form).tobytes()).hexdigest()}") for form in forms[tensor]]
        for tensor, row in side.first_rows()
        if tensor in forms
    }


def _digests(
    sides: Sequence[Side], forms: Sequence[Forms], starts: Sequence[Starts], progress: Progress
) -> list[dict[Tensor, TensorDigest]]:
    met = [{start for found in side.values() for start in found} for side in starts]
    shared = met[0] & met[1]
    wanted = [[t for t, found in side.items() if shared.intersection(found)] for side in starts]
    total, done = sum(tensor.values for side in wanted for tensor in side), 0
    result: list[dict[Tensor, TensorDigest]] = []
    for side, some, tensors in zip(sides, forms, wanted, strict=True):
        found = {}
        for tensor in tensors:
            found[tensor] = digest = TensorDigest(some[tensor])
            for block in side.blocks(tensor):
                digest.update(block)
                done += block.size
                progress(WHAT, done, total)
        result.append(found)
    return result


def _matches(a: Digests, b: Digests) -> list[Copied]:
    """For every tensor of b one of a: that in its own place before others."""
    places: dict[tuple[tuple[int, ...], str, str], list[Tensor]] = defaultdict(list)
    for tensor, digest in a.items():
        for form in digest.forms:
            places[tensor.shape, form, digest.in_format(form)].append(tensor)
    found = []
    for tensor, digest in b.items():
        alike = [
            (other, form)
            for form in digest.forms
            for other in places[tensor.shape, form, digest.in_format(form)]
            if coarser(other.form, tensor.form) == form
        ]
        if alike:
            other, form = min(alike, key=lambda match: (match[0].thing != tensor.thing, match[1] != tensor.form))
            cast = form if other.form != tensor.form else ""
            counts = may_count(tensor.thing) and digest.says_something
            found.append(Copied(other.thing, tensor.thing, tensor.values, cast, counts))
    return found


def _not_alone(copied: list[Copied]) -> list[Copied]:
    """A single tensor that nobody knows the role of does not count."""
    without_role = [copy for copy in copied if copy.counts and isinstance(copy.b, str)]
    if len(without_role) >= FEWEST_WITHOUT_ROLE:
        return copied
    return [replace(copy, counts=copy.counts and copy not in without_role) for copy in copied]
