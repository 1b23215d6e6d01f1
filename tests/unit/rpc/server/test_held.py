"""What a server holds for clients that send, or take, less than they began: bounded, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dledger.rpc.http2 import frames
from dledger.rpc.http2.frames import ErrorCode, frame
from dledger.rpc.server.call import INBOX_COST_BYTES, KEPT_BYTES
from dledger.rpc.server.dispatch import Dispatch
from dledger.rpc.server.held import Held, HeldLimits
from dledger.rpc.server.remade import Remade
from dledger.rpc.wire import PREFIX_BYTES
from tests.support.virtual_time import settle, virtual_time
from tests.unit.rpc.http2.wires import Method, SeenFrame, Server, prefix

KIB = 1024
LIMITS = HeldLimits(request_bytes=1_000 * KIB, connection_request_bytes=600 * KIB, answer_bytes=300 * KIB, calls=50)
RESOURCE_EXHAUSTED = b"grpc-status\x018"
UNAVAILABLE = b"grpc-status\x0214"


class Again(Remade):
    """An answer that counts how often it was made."""

    def __init__(self, size: int) -> None:
        self.message: bytes | None = bytes(range(256)) * (size // 256)
        self.made = 1
        self.is_lost = False

    def drop(self) -> None:
        self.message = None

    async def restore(self) -> None:
        if self.is_lost:
            raise RuntimeError("it was trimmed")
        self.made += 1
        self.message = bytes(range(256)) * (1_000 * KIB // 256)


class Service:
    """What the tests call, and what came of it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.again = Again(1_000 * KIB)

    async def large(self, request: bytes, _context: Any) -> bytes:
        return bytes(int(request[-9:] or b"0"))

    async def collect(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        await self.go_on.wait()
        async for request in requests:
            self.taken.append(request)
        return b"%d" % len(self.taken)

    async def first(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        async for request in requests:
            return request
        return b""

    async def wait(self, _request: bytes, _context: Any) -> bytes:
        try:
            await self.go_on.wait()
        finally:
            self.ended.append("wait")
        return b""

    async def bad_trailers(self, _request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("Upper", "x"),))
        return b""

    async def plain(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield bytes(int(request))

    async def remade(self, _request: bytes, _context: Any) -> AsyncIterator[Again]:
        yield self.again


def served() -> tuple[Service, Dispatch]:
    service, dispatch = Service(), Dispatch(held_limits=LIMITS)
    methods = {
        "Large": Method(unary_unary=service.large),
        "Wait": Method(unary_unary=service.wait),
        "BadTrailers": Method(unary_unary=service.bad_trailers),
        "Collect": Method(stream_unary=service.collect, request_streaming=True),
        "First": Method(stream_unary=service.first, request_streaming=True),
        "Plain": Method(unary_stream=service.plain, response_streaming=True),
        "Remade": Method(
            unary_stream=service.remade, response_streaming=True, response_serializer=lambda each: each.message
        ),
    }
    dispatch.add_methods("test", methods)
    return service, dispatch


def connected(dispatch: Dispatch, settings: dict[int, int] | None = None) -> Server:
    made = Server(dispatch=dispatch)
    made.take(frames.PREFACE + frames.settings_frame(settings or {}) + frame(frames.SETTINGS, frames.ACK, 0))
    return made


def held_of(made: Server) -> Held:
    return made.connection.held


async def ask(made: Server, stream_id: int, path: bytes, message: bytes = b"", *more: tuple[bytes, bytes]) -> bytes:
    """A unary request; the payloads of what is answered at once."""
    made.open(stream_id, path, *more)
    first = made.data(stream_id, prefix(message) + message, flags=frames.END_STREAM)
    await settle()
    return payloads(first + made.output())


def payloads(seen: list[SeenFrame]) -> bytes:
    return b"".join(each.payload for each in seen)


# Requests ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_message_counts_with_its_whole_size_from_its_beginning_on() -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/Large")
    made.data(1, prefix(bytes(500 * KIB)))
    assert held_of(made).request_bytes == 500 * KIB + PREFIX_BYTES


@virtual_time
async def test_a_request_beyond_what_a_connection_may_hold_is_refused_and_the_first_goes_on() -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/Large")
    made.data(1, prefix(b"0".zfill(500 * KIB)))
    made.open(3, b"/test/Large")
    refused = made.data(3, prefix(bytes(200 * KIB)))
    assert RESOURCE_EXHAUSTED in payloads(refused)
    assert b"this connection" in payloads(refused)
    made.data(1, b"0".zfill(500 * KIB)[: 250 * KIB])
    made.data(1, b"0".zfill(500 * KIB)[250 * KIB :], flags=frames.END_STREAM)
    await settle()
    assert b"grpc-status\x010" in payloads(made.output())
    assert held_of(made).request_bytes == 0


@virtual_time
async def test_a_request_beyond_what_the_node_may_hold_is_refused() -> None:
    _, dispatch = served()
    connections = [connected(dispatch) for _ in range(2)]
    for made in connections:
        made.open(1, b"/test/Large")
        made.data(1, prefix(bytes(450 * KIB)))
    connections[1].open(3, b"/test/Large")
    refused = payloads(connections[1].data(3, prefix(bytes(110 * KIB))))
    assert RESOURCE_EXHAUSTED in refused
    assert b"the node" in refused


@virtual_time
async def test_messages_that_a_handler_does_not_take_count_until_it_does() -> None:
    service, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/Collect")
    made.data(1, (prefix(b"x") + b"x") * 1_000)
    assert held_of(made).request_bytes == 1_000 * (1 + INBOX_COST_BYTES)
    service.go_on.set()
    await settle()
    assert held_of(made).request_bytes == 0
    made.data(1, b"", flags=frames.END_STREAM)
    await settle()
    assert b"1000" in payloads(made.output())


@virtual_time
async def test_a_flood_of_empty_messages_ends_its_call() -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/Collect")
    seen = [each for _ in range(8) for each in made.data(1, prefix(b"") * 2_000)]
    assert RESOURCE_EXHAUSTED in payloads(seen)
    await settle()
    assert held_of(made).request_bytes == 0
    assert not made.connection.streams


@pytest.mark.parametrize("how", ["reset", "lost", "fault"])
@virtual_time
async def test_what_a_call_held_is_given_back_however_it_ends(how: str) -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/Large")
    made.data(1, prefix(bytes(400 * KIB)))
    made.take(frame(frames.DATA, 0, 1, bytes(10_000))[:5_000])
    if how == "reset":
        made.take(frame(frames.DATA, 0, 1, bytes(10_000))[5_000:])
        made.take(frames.reset(1, ErrorCode.CANCEL))
    elif how == "lost":
        made.connection.end(ErrorCode.CANCEL, "lost")
    else:
        made.connection.break_off(frames.ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a fault"))
    assert (held_of(made).request_bytes, held_of(made).calls) == (0, 0)


@virtual_time
async def test_calls_beyond_the_limit_in_all_are_refused_as_not_begun() -> None:
    _, dispatch = served()
    connections = [connected(dispatch) for _ in range(2)]
    seen = []
    for number in range(30):
        for made in connections:
            seen += made.open(2 * number + 1, b"/test/Large")
    assert [frames.word(each.payload) for each in seen] == [ErrorCode.REFUSED_STREAM] * 10
    assert dispatch.held.calls == 50


# Answers -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_answers_that_nobody_takes_fill_up_to_the_limit_and_further_ones_are_refused() -> None:
    _, dispatch = served()
    made = connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 0})
    answers = [await ask(made, stream_id, b"/test/Large", b"100000") for stream_id in (1, 3, 5, 7)]
    assert [RESOURCE_EXHAUSTED in answer for answer in answers] == [False, False, False, True]
    assert held_of(made).answer_bytes == 3 * (100_000 + PREFIX_BYTES)
    made.take(frames.window_update(1, 200_000) + frames.window_update(0, 200_000))
    assert held_of(made).answer_bytes == 2 * (100_000 + PREFIX_BYTES)
    made.take(frames.reset(3, ErrorCode.CANCEL) + frames.reset(5, ErrorCode.CANCEL))
    assert held_of(made).answer_bytes == 0


@virtual_time
async def test_a_deadline_ends_a_call_whose_answer_nobody_takes() -> None:
    _, dispatch = served()
    made = connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 0})
    await ask(made, 1, b"/test/Large", b"1000", (b"grpc-timeout", b"5S"))
    await asyncio.sleep(4)
    assert made.connection.streams
    await asyncio.sleep(2)
    assert not made.connection.streams
    assert [each.kind for each in made.output()] == [frames.RST_STREAM]
    assert held_of(made).answer_bytes == 0


@virtual_time
async def test_a_stream_whose_answers_nobody_takes_ends_when_they_would_be_too_much() -> None:
    service, dispatch = served()
    made = connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1_000})
    await ask(made, 1, b"/test/Plain", b"200000")
    await ask(made, 3, b"/test/Plain", b"200000")
    assert held_of(made).answer_bytes < LIMITS.answer_bytes
    assert made.connection.streams[1].pending is not None
    assert service.ended == []


@virtual_time
async def test_of_an_answer_that_can_be_made_anew_little_is_kept_and_all_of_it_arrives() -> None:
    service, dispatch = served()
    made = connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1_000})
    got = await ask(made, 1, b"/test/Remade")
    assert held_of(made).answer_bytes == KEPT_BYTES
    assert service.again.message is None
    data = b""
    while b"grpc-status" not in got:
        seen = made.take(frames.window_update(1, 60_000) + frames.window_update(0, 60_000))
        await settle()
        seen += made.output()
        data += b"".join(each.payload for each in seen if each.kind == frames.DATA)
        got = payloads(seen)
    message = bytes(range(256)) * (1_000 * KIB // 256)
    assert data == (prefix(message) + message)[1_000:]
    assert service.again.made > 3


@virtual_time
async def test_an_answer_that_cannot_be_made_anew_ends_its_call() -> None:
    service, dispatch = served()
    made = connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1_000})
    await ask(made, 1, b"/test/Remade")
    service.again.is_lost = True
    made.take(frames.window_update(1, 60_000))
    await settle()
    last = made.output()[-1]
    assert UNAVAILABLE in last.payload
    assert held_of(made).answer_bytes == 0


@virtual_time
async def test_trailers_that_cannot_be_sent_end_the_call_all_the_same() -> None:
    _, dispatch = served()
    made = connected(dispatch)
    assert b"grpc-status\x0213" in await ask(made, 1, b"/test/BadTrailers")
    assert not made.connection.streams


@virtual_time
async def test_a_stream_that_is_answered_early_is_gone() -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/First")
    made.data(1, prefix(b"x") + b"x" + prefix(b"y") + b"y")
    await settle()
    assert made.output()[-1].kind == frames.RST_STREAM
    assert (held_of(made).calls, held_of(made).request_bytes) == (0, 0)


@virtual_time
async def test_a_handler_ends_with_its_stream() -> None:
    service, dispatch = served()
    made = connected(dispatch)
    await ask(made, 1, b"/test/Wait")
    made.take(frames.reset(1, ErrorCode.CANCEL))
    await settle()
    assert service.ended == ["wait"]
