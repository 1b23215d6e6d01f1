"""The messages that carry batches, by hand around their bodies (dledger.common.protowire says why): the counterpart of
server/log_service_wire.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from dledger.common.protowire import decode_varint, encode_varint, last_field, tag_of
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.common.batch import Buffer

APPEND_STREAM = "/dledger.v1.LogService/AppendStream"
GET_STREAM = "/dledger.v1.LogService/GetStream"
READ = "/dledger.v1.LogService/Read"
LARGE_BYTES = 8 << 10
"""Batches below are quicker decoded by protobuf, all of a message at once."""
_APPENDED_BODY = bytes([tag_of(log_pb2.AppendStreamRequest.BODY_FIELD_NUMBER)])
_BATCH = tag_of(log_pb2.ReadResponse.BATCHES_FIELD_NUMBER)
_BODY = tag_of(log_pb2.Batch.BODY_FIELD_NUMBER)


def encode_append(head: log_pb2.AppendStreamRequest, body: Buffer) -> bytes:
    """``head``, which has no body, with ``body``: the same bytes as from AppendStreamRequest.SerializeToString."""
    return b"".join((head.SerializeToString(), _APPENDED_BODY, encode_varint(len(body)), body))


class ReadBatch(NamedTuple):
    """A Batch; what ``head`` has of a body does not count."""

    head: log_pb2.Batch
    body: Buffer


class ReadMessage(NamedTuple):
    """A ReadResponse."""

    batches: Sequence[ReadBatch]
    commit_index: int


def decode_read(message: bytes) -> ReadMessage:
    """Large bodies share the message's memory. Raises DecodeError."""
    batches: list[ReadBatch] = []
    view = memoryview(message)
    at, end = 0, len(message)
    while at < end and message[at] == _BATCH:
        try:
            size_bytes, start = decode_varint(message, at + 1)
        except IndexError:
            raise DecodeError("the message ends within a length") from None
        at = start + size_bytes
        span = last_field(message, start, at, _BODY) if LARGE_BYTES <= size_bytes <= end - start else None
        if span is None:
            return _decode_whole(message)
        batches.append(ReadBatch(log_pb2.Batch.FromString(message[start : span.field_start]), view[span.start : at]))
    rest = log_pb2.ReadResponse.FromString(message[at:])
    if rest.batches:
        return _decode_whole(message)
    return ReadMessage(batches, rest.commit_index)


def _decode_whole(message: bytes) -> ReadMessage:
    whole = log_pb2.ReadResponse.FromString(message)
    return ReadMessage([ReadBatch(batch, batch.body) for batch in whole.batches], whole.commit_index)
