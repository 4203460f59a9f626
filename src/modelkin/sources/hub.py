"""A model on the Hub, read by byte ranges at one commit.

The revision is resolved once; every later address carries the commit, and every answer that names a commit must name
this one. Bytes come, in this order, from the Hub's own cache on disk, from our range cache, and from the network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from modelkin import __version__
from modelkin.errors import OfflineMiss, ServerLies
from modelkin.records import Exchange, Extent, FileFact, Origin
from modelkin.sources.address import HubAddress
from modelkin.sources.cache import CacheError, RangeCache
from modelkin.sources.plan import assemble, coalesced, covering
from modelkin.sources.protocol import Ledger, Progress, checked_extents, no_progress
from modelkin.sources.snapshot import Snapshot
from modelkin.sources.transport import Transport
from modelkin.sources.wire import CommitFiles, HubWire, TreeEntry

T = TypeVar("T")
_Arrivals = Iterator[tuple[Extent, memoryview]]
TREE = "/tree"  # the listing is kept beside the files, under a name that no file can have


class HubOptions(msgspec.Struct, frozen=True):
    endpoint: str | None = None  # None: HF_ENDPOINT
    token: str | bool | None = None  # None: HF_TOKEN, or the one stored by `hf auth login`
    offline: bool = False


def request_headers(token: str | bool | None) -> dict[str, str]:
    """Who asks, and the user's token. The library's own builder would ask the Hub a question first, also offline."""
    from huggingface_hub.utils import get_token_to_send

    headers = {"user-agent": f"modelkin/{__version__}"}
    found = get_token_to_send(token)
    return headers | ({"authorization": f"Bearer {found}"} if found else {})


class HubSource:
    """Owns its cache handle; the transport is shared."""

    def __init__(
        self,
        address: HubAddress,
        transport: Transport,
        cache: RangeCache,
        options: HubOptions = HubOptions(),
        progress: Progress = no_progress,
        notes: Sequence[str] = (),
    ) -> None:
        from huggingface_hub import constants

        self.id = address.repository
        self.notes = list(notes)
        self._endpoint = (options.endpoint or constants.ENDPOINT).rstrip("/")
        # Another host may serve another model under the same name, so the host is part of the key.
        self._key = f"{self._endpoint}/{self.id}"
        self._offline = options.offline or constants.is_offline_mode()
        self._cache = cache
        self._snapshot = Snapshot(self.id)
        self._wire = HubWire(
            self.id, self._endpoint, request_headers(False if self._offline else options.token), transport
        )
        self._wire.progress = progress
        try:
            self.revision, entries = self._commit(address)
            self._files = CommitFiles(self.revision, self._listing(entries))
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Of the page of this commit. Whoever reads a record gets no password that stood in the endpoint."""
        host = urlsplit(self._endpoint)
        plain = host._replace(netloc=host.netloc.rpartition("@")[2]).geturl()
        return f"{plain}/{self.id}/tree/{quote(self.revision, safe='')}"

    @property
    def ledger(self) -> Ledger:
        return self._wire.ledger

    def files(self) -> Mapping[str, FileFact]:
        return self._files.facts

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:
        found = dict(self.arrivals(extents, kind))
        return [found[place] for place in range(len(extents))]

    def arrivals(self, extents: Sequence[Extent], kind: str = "file") -> Iterator[tuple[int, memoryview]]:
        checked_extents(self._files.facts, extents, self.id)
        places = defaultdict(list)
        for place, extent in enumerate(extents):
            places[extent].append(place)
        missing = list(places)
        for look in (self._empty, self._downloaded, self._cached, self._fetched):
            found = set()
            for extent, view in look(missing, kind) if missing else ():
                found.add(extent)
                for place in places[extent]:
                    yield place, view
            missing = [extent for extent in missing if extent not in found]

    def transfer(self, extents: Sequence[Extent]) -> int:
        """As if nothing were on this machine yet."""
        return sum(piece.size for piece in chain(*self._pieces(extents).values()))

    def close(self) -> None:
        self._snapshot.close()
        self._cache.close()

    def _commit(self, address: HubAddress) -> tuple[str, list[TreeEntry] | None]:
        """The commit meant, and its files where asking for it has told them."""
        if address.is_pinned:
            return address.revision, None
        if not self._offline:
            commit, entries = self._wire.commit_of(address.revision)
            self._tolerant(lambda: self._cache.remember_ref(self._key, address.revision, commit), None)
            return commit, entries
        known = self._snapshot.ref(address.revision)
        known = known or self._tolerant(lambda: self._cache.ref(self._key, address.revision), None)
        if known is None:
            what = f"which commit {address.revision!r} means is not known offline"
            raise OfflineMiss(what, where=self.id, hint="run once without --offline")
        return known, None

    def _listing(self, entries: list[TreeEntry] | None) -> dict[str, FileFact]:
        kept = self._tolerant(self._kept_listing, None)
        if kept is not None:
            return self._facts_of(kept)
        if self._offline:
            return self._offline_listing()
        entries = entries or self._wire.tree(self.revision)
        facts = self._facts_of(entries)
        body = msgspec.json.encode(entries)
        self._keep({Extent(TREE, 0, len(body)): body})
        return facts

    def _kept_listing(self) -> list[TreeEntry] | None:
        body = self._cache.document(self._key, self.revision, TREE)
        if body is None:
            return None
        self._record("api", Extent("", 0, len(body)), "cache")
        try:
            return msgspec.json.decode(body, type=list[TreeEntry])
        except msgspec.DecodeError as error:
            raise CacheError(f"a kept listing cannot be read: {error}", where=str(self._cache.path)) from error

    def _offline_listing(self) -> dict[str, FileFact]:
        facts = self._snapshot.files(self.revision)
        if not facts:
            what = f"nothing of commit {self.revision[:12]} is on this machine"
            raise OfflineMiss(what, where=self.id, hint="run once without --offline")
        return facts

    def _facts_of(self, entries: Sequence[TreeEntry]) -> dict[str, FileFact]:
        facts = {}
        for entry in entries:
            if entry.type != "file":
                continue
            if entry.size < 0 or entry.path.startswith("/") or ".." in entry.path.split("/"):
                raise ServerLies(f"the listing has an impossible entry {entry.path[:80]!r}", where=self.id)
            facts[entry.path] = FileFact(entry.path, entry.size, entry.lfs.oid if entry.lfs else None)
        return facts

    def _empty(self, extents: Sequence[Extent], kind: str) -> _Arrivals:  # noqa: ARG002
        return ((extent, memoryview(b"")) for extent in extents if extent.size == 0)

    def _downloaded(self, extents: Sequence[Extent], kind: str) -> _Arrivals:
        for extent in extents:
            view = self._snapshot.read(self.revision, extent, self._files.facts[extent.file].size)
            if view is not None:
                self._record(kind, extent, "hub-cache")
                yield extent, view

    def _cached(self, extents: Sequence[Extent], kind: str) -> _Arrivals:
        nothing: dict[Extent, bytes] = {}
        kept = self._tolerant(lambda: self._cache.get(self._key, self.revision, extents), nothing)
        for extent, body in kept.items():
            self._record(kind, extent, "cache")
            yield extent, memoryview(body)

    def _fetched(self, missing: Sequence[Extent], kind: str) -> _Arrivals:
        pieces = self._plan(missing)
        parts = {extent: covering(extent, pieces[extent.file]) for extent in missing}
        waiting = defaultdict(list)
        for extent, needed in parts.items():
            for piece in needed:
                waiting[piece].append(extent)
        bodies: dict[Extent, bytes] = {}
        try:
            for piece, body in self._wire.fetch(self._files, list(chain(*pieces.values())), kind):
                bodies[piece] = body
                for extent in waiting[piece]:
                    if all(part in bodies for part in parts[extent]):
                        yield extent, assemble(extent, parts[extent], bodies)
        finally:
            if kind != "stream":
                self._keep(bodies)  # also what had arrived before a failure

    def _plan(self, missing: Sequence[Extent]) -> dict[str, list[Extent]]:
        """The requests to make, by file."""
        if self._offline:
            first = missing[0]
            what = f"bytes {first.start}–{first.stop} of {first.file} are not on this machine"
            raise OfflineMiss(what, where=self.id, hint="run once without --offline")
        return self._pieces(missing)

    def _pieces(self, wanted: Sequence[Extent]) -> dict[str, list[Extent]]:
        plain = sorted({e.file for e in wanted if self._files.is_plain(e.file)})
        pieces = {name: [Extent(name, 0, self._files.facts[name].size)] for name in plain}
        for piece in coalesced(e for e in wanted if e.file not in pieces):
            pieces.setdefault(piece.file, []).append(piece)
        return pieces

    def _keep(self, bodies: Mapping[Extent, bytes]) -> None:
        self._tolerant(lambda: self._cache.put(self._key, self.revision, bodies.items()), None)

    def _tolerant(self, use: Callable[[], T], otherwise: T) -> T:
        """A cache that fails costs requests; the bytes in hand are good all the same. It is said in a note."""
        try:
            return use()
        except CacheError as error:
            note = f"{error}; {error.hint}".rstrip("; ")
            if note not in self.notes:
                self.notes.append(note)
            return otherwise

    def _record(self, kind: str, extent: Extent, origin: Origin) -> None:
        self.ledger.record(Exchange(kind, extent.file, extent.start, extent.stop, 0, extent.size, 0.0, origin))
