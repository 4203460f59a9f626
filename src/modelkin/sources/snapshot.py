"""Files that huggingface_hub has downloaded before, in its own cache layout."""

from __future__ import annotations

from pathlib import Path

from modelkin.records import Extent, FileFact
from modelkin.sources.address import COMMIT
from modelkin.sources.local import LocalSource


class Snapshot:
    def __init__(self, repository: str) -> None:
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        self._folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
        self._open: dict[Path, LocalSource] = {}

    def ref(self, name: str) -> str | None:
        """The commit that a branch pointed to at its last download."""
        path = self._folder / "refs" / name
        if ".." in Path(name).parts or not path.is_file():
            return None
        revision = path.read_text().strip()
        return revision if COMMIT.fullmatch(revision) else None

    def files(self, revision: str) -> dict[str, FileFact]:
        root = self._folder / "snapshots" / revision
        facts = {}
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            if path.is_file():
                name = path.relative_to(root).as_posix()
                blob = path.resolve().name  # the store names a large file by its sha256
                facts[name] = FileFact(name, path.stat().st_size, blob if len(blob) == 64 else None)
        return facts

    def read(self, revision: str, extent: Extent, size: int) -> memoryview | None:
        """The bytes, where the file is there in full."""
        path = self._folder / "snapshots" / revision / extent.file
        if not path.is_file() or path.stat().st_size != size:
            return None
        if path not in self._open:
            self._open[path] = LocalSource(path)
        return self._open[path].read([Extent(path.name, extent.start, extent.stop)])[0]

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()
