"""The messages that carry batches, by hand around their bodies (dledger.common.protowire says why): the counterpart of
client/log_client_wire.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dledger.common.batch import Buffer
from dledger.common.protowire import encode_varint, last_field, tag_of
from dledger.common.types import Position
from dledger.log.frame.frame import Frame, FrameHeader
from dledger.rpc.server.remade import Remade
from dledger.v1 import log_pb2

LARGE_BYTES = 64 << 10
"""Below, protobuf is as quick at decoding."""
_APPENDED_BODY = tag_of(log_pb2.AppendStreamRequest.BODY_FIELD_NUMBER)
_BODY_OF_APPEND = bytes([_APPENDED_BODY])
_BATCH = bytes([tag_of(log_pb2.ReadResponse.BATCHES_FIELD_NUMBER)])
_BODY = bytes([tag_of(log_pb2.Batch.BODY_FIELD_NUMBER)])


class AppendMessage(NamedTuple):
    """An AppendStreamRequest; what ``head`` has of a body does not count."""

    head: log_pb2.AppendStreamRequest
    body: Buffer


def decode_append(message: bytes) -> AppendMessage:
    """Shares the message's memory where the body is large. Raises DecodeError."""
    span = last_field(message, 0, len(message), _APPENDED_BODY) if len(message) >= LARGE_BYTES else None
    if span is None:
        whole = log_pb2.AppendStreamRequest.FromString(message)
        return AppendMessage(whole, whole.body)
    head = log_pb2.AppendStreamRequest.FromString(message[: span.field_start])
    return AppendMessage(head, memoryview(message)[span.start :])


def encode_appended(message: AppendMessage) -> bytes:
    """What ``decode_append`` takes apart."""
    head = message.head.SerializeToString()
    return (
        head if message.head.body else b"".join((head, _BODY_OF_APPEND, encode_varint(len(message.body)), message.body))
    )


class ReadMessage(Remade):
    """A ReadResponse. Its frames are read again where a client does not take them."""

    def __init__(
        self,
        frames: list[Frame],
        commit_index: int,
        read: Callable[[Position, Position], Awaitable[list[Frame]]] | None = None,
    ) -> None:
        """``read``: the frames from one position to another, both included."""
        self.frames = frames
        self.commit_index = commit_index
        self._read = read
        self._first = self._last = Position(0)

    def drop(self) -> None:
        if self._read is not None and self.frames:
            self._first = Position(self.frames[0].header.position)
            self._last = Position(self.frames[-1].header.position)
            self.frames.clear()

    async def restore(self) -> None:
        if self._read is not None:
            self.frames[:] = await self._read(self._first, self._last)


def encode_read(message: ReadMessage) -> bytes:
    """What ReadResponse.SerializeToString would give, but for the order of a batch's fields: its body is the last.
    Bodies are copied once, into the message."""
    pieces: list[Buffer] = []
    for frame in message.frames:
        head = _batch_head(frame.header).SerializeToString()
        body = frame.body
        before_body = b"".join((head, _BODY, encode_varint(len(body))))
        pieces += (_BATCH, encode_varint(len(before_body) + len(body)), before_body, body)
    pieces.append(log_pb2.ReadResponse(commit_index=message.commit_index).SerializeToString())
    return b"".join(pieces)


def _batch_head(header: FrameHeader) -> log_pb2.Batch:
    return log_pb2.Batch(
        base_index=header.base_index,
        count=header.count,
        term=header.term,
        timestamp_ms=header.timestamp_ms,
        body_crc=header.body_crc,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
