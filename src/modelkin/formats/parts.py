"""What the readers of single files share: the part a file contributes, limits, and reading in rounds."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from modelkin.errors import HeaderLies
from modelkin.records import Extent, TensorRef
from modelkin.sources.protocol import Source

MAX_AXES = 32  # numpy 1 stops here
MAX_AXIS = 1 << 48
MAX_ELEMENTS = 1 << 56  # also counted with empty axes left out, or numpy could not even make an empty array of it
MAX_TENSORS = 1 << 20

T = TypeVar("T")
Steps = Generator[list[Extent], list[memoryview], T]
"""A reader that says which bytes it needs next, is sent them, and in the end returns what it found."""


class Part(msgspec.Struct, frozen=True):
    """What one weights file holds."""

    file: str
    tensors: tuple[TensorRef, ...]
    metadata: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()  # names that the file has, but no ref here


def read_together(source: Source, readers: Sequence[Steps[T]], kind: str = "header") -> list[T]:
    """Run readers side by side: in each round, what all of them ask for is a single read of the source.

    A reader goes on as soon as its own bytes have arrived, while those of others are still on the way.
    """
    found: dict[int, T] = {}
    asked: dict[int, list[Extent]] = {}

    def advance(number: int, views: list[memoryview] | None) -> None:
        try:
            asked[number] = next(readers[number]) if views is None else readers[number].send(views)
        except StopIteration as end:
            found[number] = end.value

    for number in range(len(readers)):
        advance(number, None)
    while asked:
        this_round, asked = asked, {}
        for number, views in _arrived(source, this_round, kind):
            advance(number, views)
    return [found[number] for number in range(len(readers))]


def _arrived(source: Source, asked: dict[int, list[Extent]], kind: str) -> Iterator[tuple[int, list[memoryview]]]:
    """Who asked, and all the bytes asked for, as soon as they are complete."""
    owners = [(number, index) for number, extents in asked.items() for index in range(len(extents))]
    views: dict[int, dict[int, memoryview]] = {number: {} for number in asked}
    yield from ((number, []) for number, extents in asked.items() if not extents)
    for place, view in source.arrivals([extent for extents in asked.values() for extent in extents], kind):
        number, index = owners[place]
        views[number][index] = view
        if len(views[number]) == len(asked[number]):
            yield number, [views[number][i] for i in range(len(asked[number]))]


def checked_shape(shape: Any, name: str, where: str) -> tuple[int, ...]:
    """A shape that a tensor can have, or HeaderLies."""
    sound = isinstance(shape, list | tuple) and len(shape) <= MAX_AXES
    elements = 1
    for axis in shape if sound else ():
        sound = sound and type(axis) is int and 0 <= axis < MAX_AXIS
        elements *= (axis or 1) if sound else 1
    if not sound:
        raise HeaderLies(
            f"tensor {shown(name)}: expected a shape of at most {MAX_AXES} whole numbers from 0 to 2^48, "
            f"found {shown(shape)}",
            where=where,
        )
    if elements >= MAX_ELEMENTS:
        raise HeaderLies(f"tensor {shown(name)}: the shape {shown(shape)} overflows any real file", where=where)
    return tuple(shape)


def is_text(name: str) -> bool:
    """Whether a name can be written out again; lone surrogates cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any, limit: int = 100) -> str:
    """A value from a file as safe, short text for a message; never recursive, never long."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= limit else f"{value[:limit]!a}…"
    if isinstance(value, list | tuple):
        inside = ", ".join(shown(item, 20) if not isinstance(item, list | tuple | dict) else "…" for item in value[:8])
        return f"[{inside}{', …' if len(value) > 8 else ''}]"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return repr(value)[:limit]
