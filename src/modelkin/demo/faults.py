"""What can go wrong between a client and a Hub, as data: which requests it hits, and what it makes of the answer.

The faults of a hub are a script. A request meets at most one of them: the first in the list that matches and still has
hits left. So `[Status(429), Status(503)]` is a 429, then a 503, then peace.
"""

from __future__ import annotations

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modelkin.demo.cdn import expired
from modelkin.demo.messages import Port, Request, Response, of_bytes

NOT_HTTP = b"\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Fault(ABC):
    """Which requests are hit: by port, by path (a part of it, or a pattern searched in path and query), by method.

    Of the requests that match, the first `skip` pass, then `count` are hit; None: all from there on.
    """

    port: Port | None = None
    path: str | re.Pattern[str] = ""
    method: str | None = None
    skip: int = 0
    count: int | None = 1

    def matches(self, port: Port, request: Request) -> bool:
        if self.port not in (None, port) or self.method not in (None, request.method):
            return False
        if isinstance(self.path, str):
            return self.path in request.path
        return self.path.search(request.target) is not None

    @abstractmethod
    def apply(self, response: Response) -> Response:
        """What goes out in place of the right answer."""


@dataclass(frozen=True)
class Status(Fault):
    """Another status, with a short text as its body."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"made to fail"

    def apply(self, response: Response) -> Response:
        kept = {name: value for name, value in response.headers.items() if name.lower().startswith("ratelimit")}
        plain = {"Content-Type": "text/plain; charset=utf-8"}
        return of_bytes(self.code, self.body, kept | plain).with_headers(dict(self.headers))


def rate_limited(seconds: int = 1, bucket: str = "resolvers", **where: Any) -> Status:
    """A 429 as the Hub sends it: no Retry-After, but a RateLimit header with nothing remaining."""
    return Status(429, {"RateLimit": f'"{bucket}";r=0;t={seconds}'}, **where)


@dataclass(frozen=True)
class Drop(Fault):
    """The connection is closed after so many bytes of the body; below 0, before a single byte of the answer."""

    after_bytes: int = 0
    reset: bool = False

    def apply(self, response: Response) -> Response:
        return replace(response, delivery=replace(response.delivery, cut_after=self.after_bytes, reset=self.reset))


@dataclass(frozen=True)
class Short(Fault):
    """`by` bytes fewer than Content-Length announces, then the connection is closed."""

    by: int = 1

    def apply(self, response: Response) -> Response:
        cut = max(0, response.stop - response.start - self.by)
        return replace(response, delivery=replace(response.delivery, cut_after=cut))


@dataclass(frozen=True)
class Resized(Fault):
    """A body `by` bytes longer than what was asked for (shorter where negative), and a Content-Length that agrees.

    The transport sees nothing wrong, and Content-Range, where there is one, still claims the right span.
    """

    by: int = -1

    def apply(self, response: Response) -> Response:
        body = response.body.read(response.start, response.stop)
        return response.with_body(body[: len(body) + self.by] + bytes(max(0, self.by)))


@dataclass(frozen=True)
class WrongRange(Fault):
    """206 with other bytes than those asked for, and a Content-Range that says so. Anything but a 206 passes."""

    shift: int = 1

    def apply(self, response: Response) -> Response:
        if response.status != 206:
            return response
        start = min(max(0, response.start + self.shift), response.body.size - 1)
        stop = min(start + response.stop - response.start, response.body.size)
        moved = replace(response, start=start, stop=stop, length=stop - start)
        return moved.with_headers({"Content-Range": f"bytes {start}-{stop - 1}/{response.body.size}"})


@dataclass(frozen=True)
class WrongTotal(Fault):
    """206 whose Content-Range states another size of the whole file. Anything but a 206 passes."""

    by: int = 1

    def apply(self, response: Response) -> Response:
        if response.status != 206:
            return response
        span = f"bytes {response.start}-{response.stop - 1}/{response.body.size + self.by}"
        return response.with_headers({"Content-Range": span})


@dataclass(frozen=True)
class IgnoreRange(Fault):
    """200 and the whole object, slowly, so that the log shows how much of it was taken before the client left.

    With `endless` it is chunked and starts over at its end; otherwise it has its Content-Length and ends.
    """

    endless: bool = True
    pause: float = 0.002

    def apply(self, response: Response) -> Response:
        size = response.body.size
        whole = replace(response, status=200, start=0, stop=size, length=None if self.endless else size)
        delivery = replace(response.delivery, endless=self.endless, pause=self.pause)
        return replace(whole, delivery=delivery).with_headers({"Content-Range": None})


@dataclass(frozen=True)
class Headers(Fault):
    """Headers replaced, added, or (None) taken away; the rest of the answer is right."""

    changes: Mapping[str, str | None]

    def apply(self, response: Response) -> Response:
        return response.with_headers(self.changes)


@dataclass(frozen=True)
class WrongCommit(Fault):
    """X-Repo-Commit of another commit: the branch moved, or a mirror lies."""

    commit: str = "f" * 40

    def apply(self, response: Response) -> Response:
        return response.with_headers({"X-Repo-Commit": self.commit})


@dataclass(frozen=True, kw_only=True)
class Expire(Fault):
    """The CDN's 403 for a signed URL that is too old."""

    port: Port | None = "cdn"

    def apply(self, _response: Response) -> Response:
        return expired()


@dataclass(frozen=True)
class Stall(Fault):
    """Silence: before the answer, or after so many bytes of its body."""

    seconds: float
    after_bytes: int = 0

    def apply(self, response: Response) -> Response:
        delivery = replace(response.delivery, stall_seconds=self.seconds, stall_after=self.after_bytes)
        return replace(response, delivery=delivery)


@dataclass(frozen=True)
class Garbage(Fault):
    """Bytes that are not HTTP, then the end of the connection."""

    content: bytes = NOT_HTTP

    def apply(self, response: Response) -> Response:
        return replace(response, delivery=replace(response.delivery, raw=self.content))


@dataclass(frozen=True)
class BadJson(Fault):
    """An answer that says it is JSON and breaks off."""

    content: bytes = b'{"sha": "0123", "siblings": [{"rfilename": '

    def apply(self, response: Response) -> Response:
        plain = response.with_headers({"Content-Encoding": None, "Content-Type": "application/json; charset=utf-8"})
        return plain.with_body(self.content)


@dataclass(frozen=True, kw_only=True)
class RedirectLoop(Fault):
    """A redirect to the very URL that was asked for."""

    count: int | None = None
    code: int = 302

    def apply(self, response: Response) -> Response:
        return of_bytes(self.code, b"", response.headers).with_headers({"Location": response.target})


@dataclass(frozen=True)
class EncodedBody(Fault):
    """The span that was asked for, gzipped, and Content-Encoding says so."""

    def apply(self, response: Response) -> Response:
        packed = gzip.compress(response.body.read(response.start, response.stop), mtime=0)
        return response.with_body(packed).with_headers({"Content-Encoding": "gzip"})


class Script:
    """The faults still to come, and how often each has been met."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults: list[tuple[Fault, list[int]]] = []
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        self._faults.append((fault, [0]))

    def take(self, port: Port, request: Request) -> Fault | None:
        for fault, met in self._faults:
            spent = fault.count is not None and met[0] >= fault.skip + fault.count
            if spent or not fault.matches(port, request):
                continue
            met[0] += 1
            if met[0] > fault.skip:
                return fault
        return None
