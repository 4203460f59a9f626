"""Requests and answers as values, and how much of an answer may be read before it is believed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from modelkin.errors import ServerLies

LARGEST_ANSWER = 64 << 20
SMALL_BODY = 64 << 10


class Ask(msgspec.Struct, frozen=True):
    """One request. With a `span` it is ranged, and only a 206 with exactly these bytes will do."""

    url: str
    kind: str
    file: str
    headers: Mapping[str, str]
    span: tuple[int, int] | None = None  # [start, stop)
    total: int | None = None  # size of the whole file, where known

    @property
    def where(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"  # without the query: a signature is nobody's business

    @property
    def expected_bytes(self) -> int:
        return self.span[1] - self.span[0] if self.span else self.total or 0


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    received: int  # bytes of body on the wire, before any decompression
    response: Any  # the client's own object, for huggingface_hub's error mapping


class ShortBody(Exception):
    """Fewer bytes came than were asked for."""


async def read_answer(ask: Ask, response: Any) -> Answer:
    """Read no more than is wanted: an unexpected answer is dropped instead of being downloaded."""
    status = response.status_code
    headers = {name.lower(): value for name, value in response.headers.items()}
    if ask.span and status == 206:
        _check_range(ask, ask.span, headers)
        body = await _bounded(ask, response.aiter_raw(), ask.expected_bytes)
    elif ask.span and status == 200:
        raise ServerLies(
            f"asked for {ask.expected_bytes} bytes, the server sends the whole file instead",
            where=ask.where,
            hint="this host does not serve byte ranges; download the model and give its folder",
        )
    elif status == 200:
        limit = LARGEST_ANSWER if ask.total is None else ask.total
        body = await _bounded(ask, response.aiter_bytes(), limit)
    else:
        # Errors and redirects: a small body is read so that the connection can be used again.
        body = bytes(await response.aread()) if _announced(headers) <= SMALL_BODY else b""
    return Answer(status, headers, body, response.num_bytes_downloaded, response)


def _check_range(ask: Ask, span: tuple[int, int], headers: Mapping[str, str]) -> None:
    given = headers.get("content-range", "")
    unit_and_span, _, total = given.partition("/")
    if unit_and_span != f"bytes {span[0]}-{span[1] - 1}":
        raise ServerLies(f"asked for bytes {span[0]}-{span[1] - 1}, the answer says {given!r}", where=ask.where)
    if ask.total is not None and total not in ("*", str(ask.total)):
        raise ServerLies(f"the file listing says {ask.total} bytes, the answer says {total}", where=ask.where)
    if headers.get("content-encoding", "identity") != "identity":
        raise ServerLies(f"a range came encoded as {headers['content-encoding']}", where=ask.where)


async def _bounded(ask: Ask, blocks: Any, limit: int) -> bytes:
    body = bytearray()
    async for block in blocks:
        body += block
        if len(body) > limit:
            raise ServerLies(f"the answer is longer than the expected {limit} bytes", where=ask.where)
    if len(body) < ask.expected_bytes:
        raise ShortBody(f"asked for {ask.expected_bytes} bytes, the answer ended after {len(body)}")
    return bytes(body)


def _announced(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length) if _is_number(length) else SMALL_BODY + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a refusal asks us to wait, from `Retry-After` (seconds or a date) or `RateLimit`."""
    value = headers.get("retry-after", "").strip()
    if _is_number(value):
        return float(value)
    if value:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError):
            return None
    return used_up_for(headers)


def used_up_for(headers: Mapping[str, str]) -> float | None:
    """Seconds until the allowance starts anew, if this answer says that it is used up."""
    if "ratelimit" not in headers:
        return None
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(dict(headers))
    return None if limit is None or limit.remaining else limit.reset_in_seconds + 0.1
