"""Answers gRPC on a port of another protocol: each call is refused with a status and a sentence (RFC 9113).

Without this answer, a gRPC client with the wrong one of a node's ports would only see its connection closed. Of HTTP/2
only the beginning of a call is understood here. No IO: bytes in, bytes out.
"""

from __future__ import annotations

import re

from dledger.common.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER_BYTES,
    HEAD,
    HEADERS,
    PREFACE,
    SETTINGS,
    frame,
    literal,
)

HTTP2_BEGINNING = b"PRI * HTTP/2.0"
"""Of every HTTP/2 client's connection (section 3.4)."""
WRONG_PORT = re.compile(r"that is \S+'s (peer|metrics) port; clients: \S+")
"""The refusal told to clients on the wrong port; the client library knows it by these words."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Of a frame that is not complete; more is no call of a client's."""

_STATUS_200 = b"\x88"
"""An index into HPACK's static table (RFC 7541, appendix A)."""
_UNIMPLEMENTED = b"12"


def wrong_port(node_id: str, port: str, client_address: str) -> str:
    """The refusal for a client on the ``port`` ("peer" or "metrics") of a node. Clients of that node use
    ``client_address``."""
    return f"that is {node_id}'s {port} port; clients: {client_address}"


class Http2Refusal:
    """Of one connection. Every call that it begins is UNIMPLEMENTED, with ``reason``."""

    def __init__(self, reason: str) -> None:
        self._trailers = _STATUS_200 + b"".join(
            literal(name, value)
            for name, value in (
                (b"content-type", b"application/grpc"),
                (b"grpc-status", _UNIMPLEMENTED),
                (b"grpc-message", reason.encode()),
            )
        )
        self._received = bytearray()
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        """What to answer. Raises ValueError for what is no HTTP/2."""
        self._received += data
        answer = bytearray()
        if not self._has_begun:
            if len(self._received) < len(PREFACE):
                return b""
            del self._received[: len(PREFACE)]
            self._has_begun = True
            answer += frame(SETTINGS, 0, 0)
        while len(self._received) >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream_id = HEAD.unpack_from(self._received)
            end = FRAME_HEADER_BYTES + (high << 8 | low)
            if end > MAX_BUFFERED_BYTES:
                raise ValueError(f"a frame of {end} bytes")
            if len(self._received) < end:
                break
            del self._received[:end]
            if kind == HEADERS:
                answer += frame(HEADERS, END_HEADERS | END_STREAM, stream_id, self._trailers)
            elif kind == SETTINGS and not flags & ACK:
                answer += frame(SETTINGS, ACK, 0)
        return bytes(answer)
