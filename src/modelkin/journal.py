"""What a long comparison has found so far, on disk, so that the same command goes on after an interruption.

One folder a comparison, one file an entry. The folder is named after everything that the result depends on: both
models (a commit; or the path, size, time of change and inode of every local file), seed, budget, version and policy.
A file is written under another name and then moved into place, so it is whole or not there; a digest in front of it,
which covers the names of folder and entry too, keeps out what was damaged or put there by something else.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from modelkin.sources.cache import default_path

KEPT_FOR = 30 * 86400.0  # seconds; who has not come back by then will not

T = TypeVar("T")


class Journal:
    """Without a folder nothing is kept, and nothing is found. `notes` says what went wrong, in words."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self.kept = 0

    def recall(self, name: str, kind: type[T]) -> T | None:
        """An entry of an earlier run. What cannot be trusted counts as absent, with a note."""
        if self.folder is None:
            return None
        try:
            digest, _, body = (self.folder / _file_name(name)).read_bytes().partition(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.notes.append(f"what was kept of {name} cannot be read ({error.strerror}); it is worked out again")
            return None
        try:
            if digest.decode("ascii", "replace") != self._digest(name, body):
                raise msgspec.ValidationError("its digest does not fit")
            entry = msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            self.notes.append(f"what was kept of {name} is damaged ({error}); it is worked out again")
            return None
        self.kept += 1
        return entry

    def keep(self, name: str, entry: object) -> None:
        """Whole or not at all. A disk that takes nothing costs the resumption, not the comparison."""
        if self.folder is None:
            return
        body = msgspec.json.encode(entry)
        place = self.folder / _file_name(name)
        draft = place.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)  # nothing of ours: a file could not be moved there
            draft.write_bytes(self._digest(name, body).encode() + b"\n" + body)
            draft.replace(place)
        except OSError as error:
            self.notes.append(f"nothing is kept for a later run: {error.strerror}")
            self.folder = None
            return
        self.kept += 1

    def take_notes(self) -> list[str]:
        """What went wrong since the last time somebody asked."""
        taken, self.notes = self.notes, []
        return taken

    def forget(self) -> None:
        """The comparison is complete."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _digest(self, name: str, body: bytes) -> str:
        key = "" if self.folder is None else self.folder.name
        return sha256(b"\0".join([key.encode(), name.encode(), body])).hexdigest()


def open_journal(models: Sequence[object], *settings: object) -> Journal:
    """The journal of this very comparison; none where a model (None) has nothing to be known again by."""
    if None in models:
        return Journal(None)
    key = sha256(msgspec.json.encode([models, settings])).hexdigest()
    _drop_old()
    return Journal(_home() / key)


def clear_journals() -> int:
    """Forget every unfinished comparison; gives the bytes freed."""
    freed = sum(path.stat().st_size for path in _home().rglob("*") if path.is_file())
    shutil.rmtree(_home(), ignore_errors=True)
    return freed


def _home() -> Path:
    return default_path().parent / "unfinished"


def _drop_old() -> None:
    with suppress(OSError):  # tidying up is not what the user asked for
        for folder in _home().iterdir():
            if time.time() - folder.stat().st_mtime > KEPT_FOR:
                shutil.rmtree(folder, ignore_errors=True)


def _file_name(name: str) -> str:
    """Names of layers come from files of others: nothing of them reaches the file system."""
    return f"{sha256(name.encode()).hexdigest()[:32]}.json"
