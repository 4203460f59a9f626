"""A Hub that fails, lies, moves or limits: the right bytes all the same, or one clear error with its exit code."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import llama_files
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import faults
from modelkin.demo.faults import Fault
from modelkin.demo.hub import LoopbackHub, Options, Repository
from modelkin.errors import Gated, ModelkinError, NotFound, OfflineMiss, ServerLies, Unreachable
from modelkin.inspection import describe
from modelkin.records import Extent
from modelkin.sources.address import HubAddress
from modelkin.sources.cache import RangeCache
from modelkin.sources.hub import HubOptions, HubSource
from modelkin.sources.transport import Transport

FILES = llama_files(shards=3)
SHARD = "model-00002-of-00003.safetensors"
Open = Callable[..., HubSource]


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(backoff=0.01)
    yield made
    made.close()


@pytest.fixture
def open_at(transport: Transport) -> Iterator[Open]:
    opened: list[HubSource] = []

    def open_(hub: LoopbackHub, name: str = "acme/tiny", cache: Path | None = None, **how: Any) -> HubSource:
        revision = how.pop("revision", "main")
        options = HubOptions(endpoint=hub.endpoint, **{"token": False, **how})
        opened.append(HubSource(HubAddress(name, revision), transport, RangeCache(cache), options))
        return opened[-1]

    yield open_
    for source in opened:
        source.close()


def hub_with(*script: Fault, **settings: Any) -> LoopbackHub:
    return LoopbackHub({"acme/tiny": Repository(FILES)}, faults=script, **settings)


def read_everything(source: HubSource) -> None:
    for name, body in FILES.items():
        assert bytes(source.read([Extent(name, 0, len(body))], "tensor")[0]) == body


# --- faults that pass -----------------------------------------------------------------------------------------------

PASSING = {
    "a server error": [faults.Status(500)],
    "several server errors": [faults.Status(503), faults.Status(502), faults.Status(500)],
    "an error of the CDN": [faults.Status(500, port="cdn")],
    "a connection dropped before the answer": [faults.Drop(-1)],
    "a connection dropped in mid-body": [faults.Drop(100, port="cdn")],
    "a connection reset in mid-body": [faults.Drop(100, reset=True, port="cdn")],
    "a body shorter than announced": [faults.Short(7, port="cdn")],
    "a short body that announces itself truly": [faults.Resized(-7, port="cdn")],
    "a short small file": [faults.Resized(-40, path="config.json")],
    "bytes that are not HTTP": [faults.Garbage(port="cdn")],
    "a signed address that expires": [faults.Expire()],
    "429 with Retry-After": [faults.Status(429, {"Retry-After": "1"})],
    "429 as the Hub sends it": [faults.rate_limited(1, path="/resolve/")],
}


@pytest.mark.parametrize("fault", PASSING)
def test_the_right_bytes_arrive_after(fault: str, open_at: Open) -> None:
    with hub_with(*PASSING[fault]) as hub:
        source = open_at(hub)
        read_everything(source)
        failures = [e for e in source.ledger.exchanges if e.origin == "network" and e.status not in (200, 206, 302)]
        short = [e for e in source.ledger.exchanges if e.status == 0]
        assert failures or short, "the ledger should show the exchange that failed"


def test_urls_that_expire_between_reads_are_resolved_again_once(open_at: Open) -> None:
    with hub_with() as hub:
        source = open_at(hub)
        source.read([Extent(SHARD, 0, 100)])
        hub.expire_urls()
        assert bytes(source.read([Extent(SHARD, 9000, 9100)])[0]) == FILES[SHARD][9000:9100]
        resolves = [line for line in hub.log if line.port == "hub" and SHARD in line.path]
        assert len(resolves) == 2


def test_a_signed_address_is_resolved_once_and_reused(open_at: Open) -> None:
    with hub_with() as hub:
        source = open_at(hub)
        for start in range(0, 5000, 1000):
            source.read([Extent(SHARD, start, start + 10)])
        assert sum(line.port == "hub" and SHARD in line.path for line in hub.log) == 1


def test_everybody_waits_while_the_limit_lasts(open_at: Open) -> None:
    with hub_with(faults.rate_limited(1, port="hub", path="/resolve/")) as hub:
        source = open_at(hub)
        began = time.monotonic()
        source.read([Extent(name, 0, 64) for name in FILES if name.endswith(".safetensors")])
        assert time.monotonic() - began >= 1.0
        refused = [line for line in hub.log if line.status == 429]
        assert len(refused) == 1


# --- faults that do not pass ----------------------------------------------------------------------------------------

LASTING: dict[str, tuple[Fault, type[ModelkinError], str]] = {
    "the Hub is down": (faults.Status(500, count=None, port="hub"), Unreachable, "500"),
    "the CDN is down": (faults.Status(503, count=None, port="cdn"), Unreachable, "503"),
    "every body is cut": (faults.Drop(100, count=None, port="cdn"), Unreachable, SHARD + "|127.0.0.1"),
    "every body is short": (faults.Resized(-7, count=None, port="cdn"), Unreachable, "ended after"),
    "the CDN always refuses": (faults.Expire(count=None), Unreachable, "403"),
    "the limit never ends": (faults.Status(429, {"Retry-After": "0"}, count=None), Unreachable, "429"),
    "the limit is hours": (faults.Status(429, {"Retry-After": "7200"}), Unreachable, "7200"),
    "garbage for ever": (faults.Garbage(count=None, port="cdn"), Unreachable, "tries"),
    "a range of other bytes": (faults.WrongRange(port="cdn"), ServerLies, "asked for bytes"),
    "another total size": (faults.WrongTotal(port="cdn"), ServerLies, "listing says"),
    "a longer body": (faults.Resized(7, port="cdn"), ServerLies, "longer"),
    "the whole file instead of a range": (faults.IgnoreRange(port="cdn"), ServerLies, "whole file"),
    "a compressed range": (faults.EncodedBody(port="cdn"), ServerLies, "gzip"),
    "another commit": (faults.WrongCommit(path="/resolve/"), ServerLies, "x-repo-commit"),
    "another size": (faults.Headers({"X-Linked-Size": "1"}, path=SHARD), ServerLies, "x-linked-size"),
    "another hash": (faults.Headers({"X-Linked-ETag": f'"{"0" * 64}"'}, path=SHARD), ServerLies, "x-linked-etag"),
    "broken JSON": (faults.BadJson(path="/api/"), ServerLies, "JSON"),
    "a redirect loop": (faults.RedirectLoop(path="/resolve/"), ServerLies, "redirects"),
    "another success": (faults.Status(203, body=b'{"model_type": "gpt2"}', path="config.json"), ServerLies, "203"),
    "a file without content": (faults.Status(204, path="config.json"), ServerLies, "204"),
    "a redirect to nowhere": (faults.Status(302, {"Location": ""}, path="config.json"), ServerLies, "302"),
    "a redirect to no address": (
        faults.Status(302, {"Location": "http://127.0.0.1:99999/"}, path=SHARD),
        Unreachable,
        "tries",
    ),
    "a wait that is no number": (faults.Status(429, {"Retry-After": "²"}, count=None), Unreachable, "429"),
    "a listing in part": (faults.Status(206, body=b"{}", path="/api/"), ServerLies, "206"),
    "forbidden": (faults.Status(403, path="/resolve/"), Gated, "forbidden"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_lasting_fault_ends_in_one_clear_error(fault: str, open_at: Open) -> None:
    script, error, words = LASTING[fault]
    with hub_with(script) as hub:
        with pytest.raises(error, match=re.compile(words, re.IGNORECASE)) as caught:
            read_everything(open_at(hub))
        assert caught.value.exit_code == (3 if error in (Unreachable, Gated) else 4)
        assert len(hub.log) < 30, "a fault must not become a flood of requests"


def test_a_whole_file_sent_for_a_range_is_not_downloaded(open_at: Open) -> None:
    with hub_with(faults.IgnoreRange(port="cdn")) as hub:
        with pytest.raises(ServerLies):
            open_at(hub).read([Extent(SHARD, 0, 10)])
        time.sleep(0.1)
    # The socket's own buffers take some before the client has hung up.
    assert max(line.bytes for line in hub.log if line.port == "cdn") < 4 << 20


def test_what_arrived_before_a_failure_is_kept(open_at: Open, tmp_path: Path) -> None:
    with hub_with(faults.Status(500, path=SHARD, count=None)) as hub:
        wanted = [Extent(name, 0, 64) for name in sorted(FILES) if name.endswith(".safetensors")]
        with pytest.raises(Unreachable):
            open_at(hub, cache=tmp_path / "c.sqlite").read(wanted)
        before = len(hub.log)
        kept = open_at(hub, cache=tmp_path / "c.sqlite", offline=True)
        others = [extent for extent in wanted if extent.file != SHARD]
        assert [bytes(view) for view in kept.read(others)] == [FILES[e.file][:64] for e in others]
        assert len(hub.log) == before


# --- access ---------------------------------------------------------------------------------------------------------


def test_missing_things_are_named(open_at: Open) -> None:
    with hub_with() as hub:
        with pytest.raises(NotFound, match="no such model"):
            open_at(hub, "acme/nothing")
        with pytest.raises(NotFound, match="'v9'"):
            open_at(hub, revision="v9")
        with pytest.raises(NotFound, match=r"nothing\.json"):
            open_at(hub).read([Extent("nothing.json", 0, 1)])


def test_a_gated_model_says_how_to_get_in(open_at: Open) -> None:
    with LoopbackHub({"acme/tiny": Repository(FILES, gated="manual")}, token="hf_right") as hub:
        for token in (False, "hf_right"):
            with pytest.raises(Gated, match="gated") as caught:
                open_at(hub, token=token).read([Extent(SHARD, 0, 10)])
            assert "HF_TOKEN" in caught.value.hint
            assert caught.value.exit_code == 3
        hub.repositories["acme/tiny"].granted = True
        assert len(open_at(hub, token="hf_right").read([Extent(SHARD, 0, 10)])[0]) == 10


def test_the_token_never_reaches_the_cdn(open_at: Open) -> None:
    with LoopbackHub({"acme/tiny": Repository(FILES, private=True)}, token="hf_secret") as hub:
        read_everything(open_at(hub, token="hf_secret"))
        assert any(line.authorization for line in hub.log if line.port == "hub")
        assert not any(line.authorization for line in hub.log if line.port == "cdn")


# --- pinning --------------------------------------------------------------------------------------------------------


def test_a_branch_that_moves_during_the_run_changes_nothing(open_at: Open) -> None:
    with hub_with() as hub:
        source = open_at(hub)
        pinned = source.revision
        assert hub.move("acme/tiny", files=llama_files(seed=1, shards=3)) != pinned
        read_everything(source)
        assert all(pinned in line.path for line in hub.log if "/resolve/" in line.path or "/tree/" in line.path)
        assert open_at(hub).revision != pinned


def test_a_commit_given_by_the_user_is_not_looked_up(open_at: Open) -> None:
    with hub_with() as hub:
        commit = hub.repositories["acme/tiny"].refs["main"]
        read_everything(open_at(hub, revision=commit))
        assert not any("/revision/" in line.path for line in hub.log)


@pytest.mark.parametrize("pinned", [False, True])
def test_hashes_come_from_the_listing_before_a_byte_is_read(open_at: Open, pinned: bool) -> None:
    with hub_with(options=Options(page_size=2)) as hub:
        revision = hub.repositories["acme/tiny"].refs["main"] if pinned else "main"
        source = open_at(hub, revision=revision)
        assert source.files()[SHARD].sha256 == hashlib.sha256(FILES[SHARD]).hexdigest()
        assert {name: fact.size for name, fact in source.files().items()} == {n: len(b) for n, b in FILES.items()}
        assert not any("/resolve/" in line.path for line in hub.log)
        assert len(hub.log) == (3 if pinned else 1)


def test_a_host_that_names_files_without_sizes_is_asked_for_its_tree(open_at: Open) -> None:
    bare = {"siblings": [{"rfilename": name} for name in FILES]}
    with LoopbackHub({"acme/tiny": Repository(FILES, info=bare)}) as hub:
        source = open_at(hub)
        assert any("/tree/" in line.path for line in hub.log)
        read_everything(source)


# --- caches ---------------------------------------------------------------------------------------------------------


def test_a_second_run_costs_one_request_and_none_with_a_commit_or_offline(open_at: Open, tmp_path: Path) -> None:
    cache = tmp_path / "c.sqlite"
    with hub_with() as hub:
        first = describe(open_at(hub, cache=cache), 0.0)
        again = describe(open_at(hub, cache=cache), 0.0)
        pinned = describe(open_at(hub, cache=cache, revision=first.model.revision), 0.0)
    offline = describe(open_at(hub, cache=cache, offline=True), 0.0)  # the hub is gone
    assert first.cost.requests > 3
    assert [again.cost.requests, pinned.cost.requests, offline.cost.requests] == [1, 0, 0]
    assert first.gains == again.gains == pinned.gains == offline.gains
    assert again.cost.bytes == pytest.approx(first.cost.bytes, rel=0.2)


def test_offline_without_the_bytes_is_an_error_that_says_so(open_at: Open, tmp_path: Path) -> None:
    with hub_with() as hub:
        with pytest.raises(OfflineMiss, match="'main'"):
            open_at(hub, offline=True)
        open_at(hub, cache=tmp_path / "c.sqlite")
        with pytest.raises(OfflineMiss, match=SHARD) as caught:
            open_at(hub, cache=tmp_path / "c.sqlite", offline=True).read([Extent(SHARD, 0, 10)])
        assert "without --offline" in caught.value.hint


def test_files_in_the_hubs_own_cache_cost_no_request(open_at: Open) -> None:
    from huggingface_hub import constants, snapshot_download

    with LoopbackHub({"acme/tiny": Repository(FILES, xet=False)}) as hub:
        snapshot_download("acme/tiny", endpoint=hub.endpoint, token=False)
        commit = hub.repositories["acme/tiny"].refs["main"]
    try:
        source = open_at(hub, offline=True)  # the hub is gone
        assert source.revision == commit
        read_everything(source)
        assert source.ledger.requests == 0
        assert {e.origin for e in source.ledger.exchanges} == {"hub-cache"}
    finally:
        shutil.rmtree(constants.HF_HUB_CACHE)


def test_a_cache_that_cannot_be_written_is_noted_and_costs_nothing_else(open_at: Open, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with hub_with() as hub:
        source = open_at(hub, cache=path)
        source._cache._db.execute("PRAGMA query_only=1")
        read_everything(source)
        assert any("cache" in note for note in source.notes)


def test_a_model_read_over_http_equals_the_model_on_disk(open_at: Open) -> None:
    from modelkin.sources.memory import MemorySource

    with hub_with() as hub:
        remote = describe(open_at(hub), 0.0)
    local = describe(MemorySource(FILES), 0.0)
    assert (remote.gains, remote.anatomy, remote.facts) == (local.gains, local.anatomy, local.facts)
    with hub_with() as hub:
        assert open_checkpoint(open_at(hub)).parameters == local.model.parameters


def test_redirects_that_stay_on_the_hub_are_followed(open_at: Open) -> None:
    options = Options(resolve_cache=True, renamed={"old/name": "acme/tiny"})
    with hub_with(options=options) as hub:
        read_everything(open_at(hub))
        read_everything(open_at(hub, "old/name"))
        assert any(line.status == 307 for line in hub.log)


def test_a_listing_that_never_ends_is_given_up(open_at: Open) -> None:
    endless = faults.Status(200, {"Link": '</api/models/acme/tiny/tree/x?cursor=again>; rel="next"'}, b"[]", count=None)
    with hub_with(dataclasses.replace(endless, path="/tree/")) as hub:
        with pytest.raises(ServerLies, match="end"):
            open_at(hub, revision=hub.repositories["acme/tiny"].refs["main"])
        assert len(hub.log) < 5


def test_the_ledger_shows_every_request_and_offline_makes_none(open_at: Open, tmp_path: Path) -> None:
    with hub_with() as hub:
        source = open_at(hub, cache=tmp_path / "c.sqlite", token=None)
        describe(source, 0.0)
        assert source.ledger.requests == len(hub.log)
        describe(open_at(hub, cache=tmp_path / "c.sqlite", token=None, offline=True), 0.0)
        assert source.ledger.requests == len(hub.log)


def test_a_damaged_cache_costs_requests_and_a_note_but_no_model(open_at: Open, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with hub_with() as hub:
        first = describe(open_at(hub, cache=path), 0.0)
        source = open_at(hub, cache=path)
        source._cache._db.execute("DROP TABLE extents")
        again = describe(source, 0.0)
        assert again.gains == first.gains
        assert any("cache" in note for note in again.notes)


def test_clients_that_cannot_be_made_end_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import _http

    def broken() -> object:
        raise ValueError("no certificates")

    monkeypatch.setattr(_http, "_GLOBAL_ASYNC_CLIENT_FACTORY", broken)
    transport = Transport(connections=2)
    with hub_with() as hub:
        for _ in range(4):  # more often than there are connections
            with pytest.raises(Unreachable, match="no certificates"):
                HubSource(HubAddress("acme/tiny"), transport, RangeCache(None), HubOptions(hub.endpoint, False))
    transport.close()
