"""What a peer may do, and what it gets for what it may not (RFC 9113; h2spec asks for the same from outside)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import ErrorCode, frame
from dledger.rpc.client.call import UnaryCall
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.http2 import abuse
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.status import StatusCode
from tests.support.virtual_time import virtual_time
from tests.unit.rpc.http2.wires import HEADS, Pair, Server, frames_in, prefix

SMALL = Http2Limits(stream_window_bytes=65_535, connection_window_bytes=200_000, max_frame_bytes=16_384)


def server(limits: Http2Limits | None = None) -> Server:
    made = Server(limits)
    made.greet()
    return made


@virtual_time
async def test_a_call_is_answered_with_one_write() -> None:
    kinds = [(each.kind, each.flags) for each in server().call(1, b"hello")]
    assert kinds == [
        (frames.HEADERS, frames.END_HEADERS),
        (frames.DATA, 0),
        (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM),
    ]


@virtual_time
async def test_calls_leave_nothing_behind() -> None:
    made = server()
    for number in range(100):
        made.call(2 * number + 1)
    assert not made.connection.streams
    assert not made.connection._blocked


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 70_000, 1_000_000])
@virtual_time
async def test_messages_of_any_size_pass_small_windows(size: int) -> None:
    pair = Pair(client_limits=SMALL, server_limits=SMALL)
    message = bytes(size)
    call = pair.begin(message)
    pair.exchange()
    assert await call.answered == message
    assert not pair.client.streams
    assert not pair.server.streams


@virtual_time
async def test_many_large_calls_share_a_connection() -> None:
    pair = Pair(client_limits=SMALL, server_limits=SMALL)
    calls = [pair.begin(bytes([number]) * 100_000) for number in range(20)]
    pair.exchange()
    assert [(await call.answered)[:1] for call in calls] == [bytes([number]) for number in range(20)]


@given(cuts=st.lists(st.integers(1, 70), min_size=1, max_size=20), sizes=st.lists(st.integers(0, 3_000), max_size=6))
def test_it_makes_no_difference_in_which_pieces_bytes_arrive(cuts: list[int], sizes: list[int]) -> None:
    @virtual_time
    async def check() -> None:
        at = 0

        def cut(data: bytes) -> list[bytes]:
            nonlocal at
            pieces = []
            while data:
                pieces.append(data[: cuts[at % len(cuts)]])
                data = data[cuts[at % len(cuts)] :]
                at += 1
            return pieces

        pair = Pair(client_limits=SMALL, server_limits=SMALL, cut=cut)
        calls = [pair.begin(bytes(size)) for size in sizes]
        pair.exchange()
        assert [len(await call.answered) for call in calls] == sizes

    check()


@virtual_time
async def test_a_server_that_goes_away_ends_what_it_has_and_takes_no_more() -> None:
    pair = Pair()
    first = pair.begin(b"1")
    pair.exchange()
    pair.server.go_away()
    late = pair.begin(b"2")
    pair.exchange()
    assert await first.answered == b"1"
    with pytest.raises(RpcFailure) as caught:
        await late.answered
    assert caught.value.status is StatusCode.UNAVAILABLE
    assert not caught.value.was_sent
    assert not pair.client.takes_calls


@pytest.mark.parametrize(("left_s", "status"), [(0.0, StatusCode.DEADLINE_EXCEEDED), (1.0, StatusCode.CANCELLED)])
@virtual_time
async def test_a_server_that_resets_a_call_at_its_deadline_says_that_its_time_is_up(
    left_s: float, status: StatusCode
) -> None:
    pair = Pair()
    call = pair.client.open(UnaryCall, HEADS)
    call.expire_at(asyncio.get_running_loop().time() + left_s)
    pair.client.receive(frames.settings_frame({}) + frames.reset(call.id, ErrorCode.CANCEL), 0.0)
    with pytest.raises(RpcFailure) as caught:
        await call.answered
    assert caught.value.status is status


# What breaks the protocol --------------------------------------------------------------------------------------------

CONTINUED = frame(frames.HEADERS, 0, 1, HEADS)
FAULTS = {
    "DATA on a stream that is not open": (frame(frames.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on a server's stream": (frame(frames.HEADERS, frames.END_HEADERS, 2, HEADS), ErrorCode.PROTOCOL_ERROR),
    "a header block that is none": (
        frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff" * 20),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "a frame amid a header block": (CONTINUED + frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a header block without an end": (
        CONTINUED + 70 * frame(frames.CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "PUSH_PROMISE of a client": (frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "an empty window update": (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "a window beyond the largest": (frames.window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "SETTINGS that are cut short": (frame(frames.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
    "a reset of a stream that is not open": (frames.reset(1, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
    "a frame that is too large": (frame(frames.DATA, 0, 1, bytes(300_000)), ErrorCode.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", FAULTS)
@virtual_time
async def test_a_fault_of_the_connection_ends_it_with_its_code(name: str) -> None:
    data, code = FAULTS[name]
    made = server()
    last = made.take(data)[-1]
    assert (last.kind, made.fault) == (frames.GOAWAY, code)
    assert frames.word(last.payload, 4) == code


@virtual_time
async def test_what_is_no_http2_is_told_so() -> None:
    made = Server()
    made.take(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert made.fault is ErrorCode.PROTOCOL_ERROR


@virtual_time
async def test_more_data_than_the_window_resets_the_stream_alone() -> None:
    made = server(SMALL)
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    made.connection.streams[1].receive_window = 10
    seen = made.take(frame(frames.DATA, 0, 1, bytes(11)))
    assert [(each.kind, each.stream_id) for each in seen] == [(frames.RST_STREAM, 1)]
    assert made.call(3)[0].kind == frames.HEADERS


@virtual_time
async def test_streams_beyond_the_limit_are_refused() -> None:
    made = server(Http2Limits(max_streams=2))
    begun = [made.take(frame(frames.HEADERS, frames.END_HEADERS, stream_id, HEADS)) for stream_id in (1, 3, 5)]
    assert begun[:2] == [[], []]
    assert begun[2] == frames_in(frames.reset(5, ErrorCode.REFUSED_STREAM))


# Floods --------------------------------------------------------------------------------------------------------------


def rapid_reset(stream_id: int) -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS, stream_id, HEADS) + frames.reset(stream_id, ErrorCode.CANCEL)


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid reset": rapid_reset,
    "PING": lambda _: frame(frames.PING, 0, 0, bytes(8)),
    "SETTINGS": lambda _: frames.settings_frame({}),
    "PRIORITY": lambda stream_id: frame(frames.PRIORITY, 0, stream_id, bytes(5)),
    "unknown frames": lambda _: frame(0x42, 0, 0, b""),
    "tiny window updates": lambda _: frames.window_update(0, 1),
}


@pytest.mark.parametrize("name", FLOODS)
@virtual_time
async def test_a_flood_ends_the_connection(name: str) -> None:
    made = server()
    for number in range(int(abuse.BURST) + 10):
        made.take(FLOODS[name](2 * number + 1))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_an_empty_data_flood_ends_the_connection() -> None:
    made = server()
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    for _ in range(int(abuse.BURST) + 10):
        made.take(frame(frames.DATA, 0, 1))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_a_client_that_cancels_now_and_then_is_none() -> None:
    made = server()
    for number in range(3 * int(abuse.BURST)):
        made.now_s += 2 / abuse.REFILL_A_SECOND
        made.take(rapid_reset(2 * number + 1))
    assert made.fault is None


@virtual_time
async def test_a_client_that_answers_each_message_with_small_change_is_none() -> None:
    """As gRPC's own libraries do: two updates of a few bytes, and a PING to measure the way."""
    made = server()
    for number in range(int(abuse.BURST)):
        stream_id = 2 * number + 1
        made.call(stream_id)
        made.take(frames.window_update(0, 6) + frames.window_update(0, 6) + frame(frames.PING, 0, 0, bytes(8)))
    assert made.fault is None


@virtual_time
async def test_headers_that_unpack_to_too_much_end_the_connection() -> None:
    made = server()
    long_field = b"\x40\x01a" + b"\x7f\xa1\x1e" + bytes(4_000)  # enters the table, and is then repeated by its index
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS + long_field + 100 * b"\xbe"))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


# The header cache ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_same_bytes_mean_something_else_once_the_table_has_changed() -> None:
    made = server()
    indexed = b"\x83\x86" + b"\x44\x0a/test/Echo"  # :path enters the table as its newest entry
    again = b"\x83\x86\xbe"
    rest = HEADS[HEADS.index(b"\x00\x0ccontent-type") :]
    message = prefix(b"") + b""

    def ask(stream_id: int, block: bytes) -> int:
        seen = made.take(
            frame(frames.HEADERS, frames.END_HEADERS, stream_id, block + rest)
            + frame(frames.DATA, frames.END_STREAM, stream_id, message)
        )
        return len(seen)

    assert ask(1, indexed) == 3
    assert ask(3, again) == 3
    assert ask(5, b"\x83\x86" + b"\x44\x05/none") == 2  # UNIMPLEMENTED, and a reset; and the newest entry now
    assert ask(7, again) == 2


@virtual_time
async def test_a_timeout_behind_a_known_block_is_understood() -> None:
    made = server()
    made.call(1)
    found = made.connection.headers.known_prefix(HEADS + b"\x00\x0cgrpc-timeout\x0320m")
    assert found is not None
    assert found[1] == b"20m"
