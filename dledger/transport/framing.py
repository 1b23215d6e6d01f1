"""How messages lie in a TCP stream between nodes, cut out of it without a copy.

One message, little-endian::

    offset  size              field
    0       4                 total_len: of the whole message, this field included
    4       4                 header_len
    8       4                 header_crc: CRC-32C of the header
    12      header_len        protobuf: dledger.v1.Hello first, dledger.v1.PeerMessage from then on
    …       the rest          log frames as they are stored (dledger/log/frame/frame.py), each with checksums of its
                              own; behind a RESET the log's small state, a checksummed record too

No IO here: bytes in, messages out. A stream of something else (HTTP, TLS, noise) is told by its first twelve bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from dledger.common.batch import Buffer, crc32c
from dledger.common.errors import Code, error

_PREFIX = Struct("<III")
PREFIX_BYTES = _PREFIX.size
MAX_HEADER_BYTES = 64 * 1024
"""The heartbeats of some hundred groups share one header."""
MAX_HELLO_BYTES = PREFIX_BYTES + 16 * 1024
"""All that is kept of a stranger's stream. A hello has no body."""


class RawMessage(NamedTuple):
    """A header with a verified checksum, and the bytes behind it. Both share the memory of the received bytes."""

    header: memoryview
    body: memoryview


def pack(header: bytes, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """The message as buffers for ``writelines``: prefix and header in one, then those of the body, not copied."""
    assert len(header) <= MAX_HEADER_BYTES, len(header)
    total_len = PREFIX_BYTES + len(header) + sum(map(len, body))
    return [_PREFIX.pack(total_len, len(header), crc32c(header)) + header, *body]


class MessageReader:
    """Cuts the messages out of a stream. ``max_message_bytes`` bounds what is kept, and may be raised after the hello.

    Whole messages within one ``feed`` are views of the bytes received. Only a message that arrives in several pieces is
    put together. Its memory grows with the bytes that really came, not with its announced length.
    """

    __slots__ = ("_partial", "max_message_bytes")

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self._partial = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """What waits for the rest of its message."""
        return len(self._partial)

    def feed(self, data: bytes) -> Iterator[RawMessage]:
        """The messages that ``data`` completes. Raises UNEXPECTED_ARGUMENT if the stream is none of ours."""
        view = memoryview(data)
        if self._partial:
            view = self._fill_up(view)
            whole = memoryview(self._partial)
            if len(whole) < PREFIX_BYTES or len(whole) < self._total_len(whole):
                return
            self._partial = bytearray()
            yield _cut(whole)
        while len(view) >= PREFIX_BYTES:
            total_len = self._total_len(view)
            if len(view) < total_len:
                break
            message, view = view[:total_len], view[total_len:]
            yield _cut(message)
        self._partial += view

    def _fill_up(self, view: memoryview) -> memoryview:
        """Adds to the partial message what belongs to it, and returns the rest."""
        partial = self._partial
        if len(partial) < PREFIX_BYTES:
            missing = PREFIX_BYTES - len(partial)
            partial += view[:missing]
            view = view[missing:]
            if len(partial) < PREFIX_BYTES:
                return view
        missing = self._total_len(partial) - len(partial)
        partial += view[:missing]
        return view[missing:]

    def _total_len(self, start: Buffer) -> int:
        """The length of the message that begins with ``start``, checked before anything of it is kept."""
        total_len: int
        header_len: int
        total_len, header_len, _ = _PREFIX.unpack_from(start)
        if total_len > self.max_message_bytes:
            raise error(
                Code.UNEXPECTED_ARGUMENT,
                f"no message of a node begins with {bytes(start[:4])!r}: "
                f"that would make {total_len} bytes, and {self.max_message_bytes} are the limit",
            )
        if header_len > MAX_HEADER_BYTES or PREFIX_BYTES + header_len > total_len:
            raise error(
                Code.UNEXPECTED_ARGUMENT, f"a message of {total_len} bytes says it has a header of {header_len} bytes"
            )
        return total_len


def _cut(message: memoryview) -> RawMessage:
    _, header_len, header_crc = _PREFIX.unpack_from(message)
    end = PREFIX_BYTES + header_len
    header = message[PREFIX_BYTES:end]
    if crc32c(header) != header_crc:
        raise error(Code.UNEXPECTED_ARGUMENT, "the header of a message does not match its checksum")
    return RawMessage(header, message[end:])
