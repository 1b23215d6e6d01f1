"""Header blocks out of frames (RFC 9113, 4.3): one HEADERS frame, or several with CONTINUATION frames behind it."""

from __future__ import annotations

from typing import NamedTuple

from dledger.common.http2_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    PADDED,
    STREAM_ID_MASK,
    WITH_PRIORITY,
    ConnectionFault,
    ErrorCode,
    unpadded,
    word,
)
from dledger.rpc.http2.limits import Http2Limits


class OpenBlock(NamedTuple):
    """A header block without its end yet: CONTINUATION frames follow."""

    stream_id: int
    is_end: bool
    """Its stream ends with it."""
    began_s: float
    parts: list[bytes]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))


class HeaderBlocks:
    """Puts the blocks of one connection together, one at a time."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self.open: OpenBlock | None = None

    def check_turn(self, kind: int, stream_id: int) -> None:
        """No frame may come between those of a block. Raises ConnectionFault."""
        block = self.open
        if block is not None and (kind != CONTINUATION or stream_id != block.stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block was not ended")

    def begin(self, stream_id: int, flags: int, payload: bytes, now_s: float) -> bytes | None:
        """Of a HEADERS frame: the block if it is whole. Raises ConnectionFault."""
        if not stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0")
        if flags & (PADDED | WITH_PRIORITY):
            _check_dependency(stream_id, flags, payload)
            payload = unpadded(payload, flags)
        if len(payload) > self._limits.max_header_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block of too many bytes")
        if flags & END_HEADERS:
            return payload
        self.open = OpenBlock(stream_id, bool(flags & END_STREAM), now_s, [payload])
        return None

    def go_on(self, flags: int, payload: bytes) -> OpenBlock | None:
        """Of a CONTINUATION frame: the block if it ends here. Raises ConnectionFault."""
        block, limits = self.open, self._limits
        if block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.parts.append(payload)
        if len(block.parts) > limits.max_header_frames or block.size_bytes > limits.max_header_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block of too many frames or bytes")
        if not flags & END_HEADERS:
            return None
        self.open = None
        return block

    @property
    def unfinished_bytes(self) -> int:
        return self.open.size_bytes if self.open is not None else 0


def _check_dependency(stream_id: int, flags: int, payload: bytes) -> None:
    at = 1 if flags & PADDED else 0
    if flags & WITH_PRIORITY and len(payload) >= at + 5 and word(payload, at) & STREAM_ID_MASK == stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
