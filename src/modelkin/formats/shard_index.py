"""The index of a sharded model: which shard is said to hold which tensor, checked against the shards themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

import msgspec

from modelkin.errors import HeaderLies
from modelkin.formats.parts import Part, Steps, is_text, shown
from modelkin.records import Extent, FileFact

MAX_INDEX = 64 << 20


class WeightMap(msgspec.Struct, frozen=True):
    """The part of an index that matters; its sizes and other claims are not used."""

    weight_map: dict[str, str]


def read_weight_map(fact: FileFact, where: str) -> Steps[WeightMap]:
    """The index file, in one read."""
    if fact.size > MAX_INDEX:
        raise HeaderLies(f"the index has {fact.size} bytes; at most {MAX_INDEX} are read", where=where)
    (raw,) = yield [Extent(fact.name, 0, fact.size)]
    try:
        return msgspec.json.decode(raw, type=WeightMap)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderLies(f"expected an object with a weight_map of names to files: {error}", where=where) from error


def shard_names(index: WeightMap, where: str) -> list[str]:
    """The files that an index names, sorted; refused where a name tries to leave the model's own folder."""
    names = sorted(set(index.weight_map.values()))
    for name in names:
        path = PurePosixPath(name)
        tricks = path.is_absolute() or ".." in path.parts or "\\" in name or bool(PureWindowsPath(name).drive)
        if tricks or not name or not name.isprintable() or not is_text(name):
            raise HeaderLies(f"the index names {shown(name)}, which is not a file of this model", where=where)
    return names


def check_agreement(index: WeightMap, parts: Sequence[Part], where: str) -> tuple[str, ...]:
    """Every tensor of the index must lie in the shard that it names, and every shard must be named.

    A tensor that the index leaves out in a shard that it names is a note: who loads the shard loads it as well.
    """
    if {ref.name: part.file for part in parts for ref in part.tensors} == index.weight_map:
        return ()
    held = {part.file: {ref.name for ref in part.tensors} | part.skipped for part in parts}
    for name, file in index.weight_map.items():
        if name not in held[file]:
            raise HeaderLies(f"the index puts {shown(name)} into {file}, whose header does not list it", where=where)
    if strays := sorted(held.keys() - set(index.weight_map.values())):
        raise HeaderLies(f"the index names no tensor of {shown(strays[0])}, which is one of the shards", where=where)
    unlisted = [name for names in held.values() for name in sorted(names) if name not in index.weight_map]
    if not unlisted:
        return ()
    return (f"the index leaves out {len(unlisted)} stored tensors, {shown(unlisted[0])} among them",)
