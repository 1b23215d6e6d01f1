"""What the loopback does: bytes of one stream, and one small message there and back."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import cast

import uvloop

from bench.limits.roles import accept, connect, server
from bench.processes import core_seconds
from bench.work import Outcome

CHUNK_BYTES = 1 << 20
PING_BYTES = 256


def stream(duration_s: float) -> Outcome:
    """One TCP stream between two processes. ``records`` are mebibytes."""
    with server(_sink) as (sink, port), connect(port) as out:
        chunk = bytes(CHUNK_BYTES)
        used, own = core_seconds([sink.pid or 0]), time.process_time()
        began = now = time.perf_counter()
        sent = 0
        while now < began + duration_s:
            out.sendall(chunk)
            sent += 1
            now = time.perf_counter()
        took = (now - began) / sent * 1000
        servers = core_seconds([sink.pid or 0]) - used
        return Outcome(sent, 0, now - began, took, took, servers, time.process_time() - own)


def _sink(listening: socket.socket) -> None:
    buffer = bytearray(CHUNK_BYTES)
    with accept(listening) as incoming:
        while incoming.recv_into(buffer):
            pass


def ping_pong(duration_s: float) -> Outcome:
    """A message of 256 bytes between two processes on uvloop, which answer at once."""
    with server(_echo) as (echo, port):
        used, own = core_seconds([echo.pid or 0]), time.process_time()
        latencies = uvloop.run(_ping(port, duration_s))
        servers = core_seconds([echo.pid or 0]) - used
        latencies.sort()
        p50, p99 = (latencies[int(share * (len(latencies) - 1))] * 1000 for share in (0.5, 0.99))
        return Outcome(len(latencies), 0, duration_s, p50, p99, servers, time.process_time() - own)


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Ping(_Echo):
    """Each answer is the next question."""

    def __init__(self, end: float, ended: asyncio.Future[None]) -> None:
        self.latencies: list[float] = []
        self._end, self._ended = end, ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._since = time.perf_counter()
        self._transport.write(bytes(PING_BYTES))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.latencies.append(now - self._since)
        self._since = now
        if now < self._end:
            self._transport.write(data)
        elif not self._ended.done():
            self._ended.set_result(None)


def _echo(listening: socket.socket) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Echo, sock=listening)
        await server.serve_forever()

    uvloop.run(serve())


async def _ping(port: int, duration_s: float) -> list[float]:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    end = time.perf_counter() + duration_s
    transport, ping = await loop.create_connection(lambda: _Ping(end, ended), "127.0.0.1", port)
    await ended
    transport.close()
    return ping.latencies
