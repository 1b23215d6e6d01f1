"""Clients that do not go on, and more clients than there is room for: the server's shell, without sockets."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import pytest

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import ErrorCode, frame, literal
from dledger.rpc.server import server as servers
from dledger.rpc.server.guest import CLOSE_S, MAX_UNSENT_BYTES, Guest
from dledger.rpc.server.places import SPARE_FILES, are_files_short
from dledger.rpc.server.server import GrpcServer
from dledger.rpc.server.watch import ANSWER_S, FRAME_S, HEADERS_S, HELLO_S, IDLE_SILENT_S, SILENT_S
from tests.support.virtual_time import virtual_time
from tests.unit.rpc.http2.wires import HEADS, Method, SeenFrame, echo, frames_in, heads, prefix

HELLO = frames.PREFACE + frames.settings_frame({}) + frame(frames.SETTINGS, frames.ACK, 0)
OPEN = frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS)
PONG = frame(frames.PING, frames.ACK, 0, bytes(8))


class Wire:
    """A transport whose other end does what the test says. ``reads``: it takes what it is sent. ``breaks``: it is gone,
    as the next write finds out."""

    def __init__(self, number: int = 10) -> None:
        self.sent = b""
        self.unsent_bytes = 0
        self.reads = True
        self.breaks = False
        self.is_closed = self.is_aborted = self.is_deaf = False
        self._number = number
        self.guest: Guest

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "uvloop's transports refuse that"
        self.sent += data
        if self.breaks:
            self.abort()
        if not self.reads:
            self.unsent_bytes += len(data)
            if self.unsent_bytes > 64 * 1024:
                self.guest.pause_writing()

    def take(self) -> None:
        """The other end reads again."""
        self.reads, self.unsent_bytes = True, 0
        self.guest.resume_writing()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.reads:
                asyncio.get_running_loop().call_soon(self.guest.connection_lost, None)

    def abort(self) -> None:
        if not self.is_aborted:
            self.is_aborted = self.is_closed = True
            asyncio.get_running_loop().call_soon(self.guest.connection_lost, None)

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_deaf = True

    def resume_reading(self) -> None:
        self.is_deaf = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 5), "socket": self}.get(name)

    family = -1

    def setsockopt(self, *_args: int) -> None: ...

    def fileno(self) -> int:
        return self._number

    def frames(self) -> list[SeenFrame]:
        return frames_in(self.sent)

    @property
    def last_code(self) -> int:
        """Of the GOAWAY that it ended with."""
        return frames.word(self.frames()[-1].payload, 4)

    @property
    def pings(self) -> int:
        return sum(each.kind == frames.PING for each in self.frames())


def serving() -> GrpcServer:
    made = GrpcServer()
    made.add_registered_method_handlers("test", {"Echo": Method(echo)})
    return made


def connect(server: GrpcServer, *said: bytes, number: int = 10) -> Wire:
    wire = Wire(number)
    wire.guest = server.guest()
    wire.guest.connection_made(cast("asyncio.BaseTransport", wire))
    for each in said:
        wire.guest.data_received(each)
    return wire


# Time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"PRI", frames.PREFACE, frames.PREFACE + frames.settings_frame({})])
@virtual_time
async def test_who_does_not_end_the_hello_is_closed(said: bytes) -> None:
    wire = connect(serving(), said)
    await asyncio.sleep(HELLO_S - 1)
    assert not wire.is_closed
    await asyncio.sleep(2)
    assert wire.is_closed
    assert wire.last_code == ErrorCode.SETTINGS_TIMEOUT


@virtual_time
async def test_a_header_block_must_be_ended() -> None:
    wire = connect(serving(), HELLO, frame(frames.HEADERS, 0, 1, HEADS))
    for _ in range(int(HEADERS_S) + 1):
        await asyncio.sleep(1)
        wire.guest.data_received(frame(frames.CONTINUATION, 0, 1, b""))
    assert wire.is_closed
    assert wire.last_code == ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_a_frame_must_be_ended_however_often_a_byte_of_it_comes() -> None:
    wire = connect(serving(), HELLO, OPEN, frame(frames.DATA, 0, 1, bytes(1_000))[:100])
    for _ in range(int(FRAME_S) + 1):
        await asyncio.sleep(1)
        wire.guest.data_received(b"x")
    assert wire.is_closed


@virtual_time
async def test_frames_that_end_in_time_may_come_in_pieces_for_ever() -> None:
    wire = connect(serving(), HELLO, OPEN + frame(frames.DATA, 0, 1, prefix(bytes(1_000_000))))
    data = frame(frames.DATA, 0, 1, b"body")
    for _ in range(200):
        await asyncio.sleep(1)
        wire.guest.data_received(data[:7])
        wire.guest.data_received(data[7:] + data[:2])
        wire.guest.data_received(data[2:])
    assert not wire.is_closed


@virtual_time
async def test_a_client_that_is_gone_without_a_word_is_asked_and_its_calls_end() -> None:
    server = serving()
    wire = connect(server, HELLO, OPEN)
    await asyncio.sleep(SILENT_S + 2)
    assert (wire.pings, wire.is_closed) == (1, False)
    await asyncio.sleep(ANSWER_S + 1)
    assert wire.is_closed
    assert server.dispatch.held.calls == 0


@virtual_time
async def test_a_silent_client_that_answers_stays() -> None:
    wire = connect(serving(), HELLO, OPEN)
    answered = 0
    for _ in range(500):
        await asyncio.sleep(1)
        if wire.pings > answered:
            answered += 1
            wire.guest.data_received(PONG)
    assert answered > 10
    assert not wire.is_closed


@virtual_time
async def test_an_idle_client_is_asked_seldom_and_stays() -> None:
    wire = connect(serving(), HELLO)
    await asyncio.sleep(IDLE_SILENT_S - 2)
    assert wire.pings == 0
    await asyncio.sleep(4)
    wire.guest.data_received(PONG)
    await asyncio.sleep(IDLE_SILENT_S / 2)
    assert (wire.pings, wire.is_closed) == (1, False)


@virtual_time
async def test_a_closed_connection_that_cannot_send_the_rest_is_aborted() -> None:
    wire = connect(serving(), HELLO)
    wire.reads = False
    wire.guest.data_received(b"\xff" * 20)
    assert (wire.is_closed, wire.is_aborted) == (True, False)
    await asyncio.sleep(CLOSE_S + 3)
    assert wire.is_aborted


@virtual_time
async def test_nothing_is_written_behind_the_end() -> None:
    wire = connect(serving(), HELLO, OPEN)
    wire.reads = False
    wire.guest.close()
    wire.guest.connection.reset(wire.guest.connection.streams[1], ErrorCode.CANCEL)
    await asyncio.sleep(0.1)
    assert not wire.guest.connection.has_output


@virtual_time
async def test_a_write_that_finds_the_connection_lost_is_the_last() -> None:
    wire = connect(serving(), HELLO + frames.window_update(0, 1 << 30))
    message = bytes(200_000)
    data = prefix(message) + message
    wire.guest.data_received(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + OPEN)
    wire.breaks = True
    wire.guest.data_received(frame(frames.DATA, frames.END_STREAM, 1, data))
    await asyncio.sleep(0.1)
    assert wire.is_aborted


@virtual_time
async def test_a_server_that_stops_does_not_wait_for_a_client_that_does_not_read() -> None:
    server = serving()
    wire = connect(server, HELLO, OPEN)
    wire.reads = False
    async with asyncio.timeout(CLOSE_S + 3):
        await server.stop(grace_s=1.0)
    assert wire.is_aborted


@virtual_time
async def test_no_timer_is_left_behind_the_last_connection() -> None:
    server = serving()
    connect(server, b"GET / HTTP/1.1\r\n\r\n" * 3)
    await asyncio.sleep(1)
    assert server._clock is None


# Output --------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_client_that_reads_nothing_is_not_listened_to() -> None:
    wire = connect(serving(), HELLO)
    wire.reads = False
    ask = heads(b"/" + b"x" * 1_000, (b"te", b"trailers"))
    number = 0
    while not wire.is_deaf:
        number += 1
        assert wire.unsent_bytes < 2 * MAX_UNSENT_BYTES
        flags = frames.END_HEADERS | frames.END_STREAM
        wire.guest.data_received(frame(frames.HEADERS, flags, 2 * number + 1, ask + literal(b"n", b"%d" % number)))
    wire.take()
    assert not wire.is_deaf


# Room ----------------------------------------------------------------------------------------------------------------


def test_files_are_short_where_the_last_numbers_are_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_000, 2_000))
    assert not are_files_short(1_000 - SPARE_FILES - 1)
    assert are_files_short(1_000 - SPARE_FILES)


@virtual_time
async def test_when_files_are_short_the_oldest_idle_connection_makes_room() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = serving()
    wires = [connect(server, HELLO, OPEN), connect(server, HELLO), connect(server, HELLO)]
    wires.append(connect(server, HELLO, number=limit - 1))
    wires.append(connect(server, HELLO, number=limit - 1))
    assert [wire.is_closed for wire in wires] == [False, True, True, False, False]


@virtual_time
async def test_when_all_have_calls_the_newest_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 2)
    server = serving()
    wires = [connect(server, HELLO, OPEN) for _ in range(3)]
    assert [wire.is_closed for wire in wires] == [False, False, True]
    assert b"no room for more" in wires[2].sent
