"""Frames out of the bytes of a connection (RFC 9113, 4.1): a piece may hold many frames, or a part of one."""

from __future__ import annotations

from collections.abc import Callable

from dledger.common.http2_frames import FRAME_HEADER_BYTES, HEAD, PREFACE, STREAM_ID_MASK, ConnectionFault, ErrorCode

OnFrame = Callable[[int, int, int, bytes], None]
"""Takes the kind, the stream, the flags and the payload of one frame."""


class FrameReader:
    """Hands whole frames to ``on_frame``, behind the preface that a client sends first."""

    def __init__(self, max_frame_bytes: int, on_frame: OnFrame, *, awaits_preface: bool) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._on_frame = on_frame
        self._awaits_preface = awaits_preface
        self._rest = bytearray()
        """Of an unfinished frame: one buffer, as a list of tiny pieces takes many times their bytes."""
        self._needed_bytes = FRAME_HEADER_BYTES
        """So many must be there before it is worth looking again."""
        self.began_s: float | None = None
        """When the first bytes of the unfinished frame came."""

    @property
    def unfinished_bytes(self) -> int:
        return len(self._rest)

    def forget(self) -> None:
        """The rest of the unfinished frame does not come."""
        self._rest.clear()

    def take(self, data: bytes, now_s: float) -> None:
        """Takes the next piece. Raises ConnectionFault, and the errors of ``on_frame``: the reader is of no use after
        that."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed_bytes:
                return
            data = bytes(self._rest)
            self._rest.clear()
        used = self._cut(data)
        if used == len(data):
            self.began_s = None
            return
        self._rest += data[used:]
        if used or self.began_s is None:
            self.began_s = now_s

    def _cut(self, data: bytes) -> int:
        """Hands over the whole frames in ``data``, and returns how many bytes they are."""
        end, unpack, most, on_frame = len(data), HEAD.unpack_from, self._max_frame_bytes, self._on_frame
        at = self._take_preface(data) if self._awaits_preface else 0
        while end - at >= self._needed_bytes:
            high, low, kind, flags, stream_id = unpack(data, at)
            size = high << 8 | low
            if size > most:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            begin = at + FRAME_HEADER_BYTES
            if begin + size > end:
                self._needed_bytes = FRAME_HEADER_BYTES + size
                return at
            at = begin + size
            self._needed_bytes = FRAME_HEADER_BYTES
            on_frame(kind, stream_id & STREAM_ID_MASK, flags, data[begin:at])
        return at

    def _take_preface(self, data: bytes) -> int:
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
        self._awaits_preface = len(data) < len(PREFACE)
        self._needed_bytes = len(PREFACE) if self._awaits_preface else FRAME_HEADER_BYTES
        return 0 if self._awaits_preface else len(PREFACE)
