"""Where bytes live: the Hub, a folder, a file, or memory."""

from __future__ import annotations

from pathlib import Path

import msgspec

from modelkin.sources.address import parse_address
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import Progress, Source, no_progress


class ReadOptions(msgspec.Struct, frozen=True):
    """How the user wants bytes to be got."""

    offline: bool = False
    connections: int = 16
    cache: bool = True
    endpoint: str | None = None
    token: str | bool | None = None


def open_source(text: str, options: ReadOptions = ReadOptions(), progress: Progress = no_progress) -> Source:
    """`owner/name[@revision]`, `hf://…`, a folder or a file -> its source. Local models load nothing of the network."""
    address = parse_address(text)
    if isinstance(address, Path):
        return LocalSource(address)
    from modelkin.sources.cache import CacheError, RangeCache, open_cache
    from modelkin.sources.hub import HubOptions, HubSource
    from modelkin.sources.transport import shared_transport

    how = HubOptions(options.endpoint, options.token, options.offline)
    notes = []
    try:
        cache = open_cache(options.cache)
    except CacheError as error:  # a home that cannot be written is no reason not to read a model
        cache = RangeCache(None)
        notes.append(f"{error}; {error.hint}")
    return HubSource(address, shared_transport(options.connections), cache, how, progress, notes)
