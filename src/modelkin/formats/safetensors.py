"""The header of a safetensors file: a length, a flat JSON table, and the promise that offsets are true.

Nothing is believed before it has been checked against the size of the file. The table is walked member by member
rather than parsed at once, so that nesting, duplicate keys and junk are met before they can cost anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import prod
from operator import attrgetter
from typing import Any

import msgspec

from modelkin.errors import HeaderLies, UnsupportedFormat
from modelkin.formats.dtypes import BITS
from modelkin.formats.parts import MAX_AXES, MAX_TENSORS, Part, Steps, checked_shape, shown
from modelkin.records import Extent, FileFact, TensorRef

DEFAULT_PREFIX = 128 << 10
SMALLEST_PREFIX, LARGEST_PREFIX = 32 << 10, 1 << 20
SPARE, BLOCK = 24 << 10, 8 << 10
MAX_HEADER = 100_000_000  # the limit of the reference library
MAX_METADATA = 4 << 20
MAX_ENTRY = 4096
LFS_POINTER = b"version https://git-lfs"

_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_MEMBER = re.compile(
    rb"[ \t\n\r]*+(%b)[ \t\n\r]*+:[ \t\n\r]*+(\{(?:[^{}\"]++|%b)*+\})[ \t\n\r]*+([,}])" % (_STRING, _STRING)
)
_EMPTY = re.compile(rb"\{[ \t\n\r]*+\}[ \t\n\r]*+\Z")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_Table = tuple[dict[str, str], dict[str, _Entry]]
_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_entries = msgspec.json.Decoder(dict[str, _Entry]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode


def expected_prefix(index_size: int | None, shards: int) -> int:
    """How much of a shard to read at first: its header, by what the size of the index lets expect, and a little more.

    An index has a line for every tensor, and a header about half as much again; what is left over brings small tensors.
    """
    if index_size is None or not shards:
        return DEFAULT_PREFIX
    expected = index_size // shards * 7 // 4 + SPARE
    return max(SMALLEST_PREFIX, min(-(-expected // BLOCK) * BLOCK, LARGEST_PREFIX))


def read_header(fact: FileFact, where: str, prefix: int = DEFAULT_PREFIX) -> Steps[Part]:
    """One speculative read of the file's beginning, and a second only where the header is longer."""
    if fact.size < 8:
        raise HeaderLies(f"expected a header length of 8 bytes, the file has {fact.size}", where=where)
    (start,) = yield [Extent(fact.name, 0, min(prefix, fact.size))]
    length = header_length(start, fact.size, where)
    text = bytes(start[8 : 8 + length])
    if len(text) < length:
        (rest,) = yield [Extent(fact.name, len(start), 8 + length)]
        text += bytes(rest)
    return parse_header(text, fact, where)


def header_length(start: memoryview, file_size: int, where: str) -> int:
    if bytes(start[: len(LFS_POINTER)]) == LFS_POINTER:
        raise UnsupportedFormat(
            "a Git LFS pointer lies where the weights should be", where=where, hint="fetch the file: git lfs pull"
        )
    length = int.from_bytes(start[:8], "little")
    if not 0 < length <= file_size - 8:
        raise HeaderLies(
            f"the header claims {length} bytes; expected 1 to {file_size - 8}, what the file has left",
            where=where,
            hint="the file may be cut short, or not be safetensors",
        )
    if length > MAX_HEADER:
        raise HeaderLies(f"the header claims {length} bytes; at most {MAX_HEADER} are read", where=where)
    return length


def parse_header(text: bytes, fact: FileFact, where: str) -> Part:
    """Tensors, metadata and notes of a header; `text` is the JSON alone."""
    metadata, entries = _at_one_stroke(text, where) or _walked(text, where)
    data_start = 8 + len(text)
    refs = tuple(_tensor(name, entry, fact, data_start, where) for name, entry in entries.items())
    return Part(fact.name, refs, metadata, _unclaimed(refs, data_start, fact, where))


def _walked(text: bytes, where: str) -> _Table:
    tensors: dict[str, _Entry] = {}
    metadata: dict[str, str] | None = None
    for name, body in _members(text, where):
        if name in tensors or (name == "__metadata__" and metadata is not None):
            raise HeaderLies(f"the key {shown(name)} appears twice in the header", where=where)
        if name == "__metadata__":
            metadata = _metadata(body, where)
        elif len(tensors) == MAX_TENSORS:
            raise HeaderLies(f"more than {MAX_TENSORS} tensors in one header", where=where)
        else:
            tensors[name] = _entry(name, body, where)
    return metadata or {}, tensors


def _at_one_stroke(text: bytes, where: str) -> _Table | None:
    """The table of a header whose form leaves no doubt, three times as fast; None where it must be walked.

    Metadata stands first, where the reference library writes it. Every entry of three fields has ten quotes. If that
    adds up, no key stands twice, outside or inside: a duplicate brings its quotes into the text, not into the result.
    """
    first = _MEMBER.match(text, 1)
    if text[:1] != b"{" or first is None or first[3] != b",":
        return None
    metadata = _metadata(first[2], where) if first[1] == b'"__metadata__"' else {}
    table = b"{" + text[first.end() :] if first[1] == b'"__metadata__"' else text
    try:
        entries = _decode_entries(table)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the walk names what is wrong
    if table.count(b'"') != 10 * len(entries) or b"\\" in table or len(entries) > MAX_TENSORS:
        return None
    return metadata, entries


def _members(text: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """The key and the flat object of each member of the outermost object."""
    if text[:1] != b"{":
        raise HeaderLies(f"expected a JSON object that starts with '{{', found {text[:8]!r}", where=where)
    if _EMPTY.match(text):
        return
    position, more = 1, True
    while more:
        member = _MEMBER.match(text, position)
        if member is None:
            found = text[position : position + 24]
            raise HeaderLies(
                f'expected "name": {{…}} with no further object inside at byte {8 + position}, found {found!r}',
                where=where,
            )
        yield _key(member[1], where), member[2]
        position, more = member.end(), member[3] == b","
    if text[position:].strip(b" \t\n\r"):
        raise HeaderLies(f"the JSON ends at byte {8 + position}, but the header goes on", where=where)


def _key(quoted: bytes, where: str) -> str:
    try:
        name = quoted[1:-1].decode()
        if "\\" in name:
            name = json.loads(quoted)
            name.encode()  # an escape can spell half a character
    except ValueError as error:
        raise HeaderLies(f"a key of the header is not UTF-8 JSON: {error}", where=where) from error
    return name


def _check_fields(name: str, body: bytes, where: str) -> None:
    """Refuse an object that has a key twice; other parsers would silently take the last, or the first."""
    try:
        pairs: list[tuple[str, Any]] = json.loads(body.decode(), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise HeaderLies(f"the entry of {shown(name)} is not UTF-8 JSON: {shown(str(error))}", where=where) from error
    if len({key for key, _ in pairs}) != len(pairs):
        raise HeaderLies(f"the entry of {shown(name)} has a field twice", where=where)


def _metadata(body: bytes, where: str) -> dict[str, str]:
    if len(body) > MAX_METADATA:
        raise HeaderLies(f"__metadata__ has {len(body)} bytes; at most {MAX_METADATA} are read", where=where)
    try:
        metadata = _decode_metadata(body)  # first, because it stops at the first value that is no text
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderLies(f"__metadata__: expected text by name: {shown(str(error))[1:-1]}", where=where) from error
    _check_fields("__metadata__", body, where)
    return metadata


def _entry(name: str, body: bytes, where: str) -> _Entry:
    if len(body) > MAX_ENTRY:
        raise HeaderLies(f"the entry of {shown(name)} has {len(body)} bytes; at most {MAX_ENTRY} are read", where=where)
    # Three keys and one text make eight quotes; with any other number a field may be there twice.
    if body.count(b'"') != 8:
        _check_fields(name, body, where)
    try:
        return _decode_entry(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderLies(
            f"tensor {shown(name)}: expected dtype, shape and data_offsets: {shown(str(error))[1:-1]}", where=where
        ) from error


def _tensor(name: str, entry: _Entry, fact: FileFact, data_start: int, where: str) -> TensorRef:
    dtype, shape, (start, stop) = entry.dtype, entry.shape, entry.data_offsets
    # One look settles nearly all: a product that equals a span inside the file cannot overflow anything.
    bits = BITS.get(dtype, 0)
    sound = 0 <= start < stop <= fact.size - data_start and 0 < len(shape) <= MAX_AXES and min(shape) > 0
    if not sound or prod(shape) * bits != 8 * (stop - start):
        _check_tensor(name, entry, fact.size - data_start, where)
    return TensorRef(name, dtype, shape, fact.name, data_start + start, data_start + stop)


def _check_tensor(name: str, entry: _Entry, available: int, where: str) -> None:
    """Say what is wrong with an entry, if anything is: empty tensors and single numbers are not."""
    dtype, (start, stop) = entry.dtype, entry.data_offsets
    shape = checked_shape(entry.shape, name, where)
    if dtype not in BITS:
        raise UnsupportedFormat(
            f"tensor {shown(name)}: unknown dtype {shown(dtype)}; known are {', '.join(BITS)}", where=where
        )
    if not 0 <= start <= stop <= available:
        raise HeaderLies(
            f"tensor {shown(name)}: expected offsets inside the {available} bytes of data, "
            f"found {shown(entry.data_offsets)}",
            where=where,
        )
    needed = prod(shape) * BITS[dtype]
    if needed != 8 * (stop - start):
        raise HeaderLies(
            f"tensor {shown(name)}: {dtype} of shape {shown(shape)} needs {needed / 8:g} bytes, "
            f"its offsets span {stop - start}",
            where=where,
        )


def _unclaimed(refs: Sequence[TensorRef], data_start: int, fact: FileFact, where: str) -> tuple[str, ...]:
    """Refuse overlaps; say where bytes belong to no tensor."""
    end, gaps, last = data_start, 0, ""
    for ref in sorted((ref for ref in refs if ref.stop > ref.start), key=attrgetter("start")):
        if ref.start < end:
            raise HeaderLies(f"tensors {shown(last)} and {shown(ref.name)} overlap", where=where)
        gaps += ref.start - end
        end, last = ref.stop, ref.name
    notes = []
    if gaps:
        notes.append(f"{fact.name}: {gaps} bytes between tensors belong to none")
    if end < fact.size:
        notes.append(f"{fact.name}: {fact.size - end} bytes after the last tensor belong to none")
    return tuple(notes)
