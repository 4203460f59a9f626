"""A checkpoint: one model's files seen as named tensors, with its config and vocabulary, read lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.errors import HeaderLies, NotFound, UnsupportedFormat
from modelkin.formats import Layout, read_headers, settle
from modelkin.formats.parts import Steps
from modelkin.formats.reading import Rows, plan_read, read_rows
from modelkin.formats.safetensors import LFS_POINTER
from modelkin.records import Extent, TensorRef
from modelkin.sources.protocol import Progress, Source, no_progress
from modelkin.vocabulary import Vocabulary, read_vocabulary
from modelkin.vocabulary.json_text import NotJson, decoded

MAX_JSON = 64 << 20


class Checkpoint:
    """`tensors` maps stored names to refs; nothing of their data has been read."""

    def __init__(self, source: Source, config: Mapping[str, Any], layout: Layout) -> None:
        self.source = source
        self.config = config
        self.layout = layout

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def revision(self) -> str | None:
        return self.source.revision

    @property
    def tensors(self) -> Mapping[str, TensorRef]:
        return self.layout.tensors

    @property
    def parameters(self) -> int:
        return sum(ref.parameters for ref in self.tensors.values())

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        return read_vocabulary(self.source)

    def read(self, name: str, rows: Rows = None) -> NDArray[np.float32]:
        """A whole tensor in its stored shape, or rows of it (see read_many)."""
        return self.read_many([(name, rows)])[0]

    def read_many(self, wanted: Sequence[tuple[str, Rows]], kind: str = "tensor") -> list[NDArray[np.float32]]:
        """Several tensors in one batch, so that a remote source can fetch them side by side.

        `rows` None: the whole tensor, stored shape. A slice or a sequence of indices: those rows of the tensor
        seen as a matrix (prod(shape[:-1]), shape[-1]), as an array (n, shape[-1]).
        """
        return read_rows(self.source, self.layout, [(self._ref(name), rows) for name, rows in wanted], kind)

    def transfer(self, wanted: Sequence[tuple[str, Rows]]) -> int:
        """Bytes that `read_many` would read of the source at most; from a Hub, near ranges come with their gaps."""
        plans = [plan_read(self.layout, self._ref(name), rows) for name, rows in wanted]
        return self.source.transfer([extent for plan in plans for extent in plan.extents])

    def _ref(self, name: str) -> TensorRef:
        try:
            return self.tensors[name]
        except KeyError:
            raise NotFound(f"there is no tensor {name!r}", where=self.id) from None

    def close(self) -> None:
        self.source.close()


def open_checkpoint(source: Source, progress: Progress = no_progress) -> Checkpoint:
    """Config and tensor table of a source; headers are read, weights are not."""
    headers, config = read_headers(source, _config(source), progress)
    config = config or {}
    return Checkpoint(source, config, settle(headers, config, source.id))


def _config(source: Source) -> Steps[dict[str, Any]]:
    """config.json, or an empty mapping for a source that has none (a single weights file)."""
    fact = source.files().get("config.json")
    if fact is None:
        return {}
    if fact.size > MAX_JSON:
        raise HeaderLies(f"config.json has {fact.size} bytes; at most {MAX_JSON} are read", where=source.id)
    (body,) = yield [Extent(fact.name, 0, fact.size)]
    if bytes(body[: len(LFS_POINTER)]) == LFS_POINTER:
        raise UnsupportedFormat(
            "a Git LFS pointer lies where config.json should be", where=source.id, hint="fetch the file: git lfs pull"
        )
    try:
        config: Any = decoded(body, object)
    except NotJson as error:
        raise HeaderLies(f"config.json {error}", where=source.id, hint="fetch the file again") from error
    if not isinstance(config, dict):
        raise HeaderLies(f"config.json holds {type(config).__name__}, expected an object", where=source.id)
    return config
