"""All tensors of a model: its files chosen, their headers read side by side, and checked against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from modelkin.errors import HeaderLies, NotFound
from modelkin.formats.packing import DEFAULT_BLOCK, find_packing
from modelkin.formats.parts import Part, Steps, read_together, shown
from modelkin.formats.safetensors import expected_prefix, read_header
from modelkin.formats.selection import Choice, choose_files
from modelkin.formats.shard_index import WeightMap, check_agreement, read_weight_map, shard_names
from modelkin.formats.torch_zip import read_torch
from modelkin.records import FileFact, TensorRef
from modelkin.sources.protocol import Progress, Source, no_progress

FormatName = Literal["safetensors", "torch"]


class Layout(msgspec.Struct, frozen=True):
    """Where every tensor of a model lies, and which of them may be read as plain numbers."""

    format: FormatName
    tensors: dict[str, TensorRef]  # in the order of files and headers
    metadata: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    packed: dict[str, str] = {}  # tensor name -> the scheme that it is packed in
    scales: dict[str, str] = {}  # FP8 weight -> the name of its block scales
    block: tuple[int, int] = DEFAULT_BLOCK


def read_layout(
    source: Source, config: Mapping[str, Any], progress: Progress = no_progress, *, read_index: bool = True
) -> Layout:
    """The layout of a source; headers are read, weights are not.

    Shards are known from the file list, so the index (if it is to be read) comes in the same round as the headers.
    """
    choice = choose_files(source)
    progress("headers", 0, len(choice.files))
    parts, notes = _read_parts(source, choice, expected_prefix(config, len(choice.files)), read_index)
    progress("headers", len(parts), len(parts))
    tensors = _merge(parts, source.id)
    packing = find_packing(tensors, config, source.id)
    metadata: dict[str, str] = {}
    for part in parts:
        metadata = part.metadata | metadata
    notes = (*choice.notes, *notes, *(note for part in parts for note in part.notes))
    return Layout(choice.format, tensors, metadata, notes, packing.packed, packing.scales, packing.block)


def _read_parts(source: Source, choice: Choice, prefix: int, read_index: bool) -> tuple[list[Part], tuple[str, ...]]:
    files = source.files()
    if choice.index is None or (choice.files and not read_index):
        notes = () if choice.index is None else ("index not read: shard names are complete",)
        return _parts(read_together(source, _readers(source, choice, choice.files, prefix))), notes
    index = read_weight_map(files[choice.index], f"{source.id}/{choice.index}")
    found = read_together(source, [*_readers(source, choice, choice.files, prefix), index])
    parts = _parts(found)
    weight_map = next(item for item in found if isinstance(item, WeightMap))
    # The file list may not have told all shards by name: those that the index adds come in a second round.
    listed = shard_names(weight_map, f"{source.id}/{choice.index}")
    missing = [name for name in listed if name not in files]
    if missing:
        raise NotFound(
            f"{choice.index} lists {', '.join(shown(name) for name in missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which the source does not have",
            where=source.id,
            hint="the download may be incomplete",
        )
    added = [name for name in listed if name not in choice.files]
    parts += _parts(read_together(source, _readers(source, choice, added, prefix)))
    return parts, check_agreement(weight_map, parts, f"{source.id}/{choice.index}")


def _readers(source: Source, choice: Choice, names: Sequence[str], prefix: int) -> list[Steps[Part | WeightMap]]:
    return [_reader(choice.format, source.files()[name], f"{source.id}/{name}", prefix) for name in names]


def _reader(format: FormatName, fact: FileFact, where: str, prefix: int) -> Steps[Part | WeightMap]:
    found = yield from (read_header(fact, where, prefix) if format == "safetensors" else read_torch(fact, where))
    return found


def _parts(found: Iterable[Part | WeightMap]) -> list[Part]:
    return [item for item in found if isinstance(item, Part)]


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
