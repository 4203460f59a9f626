"""One repository of the Hub, over the network: its commit, its listing, and byte ranges of its files."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from modelkin.errors import Gated, NotFound, ServerLies, Unreachable
from modelkin.records import Extent, FileFact
from modelkin.sources.address import COMMIT
from modelkin.sources.answers import Answer, Ask
from modelkin.sources.protocol import Ledger, Progress, no_progress
from modelkin.sources.transport import Transport

MOST_FILES = 100_000
MANY_SIBLINGS = 10_000
MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
SIGNED_URL_LIFE = 55 * 60.0  # they live an hour
PLAIN_FILE = 64 << 20


class LargeFile(msgspec.Struct):
    oid: str = ""


class TreeEntry(msgspec.Struct):
    type: str
    path: str
    size: int = 0
    lfs: LargeFile | None = None


class _LargeSibling(msgspec.Struct):
    sha256: str


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _LargeSibling | None = None


class _Revision(msgspec.Struct):
    sha: str
    siblings: list[_Sibling] = []


class HubWire:
    """Speaks for one repository. `headers` may hold the user's token, which goes to the Hub's own host alone."""

    def __init__(self, repository: str, endpoint: str, headers: Mapping[str, str], transport: Transport) -> None:
        self.repository = repository
        self.endpoint = endpoint
        self.ledger = Ledger()
        self.progress: Progress = no_progress
        self._headers = headers
        self._transport = transport
        self._signed: dict[str, tuple[str, float]] = {}
        self._resolving: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def commit_of(self, name: str) -> tuple[str, list[TreeEntry] | None]:
        """The commit that a branch or tag points to now, and its files, where this one answer tells them all."""
        url = f"{self.endpoint}/api/models/{self.repository}/revision/{quote(name, safe='')}?blobs=true"
        found: _Revision = _decoded(self._transport.run(self._api(url, name)), _Revision, url)
        if not COMMIT.fullmatch(found.sha):
            raise ServerLies(f"{found.sha[:60]!r} came as a commit; 40 hex digits were expected", where=url)
        return found.sha, _complete(found.siblings)

    def tree(self, commit: str) -> list[TreeEntry]:
        """Every file with its size and, for large ones, its sha256; nothing of their contents is read."""
        return self._transport.run(self._tree(commit))

    def fetch(self, files: CommitFiles, pieces: Sequence[Extent], kind: str) -> Iterator[tuple[Extent, bytes]]:
        """Pieces in the order of their arrival, fetched side by side."""
        arrived: SimpleQueue[tuple[Extent, bytes] | None] = SimpleQueue()
        work = self._transport.start(self._fetch_all(files, pieces, kind, arrived))
        work.add_done_callback(lambda _: arrived.put(None))
        try:
            while (item := arrived.get()) is not None:
                yield item
            work.result()
        finally:
            work.cancel()

    async def _tree(self, commit: str) -> list[TreeEntry]:
        url: str | None = f"{self.endpoint}/api/models/{self.repository}/tree/{commit}?recursive=true&expand=false"
        entries: list[TreeEntry] = []
        while url is not None:
            answer = await self._api(url, commit)
            page = _decoded(answer, list[TreeEntry], url)
            entries += page
            url = self._next_page(answer, url)
            if len(entries) > MOST_FILES or (url and not page):
                raise ServerLies("the listing does not come to an end", where=self.repository)
        return entries

    def _next_page(self, answer: Answer, url: str) -> str | None:
        for link in answer.headers.get("link", "").split(","):
            target, _, relation = link.partition(";")
            if 'rel="next"' in relation:
                following = urljoin(url, target.strip().strip("<>"))
                if not self._is_ours(following) or following == url:
                    raise ServerLies("the next page of the listing lies elsewhere", where=self.repository)
                return following
        return None

    async def _fetch_all(
        self, files: CommitFiles, pieces: Sequence[Extent], kind: str, arrived: SimpleQueue[tuple[Extent, bytes] | None]
    ) -> None:
        total, done = sum(piece.size for piece in pieces), 0

        async def fetch(piece: Extent) -> None:
            nonlocal done
            one = self._fetch_plain if files.is_plain(piece.file) else self._fetch_range
            arrived.put((piece, await one(files, piece, kind)))
            done += piece.size
            self.progress(f"reading {self.repository}", done, total)

        tasks = [asyncio.ensure_future(fetch(piece)) for piece in pieces]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _fetch_plain(self, files: CommitFiles, piece: Extent, kind: str) -> bytes:
        """A small file, whole. The Hub may compress it, so its length is checked after decoding."""
        ask = Ask(self._address(files, piece.file), kind, piece.file, self._headers, total=piece.size)
        answer = await self._followed(ask, files)
        self._raise_for(answer, f"file {piece.file!r} at {files.commit[:12]}")
        if answer.status != 200 or len(answer.body) != piece.size:
            raise ServerLies(
                f"{piece.file}: asked for {piece.size} bytes, answered {answer.status} with {len(answer.body)}",
                where=self.repository,
            )
        return answer.body

    async def _fetch_range(self, files: CommitFiles, piece: Extent, kind: str) -> bytes:
        """Through the file's signed address; when that is refused, through a fresh one."""
        for _ in range(2):
            located = await self._located(files, piece)
            if isinstance(located, bytes):
                return located
            answer = await self._transport.get(self._ranged(located, files, piece, kind), self.ledger, self.progress)
            if answer.status == 206:
                return answer.body
            if answer.status != 403:
                raise Unreachable(f"the storage host answered {answer.status} for {piece.file}", where=self.repository)
            if self._signed.get(piece.file, ("",))[0] == located:  # another task may have a fresh one by now
                del self._signed[piece.file]
        raise Unreachable(
            f"the storage host refused {piece.file} twice (403)", where=self.repository, hint="try again later"
        )

    async def _located(self, files: CommitFiles, piece: Extent) -> str | bytes:
        """Where a file's bytes are, resolved once; or the piece itself, where the Hub serves it without redirect."""
        async with self._resolving[piece.file]:
            address, resolved = self._signed.get(piece.file, ("", 0.0))
            if address and time.monotonic() - resolved < SIGNED_URL_LIFE:
                return address
            ask = self._ranged(self._address(files, piece.file), files, piece, "resolve")
            answer = await self._followed(ask, files)
            if answer.status == 206:
                self._signed[piece.file] = ask.url, time.monotonic()
                return answer.body
            self._raise_for(answer, f"file {piece.file!r} at {files.commit[:12]}")
            address = answer.headers.get("location", "")
            if answer.status not in REDIRECTS or not address.startswith(("https://", "http://")):
                raise ServerLies(f"{piece.file}: answered {answer.status} without an address", where=self.repository)
            self._signed[piece.file] = address, time.monotonic()
            return address

    def _ranged(self, url: str, files: CommitFiles, piece: Extent, kind: str) -> Ask:
        headers = self._headers if self._is_ours(url) else _without_token(self._headers)
        total = files.facts[piece.file].size
        return Ask(url, kind, piece.file, headers, (piece.start, piece.stop), total)

    async def _api(self, url: str, revision: str) -> Answer:
        answer = await self._followed(Ask(url, "api", "", self._headers), None)
        self._raise_for(answer, f"revision {revision!r}")
        if answer.status != 200:
            raise ServerLies(f"a question about {revision!r} was answered with {answer.status}", where=self.repository)
        return answer

    async def _followed(self, ask: Ask, files: CommitFiles | None) -> Answer:
        """Follow redirects that stay on the Hub (renamed repositories, its own caches).

        A ranged request stops where the redirect leaves the Hub: that address is worth keeping.
        """
        for _ in range(MOST_REDIRECTS):
            answer = await self._transport.get(ask, self.ledger, self.progress)
            if files is not None and self._is_ours(ask.url):
                self._check_identity(answer, files, ask.file)
            location = urljoin(ask.url, answer.headers.get("location", ""))
            if answer.status not in REDIRECTS or not answer.headers.get("location"):
                return answer
            if not self._is_ours(location):
                if ask.span:
                    return answer
                ask = msgspec.structs.replace(ask, headers=_without_token(self._headers))
            ask = msgspec.structs.replace(ask, url=location)
        raise ServerLies(f"more than {MOST_REDIRECTS} redirects", where=ask.url.partition("?")[0])

    def _check_identity(self, answer: Answer, files: CommitFiles, file: str) -> None:
        """What the Hub says of a file must agree with the commit and the listing in hand."""
        fact = files.facts[file]
        expected = {"x-repo-commit": files.commit, "x-linked-size": str(fact.size), "x-linked-etag": fact.sha256}
        for name, want in expected.items():
            given = answer.headers.get(name, "").removeprefix("W/").strip('"')
            if given and want and given != want:
                raise ServerLies(f"{file}: {name} is {given}, expected {want}", where=self.repository)

    def _raise_for(self, answer: Answer, what: str) -> None:
        """huggingface_hub's reading of a refusal, as one of our errors."""
        if answer.status < 400:
            return
        from huggingface_hub import errors as hub
        from huggingface_hub.utils import hf_raise_for_status

        try:
            hf_raise_for_status(answer.response)
        except hub.GatedRepoError as error:
            hint = f"accept its terms at {self.endpoint}/{self.repository}, then set HF_TOKEN or run `hf auth login`"
            raise Gated("is gated: its owner restricts access", where=self.repository, hint=hint) from error
        except (hub.RevisionNotFoundError, hub.EntryNotFoundError) as error:
            raise NotFound(f"has no {what}", where=self.repository) from error
        except hub.HfHubHTTPError as error:
            if answer.status in (401, 404) or isinstance(error, hub.RepositoryNotFoundError):
                hint = "check the spelling; a private model needs HF_TOKEN"
                raise NotFound("no such model, or it is private", where=self.repository, hint=hint) from error
            if answer.status == 403:
                raise Gated(f"reading {what} is forbidden", where=self.repository, hint="check HF_TOKEN") from error
            raise Unreachable(f"the Hub answered {answer.status} for {what}", where=self.repository) from error

    def _address(self, files: CommitFiles, file: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.repository, file, revision=files.commit, endpoint=self.endpoint)

    def _is_ours(self, url: str) -> bool:
        """On the Hub's own host: only there may the token go."""
        return urlsplit(url)[:2] == urlsplit(self.endpoint)[:2]


class CommitFiles(msgspec.Struct, frozen=True):
    """The files of one commit."""

    commit: str
    facts: Mapping[str, FileFact]

    def is_plain(self, name: str) -> bool:
        """Outside large-file storage: served by the Hub itself, read whole."""
        fact = self.facts[name]
        return fact.sha256 is None and fact.size <= PLAIN_FILE


def _complete(siblings: Sequence[_Sibling]) -> list[TreeEntry] | None:
    """Siblings as a listing; None where sizes are missing, or where there are so many that the Hub leaves some out."""
    entries = []
    for sibling in siblings:
        if sibling.size is None:
            return None
        large = LargeFile(sibling.lfs.sha256) if sibling.lfs else None
        entries.append(TreeEntry("file", sibling.rfilename, sibling.size, large))
    return entries if 0 < len(entries) < MANY_SIBLINGS else None


def _without_token(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() != "authorization"}


def _decoded(answer: Answer, form: Any, url: str) -> Any:
    try:
        return msgspec.json.decode(answer.body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerLies(f"the answer is not the JSON that was expected: {error}", where=url) from error
