"""A folder or a single file on disk, memory-mapped: reading a row touches only the pages it lies on."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from modelkin.errors import HeaderLies, NotFound
from modelkin.records import Exchange, Extent, FileFact
from modelkin.sources.protocol import Ledger, Progress, checked_extents, no_progress

MAX_FILES = 20_000
HASH_BLOCK = 8 << 20


class LocalSource:
    """Top-level files of a folder, or one file under its own name."""

    revision: str | None = None
    address: str | None = None

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.id = str(path)
        self.ledger = Ledger()
        self._maps: dict[str, tuple[int, mmap.mmap]] = {}
        self.notes: list[str] = []
        self._facts, self._root = _listed(self.path, self.notes)

    def files(self) -> Mapping[str, FileFact]:
        return self._facts

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:
        checked_extents(self._facts, extents, self.id)
        return [self._read(extent, kind) for extent in extents]

    def arrivals(self, extents: Sequence[Extent], kind: str = "file") -> Iterator[tuple[int, memoryview]]:
        yield from enumerate(self.read(extents, kind))

    def hash_files(self, largest: int | None = None, progress: Progress = no_progress) -> None:
        """Compute the sha256 of every file up to `largest` bytes (None: of all); this reads them whole."""
        chosen = [fact for fact in self._facts.values() if largest is None or fact.size <= largest]
        total = sum(fact.size for fact in chosen)
        done = 0

        def count(read: int) -> None:
            nonlocal done
            done += read
            progress("hashing", done, total)

        for fact in chosen:
            with suppress(NotFound):  # a file that may not be read keeps no hash; whoever needs it will hear why
                self.know_hash(fact.name, self.hash_file(fact.name, count))

    def hash_file(self, name: str, count: Callable[[int], None]) -> str:
        """sha256 of one file; `count` hears of every block how long it was.

        Read into one buffer: every page of a map that was touched would stay with the process, up to the whole file.
        """
        digest, size = hashlib.sha256(), self._facts[name].size
        buffer, start = memoryview(bytearray(min(HASH_BLOCK, max(1, size)))), 0
        try:
            with open(self.place(name), "rb", buffering=0) as file:
                while start < size:
                    began = time.perf_counter()
                    length = file.readinto(buffer[: size - start])
                    if not length:
                        raise HeaderLies(f"{name} became shorter while it was read", where=self.id)
                    digest.update(buffer[:length])
                    elapsed = (time.perf_counter() - began) * 1e3
                    self.ledger.record(Exchange("hash", name, start, start + length, 0, length, elapsed, "disk"))
                    start += length
                    count(length)
        except OSError as error:
            raise NotFound(f"{name} may not be read: {error.strerror}", where=self.id) from error
        return digest.hexdigest()

    def know_hash(self, name: str, sha256: str) -> None:
        self._facts[name] = FileFact(name, self._facts[name].size, sha256)

    def place(self, name: str) -> Path:
        """Where a file lies on disk."""
        return self._root / name

    def transfer(self, extents: Sequence[Extent]) -> int:
        return sum(extent.size for extent in extents)

    def close(self) -> None:
        """Forget the maps; pages still referenced by arrays live on until those are gone."""
        for descriptor, _ in self._maps.values():
            os.close(descriptor)
        self._maps.clear()

    def _read(self, extent: Extent, kind: str) -> memoryview:
        began = time.perf_counter()
        view = memoryview(b"") if extent.size == 0 else self._window(extent)
        elapsed = (time.perf_counter() - began) * 1e3
        self.ledger.record(Exchange(kind, extent.file, extent.start, extent.stop, 0, extent.size, elapsed, "disk"))
        return view

    def _window(self, extent: Extent) -> memoryview:
        descriptor, mapped = self._mapped(extent.file)
        # A file that shrank under the map would kill the process on access, so its size is asked again.
        if os.fstat(descriptor).st_size < extent.stop:
            raise HeaderLies(f"{extent.file} became shorter while it was read", where=self.id)
        return memoryview(mapped).toreadonly()[extent.start : extent.stop]

    def _mapped(self, name: str) -> tuple[int, mmap.mmap]:
        if name not in self._maps:
            try:
                descriptor = os.open(self._root / name, os.O_RDONLY)
            except OSError as error:
                raise NotFound(f"{name} may not be read: {error.strerror}", where=self.id) from error
            try:
                self._maps[name] = descriptor, mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                os.close(descriptor)
                raise HeaderLies(f"{name} cannot be mapped into memory: {error}", where=self.id) from error
        return self._maps[name]


def _listed(path: Path, notes: list[str]) -> tuple[dict[str, FileFact], Path]:
    """The files that a path stands for, and the folder they lie in."""
    try:
        if path.is_dir():
            return _listed_folder(path, notes), path
        if path.exists():
            return _listed_file(path), path.parent
    except OSError as error:
        raise NotFound(f"may not be read: {error.strerror}", where=str(path)) from error
    raise NotFound("no such folder or file", where=str(path), hint="check the path; a Hub model is owner/name")


def _listed_folder(folder: Path, notes: list[str]) -> dict[str, FileFact]:
    facts: dict[str, FileFact] = {}
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        try:
            if not entry.name.startswith(".") and entry.is_file():
                facts[entry.name] = FileFact(entry.name, entry.stat().st_size)
            elif entry.is_symlink() and not entry.is_dir():
                notes.append(f"{entry.name} is a link that leads nowhere")
        except OSError as error:
            notes.append(f"{entry.name} was passed over: {error.strerror}")
        if len(facts) > MAX_FILES:
            raise NotFound(f"holds more than {MAX_FILES} files; is it a model?", where=str(folder))
    return facts


def _listed_file(path: Path) -> dict[str, FileFact]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise NotFound("is neither a folder nor a regular file", where=str(path))
    return {path.name: FileFact(path.name, status.st_size)}
