from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError

from dledger.client.log_client_wire import APPEND_STREAM, LARGE_BYTES, READ, ReadMessage, decode_read, encode_append
from dledger.common.protowire import encode_varint
from dledger.v1 import log_pb2


@pytest.mark.parametrize("size_bytes", [1, 127, 128, 16_383, 16_384, 1 << 21])
def test_the_encoding_by_hand_is_protobufs_own(size_bytes: int) -> None:
    head = log_pb2.AppendStreamRequest(group="default", producer_id=7, base_sequence=300, count=2, body_crc=5)
    body = b"\x07" * size_bytes
    whole = log_pb2.AppendStreamRequest()
    whole.CopyFrom(head)
    whole.body = body
    assert encode_append(head, body) == whole.SerializeToString()


def test_the_method_is_the_services() -> None:
    service = log_pb2.DESCRIPTOR.services_by_name["LogService"]
    assert f"/{service.full_name}/{service.methods_by_name['AppendStream'].name}" == APPEND_STREAM
    assert max(log_pb2.AppendStreamRequest.DESCRIPTOR.fields_by_number) == 8, "the body must stay the last field"


# Reads --------------------------------------------------------------------------------------------------------------


def batch(base_index: int, size_bytes: int) -> log_pb2.Batch:
    body = (b"\x32\x01\x00\xff" * (size_bytes // 4 + 1))[:size_bytes]
    return log_pb2.Batch(
        base_index=base_index, count=3, term=7, timestamp_ms=1 << 41, body_crc=0xDEADBEEF, producer_id=5, body=body
    )


def answer(*sizes: int, commit_index: int = 300) -> log_pb2.ReadResponse:
    batches = [batch(10 * number, size_bytes) for number, size_bytes in enumerate(sizes)]
    return log_pb2.ReadResponse(batches=batches, commit_index=commit_index)


def as_protobuf(message: ReadMessage) -> log_pb2.ReadResponse:
    whole = log_pb2.ReadResponse(commit_index=message.commit_index)
    for head, body in message.batches:
        whole.batches.add().CopyFrom(head)
        whole.batches[-1].body = bytes(body)
    return whole


SIZES = [(), (0,), (100,), (LARGE_BYTES,), (1 << 20,), (LARGE_BYTES, 1 << 18, LARGE_BYTES), (1 << 18, 10, 1 << 18)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("commit_index", [-1, 0, 1 << 40])
def test_an_answer_means_what_protobuf_says(sizes: tuple[int, ...], commit_index: int) -> None:
    given = answer(*sizes, commit_index=commit_index)
    assert as_protobuf(decode_read(given.SerializeToString())) == given


def body_last(given: log_pb2.Batch) -> bytes:
    head = log_pb2.Batch()
    head.CopyFrom(given)
    head.ClearField("body")
    whole = head.SerializeToString() + b"\x32" + encode_varint(len(given.body)) + given.body
    return b"\x0a" + encode_varint(len(whole)) + whole


def test_large_bodies_that_end_their_batches_are_looked_at_in_place() -> None:
    given = answer(LARGE_BYTES, 1 << 20)
    message = b"".join(map(body_last, given.batches)) + log_pb2.ReadResponse(commit_index=300).SerializeToString()
    decoded = decode_read(message)
    assert as_protobuf(decoded) == given
    for each in decoded.batches:
        assert isinstance(each.body, memoryview)
        assert each.body.obj is message


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param(lambda m: b"\x10\x07" + m, id="the commit index first"),
        pytest.param(lambda m: b"\xf8\x07\x01" + m, id="an unknown field first"),
        pytest.param(lambda m: m + b"\xf8\x07\x01", id="an unknown field behind it"),
        pytest.param(lambda m: m + m, id="the commit index between batches"),
    ],
)
def test_any_other_order_of_fields_means_what_protobuf_says(elsewhere: Callable[[bytes], bytes]) -> None:
    message = elsewhere(body_last(batch(0, LARGE_BYTES)) + answer().SerializeToString())
    expected = log_pb2.ReadResponse.FromString(message)
    decoded = as_protobuf(decode_read(message))
    expected.DiscardUnknownFields()
    assert decoded == expected


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 20, LARGE_BYTES, LARGE_BYTES + 10])
def test_half_an_answer_is_none(kept: int) -> None:
    message = body_last(batch(0, LARGE_BYTES)) + answer().SerializeToString()
    with pytest.raises(DecodeError):
        decode_read(message[:kept])


def test_the_read_method_is_the_services_and_has_no_fields_that_are_left_out() -> None:
    service = log_pb2.DESCRIPTOR.services_by_name["LogService"]
    assert f"/{service.full_name}/{service.methods_by_name['Read'].name}" == READ
    assert set(log_pb2.ReadResponse.DESCRIPTOR.fields_by_name) == {"batches", "commit_index"}
