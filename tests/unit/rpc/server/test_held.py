"""What a server holds for clients that send, or take, less than they began: bounded, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import ErrorCode, frame
from dledger.rpc.server.answering import KEPT_BYTES
from dledger.rpc.server.dispatch import Dispatch
from dledger.rpc.server.held import Held, HeldLimits
from dledger.rpc.server.inbox import MESSAGE_COST_BYTES
from dledger.rpc.server.remade import Remade
from dledger.rpc.server.turns import TURN_BYTES
from dledger.rpc.wire import PREFIX_BYTES
from tests.support.virtual_time import settle, virtual_time
from tests.unit.rpc.http2.wires import Method, SeenFrame, Server, prefix

KIB = 1024
LIMITS = HeldLimits(
    request_bytes=1_000 * KIB,
    connection_request_bytes=600 * KIB,
    answer_bytes=300 * KIB,
    turn_bytes=TURN_BYTES,
    calls=50,
)
RESOURCE_EXHAUSTED = b"grpc-status\x018"
UNAVAILABLE = b"grpc-status\x0214"


MESSAGE = bytes(range(256)) * (1_000 * KIB // 256)


class Again(Remade):
    """An answer that counts how often it was made."""

    def __init__(self) -> None:
        self.message: bytes | None = MESSAGE
        self.made = 1
        self.is_lost = False

    def drop(self) -> None:
        self.message = None

    async def restore(self) -> None:
        if self.is_lost:
            raise RuntimeError("it was trimmed")
        self.made += 1
        self.message = MESSAGE


class Service:
    """What the tests call, and what came of it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.given: list[Again] = []

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

    async def remade(self, _request: bytes, context: Any) -> AsyncIterator[Again]:
        await context.turn()
        self.given.append(Again())
        yield self.given[-1]


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
    assert held_of(made).request_bytes == 1_000 * (1 + MESSAGE_COST_BYTES)
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
async def test_a_reader_that_takes_nothing_makes_room_for_another_and_gets_all_in_the_end() -> None:
    service, dispatch = served()
    still, other = (connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1_000}) for _ in range(2))
    data = b""
    for seen in (await frames_of(still, b"/test/Remade"), await frames_of(other, b"/test/Remade")):
        data = data or data_of(seen)
    assert still.connection.streams[1].pending_bytes == KEPT_BYTES
    assert other.connection.streams[1].pending_bytes > KEPT_BYTES
    while still.connection.streams:
        seen = still.take(frames.window_update(1, 60_000) + frames.window_update(0, 60_000))
        await settle()
        data += data_of(seen + still.output())
        await frames_of(other, b"/test/Remade")  # another call takes the turn as soon as it can
    assert data == prefix(MESSAGE) + MESSAGE
    assert service.given[0].made > 3


@virtual_time
async def test_a_reader_whose_transport_takes_nothing_loses_its_turn_after_a_while() -> None:
    _, dispatch = served()
    still, other = (connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1 << 30}) for _ in range(2))
    still.connection.set_paused(is_paused=True)
    await frames_of(still, b"/test/Remade")
    assert not await frames_of(other, b"/test/Remade")
    dispatch.held.turns.look()
    await settle()
    assert data_of(other.output())


@virtual_time
async def test_who_waits_for_its_turn_and_goes_away_leaves_no_place_behind() -> None:
    _, dispatch = served()
    still, other = (connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1 << 30}) for _ in range(2))
    still.connection.set_paused(is_paused=True)
    await frames_of(still, b"/test/Remade")
    await frames_of(other, b"/test/Remade")
    other.take(frames.reset(1, ErrorCode.CANCEL))
    still.take(frames.reset(1, ErrorCode.CANCEL))
    await settle()
    assert dispatch.held.turns.held_bytes == 0
    assert data_of(await frames_of(other, b"/test/Remade"))


@virtual_time
async def test_an_answer_that_cannot_be_made_anew_ends_its_call() -> None:
    service, dispatch = served()
    still, other = (connected(dispatch, {frames.INITIAL_WINDOW_SIZE: 1_000}) for _ in range(2))
    await frames_of(still, b"/test/Remade")
    await frames_of(other, b"/test/Remade")
    other.take(frames.reset(1, ErrorCode.CANCEL))
    service.given[0].is_lost = True
    still.take(frames.window_update(1, 60_000))
    await settle()
    assert UNAVAILABLE in still.output()[-1].payload
    assert dispatch.held.turns.held_bytes == 0


async def frames_of(made: Server, path: bytes) -> list[SeenFrame]:
    """A call on the next stream: what is answered at once."""
    stream_id = made.connection.last_peer_stream_id + 2 if made.connection.last_peer_stream_id else 1
    seen = made.open(stream_id, path)
    seen += made.data(stream_id, prefix(b""), flags=frames.END_STREAM)
    await settle()
    return seen + made.output()


def data_of(seen: list[SeenFrame]) -> bytes:
    return b"".join(each.payload for each in seen if each.kind == frames.DATA)


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


@pytest.mark.parametrize("how", ["half a message", "too large a message", "too many messages"])
@virtual_time
async def test_a_handler_ends_with_its_call_when_the_request_is_none(how: str) -> None:
    _, dispatch = served()
    made = connected(dispatch)
    made.open(1, b"/test/First")
    await settle()
    data = {
        "half a message": prefix(b"xy") + b"x",
        "too large a message": prefix(b"")[:1] + (1 << 30).to_bytes(4, "big"),
        "too many messages": prefix(b"") * 7_000,
    }[how]
    made.data(1, data, flags=frames.END_STREAM)
    await settle()
    assert not made.connection.streams
    assert len(asyncio.all_tasks()) == 1
