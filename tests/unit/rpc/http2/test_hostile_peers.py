"""What a peer gains that means harm: nothing that lasts, and little of this side's time and memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import ErrorCode, frame, literal
from dledger.rpc.http2 import abuse
from dledger.rpc.http2.headers import MAX_CACHED_BYTES
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.http2.sending import OUTPUT_BYTES
from dledger.rpc.http2.settings import MAX_SETTINGS_A_FRAME
from tests.support.virtual_time import virtual_time
from tests.unit.rpc.http2.wires import HEADS, Server, frames_in, heads, prefix


def server(limits: Http2Limits | None = None, settings: dict[int, int] | None = None) -> Server:
    made = Server(limits)
    made.take(frames.PREFACE + frames.settings_frame(settings or {}) + frame(frames.SETTINGS, frames.ACK, 0))
    return made


# Bugs ----------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_bug_ends_the_connection_and_its_calls_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = server()
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    call = made.connection.streams[1]

    def fail(*_args: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(made.connection, "_on_ping", fail)
    last = made.take(frame(frames.PING, 0, 0, bytes(8)))[-1]
    assert (last.kind, frames.word(last.payload, 4)) == (frames.GOAWAY, ErrorCode.INTERNAL_ERROR)
    assert call.is_reset
    assert made.connection.fault is not None
    assert isinstance(made.connection.fault.__cause__, RuntimeError)


# Floods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood", [frames.goaway(0, ErrorCode.NO_ERROR), frame(frames.PING, frames.ACK, 0, bytes(8))], ids=["GOAWAY", "PONG"]
)
@virtual_time
async def test_a_flood_of_frames_that_ask_for_nothing_ends_the_connection(flood: bytes) -> None:
    made = server()
    made.take(flood * (int(abuse.BURST) + 10))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_a_frame_of_thousands_of_settings_ends_the_connection() -> None:
    made = server()
    one = frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1})[frames.FRAME_HEADER_BYTES :]
    made.take(frame(frames.SETTINGS, 0, 0, one * (MAX_SETTINGS_A_FRAME + 1)))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_of_a_setting_that_stands_twice_the_last_counts() -> None:
    made = server()
    values = [
        frames.settings_frame({frames.INITIAL_WINDOW_SIZE: value})[frames.FRAME_HEADER_BYTES :] for value in (1, 9)
    ]
    made.take(frame(frames.SETTINGS, 0, 0, b"".join(values)))
    assert made.connection.peer_initial_window == 9


@virtual_time
async def test_a_header_block_that_is_too_large_ends_the_connection_with_its_first_frame() -> None:
    made = server()
    made.take(frame(frames.HEADERS, 0, 1, bytes(100_000)))
    assert made.fault is ErrorCode.ENHANCE_YOUR_CALM


@virtual_time
async def test_calls_beyond_a_limit_that_the_client_has_not_heard_of_cost_it_nothing() -> None:
    made = Server(Http2Limits(max_streams=1))
    made.greet()
    beyond = b"".join(
        frame(frames.HEADERS, frames.END_HEADERS, 2 * each + 1, HEADS) for each in range(2 * int(abuse.BURST))
    )
    assert {each.kind for each in made.take(beyond)} == {frames.RST_STREAM}
    made.take(frame(frames.SETTINGS, frames.ACK, 0))
    assert made.fault is None


@virtual_time
async def test_window_updates_of_a_connection_do_not_look_at_streams_that_wait_for_their_own_window() -> None:
    made = server(settings={frames.INITIAL_WINDOW_SIZE: 0})
    for number in range(1_000):
        made.call(2 * number + 1)
    began_s = time.perf_counter()
    made.take(frames.window_update(0, 64) * 20_000)
    assert time.perf_counter() - began_s < 2.0
    assert made.fault is None


# Memory --------------------------------------------------------------------------------------------------------------


def grown(made: Server, pieces: list[bytes]) -> int:
    """By so many bytes the connection grows as the pieces arrive."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for piece in pieces:
        made.take(piece)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


@virtual_time
async def test_a_frame_that_arrives_in_tiny_pieces_takes_its_size() -> None:
    made = server()
    data = frame(frames.DATA, 0, 1, bytes(100_000))[:-1]
    assert grown(made, [data[at : at + 2] for at in range(0, len(data), 2)]) < 200_000


@virtual_time
async def test_a_message_that_arrives_in_tiny_frames_takes_its_size() -> None:
    made = server()
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    made.take(frame(frames.DATA, 0, 1, prefix(bytes(200_000))))
    assert grown(made, [frame(frames.DATA, 0, 1, b"xy") * 1_000 for _ in range(50)]) < 200_000


@virtual_time
async def test_short_header_blocks_that_say_much_do_not_fill_the_cache() -> None:
    made = server()
    entry = b"\x40\x01a" + b"\x7f\xa1\x1e" + bytes(4_000)  # a field of 4 KB enters the table
    entry = entry.replace(bytes(4_000), b"v" * 4_000)
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS + entry))
    for number in range(500):
        block = HEADS + literal(b"n", b"%d" % number) + 3 * b"\xbe"
        made.take(frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 2 * number + 3, block))
    assert made.fault is None
    assert made.connection.headers._cached_bytes <= MAX_CACHED_BYTES


@virtual_time
async def test_answers_in_one_turn_do_not_pile_up_in_the_output() -> None:
    made = server(settings={frames.INITIAL_WINDOW_SIZE: 2**30})
    made.take(frames.window_update(0, 2**30))
    message = bytes(100_000)
    for number in range(20):
        made.connection.receive(
            frame(frames.HEADERS, frames.END_HEADERS, 2 * number + 1, HEADS)
            + frame(frames.DATA, frames.END_STREAM, 2 * number + 1, prefix(message) + message),
            0.0,
        )
    assert len(made.connection.take_output()) < OUTPUT_BYTES + 20_000
    made.connection.pump()
    assert sum(each.kind == frames.DATA for each in made.output()) > 18


@pytest.mark.parametrize("missing_bytes", [1, 100_000])
@virtual_time
async def test_the_last_bytes_of_an_answer_do_not_keep_all_of_it(missing_bytes: int) -> None:
    size = 1_000_000
    made = server(settings={frames.INITIAL_WINDOW_SIZE: size + 5 - missing_bytes})
    made.take(frames.window_update(0, 2**30))
    assert grown(made, [frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS), *echoed(1, bytes(size))]) < 300_000


def echoed(stream_id: int, message: bytes) -> list[bytes]:
    """The frames that ask for it."""
    data = prefix(message) + message
    pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
    return [frame(frames.DATA, 0, stream_id, each) for each in pieces] + [frame(frames.DATA, 1, stream_id)]


@virtual_time
async def test_streams_share_the_connection_in_turns() -> None:
    made = server()
    message = bytes(60_000)
    for stream_id in (1, 3, 5):
        made.call(stream_id, message)
    order = [each.stream_id for _ in range(4) for each in made.take(frames.window_update(0, 16_384))]
    assert set(order[:2]) == {3, 5}  # the first one's answer has left with what there was of the window


# Streams that must not stay ------------------------------------------------------------------------------------------


@virtual_time
async def test_a_call_that_is_answered_before_its_request_has_ended_is_gone() -> None:
    made = server()
    large = (16 << 20) + 1
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    seen = made.take(frame(frames.DATA, 0, 1, b"\0" + large.to_bytes(4, "big")))
    assert [each.kind for each in seen] == [frames.HEADERS, frames.RST_STREAM]
    assert not made.connection.streams
    assert made.connection.held.calls == 0


@virtual_time
async def test_data_on_a_stream_that_is_gone_counts_in_the_connections_window_alone() -> None:
    made = server(Http2Limits(connection_window_bytes=200_000))
    made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS))
    made.connection.reset(made.connection.streams[1], ErrorCode.CANCEL)
    made.output()
    updates = [each for _ in range(20) for each in made.take(frame(frames.DATA, 0, 1, bytes(16_000)))]
    assert {(each.kind, each.stream_id) for each in updates} == {(frames.WINDOW_UPDATE, 0)}
    assert made.fault is None


# A strict reader -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [(b"a b", b"x"), (b"A", b"x"), (b"a:b", b"x"), (b"", b"x"), (b"a\x7f", b"x"), (b"a", b"x\ny"), (b"a", b"x\0")],
)
@virtual_time
async def test_a_field_that_http2_forbids_resets_the_stream(field: tuple[bytes, bytes]) -> None:
    made = server()
    seen = made.open(1, b"/test/Echo", field)
    assert seen == frames_in(frames.reset(1, ErrorCode.PROTOCOL_ERROR))


@virtual_time
async def test_trailers_with_pseudo_header_fields_reset_the_stream() -> None:
    made = server()
    made.open(1, b"/test/Echo")
    seen = made.open(1, b"/test/Echo", flags=frames.END_STREAM)
    assert seen == frames_in(frames.reset(1, ErrorCode.PROTOCOL_ERROR))


@virtual_time
async def test_a_content_length_of_thousands_of_digits_resets_the_stream() -> None:
    made = server()
    assert made.open(1, b"/test/Echo", (b"content-length", b"9" * 5_000)) == frames_in(
        frames.reset(1, ErrorCode.PROTOCOL_ERROR)
    )


@pytest.mark.parametrize(
    "field", [(b"large", b"x" * 17_000), (b"many-bin", b"," * 1_000)], ids=["too large", "too many values"]
)
@virtual_time
async def test_metadata_beyond_the_limit_refuse_the_call_alone(field: tuple[bytes, bytes]) -> None:
    made = server()
    seen = made.open(1, b"/test/Echo", field, flags=frames.END_STREAM)
    assert b"grpc-status\x018" in seen[0].payload  # RESOURCE_EXHAUSTED
    assert made.fault is None
    assert made.call(3)[1].kind == frames.DATA


@virtual_time
async def test_a_refusal_does_not_repeat_a_path_of_kilobytes() -> None:
    made = server()
    [answer] = made.take(
        frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, heads(b"/" + b"\xff" * 10_000))
    )
    assert len(answer.payload) < 2_000
