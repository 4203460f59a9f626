"""What a loopback Hub serves: repositories, their commits, and files that may be far larger than memory."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

SAMPLE = 64 << 10
WHOLE = 64 << 20
LFS_SIZE = 10 << 20
LFS_SUFFIXES = (".safetensors", ".bin", ".model", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".onnx", ".msgpack", ".npz")


class Body(Protocol):
    """Bytes made when they are asked for, so that a shard of gigabytes costs no memory."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), with 0 <= start <= stop <= size."""


Content = bytes | Path | Body


@dataclass(frozen=True)
class BytesBody:
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, stop: int) -> bytes:
        return self.content[start:stop]


@dataclass(frozen=True)
class FileBody:
    path: Path

    @cached_property
    def size(self) -> int:
        return self.path.stat().st_size

    def read(self, start: int, stop: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)


class Blob:
    """One version of one file: its content, and the hashes a Hub states, each computed when first needed."""

    def __init__(self, name: str, content: Content) -> None:
        self.name = name
        self.body: Body = _body(content)
        self.size = self.body.size
        self.lfs = name.endswith(LFS_SUFFIXES) or self.size >= LFS_SIZE
        self._hashable = isinstance(content, bytes | Path)

    def read(self, start: int, stop: int) -> bytes:
        return self.body.read(start, stop)

    @cached_property
    def sha256(self) -> str:
        """Of the content; a body made on the fly may state its own, and otherwise gets a stable made-up one."""
        if not self._hashable:
            return str(getattr(self.body, "sha256", None) or self._sampled)
        digest = hashlib.sha256()
        for start in range(0, self.size, 1 << 20):
            digest.update(self.read(start, min(start + (1 << 20), self.size)))
        return digest.hexdigest()

    @cached_property
    def _sampled(self) -> str:
        head = self.read(0, min(SAMPLE, self.size))
        tail = self.read(max(0, self.size - SAMPLE), self.size)
        return hashlib.sha256(b"%d\0%b\0%b" % (self.size, head, tail)).hexdigest()

    @property
    def identity(self) -> str:
        """Tells two versions apart without hashing gigabytes."""
        return self.sha256 if self._hashable and self.size <= WHOLE else self._sampled

    @cached_property
    def pointer(self) -> bytes:
        """The text that git holds in place of a large file."""
        lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{self.sha256}", f"size {self.size}", "")
        return "\n".join(lines).encode()

    @cached_property
    def oid(self) -> str:
        """The git object id: of the pointer where the file is large."""
        stored = self.pointer if self.lfs else self.read(0, self.size)
        return hashlib.sha1(b"blob %d\0%b" % (len(stored), stored)).hexdigest()

    @cached_property
    def xet_hash(self) -> str:
        """Made up: equal for equal content, as the real one, but not the real one."""
        return hashlib.sha256(f"xet {self.sha256}".encode()).hexdigest()

    @cached_property
    def gzipped(self) -> bytes:
        return gzip.compress(self.read(0, self.size), compresslevel=6, mtime=0)


def _body(content: Content) -> Body:
    if isinstance(content, bytes):
        return BytesBody(content)
    return FileBody(content) if isinstance(content, Path) else content


@dataclass
class Repository:
    """A model repository: branches and tags (`refs`) that point at commits, each a set of files.

    `card` is the metadata block of its README; `info` is laid over what the API states. A `gated` repository gives its
    files to the hub's token only when `granted`; its listing stays visible. `xet=False`: no xetHash, as in old uploads.
    """

    files: InitVar[Mapping[str, Content] | None] = None
    gated: Literal[False, "auto", "manual"] = False
    granted: bool = False
    private: bool = False
    card: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    xet: bool = True
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)

    def __post_init__(self, files: Mapping[str, Content] | None) -> None:
        if files is not None:
            self.commit(files)

    @classmethod
    def from_folder(cls, folder: Path, **settings: Any) -> Repository:
        """Every file below a folder, read from disk when asked for."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return cls(files={path.relative_to(folder).as_posix(): path for path in paths}, **settings)

    def commit(self, files: Mapping[str, Content], branch: str = "main", commit: str | None = None) -> str:
        """Add a commit and move a branch to it; its id comes from the content unless one is given."""
        blobs = {name: Blob(name, content) for name, content in sorted(files.items())}
        sha = commit or commit_id({name: blob.identity for name, blob in blobs.items()})
        self.commits[sha] = blobs
        self.refs[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch, a tag, `refs/heads/…` or a full commit id."""
        if revision in self.commits:
            return revision
        return self.refs.get(revision) or self.refs.get(revision.removeprefix("refs/heads/"))


def commit_id(identities: Mapping[str, str]) -> str:
    return hashlib.sha1(json.dumps(identities, sort_keys=True).encode()).hexdigest()
