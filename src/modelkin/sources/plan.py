"""Wanted extents -> the requests worth making: near ones joined, large ones split, held ones left out."""

from __future__ import annotations

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


def assemble(extent: Extent, pieces: Mapping[Extent, bytes | memoryview], order: Sequence[Extent]) -> memoryview:
    """The bytes of `extent` out of fetched pieces; `order` lists the pieces of this file, sorted by start."""
    found: list[memoryview] = []
    at = extent.start
    for piece in order:
        if piece.stop <= at or at >= extent.stop:
            continue
        if piece.start > at:
            break
        found.append(memoryview(pieces[piece])[at - piece.start : min(piece.stop, extent.stop) - piece.start])
        at = min(piece.stop, extent.stop)
    if at < extent.stop:
        raise AssertionError(f"the plan does not cover {extent}")
    return found[0] if len(found) == 1 else memoryview(b"".join(found))
