"""The message that carries a batch, decoded by hand around its body: the counterpart of client/wire.py.

protobuf copies a body twice, a large one into fresh pages (up to half a millisecond for 512 KiB). As the
last field of its message, where every client of ours and protobuf itself put it, it can as well be looked at in place::

    the other fields, decoded by protobuf | 0x3A (field 7, length-delimited) | varint len(body) | body

Whatever is not of that shape is protobuf's.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.batch import Buffer
from dledger.v1 import log_pb2

LARGE_BYTES = 64 << 10
"""Below, protobuf is as quick."""
_BODY_TAG = 7 << 3 | 2
_VARINT, _DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
"""Of the wire types that have them."""


class AppendMessage(NamedTuple):
    """An AppendStreamRequest; what ``head`` has of a body does not count."""

    head: log_pb2.AppendStreamRequest
    body: Buffer


def decode_append(message: bytes) -> AppendMessage:
    """Shares the message's memory where the body is large. Raises DecodeError."""
    span = _body_at_the_end(message) if len(message) >= LARGE_BYTES else None
    if span is None:
        whole = log_pb2.AppendStreamRequest.FromString(message)
        return AppendMessage(whole, whole.body)
    end_of_head, start = span
    return AppendMessage(log_pb2.AppendStreamRequest.FromString(message[:end_of_head]), memoryview(message)[start:])


def _body_at_the_end(message: bytes) -> tuple[int, int] | None:
    """Where the field of the body begins, and its bytes; None where it is not the last field, or is not found."""
    at, size = 0, len(message)
    try:
        while at < size:
            tag = message[at]  # of one byte, as the tags of all known fields are
            if tag > 0x7F:
                return None
            kind, at_field, at = tag & 7, at, at + 1
            if kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            elif kind not in (_VARINT, _DELIMITED):
                return None
            else:
                value, at = _varint(message, at)
                if tag == _BODY_TAG:
                    return (at_field, at) if at + value == size else None
                at += value if kind == _DELIMITED else 0
    except IndexError:
        return None
    return None


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Its value, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
