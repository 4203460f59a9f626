"""Connections: requests in, answers out, on one event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from modelkin.demo.faults import Script
from modelkin.demo.messages import BadRequest, Port, Request, Response, of_bytes, parse_head

MAX_HEAD = 64 << 10
MAX_BODY = 1 << 20
PIECE = 256 << 10
SLOW_PIECE = 16 << 10
RESET = struct.pack("ii", 1, 0)

Answer = Callable[[Request], Response]
Acceptor = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


@dataclass
class Served:
    """One line of a hub's log. `bytes` is what of the body was handed over; it grows while a body is being sent."""

    port: Port
    method: str
    path: str
    range: str | None
    status: int
    bytes: int
    authorization: bool
    connection: int
    time: float
    target: str = ""  # the path as it was sent, with its query
    fault: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # of the request, without Authorization


class Wire:
    """What all connections share: delays, faults, the log, and errors that are the server's own."""

    def __init__(self, latency: float, connect_latency: float, script: Script) -> None:
        self.latency = latency
        self.connect_latency = connect_latency
        self.script = script
        self.log: list[Served] = []
        self.failures: list[Exception] = []
        self._connections = 0
        self._open: set[asyncio.Task[None]] = set()

    def acceptor(self, port: Port, answer: Answer) -> Acceptor:
        """What asyncio calls for each new connection on a port."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            running = Connection(self, port, answer, reader, writer).run(self._connections)
            task = asyncio.get_running_loop().create_task(running)
            self._open.add(task)
            task.add_done_callback(self._open.discard)

        return accept

    async def hang_up(self) -> None:
        """End every connection that is still open."""
        ending = list(self._open)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


class Connection:
    def __init__(
        self, wire: Wire, port: Port, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._wire = wire
        self._port = port
        self._answer = answer
        self._reader = reader
        self._writer = writer

    async def run(self, number: int) -> None:
        """From the first request to the end; the first answer waits for the hand-shake too."""
        delay = self._wire.latency + self._wire.connect_latency
        try:
            while await self._exchange(number, delay):
                delay = self._wire.latency
            self._writer.close()
            await self._writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        except Exception as error:
            self._wire.failures.append(error)
        finally:
            self._writer.transport.abort()  # at once, even if the client has stopped reading

    async def _exchange(self, number: int, delay: float) -> bool:
        """One request and its answer; whether the connection lives on."""
        try:
            request = await read_request(self._reader)
        except BadRequest as error:
            self._writer.write(of_bytes(400, str(error).encode(), {"Connection": "close"}).head())
            return False
        arrived, due = time.time(), time.monotonic() + delay
        response = replace(self._answer(request), target=request.target)
        fault = self._wire.script.take(self._port, request)
        if fault is not None:
            response = fault.apply(response)
        entry = self._entry(request, response, number, arrived)
        entry.fault = type(fault).__name__ if fault else ""
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        self._wire.log.append(entry)
        return await self._deliver(request, response, entry)

    def _entry(self, request: Request, response: Response, number: int, arrived: float) -> Served:
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        return Served(
            port=self._port,
            method=request.method,
            path=request.path,
            range=request.headers.get("range"),
            status=response.status,
            bytes=0,
            authorization="authorization" in request.headers,
            connection=number,
            time=arrived,
            target=request.target,
            headers=headers,
        )

    async def _deliver(self, request: Request, response: Response, entry: Served) -> bool:
        how = response.delivery
        if how.stall_after <= 0:
            await asyncio.sleep(how.stall_seconds)
        if how.raw is not None:
            self._writer.write(how.raw)
            return False
        last = request.headers.get("connection", "").lower() == "close"
        if last:
            response = response.with_headers({"Connection": "close"})
        if how.cut_after is None or how.cut_after >= 0:
            await self._send(request, response, entry)
        if how.cut_after is not None and how.reset:
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._writer.transport.abort()
        return not last and how.cut_after is None

    async def _send(self, request: Request, response: Response, entry: Served) -> None:
        """Head and body; the head travels with the first piece."""
        how, chunked, unsent = response.delivery, response.length is None, response.head()
        for piece in pieces(response) if request.method != "HEAD" else ():
            entry.bytes += len(piece)
            self._writer.write(unsent + (b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece))
            unsent = b""
            await self._writer.drain()
            if how.pause or entry.bytes == how.stall_after:
                await asyncio.sleep(how.stall_seconds if entry.bytes == how.stall_after else how.pause)
        ended = chunked and request.method != "HEAD" and how.cut_after is None
        self._writer.write(unsent + (b"0\r\n\r\n" if ended else b""))
        await self._writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Request:
    try:
        request = parse_head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError as error:
        raise BadRequest(f"expected at most {MAX_HEAD} bytes of headers") from error
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY or "transfer-encoding" in request.headers:
        raise BadRequest(f"expected a body of at most {MAX_BODY} bytes with its Content-Length")
    return replace(request, body=await reader.readexactly(int(length))) if int(length) else request


def pieces(response: Response) -> Iterator[bytes]:
    """The body, cut where a fault cuts it, with an edge where one stalls."""
    how, sent = response.delivery, 0
    step = SLOW_PIECE if how.pause else PIECE
    limit = how.cut_after if how.cut_after is not None else float("inf")
    while response.start < response.stop:
        start = response.start
        while start < response.stop and sent < limit:
            size = min(step, response.stop - start, limit - sent)
            if sent < how.stall_after:
                size = min(size, how.stall_after - sent)
            piece = response.body.read(start, start + int(size))
            if len(piece) != size:
                raise RuntimeError(f"a body gave {len(piece)} bytes at {start}, expected {size}")
            yield piece
            start, sent = start + len(piece), sent + len(piece)
        if not how.endless or sent >= limit:
            return
