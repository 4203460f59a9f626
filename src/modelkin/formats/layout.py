"""All tensors of a model: its files chosen, their headers read side by side, and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec

from modelkin.errors import HeaderLies, NotFound, NothingComparable
from modelkin.formats.packing import DEFAULT_BLOCK, find_packing
from modelkin.formats.parts import Part, Steps, read_together, shown
from modelkin.formats.safetensors import expected_prefix, read_header
from modelkin.formats.selection import Choice, choose_files
from modelkin.formats.shard_index import WeightMap, check_agreement, read_weight_map, shard_names
from modelkin.formats.torch_zip import read_torch
from modelkin.records import FileFact, TensorRef
from modelkin.sources.protocol import Progress, Source, no_progress

FormatName = Literal["safetensors", "torch"]
T = TypeVar("T")


class Layout(msgspec.Struct, frozen=True):
    """Where every tensor of a model lies, and which of them may be read as plain numbers."""

    format: FormatName
    tensors: dict[str, TensorRef]  # in the order of files and headers
    metadata: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    packed: dict[str, str] = {}  # tensor name -> the scheme that it is packed in
    scales: dict[str, str] = {}  # FP8 weight -> the name of its block scales
    block: tuple[int, int] = DEFAULT_BLOCK


class Headers(msgspec.Struct, frozen=True):
    """What the weights files say of themselves, before the config has been heard."""

    format: FormatName
    parts: list[Part]
    notes: tuple[str, ...]


def read_layout(
    source: Source, config: Mapping[str, Any], progress: Progress = no_progress, *, read_index: bool = True
) -> Layout:
    """The layout of a source, for callers that know its config; `open_checkpoint` reads the config along with it."""
    headers, _ = read_headers(source, None, progress, read_index=read_index)
    return settle(headers, config, source.id)


def read_headers(
    source: Source, beside: Steps[T] | None = None, progress: Progress = no_progress, *, read_index: bool = True
) -> tuple[Headers, T | None]:
    """The headers of all weights files, and what another reader found that goes along with them.

    Shards are known from the file list, so index, headers and the other file all come in one round.
    """
    choice = choose_files(source)
    progress(f"headers of {len(choice.files)} files", 0, 0)
    index = choice.index if choice.index and (read_index or not choice.files) else None
    readers: list[Steps[Part | WeightMap | T]] = [*_readers(source, choice, choice.files)]
    if index is not None:
        readers.append(read_weight_map(source.files()[index], f"{source.id}/{index}"))
    if beside is not None:
        readers.append(beside)
    found = read_together(source, readers)
    extra = None if beside is None else cast(T, found.pop())
    parts, notes = [item for item in found if isinstance(item, Part)], choice.notes
    weight_map = found[-1]
    if index is not None and isinstance(weight_map, WeightMap):
        parts += _unlisted_parts(source, choice, weight_map)
        notes += check_agreement(weight_map, parts, f"{source.id}/{index}")
    elif choice.index is not None:
        notes += ("index not read: shard names are complete",)
    return Headers(choice.format, parts, notes), extra


def settle(headers: Headers, config: Mapping[str, Any], where: str) -> Layout:
    """Headers and config together: which tensors there are, and which of them are packed."""
    tensors = _merge(headers.parts, where)
    notes = (*headers.notes, *(note for part in headers.parts for note in part.notes))
    if not tensors:
        raise NothingComparable("holds no tensors", where=where, hint="; ".join(notes[:3]))
    packing = find_packing(tensors, config, where)
    metadata: dict[str, str] = {}
    for part in headers.parts:
        metadata = part.metadata | metadata
    notes += packing.notes
    return Layout(headers.format, tensors, metadata, notes, packing.packed, packing.scales, packing.block)


def _unlisted_parts(source: Source, choice: Choice, weight_map: WeightMap) -> list[Part]:
    """Shards that the file list did not tell by name but the index does; they take a second round."""
    files = source.files()
    listed = shard_names(weight_map, f"{source.id}/{choice.index}")
    missing = [name for name in listed if name not in files]
    if missing:
        raise NotFound(
            f"{choice.index} lists {', '.join(shown(name) for name in missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which the source does not have",
            where=source.id,
            hint="the download may be incomplete",
        )
    return read_together(source, _readers(source, choice, [name for name in listed if name not in choice.files]))


def _readers(source: Source, choice: Choice, names: Sequence[str]) -> list[Steps[Part]]:
    files = source.files()
    index_size = files[choice.index].size if choice.index else None
    prefix = expected_prefix(index_size, len(names))
    return [_reader(choice.format, files[name], _place(source, name), prefix) for name in names]


def _place(source: Source, name: str) -> str:
    """Source and file for a message; a source that is the file itself is named once."""
    itself = len(source.files()) == 1 and source.id.replace("\\", "/").rpartition("/")[2] == name
    return source.id if itself else f"{source.id}/{name}"


def _reader(format: FormatName, fact: FileFact, where: str, prefix: int) -> Steps[Part]:
    return read_header(fact, where, prefix) if format == "safetensors" else read_torch(fact, where)


def _merge(parts: Sequence[Part], where: str) -> dict[str, TensorRef]:
    tensors: dict[str, TensorRef] = {}
    for part in parts:
        for ref in part.tensors:
            if ref.name in tensors:
                raise HeaderLies(
                    f"tensor {shown(ref.name)} is in {tensors[ref.name].file} and again in {part.file}",
                    where=where,
                    hint="name the one file that is meant",
                )
            tensors[ref.name] = ref
    return tensors
