"""The message that carries a batch, encoded by hand around its body.

protobuf would copy a body of 128 KiB three times through fresh pages (150 µs); as the last field of its message it can
as well be put behind the encoded rest (4 µs):

::

    the other fields, encoded by protobuf | 0x3A (field 7, length-delimited) | varint len(body) | body
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.v1 import log_pb2

if TYPE_CHECKING:
    from dledger.batch import Buffer

APPEND_STREAM = "/dledger.v1.LogService/AppendStream"
_BODY_TAG = bytes([7 << 3 | 2])


def encode_append(head: log_pb2.AppendStreamRequest, body: Buffer) -> bytes:
    """``head``, which has no body, with ``body``: what AppendStreamRequest.SerializeToString would give."""
    return b"".join((head.SerializeToString(), _BODY_TAG, _varint(len(body)), body))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
