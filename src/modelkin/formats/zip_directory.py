"""The table of contents of a zip file, read over byte ranges; entries must be stored as they are.

The central directory at the end is the only authority on sizes. Where an entry's bytes begin is known only to the
small header in front of them, whose own name and padding lengths count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from modelkin.errors import HeaderLies, UnsupportedFormat
from modelkin.formats.parts import MAX_TENSORS, Steps, shown
from modelkin.records import Extent, FileFact

HEAD = 256 << 10
TAIL = 64 << 10
MAX_DIRECTORY = 256 << 20
HINT = "load it where you trust it and save it again as safetensors"

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL32 = 0xFFFFFFFF


class Entry(msgspec.Struct, frozen=True):
    name: str
    header: int  # where its local header begins
    size: int


class Pieces:
    """The ranges of one file that are already held; anything else is asked for."""

    def __init__(self, fact: FileFact, where: str) -> None:
        self.fact = fact
        self.where = where
        self._held: list[tuple[int, memoryview]] = []

    def get(self, *spans: tuple[int, int]) -> Steps[list[memoryview]]:
        """The bytes of each span (start, stop); those not held come in one round."""
        missing = [Extent(self.fact.name, *span) for span in spans if self._find(*span) is None]
        if missing:
            views = yield missing
            fetched = {(extent.start, extent.stop): view for extent, view in zip(missing, views, strict=True)}
        return [found if (found := self._find(*span)) is not None else fetched[span] for span in spans]

    def open(self) -> Steps[memoryview]:
        """The head and the tail of the file side by side, kept; the head is returned."""
        size = self.fact.size
        spans = [(0, size)] if size <= HEAD + TAIL else [(0, HEAD), (size - TAIL, size)]
        views = yield [Extent(self.fact.name, *span) for span in spans]
        self._held = [(start, view) for (start, _), view in zip(spans, views, strict=True)]
        return views[0]

    def _find(self, start: int, stop: int) -> memoryview | None:
        for begin, view in self._held:
            if begin <= start and stop <= begin + len(view):
                return view[start - begin : stop - begin]
        return None


class Directory(msgspec.Struct, frozen=True):
    entries: dict[str, Entry]
    start: int  # of the central directory; every entry ends before it


def read_directory(pieces: Pieces) -> Steps[Directory]:
    """The entries of a zip file by name, checked against each other and the file."""
    start, stop, count = yield from _directory_span(pieces)
    (view,) = yield from pieces.get((start, stop))
    entries: dict[str, Entry] = {}
    for entry in _entries(bytes(view), count, pieces.where):
        if entry.name in entries:
            raise HeaderLies(f"the entry {shown(entry.name)} appears twice in the zip file", where=pieces.where)
        if entry.header + _LOCAL.size + len(entry.name.encode()) + entry.size > start:
            raise HeaderLies(
                f"the entry {shown(entry.name)} of {entry.size} bytes at {entry.header} does not end before the "
                f"directory at {start}",
                where=pieces.where,
            )
        entries[entry.name] = entry
    return Directory(entries, start)


def locate(pieces: Pieces, directory: Directory, wanted: Sequence[Entry]) -> Steps[list[tuple[int, int]]]:
    """Where the bytes of each entry lie (start, stop), by its own local header; one round for all."""
    names = [entry.name.encode() for entry in wanted]
    spans = [(e.header, e.header + _LOCAL.size + len(name)) for e, name in zip(wanted, names, strict=True)]
    headers = yield from pieces.get(*spans)
    found = []
    for entry, name, (_, after), view in zip(wanted, names, spans, headers, strict=True):
        fields = _LOCAL.unpack_from(view)
        if fields[0] != b"PK\3\4" or fields[9] != len(name) or bytes(view[_LOCAL.size :]) != name:
            raise HeaderLies(f"no local header of {shown(entry.name)} at {entry.header}", where=pieces.where)
        _check_plain(entry.name, fields[2], fields[3], pieces.where)
        start = after + fields[10]
        if start + entry.size > directory.start:
            raise HeaderLies(f"the bytes of {shown(entry.name)} run into the directory", where=pieces.where)
        found.append((start, start + entry.size))
    return found


def _directory_span(pieces: Pieces) -> Steps[tuple[int, int, int]]:
    """Start, stop and number of entries of the central directory."""
    size, where = pieces.fact.size, pieces.where
    tail_start = max(0, size - TAIL)
    (tail,) = yield from pieces.get((tail_start, size))
    end = tail_start + _end_record(bytes(tail), where)
    _, disk, first_disk, here, count, length, start, _ = _END.unpack_from(tail, end - tail_start)
    stop = end
    locator_at = end - _LOCATOR64.size
    if locator_at >= tail_start and bytes(tail[locator_at - tail_start :][:4]) == b"PK\6\7":
        stop = _LOCATOR64.unpack_from(tail, locator_at - tail_start)[2]
        if stop + _END64.size > locator_at:
            raise HeaderLies(f"the zip64 record at {stop} does not end before its locator", where=where)
        (record,) = yield from pieces.get((stop, stop + _END64.size))
        magic, _, _, _, disk, first_disk, here, count, length, start = _END64.unpack(record)
        if magic != b"PK\6\6":
            raise HeaderLies(f"no zip64 record at {stop}", where=where)
    if disk or first_disk or here != count:
        raise UnsupportedFormat("a zip file in several volumes is not read", where=where, hint=HINT)
    if start + length != stop or count > MAX_TENSORS or count * _CENTRAL.size > length or length > MAX_DIRECTORY:
        raise HeaderLies(
            f"expected a zip directory of {count} entries that ends at {stop}, found {length} bytes at {start}",
            where=where,
        )
    return start, stop, count


def _end_record(tail: bytes, where: str) -> int:
    """Where in the tail the end record lies: the last one whose comment reaches exactly the end of the file."""
    position = tail.rfind(b"PK\5\6")
    while position >= 0:
        record = tail[position : position + _END.size]
        if len(record) == _END.size and position + _END.size + _END.unpack(record)[7] == len(tail):
            return position
        position = tail.rfind(b"PK\5\6", 0, position)
    raise HeaderLies("no zip directory at the end of the file", where=where, hint="the file may be cut short")


def _entries(directory: bytes, count: int, where: str) -> Iterator[Entry]:
    position = 0
    for _ in range(count):
        if position + _CENTRAL.size > len(directory):
            raise HeaderLies(f"the zip directory ends inside an entry; it promised {count}", where=where)
        fields = _CENTRAL.unpack_from(directory, position)
        name_at = position + _CENTRAL.size
        extra_at = name_at + fields[10]
        position = extra_at + fields[11] + fields[12]
        if fields[0] != b"PK\1\2" or position > len(directory):
            raise HeaderLies(f"the zip directory holds no entry at its byte {name_at - _CENTRAL.size}", where=where)
        try:
            name = directory[name_at:extra_at].decode()
        except UnicodeDecodeError as error:
            raise HeaderLies("a name in the zip directory is not UTF-8", where=where) from error
        _check_plain(name, fields[3], fields[4], where)
        packed, size, header = _wide_fields(directory[extra_at : extra_at + fields[11]], fields, name, where)
        if packed != size:
            raise HeaderLies(f"the entry {shown(name)} is stored as {packed} bytes but holds {size}", where=where)
        yield Entry(name, header, size)
    if position != len(directory):
        raise HeaderLies(f"{len(directory) - position} bytes of the zip directory belong to no entry", where=where)


def _check_plain(name: str, flags: int, method: int, where: str) -> None:
    if flags & 1:
        raise UnsupportedFormat(f"the entry {shown(name)} is encrypted", where=where, hint=HINT)
    if method != 0:
        raise UnsupportedFormat(
            f"the entry {shown(name)} is compressed (method {method}); only stored entries can be read in ranges",
            where=where,
            hint=HINT,
        )


def _wide_fields(extra: bytes, fields: tuple[int, ...], name: str, where: str) -> tuple[int, int, int]:
    """Packed size, size and header offset; the 64-bit ones lie in extra field 1, in the order of the full ones."""
    size, packed, header = fields[9], fields[8], fields[16]
    wide = _zip64_values(extra)
    try:
        size = next(wide) if size == _FULL32 else size
        packed = next(wide) if packed == _FULL32 else packed
        header = next(wide) if header == _FULL32 else header
    except StopIteration:
        raise HeaderLies(f"the entry {shown(name)} lacks its 64-bit sizes", where=where) from None
    return packed, size, header


def _zip64_values(extra: bytes) -> Iterator[int]:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1:
            body = extra[4 : 4 + length]
            return iter(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
        extra = extra[4 + length :]
    return iter(())
