"""A Hub on this machine: two real ports on 127.0.0.1 that speak the Hugging Face Hub's protocol, its faults included.

    with LoopbackHub({"acme/tiny": Repository(files={"config.json": b"{}"})}) as hub:
        ...  # HF_ENDPOINT=hub.endpoint

One port is the Hub, the other its CDN. Both keep a log of every request; see `faults` for what can be made to go wrong.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from modelkin.demo.cdn import Cdn
from modelkin.demo.faults import Fault, Script
from modelkin.demo.repository import Blob, Body, Content, Repository
from modelkin.demo.site import Options, Site
from modelkin.demo.wire import MAX_HEAD, Served, Wire

__all__ = ["Blob", "Body", "Content", "LoopbackHub", "Options", "Repository", "Served"]

BACKLOG = 1024


class LoopbackHub:
    """Serves `repositories` from a background thread between `start` and `close`, or inside a `with`.

    `latency` seconds pass before every answer, and `connect_latency` more before the first on a connection. `token`
    is the only one that is known; without one, Authorization is ignored, and what is private or gated stays shut.
    """

    def __init__(
        self,
        repositories: Mapping[str, Repository],
        *,
        latency: float = 0.0,
        connect_latency: float = 0.0,
        signed_url_seconds: float = 3600,
        faults: Iterable[Fault] = (),
        token: str | None = None,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self._cdn = Cdn(signed_url_seconds)
        self._site = Site(dict(repositories), self._cdn, token, self._options)
        self._wire = Wire(latency, connect_latency, Script(faults))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT should be."""
        return self._site.endpoint

    @property
    def cdn_endpoint(self) -> str:
        return self._cdn.endpoint

    @property
    def repositories(self) -> dict[str, Repository]:
        return self._site.repositories

    @property
    def log(self) -> list[Served]:
        """Every request answered so far, on both ports, in order."""
        return self._wire.log

    def add_fault(self, fault: Fault) -> None:
        self._wire.script.add(fault)

    def expire_urls(self) -> None:
        """Every signed URL given out so far is refused from now on."""
        self._cdn.expire()

    def move(
        self,
        repository: str,
        branch: str = "main",
        commit: str | None = None,
        files: Mapping[str, Content] | None = None,
    ) -> str:
        """Move a branch while the hub runs: to a new commit with these files, or to one that exists."""
        moved = self.repositories[repository]
        if files is not None:
            return moved.commit(files, branch, commit)
        if commit not in moved.commits:
            raise KeyError(f"{repository} has no commit {commit}; give its files")
        moved.refs[branch] = commit
        return commit

    def start(self) -> None:
        hub = socket.create_server(("127.0.0.1", self._options.port), backlog=BACKLOG)
        cdn = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._site.endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        self._cdn.endpoint = f"http://127.0.0.1:{cdn.getsockname()[1]}"
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(hub, cdn, ready)), name="loopback-hub", daemon=True
        )
        self._thread.start()
        ready.wait()

    async def _main(self, hub: socket.socket, cdn: socket.socket, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ports = (
            (self._wire.acceptor("hub", self._site.answer), hub),
            (self._wire.acceptor("cdn", self._cdn.answer), cdn),
        )
        servers = [
            await asyncio.start_server(accept, sock=listener, limit=MAX_HEAD, backlog=BACKLOG)
            for accept, listener in ports
        ]
        ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        await self._wire.hang_up()

    def close(self) -> None:
        """End every connection. An error of the server's own, which no client could understand, is raised here."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = self._loop = None
        if self._wire.failures:
            raise self._wire.failures[0]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
