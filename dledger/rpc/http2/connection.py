"""One HTTP/2 connection, either side (RFC 9113): takes the peer's frames, keeps the streams, and collects the output.

framing.py cuts the frames out of bytes, blocks.py puts header blocks together, sending.py has the way out. The shell
feeds ``receive``. It writes the output of ``take_output`` whenever ``wants_flush`` was called. It says with
``set_paused`` that its buffer is full. Time comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW_BYTES,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW_BYTES,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    STREAM_ID_MASK,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    frame,
    word,
)
from dledger.rpc.http2.blocks import HeaderBlocks, OpenBlock
from dledger.rpc.http2.framing import FrameReader
from dledger.rpc.http2.headers import Fields, HeaderDecoder, MalformedHeaders
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.http2.sending import AnyStream, Sending
from dledger.rpc.http2.settings import own_settings, peer_settings

TINY_UPDATE_BYTES = 64
_CODES = frozenset(ErrorCode)


class Http2Connection(Sending[AnyStream]):
    """Subclasses are the two sides: they decide about new streams and headers."""

    is_server: bool

    def __init__(self, limits: Http2Limits, wants_flush: Callable[[], None], now_s: float) -> None:
        super().__init__(limits, wants_flush, now_s)
        self.peer_max_streams = MAX_WINDOW_BYTES
        self.last_peer_stream_id = 0
        """The highest taken one of the streams opened by the peer."""
        self.is_going_away = False
        """This side has sent GOAWAY: it takes no new streams."""
        self.fault: ConnectionFault | None = None
        """Why this side ended the connection."""
        self.is_lost = False
        """Streams end because the connection did."""
        self._now_s = now_s
        self._frames = FrameReader(limits.max_frame_bytes, self._on_frame, awaits_preface=self.is_server)
        self._blocks = HeaderBlocks(limits)
        self.has_settings = False
        """The peer's first frame came: it speaks HTTP/2."""
        self.has_acknowledged = False
        """The peer knows this side's limits."""
        self._receive_window = limits.connection_window_bytes
        self._unreplenished = 0
        self.headers: HeaderDecoder[Any] = HeaderDecoder(self._understand)
        self._begin()

    # What the sides differ in ------------------------------------------------------------------------------------

    def _understand(self, fields: Fields) -> Any:
        """What a decoded header block means; cached."""
        raise NotImplementedError

    def _on_new_stream(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        """A header block on a stream that there is not yet."""
        raise NotImplementedError

    def _on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        """The peer takes no streams behind ``last_stream_id``."""

    def _on_pong(self, payload: bytes) -> None:
        """The answer to a PING of ours."""

    def _is_idle(self, stream_id: int) -> bool:
        """Whether nobody has opened the stream."""
        raise NotImplementedError

    # Beginning and end -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self.is_server:
            self._out.append(PREFACE)
        limits = self.limits
        self._send(frames.settings_frame(own_settings(limits, is_server=self.is_server)))
        self._send(frames.window_update(0, limits.connection_window_bytes - DEFAULT_WINDOW_BYTES))

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Takes no further streams; those that are there go on."""
        if not self.is_going_away:
            self.is_going_away = True
            self._send(frames.goaway(self.last_peer_stream_id, code, reason))

    def end(self, code: ErrorCode, reason: str) -> None:
        """The connection is gone: every stream is told."""
        self.is_lost = True
        streams, self.streams = list(self.streams.values()), {}
        self._blocked.clear()
        self._frames.forget()
        self._blocks.open = None
        for stream in streams:
            self._on_removed()
            self._gone(stream, code, reason)

    # Receiving ---------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> None:
        """Takes what has arrived. After a fault of the peer that ends the connection ``fault`` is set, the GOAWAY is
        among the output, and nothing more is taken. So it is after a bug, which is the fault's cause then."""
        if self.fault is not None:
            return
        self._now_s = now_s
        try:
            self._frames.take(data, now_s)
        except ConnectionFault as fault:
            self.break_off(fault)
        except Exception as failure:  # noqa: BLE001  # whatever it is, the peer and the streams must not hang
            bug = ConnectionFault(ErrorCode.INTERNAL_ERROR, "a bug of this side")
            bug.__cause__ = failure
            self.break_off(bug)

    def break_off(self, fault: ConnectionFault) -> None:
        """The connection ends, and the peer is told why."""
        self.fault = fault
        self._send(frames.goaway(self.last_peer_stream_id, fault.code, fault.reason))
        self.end(fault.code, fault.reason)

    @property
    def unfinished_bytes(self) -> int:
        """Of an unfinished frame, or header block."""
        return self._frames.unfinished_bytes + self._blocks.unfinished_bytes

    @property
    def open_block(self) -> OpenBlock | None:
        """The header block whose end has not come."""
        return self._blocks.open

    @property
    def frame_began_s(self) -> float | None:
        """When the first bytes of the unfinished frame came."""
        return self._frames.began_s

    def _on_frame(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        self._blocks.check_turn(kind, stream_id)
        if not self.has_settings:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is SETTINGS")
            self.has_settings = True
        try:
            if kind == DATA:
                self._on_data(stream_id, flags, payload)
            elif kind == HEADERS:
                self._on_headers(stream_id, flags, payload)
            else:
                self._on_other(kind, stream_id, flags, payload)
        except StreamFault as fault:
            self._fault_of_stream(fault)

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window has room for")
        self._unreplenished += size
        if self._unreplenished * 2 > self.limits.connection_window_bytes:
            self._send(frames.window_update(0, self._unreplenished))
            self._receive_window += self._unreplenished
            self._unreplenished = 0
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_remote_ended:
            self._on_frame_of_none(stream_id, "DATA")
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(
                stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more data than the stream's window has room for"
            )
        if flags & PADDED:
            payload = frames.unpadded(payload, flags & PADDED)
            self.replenish(stream, size - len(payload))
        is_end = bool(flags & END_STREAM)
        if not payload and not is_end:
            self._patience.spend(self._now_s, "empty DATA frames")
        if is_end:
            stream.is_remote_ended = True
        stream.on_data(payload, is_end=is_end)
        if is_end:
            self._forget_if_ended(stream)

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        block = self._blocks.begin(stream_id, flags, payload, self._now_s)
        if block is not None:
            self._on_block(stream_id, block, is_end=bool(flags & END_STREAM))

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        block = self._blocks.go_on(flags, payload)
        if block is not None:
            self._on_block(stream_id, b"".join(block.parts), is_end=block.is_end)

    def _on_block(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._on_new_stream(stream_id, block, is_end=is_end)
            return
        headers = self.decode(stream_id, block)
        if stream.is_remote_ended:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "HEADERS behind the stream's end")
        if is_end:
            stream.is_remote_ended = True
        stream.on_headers(headers, is_end=is_end)
        if is_end:
            self._forget_if_ended(stream)

    def decode(self, stream_id: int, block: bytes) -> Any:
        """Must be done with every block, as the table of the connection changes with it."""
        try:
            return self.headers.decode(block)
        except MalformedHeaders as reason:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(reason)) from reason

    def _on_other(self, kind: int, stream_id: int, flags: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        elif kind == SETTINGS:
            self._on_settings(stream_id, flags, payload)
        elif kind == PING:
            self._on_ping(stream_id, flags, payload)
        elif kind == RST_STREAM:
            self._on_rst_stream(stream_id, payload)
        elif kind == CONTINUATION:
            self._on_continuation(stream_id, flags, payload)
        elif kind == GOAWAY:
            if stream_id:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
            if len(payload) < 8:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is too short")
            self._patience.spend(self._now_s, "GOAWAY frames")
            self._on_goaway(word(payload) & STREAM_ID_MASK, word(payload, 4), payload[8:].decode(errors="replace"))
        elif kind == PRIORITY:
            self._on_priority(stream_id, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, which this side does not take")
        else:
            self._patience.spend(self._now_s, "frames of an unknown kind")

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
        more = word(payload) & STREAM_ID_MASK
        if not stream_id:
            if not more:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a window update of 0 bytes")
            self.send_window += more
            if self.send_window > MAX_WINDOW_BYTES:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
            self._spend_if_tiny(more)
            self.pump()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if self._is_idle(stream_id):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on a stream that is not open")
            return  # it has ended meanwhile
        if not more:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a window update of 0 bytes")
        stream.send_window += more
        if stream.send_window > MAX_WINDOW_BYTES:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is too large")
        self._spend_if_tiny(more)
        if stream.pending is not None:
            self._unblock(stream)
            self._pump(stream)

    def _spend_if_tiny(self, more: int) -> None:
        if more < TINY_UPDATE_BYTES:
            self._patience.spend(self._now_s, "window updates of a few bytes")

    def _on_settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
            self._patience.spend(self._now_s, "acknowledgements of SETTINGS")
            self.has_acknowledged = True
            return
        if len(payload) % 6:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS have 6 bytes each")
        self._patience.spend(self._now_s, "SETTINGS")
        for key, value in peer_settings(payload, from_server=not self.is_server).items():
            self._on_setting(key, value)
        self._send(frame(SETTINGS, ACK, 0))
        self.pump()

    def _on_setting(self, key: int, value: int) -> None:
        if key == frames.INITIAL_WINDOW_SIZE:
            self._on_initial_window(value)
        elif key == frames.MAX_FRAME_SIZE:
            self.peer_max_frame = min(value, self.limits.max_frame_bytes)
        elif key == frames.MAX_CONCURRENT_STREAMS:
            self.peer_max_streams = value

    def _on_initial_window(self, size_bytes: int) -> None:
        more = size_bytes - self.peer_initial_window
        self.peer_initial_window = size_bytes
        for stream in self.streams.values():
            stream.send_window += more
            if stream.send_window > MAX_WINDOW_BYTES:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
            if stream.pending is not None:
                self._unblock(stream)

    def _on_ping(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING has 8 bytes")
        if flags & ACK:
            self._patience.spend(self._now_s, "answers to PINGs")
            self._on_pong(payload)
            return
        self._patience.spend(self._now_s, "PINGs")
        self._send(frame(PING, ACK, 0, payload))

    def _on_rst_stream(self, stream_id: int, payload: bytes) -> None:
        if not stream_id or (stream_id not in self.streams and self._is_idle(stream_id)):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on a stream that is not open")
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
        self._patience.spend(self._now_s, "resets")
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._blocked.pop(stream_id, None)
            self._on_removed()
            code = word(payload)
            known = ErrorCode(code) if code in _CODES else ErrorCode.INTERNAL_ERROR
            self._gone(stream, known, "the peer has reset the stream")

    def _on_priority(self, stream_id: int, payload: bytes) -> None:
        """Deprecated (RFC 9113, 5.3.2): checked, and passed over."""
        if not stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY has 5 bytes")
        if word(payload) & STREAM_ID_MASK == stream_id:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
        self._patience.spend(self._now_s, "PRIORITY frames")

    def _on_frame_of_none(self, stream_id: int, kind: str) -> None:
        """A frame on a stream that is not there, or that the peer has ended on its side."""
        if self._is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{kind} on a stream that is not open")
        if stream_id not in self._we_reset:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, f"{kind} on a stream that has ended")

    def _fault_of_stream(self, fault: StreamFault) -> None:
        if self.has_acknowledged or fault.code is not ErrorCode.REFUSED_STREAM:
            # Who has not heard of the limit yet may open thousands of streams in good faith.
            self._patience.spend(self._now_s, "faults")
        stream = self.streams.get(fault.stream_id)
        if stream is not None:
            self.reset(stream, fault.code, fault.reason)
        else:
            self._remember_reset(fault.stream_id)
            self._send(frames.reset(fault.stream_id, fault.code))
