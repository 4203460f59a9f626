"""Files held in memory: for tests, notebooks and models made on the spot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from modelkin.records import Exchange, Extent, FileFact
from modelkin.sources.protocol import Ledger, checked_extents


class MemorySource:
    address: str | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, files: Mapping[str, bytes], id: str = "memory", revision: str | None = None) -> None:
        self.id = id
        self.revision = revision
        self.ledger = Ledger()
        self._bodies = dict(files)
        self._facts = {
            name: FileFact(name, len(body), hashlib.sha256(body).hexdigest()) for name, body in files.items()
        }

    def files(self) -> Mapping[str, FileFact]:
        return self._facts

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:
        checked_extents(self._facts, extents, self.id)
        for e in extents:
            self.ledger.record(Exchange(kind, e.file, e.start, e.stop, 0, e.size, 0.0, "memory"))
        return [memoryview(self._bodies[e.file]).toreadonly()[e.start : e.stop] for e in extents]

    def arrivals(self, extents: Sequence[Extent], kind: str = "file") -> Iterator[tuple[int, memoryview]]:
        yield from enumerate(self.read(extents, kind))

    def transfer(self, extents: Sequence[Extent]) -> int:
        return sum(extent.size for extent in extents)

    def close(self) -> None:
        """Nothing is held open."""
