"""Every source gives the same bytes for the same extent, fails loudly, and writes down what it read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import llama_files, write_files
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.errors import HeaderLies, NotFound
from modelkin.records import Extent
from modelkin.sources.address import HubAddress
from modelkin.sources.cache import RangeCache
from modelkin.sources.hub import HubOptions, HubSource
from modelkin.sources.local import LocalSource
from modelkin.sources.memory import MemorySource
from modelkin.sources.protocol import Source, read_file
from modelkin.sources.transport import Transport

FILES = llama_files(shards=2)
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def hub_source() -> Iterator[Source]:
    transport = Transport()
    with LoopbackHub({"acme/tiny": Repository(FILES)}) as hub:
        options = HubOptions(endpoint=hub.endpoint, token=False)
        source = HubSource(HubAddress("acme/tiny"), transport, RangeCache(None), options)
        yield source
        source.close()
        transport.close()


@pytest.fixture
def local_source(tmp_path: Path) -> Iterator[Source]:
    source = LocalSource(write_files(tmp_path / "m", FILES))
    yield source
    source.close()


@pytest.fixture
def memory_source() -> Source:
    return MemorySource(FILES)


@pytest.fixture(params=["hub_source", "local_source", "memory_source"])
def source(request: pytest.FixtureRequest) -> Source:
    made: Source = request.getfixturevalue(request.param)
    return made


def test_the_same_files_of_the_same_sizes_are_listed(source: Source) -> None:
    assert {name: fact.size for name, fact in source.files().items()} == {n: len(b) for n, b in FILES.items()}


def test_any_extent_gives_exactly_its_bytes_in_the_order_asked(source: Source) -> None:
    body = FILES[SHARD]
    size = len(body)
    spans = [(0, 8), (size - 1, size), (5, 5), (100, 4000), (0, size), (3000, 3001), (100, 4000)]
    views = source.read([Extent(SHARD, *span) for span in spans], "tensor")
    assert [bytes(view) for view in views] == [body[a:b] for a, b in spans]
    assert all(view.readonly for view in views)


def test_whole_files_arrive_whole(source: Source) -> None:
    assert {name: read_file(source, name) for name in FILES} == FILES


def test_an_extent_outside_the_file_is_refused_before_anything_is_read(source: Source) -> None:
    before = len(source.ledger.exchanges)
    for span in [(0, len(FILES[SHARD]) + 1), (-1, 4), (9, 4), (1 << 60, (1 << 60) + 1)]:
        with pytest.raises(HeaderLies, match=re.escape(SHARD)):
            source.read([Extent(SHARD, *span)])
    with pytest.raises(NotFound, match=r"nothing\.bin"):
        source.read([Extent("nothing.bin", 0, 1)])
    assert len(source.ledger.exchanges) == before


def test_every_read_is_in_the_ledger_with_its_kind(source: Source) -> None:
    before = source.ledger.bytes({"tensor"})
    source.read([Extent(SHARD, 200_000 % 1000, 5000)], "tensor")
    assert source.ledger.bytes({"tensor"}) - before == 5000 - 200_000 % 1000
