"""What a source is: named files, and byte extents of them, with a ledger of everything read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from modelkin.errors import HeaderLies, NotFound
from modelkin.records import Exchange, Extent, FileFact

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) while long work goes on."""

NOTE = "note: "
"""A progress text that starts like this is to be read, not to be overwritten by the next."""


TENSOR_KINDS = frozenset({"tensor", "stream"})
"""Reads of weights. `stream` is a pass over whole tensors, which no cache should try to hold."""


def no_progress(what: str, done: int, total: int) -> None:
    """The default: say nothing."""


class Ledger:
    """Every read that was made, in order; safe to write from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []

    def record(self, exchange: Exchange) -> None:
        with self._lock:
            self._exchanges.append(exchange)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        with self._lock:
            return tuple(self._exchanges)

    def bytes(self, kinds: Iterable[str] | None = None) -> int:
        wanted = None if kinds is None else set(kinds)
        return sum(e.bytes for e in self.exchanges if wanted is None or e.kind in wanted)

    @property
    def requests(self) -> int:
        """Exchanges that went over the network."""
        return sum(e.origin == "network" for e in self.exchanges)


class Source(Protocol):
    """Where the bytes of one model live."""

    @property
    def id(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def address(self) -> str | None:
        """Where anybody can look at the same files; None of what lies on this machine."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def notes(self) -> Sequence[str]:
        """What went less well than it should, in words, without making the bytes doubtful."""

    def files(self) -> Mapping[str, FileFact]:
        """Every file by name, known without reading any."""

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:
        """The bytes of each extent, in order, exactly; read-only. Raises rather than return short."""

    def arrivals(self, extents: Sequence[Extent], kind: str = "file") -> Iterator[tuple[int, memoryview]]:
        """The same as (place in `extents`, bytes), as they arrive, so that work can begin before the last is here."""

    def transfer(self, extents: Sequence[Extent]) -> int:
        """Bytes that one `read` of these would read at most, with whatever lies between them and is read along."""

    def close(self) -> None: ...


def checked_extents(files: Mapping[str, FileFact], extents: Sequence[Extent], where: str) -> None:
    """Refuse an extent outside its file before anything is read or allocated."""
    for extent in extents:
        fact = files.get(extent.file)
        if fact is None:
            raise NotFound(f"there is no file {extent.file!r}", where=where)
        if not 0 <= extent.start <= extent.stop <= fact.size:
            raise HeaderLies(
                f"bytes {extent.start}–{extent.stop} of {extent.file} were asked for, but it has {fact.size}",
                where=where,
            )


def read_file(source: Source, name: str, kind: str = "file") -> bytes:
    """One whole file."""
    fact = source.files().get(name)
    if fact is None:
        raise NotFound(f"there is no file {name!r}", where=source.id)
    return bytes(source.read([Extent(name, 0, fact.size)], kind)[0])
