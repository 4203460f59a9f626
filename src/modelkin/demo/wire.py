"""Connections: requests in, answers out, on one event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from modelkin.demo.faults import Script
from modelkin.demo.messages import BadRequest, Port, Request, Response, of_bytes, parse_head

MAX_HEAD = 64 << 10
MAX_BODY = 1 << 20
PIECE = 256 << 10
SLOW_PIECE = 16 << 10
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Answer = Callable[[Request], Response]


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
    """Serves the connections of both ports, with delays, faults and a log."""

    def __init__(self, latency: float, connect_latency: float, script: Script) -> None:
        self.latency = latency
        self.connect_latency = connect_latency
        self.script = script
        self.log: list[Served] = []
        self.failures: list[Exception] = []
        self._connections = 0

    async def serve(
        self, port: Port, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, from its first request to its end."""
        self._connections += 1
        number = self._connections
        delay = self.latency + self.connect_latency
        try:
            while await self._exchange(port, answer, number, delay, reader, writer):
                delay = self.latency
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(
        self,
        port: Port,
        answer: Answer,
        connection: int,
        delay: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection lives on."""
        try:
            request = await read_request(reader)
        except BadRequest as error:
            writer.write(of_bytes(400, b"", {"Connection": "close", "X-Error-Message": str(error)}).head())
            return False
        arrived, due = time.time(), time.monotonic() + delay
        response = answer(request)
        fault = self.script.take(port, request)
        if fault is not None:
            response = fault.apply(request, response)
        entry = served(port, connection, arrived, request, response)
        entry.fault = type(fault).__name__ if fault else ""
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        self.log.append(entry)
        return await deliver(writer, request, response, entry)
