"""A batch's message, decoded by hand: what protobuf would say of it, without its copies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from dledger.client.log_client_wire import encode_append
from dledger.common.batch import Buffer
from dledger.common.types import LogPoint, Position, Term
from dledger.log.frame.frame import Frame, make_frame
from dledger.server.log_service_wire import LARGE_BYTES, ReadMessage, decode_append, encode_read
from dledger.v1 import log_pb2

HEAD = log_pb2.AppendStreamRequest(
    group="default", producer_id=1 << 40, producer_epoch=3, base_sequence=300, count=2, body_crc=0xDEADBEEF
)
CONDITIONAL = log_pb2.AppendStreamRequest(count=2, expect_index=0)
SIZES = [0, 1, 127, LARGE_BYTES - 1, LARGE_BYTES, 1 << 21]


def body_of(size_bytes: int) -> bytes:
    return (b"\x42\x01\x00\xff" * (size_bytes // 4 + 1))[:size_bytes]


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("head", [HEAD, CONDITIONAL, log_pb2.AppendStreamRequest()])
def test_it_decodes_what_the_client_encodes(head: log_pb2.AppendStreamRequest, size_bytes: int) -> None:
    decoded = decode_append(encode_append(head, body_of(size_bytes)))
    decoded.head.ClearField("body")
    assert decoded.head == head
    assert bytes(decoded.body) == body_of(size_bytes)


@pytest.mark.parametrize("size_bytes", SIZES)
def test_an_expected_index_counts_wherever_it_stands(size_bytes: int) -> None:
    whole = log_pb2.AppendStreamRequest(count=2, body=body_of(size_bytes), expect_index=1 << 40)
    behind = log_pb2.AppendStreamRequest(expect_index=1 << 41).SerializeToString()
    for message, expected in ((whole.SerializeToString(), 1 << 40), (whole.SerializeToString() + behind, 1 << 41)):
        decoded = decode_append(message)
        assert decoded.head.expect_index == expected
        assert bytes(decoded.body) == body_of(size_bytes)


def test_a_large_body_is_looked_at_in_place() -> None:
    message = encode_append(HEAD, body_of(LARGE_BYTES))
    body = decode_append(message).body
    assert isinstance(body, memoryview)
    assert body.obj is message


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param(lambda m: m + HEAD.SerializeToString(), id="fields behind it"),
        pytest.param(lambda m: m + m, id="two bodies"),
        pytest.param(lambda m: b"\xf8\x07\x01" + m, id="an unknown field of a long tag"),
        pytest.param(lambda m: b"\x79" + b"\x01" * 8 + m, id="an unknown fixed field"),
        pytest.param(lambda m: m + b"\xf8\x07\x01", id="an unknown field behind it"),
    ],
)
def test_any_other_order_of_fields_means_what_protobuf_says(elsewhere: object) -> None:
    assert callable(elsewhere)
    message = elsewhere(encode_append(HEAD, body_of(LARGE_BYTES)))
    expected = log_pb2.AppendStreamRequest.FromString(message)
    decoded = decode_append(message)
    assert bytes(decoded.body) == expected.body
    assert decoded.head.base_sequence == expected.base_sequence
    assert decoded.head.body_crc == expected.body_crc


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_half_a_message_is_none(cut: int) -> None:
    message = encode_append(HEAD, body_of(LARGE_BYTES))
    with pytest.raises(DecodeError):
        decode_append(message[:-cut])


def test_noise_is_none() -> None:
    with pytest.raises(DecodeError):
        decode_append(b"\xff" * LARGE_BYTES)


# Reads --------------------------------------------------------------------------------------------------------------


def frame_of(body: Buffer) -> Frame:
    before = LogPoint(Position(8), Term(2), 0)
    source: dict[str, Any] = {"producer_id": 1 << 40, "producer_epoch": 3, "base_sequence": 300}
    return make_frame(
        before, term=3, base_index=17, count=2, body=body, body_crc=0xDEADBEEF, timestamp_ms=1 << 41, **source
    )


@pytest.mark.parametrize("commit_index", [-1, 0, 1 << 40])
@pytest.mark.parametrize("bodies", [[], [b""], [body_of(127)], [body_of(128), body_of(1 << 21), b""]])
def test_an_answer_to_a_read_is_what_protobuf_understands(bodies: list[bytes], commit_index: int) -> None:
    message = encode_read(ReadMessage([frame_of(memoryview(body)) for body in bodies], commit_index))
    batches = [
        log_pb2.Batch(
            base_index=17,
            count=2,
            term=3,
            timestamp_ms=1 << 41,
            body_crc=0xDEADBEEF,
            body=body,
            producer_id=1 << 40,
            producer_epoch=3,
            base_sequence=300,
        )
        for body in bodies
    ]
    expected = log_pb2.ReadResponse(batches=batches, commit_index=commit_index)
    assert log_pb2.ReadResponse.FromString(message) == expected


def test_an_answer_has_every_field_that_there_is() -> None:
    fields = set(log_pb2.Batch.DESCRIPTOR.fields_by_name)
    given = log_pb2.ReadResponse.FromString(encode_read(ReadMessage([frame_of(b"x")], 1))).batches[0]
    assert {field.name for field, _ in given.ListFields()} == fields


def test_an_answer_that_was_dropped_is_the_same_when_it_is_read_again() -> None:
    frames = [frame_of(body_of(10)), frame_of(body_of(20))]
    asked: list[tuple[Position, Position]] = []

    async def read(first: Position, last: Position) -> list[Frame]:
        asked.append((first, last))
        return frames

    async def check() -> None:
        message = ReadMessage(list(frames), 7, read)
        encoded = encode_read(message)
        message.drop()
        assert not message.frames
        await message.restore()
        assert encode_read(message) == encoded
        assert asked == [(Position(9), Position(9))]

    asyncio.run(check())
