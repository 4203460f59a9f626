"""Every tensor of two models compared to its end: which of them are the same, under any name, place or float format.

The first row of every tensor is read of both models, and only tensors whose first row stands in the other model are
read to their end, or as far as a budget goes (see `tensor_sample`). So strangers cost a row a tensor, and a copy costs
reading both models once. In memory are one block of rows, or one matrix where a model stores it transposed, and a
digest a tensor. What was read is kept on a shelf, part by part, so that an interrupted comparison goes on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol, TypeVar

from modelkin.architectures import Anatomy
from modelkin.questions.copies import ID, Copied, Sighting, answered, equal_rows
from modelkin.questions.digests import Fingerprint, TensorDigest, coarser, rounded
from modelkin.questions.question import Cuts, Pair
from modelkin.questions.stored_tensors import Side, Standing, Tensor, is_nameless, sides_of
from modelkin.records import Answer, Slot, Unanswered
from modelkin.sampling.readings import Readings, transfer_of

WHAT = "comparing whole tensors"
PART = 1 << 28  # numbers that are read between two entries on the shelf
FEWEST_WITHOUT_ROLE = 2  # one may be something drawn from the seed of a library; a tower has many
STANDARD_BYTES = 60_000_000  # of a model whose names say nothing, with what other questions have read of it

Progress = Callable[[str, int, int], None]
T = TypeVar("T")


class Shelf(Protocol):
    """Where finished parts are kept for a later run."""

    def recall(self, name: str, kind: type[T]) -> T | None: ...
    def keep(self, name: str, entry: object) -> None: ...


def copied_tensors(pair: Pair, a: Readings, b: Readings, progress: Progress, shelf: Shelf | None = None) -> Answer:
    """From what was read anyway; from the tensors themselves at `full`, and where names do not say what to read."""
    if pair.budget == "full":
        return equal_tensors(pair.a, pair.b, progress, shelf)
    if is_nameless(pair.a) or is_nameless(pair.b):
        return equal_tensors(pair.a, pair.b, progress, shelf, bytes_left(pair, (list(a.arrays), list(b.arrays))))
    return equal_rows(a, b, max(side.parameters for side in sides_of(pair.a, pair.b)))


def bytes_left(pair: Pair, read: Cuts) -> int:
    """Of what `standard` may read of each model, after these cuts."""
    spent = max(transfer_of(anatomy, cuts) for anatomy, cuts in zip((pair.a, pair.b), read, strict=True))
    return max(0, STANDARD_BYTES - spent)


def equal_tensors(
    a: Anatomy, b: Anatomy, progress: Progress, shelf: Shelf | None = None, most_bytes: int | None = None
) -> Answer:
    """Reads both models as far as they may be the same; no more than `most_bytes` of each, by a sample of tensors."""
    sides = sides_of(a, b, most_bytes)
    if not all(side.stored for side in sides):
        return Unanswered(ID, f"{'A' if not sides[0].stored else 'B'} has no tensors that can be read")
    if most_bytes is not None and not sides[1].tensors:
        return Unanswered(ID, "no tensors of the two have the same shape and rows few enough for what may be read")
    forms = [_forms(side, other) for side, other in (sides, sides[::-1])]
    starts = [_starts(side, some) for side, some in zip(sides, forms, strict=True)]
    found = _fingerprints(sides, forms, starts, progress, shelf)
    return answered(
        Sighting(
            looked_at={tensor.thing: tensor.values for tensor in sides[1].tensors},
            copied=_counted(_matches(*found), sides),
            in_place=in_place(*found),
            parameters=max(side.parameters for side in sides),
            whole=all(tensor.is_whole for side in sides for tensor in side.tensors),
            stored=sides[1].stored,
        )
    )


Forms = Mapping[Tensor, Collection[str]]
Starts = Mapping[Tensor, Collection[tuple[str, str]]]  # (format, digest of the first row in it)
Fingerprints = Mapping[Tensor, Fingerprint]
Match = tuple[Tensor, Tensor, Copied]


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


def _fingerprints(
    sides: Sequence[Side], forms: Sequence[Forms], starts: Sequence[Starts], progress: Progress, shelf: Shelf | None
) -> tuple[dict[Tensor, Fingerprint], dict[Tensor, Fingerprint]]:
    """Of every tensor whose first row stands in the other model."""
    met = [{start for found in side.values() for start in found} for side in starts]
    shared = met[0] & met[1]
    wanted = [[t for t, found in side.items() if shared.intersection(found)] for side in starts]
    total, done = sum(tensor.values for side in wanted for tensor in side), 0

    def count(numbers: int) -> None:
        nonlocal done
        done += numbers
        progress(WHAT, done, total)

    found: tuple[dict[Tensor, Fingerprint], dict[Tensor, Fingerprint]] = ({}, {})
    for name, side, some, tensors, result in zip(("a", "b"), sides, forms, wanted, found, strict=True):
        for i, part in enumerate(_parts(tensors)):
            entry = f"tensors of {name}, part {i}"
            seen = None if shelf is None else shelf.recall(entry, list[Fingerprint])
            if seen is None:
                seen = [_read_whole(side, tensor, some[tensor], count) for tensor in part]
                if shelf is not None:
                    shelf.keep(entry, seen)
            else:
                count(sum(tensor.values for tensor in part))
            result.update(zip(part, seen, strict=True))
    return found


def _parts(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    part: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        part.append(tensor)
        numbers += tensor.values
        if numbers >= PART:
            yield part
            part, numbers = [], 0
    if part:
        yield part


def _read_whole(side: Side, tensor: Tensor, forms: Collection[str], count: Callable[[int], None]) -> Fingerprint:
    digest = TensorDigest(forms, tensor.shape)
    for block in side.blocks(tensor):
        digest.update(block)
        count(block.size)
    return digest.finished()


def _matches(a: Fingerprints, b: Fingerprints) -> list[Match]:
    """For every tensor of b one of a: that in its own place before others."""
    places: dict[tuple[tuple[int, ...], str, str], list[Tensor]] = defaultdict(list)
    for tensor, seen in a.items():
        for form, digest in seen.hashes.items():
            places[tensor.shape, form, digest].append(tensor)
    found = []
    for tensor, seen in b.items():
        alike = [
            (other, form)
            for form, digest in seen.hashes.items()
            for other in places[tensor.shape, form, digest]
            if coarser(other.form, tensor.form) == form
        ]
        if alike:
            other, form = min(alike, key=lambda match: (match[0].thing != tensor.thing, match[0].dtype != tensor.dtype))
            cast = form if other.dtype != tensor.dtype else ""
            copied = Copied(other.thing, tensor.thing, tensor.values, cast, seen.says_something)
            found.append((other, tensor, copied))
    return found


def _counted(matches: Sequence[Match], sides: Sequence[Side]) -> list[Copied]:
    """What may count. A buffer never does; nor does a single tensor of which neither model tells the role.

    Names that say nothing of a weight, in both models, count only if together they are most of the model: no seed of a
    library fills that.
    """
    standings = [_standing(match, sides) for match in matches]
    weighed = [(copied, standing) for (_, _, copied), standing in zip(matches, standings, strict=True) if copied.counts]
    without_role = [(copied, standing) for copied, standing in weighed if Standing.BUFFER < standing < Standing.LEARNED]
    nameless = sum(copied.values for copied, standing in without_role if standing is Standing.NAMELESS)
    accepted = {Standing.LEARNED}
    if len(without_role) >= FEWEST_WITHOUT_ROLE:
        accepted |= {Standing.NAMED}
        if all(2 * nameless * side.share > _looked_at(side) for side in sides):
            accepted |= {Standing.NAMELESS}
    return [
        replace(copied, counts=copied.counts and standing in accepted)
        for (_, _, copied), standing in zip(matches, standings, strict=True)
    ]


def _standing(match: Match, sides: Sequence[Side]) -> Standing:
    """What either model knows of the tensor, unless one knows it for a buffer."""
    mine, theirs = sides[0].standing(match[0]), sides[1].standing(match[1])
    return max(mine, theirs) if Standing.BUFFER not in (mine, theirs) else Standing.BUFFER


def _looked_at(side: Side) -> int:
    return sum(tensor.values for tensor in side.tensors)


def in_place(a: Fingerprints, b: Fingerprints) -> int:
    """Numbers that are the same to the byte and in their place; a tensor without a role may stand in any place.

    Each tensor meets one other at most. Of the rest with equal bytes, tensors in two different places do not meet: so
    as many pairs are found as the smaller side has, and no more than there are tensors without a place.
    """
    same = {tensor for tensor in b if tensor in a and _bytes(tensor, a) == _bytes(tensor, b)}
    rest = [[(_bytes(t, side), isinstance(t.thing, Slot)) for t in side if t not in same] for side in (a, b)]
    sizes = {_bytes(tensor, b): tensor.values for tensor in b}
    total = [Counter(key for key, _ in side) for side in rest]
    free = Counter(key for side in rest for key, has_place in side if not has_place)
    pairs = {key: min(total[0][key], total[1][key], free[key]) for key in total[0].keys() & total[1].keys()}
    return sum(t.values for t in same if _is_exact(t)) + sum(
        sizes[key] * count for key, count in pairs.items() if key[1] != "F64"
    )


Bytes = tuple[tuple[int, ...], str, str]


def _bytes(tensor: Tensor, seen: Fingerprints) -> Bytes:
    return tensor.shape, tensor.dtype, seen[tensor].hashes.get(tensor.form, "")


def _is_exact(tensor: Tensor) -> bool:
    """Numbers of eight bytes are read as numbers of four."""
    return tensor.dtype != "F64"
