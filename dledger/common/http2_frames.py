"""Frames of HTTP/2 as they stand on the wire (RFC 9113, section 4 and 6), and the codes of errors (section 7)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every client."""

# Plain integers: a frame is looked at with each call, and an enum's member costs a look-up more.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW_BYTES = 65_535
MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_FRAME_BYTES = 16_384
MAX_FRAME_BYTES = 2**24 - 1
STREAM_ID_MASK = 0x7FFF_FFFF

HEAD = struct.Struct(">HBBBI")
"""Upper 16 bits of the length, lower 8 bits, kind, flags, stream."""
_SETTING = struct.Struct(">HI")
_WORD = struct.Struct(">I")


class ErrorCode(IntEnum):
    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):
    """The peer broke the protocol in a way that ends the connection, with a GOAWAY and the reason."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamFault(Exception):
    """The peer broke the protocol on one stream: that one is reset, the others go on."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream_id = stream_id
        self.code = code
        self.reason = reason


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def settings_frame(values: Mapping[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """In the order they stand there. The length must be a multiple of 6."""
    return list(_SETTING.iter_unpack(payload))


def window_update(stream_id: int, size_bytes: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(size_bytes))


def reset(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, reason: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream_id, code) + reason.encode())


def word(payload: bytes, at: int = 0) -> int:
    """Four bytes of it, as a number."""
    number: int = _WORD.unpack_from(payload, at)[0]
    return number


def unpadded(payload: bytes, flags: int) -> bytes:
    """What a DATA or HEADERS frame carries, without padding and priority. Raises ConnectionFault."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame does not say how much padding it has")
        begin, end = 1, end - payload[0]
    if flags & WITH_PRIORITY:
        begin += 5
    if begin > end:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[begin:end]


def literal(name: bytes, value: bytes) -> bytes:
    """A field that enters no table, as the bytes of a block (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(value: bytes) -> bytes:
    size = len(value)
    if size < 127:
        return bytes((size,)) + value
    size -= 127
    prefix = bytearray(b"\x7f")
    while size >= 128:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + value
