"""HTTP as the Hub wants it: keep-alive connections, one gate for rate limits, retries, a ledger line an exchange.

One event loop runs in a background thread and is shared by all Hub sources of a process, so that two models opened
side by side share connections and obey one rate limit. The clients come from huggingface_hub's own factory; whether
that builds on httpx or httpx2 is its business, so no type of either is named here.
"""

from __future__ import annotations

import asyncio
import atexit
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from modelkin.errors import ModelkinError, OfflineMiss, Unreachable, UsageError
from modelkin.records import Exchange
from modelkin.sources.answers import Answer, Ask, ShortBody, read_answer, retry_after, used_up_for
from modelkin.sources.protocol import Ledger, Progress, no_progress

DEFAULT_CONNECTIONS = 16
MOST_CONNECTIONS = 32
CONNECTIONS_A_CLIENT = 16  # the factory's pool keeps at most 20 idle connections alive
ATTEMPTS = 5
BACKOFF = 0.5
LONGEST_WAIT = 330.0  # the Hub counts requests in windows of five minutes
SLOWEST = 50_000  # bytes a second; an answer that drips more slowly than this is given up
PATIENCE = 60.0
LONGEST_FAILURE = 300
RETRIED = frozenset({408, 429, 500, 502, 503, 504})

T = TypeVar("T")


class Gate:
    """Closed for a while after a rate limit; every request passes through it, so all learn at once."""

    def __init__(self) -> None:
        self._opens = self._told = 0.0

    def close_for(self, seconds: float) -> None:
        self._opens = max(self._opens, time.monotonic() + seconds)

    async def passed(self, progress: Progress = no_progress) -> None:
        while (wait := self._opens - time.monotonic()) > 0:
            if self._told != self._opens:  # one of those who wait tells the user
                self._told = self._opens
                progress(f"waiting {wait:.0f} s for the server's rate limit", 0, 0)
            await asyncio.sleep(wait)


class _Workshop:
    """Clients, each made while the one before is used: loading certificates takes tens of milliseconds."""

    def __init__(self, expected: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="modelkin-clients")
        self._ready = deque([self._thread.submit(_new_client)])
        self._expected = expected - 1

    async def client(self) -> Any:
        if self._expected > 0 or not self._ready:
            self._expected -= 1
            self._ready.append(self._thread.submit(_new_client))
        return await asyncio.wrap_future(self._ready.popleft())

    async def close(self) -> None:
        for client in self._ready:
            with suppress(Exception):  # one that could not be made needs no closing
                await (await asyncio.wrap_future(client)).aclose()
        self._thread.shutdown()


def _new_client() -> Any:
    from huggingface_hub.utils import get_async_session

    return get_async_session()


class _Lane:
    """The connections to one origin: a stack of permits, each naming the client whose connection may be used."""

    def __init__(self, connections: int, workshop: _Workshop) -> None:
        self.gate = Gate()
        self.clients: list[Any] = []
        self._workshop = workshop
        self._permits: asyncio.LifoQueue[Any] = asyncio.LifoQueue()  # the latest used connection is the warmest
        self._unclaimed = connections
        self._making: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        if self._permits.empty() and self._unclaimed:
            share = min(self._unclaimed, CONNECTIONS_A_CLIENT)
            self._unclaimed -= share
            task = asyncio.ensure_future(self._make(share))
            self._making.add(task)
            task.add_done_callback(self._making.discard)
        client = await self._permits.get()
        try:
            if isinstance(client, Exception):
                raise client
            yield client
        finally:
            self._permits.put_nowait(client)

    async def _make(self, share: int) -> None:
        try:
            client = await self._workshop.client()
            self.clients.append(client)
        except Exception as error:  # whoever waits for a permit must learn of it
            client = Unreachable(f"no HTTP client could be made: {error}", hint="check the certificates and proxies")
        for _ in range(share):
            self._permits.put_nowait(client)


class Transport:
    def __init__(self, connections: int = DEFAULT_CONNECTIONS, backoff: float = BACKOFF) -> None:
        if not 1 <= connections <= MOST_CONNECTIONS:
            raise UsageError(f"{connections} connections; between 1 and {MOST_CONNECTIONS} are allowed")
        self.connections = connections
        self.backoff = backoff
        self._lanes: dict[str, _Lane] = {}
        self._workshop = _Workshop(2 * -(-connections // CONNECTIONS_A_CLIENT))  # for the Hub and its storage host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="modelkin-transport", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the transport's loop; the caller waits, and an interrupt cancels the work."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin it on the transport's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._close_lanes())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close_lanes(self) -> None:
        for lane in self._lanes.values():
            for client in lane.clients:
                await client.aclose()
        await self._workshop.close()

    async def get(self, ask: Ask, ledger: Ledger, progress: Progress = no_progress) -> Answer:
        """The final answer to one request: any status that is no reason to try again, body read and measured."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(ask.url))
        if origin not in self._lanes:
            self._lanes[origin] = _Lane(self.connections, self._workshop)
        lane = self._lanes[origin]
        failure = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self.backoff * 2 ** (attempt - 1) * random.uniform(0.75, 1.25))
            async with lane.client() as client:
                await lane.gate.passed(progress)
                outcome = await _attempt(ask, lane.gate, client, ledger)
            if isinstance(outcome, str):
                failure = outcome
            elif outcome.status in RETRIED:
                failure = f"the server answered {outcome.status}"
                _heed_refusal(lane.gate, outcome)
            else:
                return outcome
        hint = "check the network, or try later"
        raise Unreachable(f"{failure} ({ATTEMPTS} tries)", where=ask.where, hint=hint)


async def _attempt(ask: Ask, gate: Gate, client: Any, ledger: Ledger) -> Answer | str:
    """One exchange: an answer, or in words why there was none. Either way it is in the ledger."""
    began = time.perf_counter()
    answer: Answer | None = None
    try:
        async with asyncio.timeout(PATIENCE + ask.expected_bytes / SLOWEST):
            answer = await _exchange(client, ask)
        gate.close_for(min(used_up_for(answer.headers) or 0.0, LONGEST_WAIT))
        return answer
    except TimeoutError:
        return "the answer came too slowly"
    except ShortBody as short:
        return str(short)
    except ModelkinError:
        raise
    except Exception as error:  # the client's own, of whichever HTTP library; or an address that it cannot parse
        return f"{type(error).__name__} {error}".strip()[:LONGEST_FAILURE]
    finally:
        ledger.record(_ledger_line(ask, answer, time.perf_counter() - began))


async def _exchange(client: Any, ask: Ask) -> Answer:
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    headers = dict(ask.headers)
    if ask.span:
        headers |= {"Range": f"bytes={ask.span[0]}-{ask.span[1] - 1}", "Accept-Encoding": "identity"}
    kind: Any = type(client.base_url)
    url = _parsed(kind, ask.url)
    how = {"headers": headers, "follow_redirects": False, "timeout": constants.HF_HUB_DOWNLOAD_TIMEOUT}
    try:
        async with client.stream("GET", url, **how) as response:
            return await read_answer(ask, response)
    except OfflineModeIsEnabled as error:
        raise OfflineMiss("the network is switched off (HF_HUB_OFFLINE)", where=ask.where) from error


@lru_cache(maxsize=1024)
def _parsed(kind: Callable[[str], Any], url: str) -> Any:
    """The client's own form of an address: signed ones are long, slow to parse, and used again and again."""
    return kind(url)


def _heed_refusal(gate: Gate, answer: Answer) -> None:
    wait = retry_after(answer.headers) or 0.0
    if wait > LONGEST_WAIT:
        raise Unreachable(
            f"the server asks to wait {wait:.0f} s before the next request",
            hint="try later; with a Hub token (HF_TOKEN) the allowance is larger",
        )
    gate.close_for(wait)


def _ledger_line(ask: Ask, answer: Answer | None, seconds: float) -> Exchange:
    start, stop = ask.span or (0, 0)
    status, size = (answer.status, answer.received) if answer else (0, 0)
    return Exchange(ask.kind, ask.file, start, stop, status, size, seconds * 1e3, "network")


_shared: dict[int, Transport] = {}
_shared_lock = threading.Lock()


def shared_transport(connections: int = DEFAULT_CONNECTIONS) -> Transport:
    """The process's transport for this many connections, closed at exit."""
    with _shared_lock:
        if connections not in _shared:
            _shared[connections] = Transport(connections)
            atexit.register(_shared[connections].close)
        return _shared[connections]
