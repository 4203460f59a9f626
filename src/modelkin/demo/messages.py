"""HTTP/1.1 as values: a request that was read, a response still to be sent, and byte ranges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import parse_qs, unquote

from modelkin.demo.repository import Blob, Body, BytesBody

Port = Literal["hub", "cdn"]
RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.IGNORECASE)
REASONS = {status.value: status.phrase for status in HTTPStatus}
TEXT = (".json", ".txt", ".md", ".py", ".jinja", ".yaml", ".yml", ".toml", ".gitattributes")


class BadRequest(ValueError):
    """Bytes that are no HTTP/1.1 request."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # as it was sent, query included
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""

    @cached_property
    def raw_path(self) -> str:
        """Without the query, still percent-encoded."""
        return self.target.partition("?")[0]

    @cached_property
    def path(self) -> str:
        return unquote(self.raw_path)

    @cached_property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(self.target.partition("?")[2], keep_blank_values=True)

    def asks(self, name: str) -> bool:
        """Whether a query parameter is set to something true."""
        return self.query.get(name, ["false"])[0].lower() in ("true", "1")

    @property
    def accepts_gzip(self) -> bool:
        offers = (part.strip().lower().split(";") for part in self.headers.get("accept-encoding", "").split(","))
        return any(name == "gzip" and [w.strip() for w in weight] != ["q=0"] for name, *weight in offers)


def parse_head(head: bytes) -> Request:
    """The request line and the headers, up to the empty line."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1" or not parts[1].startswith("/"):
        raise BadRequest(f"expected an HTTP/1.1 request line, found {first!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise BadRequest(f"expected a header, found {line!r}")
        headers[name.lower()] = value.strip()
    return Request(parts[0], parts[1], headers)


@dataclass(frozen=True)
class Delivery:
    """How the bytes go out; all of these are at rest unless a fault sets them."""

    raw: bytes | None = None  # sent in place of the whole answer, then closed
    cut_after: int | None = None  # body bytes after which the connection is closed
    reset: bool = False  # closed by a reset rather than politely
    stall_after: int = 0
    stall_seconds: float = 0.0
    endless: bool = False  # the body over and over until the client leaves
    pause: float = 0.0  # seconds between small pieces, so that a client which leaves is seen to leave


EMPTY = BytesBody(b"")
AT_REST = Delivery()


@dataclass(frozen=True)
class Response:
    """Bytes [start, stop) of `body`. `length` is what Content-Length says; None: chunked."""

    status: int
    headers: Mapping[str, str]
    body: Body = EMPTY
    start: int = 0
    stop: int = 0
    length: int | None = 0
    target: str = ""  # what it answers, for an answer that points back there
    delivery: Delivery = AT_REST

    def with_headers(self, changes: Mapping[str, str | None]) -> Response:
        """Headers replaced whatever their case; None takes one away."""
        changed = {name.lower() for name in changes}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in changed}
        return replace(self, headers=kept | {name: value for name, value in changes.items() if value is not None})

    def with_body(self, body: bytes) -> Response:
        return replace(self, body=BytesBody(body), start=0, stop=len(body), length=len(body))

    def head(self) -> bytes:
        framing = "Transfer-Encoding: chunked" if self.length is None else f"Content-Length: {self.length}"
        lines = [
            f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Unknown')}",
            *(f"{k}: {v}" for k, v in self.headers.items()),
            framing,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def of_bytes(status: int, body: bytes, headers: Mapping[str, str]) -> Response:
    return Response(status, headers, BytesBody(body), 0, len(body), len(body))


def of_json(request: Request, value: Any, headers: Mapping[str, str], status: int = 200) -> Response:
    """Compressed and chunked where the client accepts gzip, as the real Hub does it."""
    plain = json.dumps(value, separators=(",", ":")).encode()
    return of_bytes_or_gzip(request, Blob("answer.json", plain), headers, status)


def of_bytes_or_gzip(request: Request, blob: Blob, headers: Mapping[str, str], status: int = 200) -> Response:
    headers = {"Content-Type": content_type(blob.name), "Vary": "Accept-Encoding", **headers}
    if not (request.accepts_gzip and blob.name.endswith(TEXT)):
        return Response(status, headers, blob, 0, blob.size, blob.size)
    body = blob.gzipped
    return Response(status, {**headers, "Content-Encoding": "gzip"}, BytesBody(body), 0, len(body), None)


def of_blob(request: Request, blob: Blob, headers: Mapping[str, str]) -> Response:
    """200, 206 or 416 as the Range header asks; several ranges at once get the whole object, as S3 answers."""
    headers = {"Accept-Ranges": "bytes", "Content-Type": content_type(blob.name), **headers}
    wanted = byte_range(request.headers.get("range"), blob.size)
    if wanted is None:
        return Response(200, headers, blob, 0, blob.size, blob.size)
    start, stop = wanted
    if start >= stop:
        return of_bytes(416, b"", {**headers, "Content-Range": f"bytes */{blob.size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{blob.size}"
    return Response(206, headers, blob, start, stop, stop - start)


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """[start, stop) of one range; None where there is none to honour; empty where it cannot be satisfied."""
    match = RANGE.fullmatch(header or "")
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        return None if not last else (max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size


def content_type(name: str) -> str:
    if name.endswith(".json"):
        return "application/json; charset=utf-8"
    return "text/plain; charset=utf-8" if name.endswith(TEXT) else "application/octet-stream"
