"""Byte ranges kept on disk, keyed by (repository, commit, file, range), in one SQLite file.

SQLite gives what several processes at once need: transactions, locking, and a crash that leaves no half-written
range behind. A commit never changes, so nothing in here grows stale; only branch names (`refs`) do, and those are
consulted offline alone.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import msgspec

from modelkin.errors import ModelkinError, UsageError
from modelkin.records import Extent

SCHEMA = """
CREATE TABLE IF NOT EXISTS extents (
  repository TEXT NOT NULL, revision TEXT NOT NULL, file TEXT NOT NULL,
  start INTEGER NOT NULL, stop INTEGER NOT NULL, used REAL NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL,
  UNIQUE (repository, revision, file, start, stop)
);
CREATE INDEX IF NOT EXISTS extents_used ON extents (used, start, stop);
CREATE TABLE IF NOT EXISTS refs (
  repository TEXT NOT NULL, name TEXT NOT NULL, revision TEXT NOT NULL, seen REAL NOT NULL,
  PRIMARY KEY (repository, name)
);
"""
SCHEMA_VERSION = 2
OPENING_TRIES = 500
DEFAULT_CAP = 4 << 30
MEMORY_CAP = 256 << 20
LARGEST_BODY = 16 << 20  # larger reads are passes over whole tensors; they would push everything else out
TOUCH_AFTER = 3600.0  # `used` is only rewritten this often, so that a warm run does not write


class CachedModel(msgspec.Struct, frozen=True):
    """One line of `modelkin cache list`."""

    repository: str
    revision: str
    extents: int
    bytes: int
    used: float


def default_path() -> Path:
    """`$MODELKIN_CACHE`, or a folder beside the Hub's own cache."""
    if chosen := os.environ.get("MODELKIN_CACHE"):
        return Path(chosen).expanduser() / "ranges.sqlite"
    from huggingface_hub import constants

    return Path(constants.HF_HOME).expanduser() / "modelkin" / "ranges.sqlite"


def open_cache(on_disk: bool = True) -> RangeCache:
    """The user's cache; or one that lives as long as the process. `MODELKIN_CACHE_GB` caps the one on disk."""
    if not on_disk:
        return RangeCache(None)
    return RangeCache(default_path(), cap=_chosen_cap())


def clear_cache(repository: str | None = None) -> int:
    """Empty the user's cache; gives the bytes freed. One that cannot be read any more is deleted."""
    path = default_path()
    if not path.exists():
        return 0
    try:
        cache = RangeCache(path)
        try:
            return cache.clear(repository)
        finally:
            cache.close()
    except CacheError:
        if repository is not None:
            raise
        freed = path.stat().st_size
        for leftover in (path, *path.parent.glob(path.name + "-*")):
            leftover.unlink()
        return freed


def _is_of(key: str, repository: str) -> bool:
    """Whether a key (host and repository) is of this repository; `gpt2` is not `owner/gpt2`."""
    host = key.removesuffix(f"/{repository}")
    return host != key and ("/" in repository or host.count("/") == 2)


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _chosen_cap() -> int:
    chosen = os.environ.get("MODELKIN_CACHE_GB")
    try:
        return DEFAULT_CAP if chosen is None else int(float(chosen) * 1e9)
    except (ValueError, OverflowError):
        raise UsageError(f"MODELKIN_CACHE_GB is {chosen!r}; a number was expected") from None


class RangeCache:
    """`path=None` keeps everything in memory, for the life of the process."""

    def __init__(self, path: Path | None = None, cap: int = DEFAULT_CAP) -> None:
        self.path = path
        self.cap = cap if path is not None else min(cap, MEMORY_CAP)
        self._lock = threading.Lock()
        self._sound: set[tuple[int, int]] = set()
        self._read_only = path is not None and path.exists() and not _writable(path)
        with self._explained():
            self._db = self._connected()
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _connected(self) -> sqlite3.Connection:
        if self.path is None:
            target = "file::memory:"
        elif self._read_only:
            target = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target = self.path.resolve().as_uri()
        return sqlite3.connect(target, timeout=30.0, check_same_thread=False, isolation_level=None, uri=True)

    def _prepare(self) -> None:
        if self._read_only:
            return
        self._use_wal()
        self._db.execute("PRAGMA synchronous=NORMAL")
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in filter(None, map(str.strip, SCHEMA.split(";"))):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise sqlite3.DatabaseError(f"it was written by another version of modelkin (schema {version})")

    def _use_wal(self) -> None:
        """Readers and a writer at once. SQLite does not wait for others while it switches, so we do."""
        for _ in range(OPENING_TRIES):
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(0.02)
        raise sqlite3.OperationalError("another process keeps it locked")

    def get(self, repository: str, revision: str, extents: Iterable[Extent]) -> dict[Extent, bytes]:
        """Those of the extents that lie inside a kept one."""
        found: dict[Extent, bytes] = {}
        touched: list[int] = []
        now = time.time()
        with self._explained(), self._lock:
            for extent in extents:
                row = self._db.execute(
                    "SELECT rowid, crc, used, substr(body, ? - start + 1, ?) FROM extents WHERE repository = ?"
                    " AND revision = ? AND file = ? AND start <= ? AND stop >= ? LIMIT 1",
                    (extent.start, extent.size, repository, revision, extent.file, extent.start, extent.stop),
                ).fetchone()
                if row is None or not self._is_sound(row[0], row[1]):
                    continue
                found[extent] = row[3]
                if row[2] < now - TOUCH_AFTER and not self._read_only:
                    touched.append(row[0])
            self._db.executemany("UPDATE extents SET used = ? WHERE rowid = ?", [(now, rowid) for rowid in touched])
        return found

    def _is_sound(self, rowid: int, crc: int) -> bool:
        """Whether a body is as it was written; looked at once. One that is not is forgotten, and fetched again.

        Another process may have evicted the row since it was found, and a new one may have taken its number.
        """
        key = rowid, crc
        if key not in self._sound:
            row = self._db.execute("SELECT body FROM extents WHERE rowid = ? AND crc = ?", key).fetchone()
            if row is not None and crc32(row[0]) == crc:
                self._sound.add(key)
            elif row is not None and not self._read_only:
                self._db.execute("DELETE FROM extents WHERE rowid = ? AND crc = ?", key)
        return key in self._sound

    def put(self, repository: str, revision: str, bodies: Iterable[tuple[Extent, bytes | memoryview]]) -> None:
        now = time.time()
        rows = [
            (repository, revision, e.file, e.start, e.stop, now, crc32(body), sqlite3.Binary(body))
            for e, body in bodies
            if 0 < e.size == len(body) <= LARGEST_BODY
        ]
        if not rows:
            return
        with self._explained(), self._lock, self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO extents VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._evict()

    def document(self, repository: str, revision: str, name: str) -> bytes | None:
        """A body kept under a name of its own, such as a file listing."""
        with self._explained(), self._lock:
            row = self._db.execute(
                "SELECT rowid, crc, body FROM extents"
                " WHERE repository = ? AND revision = ? AND file = ? AND start = 0 LIMIT 1",
                (repository, revision, name),
            ).fetchone()
            return bytes(row[2]) if row is not None and self._is_sound(row[0], row[1]) else None

    def ref(self, repository: str, name: str) -> str | None:
        """The commit that a branch or tag pointed to when it was last resolved."""
        with self._explained(), self._lock:
            row = self._db.execute(
                "SELECT revision FROM refs WHERE repository = ? AND name = ?", (repository, name)
            ).fetchone()
        return None if row is None else str(row[0])

    def remember_ref(self, repository: str, name: str, revision: str) -> None:
        with self._explained(), self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO refs VALUES (?, ?, ?, ?)", (repository, name, revision, time.time())
            )

    def models(self) -> list[CachedModel]:
        with self._explained(), self._lock:
            rows = self._db.execute(
                "SELECT repository, revision, count(*), sum(stop - start), max(used) FROM extents"
                " GROUP BY repository, revision ORDER BY max(used) DESC"
            ).fetchall()
        return [CachedModel(*row) for row in rows]

    def clear(self, repository: str | None = None) -> int:
        """Forget everything, or one repository (`owner/name`, whatever its host); gives the bytes freed."""
        with self._explained(), self._lock:
            known = "SELECT repository FROM extents UNION SELECT repository FROM refs"
            meant = [(key,) for (key,) in self._db.execute(known) if repository is None or _is_of(key, repository)]
            count = "SELECT total(stop - start) FROM extents WHERE repository = ?"
            freed = sum(self._db.execute(count, key).fetchone()[0] for key in meant)
            with self._transaction():
                self._db.executemany("DELETE FROM extents WHERE repository = ?", meant)
                self._db.executemany("DELETE FROM refs WHERE repository = ?", meant)
            self._db.execute("VACUUM")
            self._sound.clear()
        return int(freed)

    def close(self) -> None:
        self._db.close()

    def _evict(self) -> None:
        """Drop what was used longest ago until a tenth of the cap is free again."""
        total = self._db.execute("SELECT total(stop - start) FROM extents").fetchone()[0]
        if total <= self.cap:
            return
        for rowid, size in self._db.execute("SELECT rowid, stop - start FROM extents ORDER BY used").fetchall():
            self._db.execute("DELETE FROM extents WHERE rowid = ?", (rowid,))
            total -= size
            if total <= 0.9 * self.cap:
                return

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CacheError(
                f"the range cache cannot be used: {error}",
                where=str(self.path),
                hint="run `modelkin cache clear`, set MODELKIN_CACHE to another folder, or use --no-cache",
            ) from error


class CacheError(ModelkinError):
    """The cache failed; nothing is wrong with the model."""
