"""Answers gRPC on a port of another protocol: each call is refused with a status and a sentence (RFC 9113).

Without this answer, a gRPC client with the wrong one of a node's ports would only see its connection closed. Of HTTP/2
only the beginning of a call is understood here. No IO: bytes in, bytes out.
"""

from __future__ import annotations

import re
from struct import Struct

HTTP2_BEGINNING = b"PRI * HTTP/2.0"
"""Of every HTTP/2 client's connection (section 3.4)."""
WRONG_PORT = re.compile(r"that is \S+'s (peer|metrics) port; clients: \S+")
"""The refusal told to clients on the wrong port; the client library knows it by these words."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Of a frame that is not complete; more is no call of a client's."""

_PREFACE_BYTES = 24
_FRAME = Struct(">IBI")
"""24 bits of length and 8 of kind, 8 of flags, 32 of stream (section 4.1)."""
_KIND_BITS = 8
_HEADERS, _SETTINGS = 1, 4
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_STATUS_200 = b"\x88"
"""An index into HPACK's static table (RFC 7541, appendix A)."""
_UNIMPLEMENTED = "12"
_LONG, _MORE = 0x7F, 0x80
"""Of a length in HPACK (RFC 7541, section 5.1): it goes on in further bytes, and in more of them."""


def wrong_port(node_id: str, port: str, client_address: str) -> str:
    """The refusal for a client on the ``port`` ("peer" or "metrics") of a node. Clients of that node use
    ``client_address``."""
    return f"that is {node_id}'s {port} port; clients: {client_address}"


class Http2Refusal:
    """Of one connection. Every call that it begins is UNIMPLEMENTED, with ``reason``."""

    def __init__(self, reason: str) -> None:
        self._trailers = _STATUS_200 + b"".join(
            _literal(name, value)
            for name, value in (
                ("content-type", "application/grpc"),
                ("grpc-status", _UNIMPLEMENTED),
                ("grpc-message", reason),
            )
        )
        self._received = bytearray()
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        """What to answer. Raises ValueError for what is no HTTP/2."""
        self._received += data
        answer = bytearray()
        if not self._has_begun:
            if len(self._received) < _PREFACE_BYTES:
                return b""
            del self._received[:_PREFACE_BYTES]
            self._has_begun = True
            answer += _frame(_SETTINGS)
        while len(self._received) >= _FRAME.size:
            length_and_kind, flags, stream = _FRAME.unpack_from(self._received)
            end = _FRAME.size + (length_and_kind >> _KIND_BITS)
            if end > MAX_BUFFERED_BYTES:
                raise ValueError(f"a frame of {end} bytes")
            if len(self._received) < end:
                break
            del self._received[:end]
            kind = length_and_kind & 0xFF
            if kind == _HEADERS:
                answer += _frame(_HEADERS, self._trailers, _END_HEADERS | _END_STREAM, stream)
            elif kind == _SETTINGS and not flags & _ACK:
                answer += _frame(_SETTINGS, flags=_ACK)
        return bytes(answer)


def _frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return _FRAME.pack(len(payload) << _KIND_BITS | kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A field that HPACK keeps in no table (RFC 7541, section 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: str) -> bytes:
    """A string in HPACK, not compressed. Its length stands in 7 bits, and from 127 on in further bytes of 7 bits each,
    the lowest first."""
    data = text.encode()
    if len(data) < _LONG:
        return bytes([len(data)]) + data
    length, rest = bytearray([_LONG]), len(data) - _LONG
    while rest > _LONG:
        length.append(rest & _LONG | _MORE)
        rest >>= 7
    length.append(rest)
    return bytes(length) + data
