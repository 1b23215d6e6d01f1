"""Clients that speak HTTP/2 by hand, and do only what a test says: they cost the test next to nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import frame, literal


def rss_bytes(pid: int) -> int:
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


class Rss:
    """Watches a process's memory: ``async with``."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before_bytes = self.most_bytes = rss_bytes(pid)

    @property
    def growth_bytes(self) -> int:
        """From the beginning to the highest point."""
        return self.most_bytes - self.before_bytes

    @property
    def kept_bytes(self) -> int:
        """From the beginning to now."""
        return rss_bytes(self._pid) - self.before_bytes

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            self.most_bytes = max(self.most_bytes, rss_bytes(self._pid))
            await asyncio.sleep(0.05)


class RawClient(asyncio.Protocol):
    """Acknowledges SETTINGS and answers PINGs; gives the server no window but the first."""

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self._rest = bytearray()
        self.data_bytes = 0
        self.resets = 0
        self.is_lost = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = frames.settings_frame({frames.INITIAL_WINDOW_SIZE: self._window_bytes})
        more = frames.window_update(0, max(1, self._window_bytes - frames.DEFAULT_WINDOW_BYTES))
        transport.write(frames.PREFACE + settings + more)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        at = 0
        while len(self._rest) - at >= frames.FRAME_HEADER_BYTES:
            high, low, kind, flags, _ = frames.HEAD.unpack_from(self._rest, at)
            end = at + frames.FRAME_HEADER_BYTES + (high << 8 | low)
            if len(self._rest) < end:
                break
            self._on_frame(kind, flags, bytes(self._rest[at + frames.FRAME_HEADER_BYTES : end]))
            at = end
        del self._rest[:at]

    def _on_frame(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._transport.write(frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.PING and not flags & frames.ACK:
            self._transport.write(frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.DATA:
            self.data_bytes += len(payload)
        elif kind in (frames.RST_STREAM, frames.GOAWAY):
            self.resets += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def call(self, path: bytes, message: bytes, stream_id: int = 1) -> None:
        fields = ((b":path", path), (b"content-type", b"application/grpc"), (b"te", b"trailers"))
        block = b"\x83\x86" + b"".join(literal(*each) for each in fields)
        data = b"\0" + len(message).to_bytes(4, "big") + message
        self._transport.write(
            frame(frames.HEADERS, frames.END_HEADERS, stream_id, block)
            + frame(frames.DATA, frames.END_STREAM, stream_id, data)
        )

    def allow(self, size_bytes: int, stream_id: int = 1) -> None:
        self._transport.write(frames.window_update(stream_id, size_bytes) + frames.window_update(0, size_bytes))

    def close(self) -> None:
        self._transport.abort()


async def raw_client(address: str, window_bytes: int = frames.DEFAULT_WINDOW_BYTES) -> RawClient:
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: RawClient(window_bytes), host, int(port))
    return client
