"""Wanted extents -> the requests worth making: near ones joined, large ones split, held ones left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from modelkin.records import Extent

# Reading a gap costs bytes, a second request costs a round trip; small gaps are the cheaper on any line, and the bytes
# count against the budget that a comparison promises to keep.
GAP = 64 << 10
# Large extents travel in parts, so that several connections share the work and a dropped one loses little.
PART = 8 << 20


def coalesced(extents: Iterable[Extent], gap: int = GAP, part: int = PART) -> list[Extent]:
    """Sorted extents that cover all the given ones, joined over gaps up to `gap`, none longer than `part`.

    A join never grows past `part`, so an extent is only ever split where it is itself longer than that.
    """
    joined: list[Extent] = []
    for extent in sorted(set(extents)):
        if extent.size == 0:
            continue
        last = joined[-1] if joined else None
        if last and last.file == extent.file and extent.start - last.stop <= gap:
            stop = max(last.stop, extent.stop)
            if stop - last.start <= part or extent.start < last.stop:
                joined[-1] = Extent(last.file, last.start, stop)
                continue
        joined.append(extent)
    return [piece for extent in joined for piece in _split(extent, part)]


def _split(extent: Extent, part: int) -> list[Extent]:
    starts = range(extent.start, extent.stop, part)
    return [Extent(extent.file, start, min(start + part, extent.stop)) for start in starts]


def covering(extent: Extent, pieces: Sequence[Extent]) -> list[Extent]:
    """Those of the pieces of a plan (sorted, as `coalesced` gives them) that `extent` is made of."""
    first = bisect_right(pieces, extent.start, key=lambda piece: piece.start) - 1
    found = []
    for piece in pieces[max(first, 0) :]:
        if piece.start >= extent.stop:
            break
        found.append(piece)
    return found


def assemble(extent: Extent, parts: Sequence[Extent], bodies: Mapping[Extent, bytes]) -> memoryview:
    """The bytes of `extent` out of the pieces that cover it."""
    views = []
    for part in parts:
        start, stop = max(extent.start, part.start), min(extent.stop, part.stop)
        views.append(memoryview(bodies[part])[start - part.start : stop - part.start])
    return views[0] if len(views) == 1 else memoryview(b"".join(views))
