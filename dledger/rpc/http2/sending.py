"""The sending half of an HTTP/2 connection: windows, turns of the streams, and the output for the next write."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MAX_WINDOW_BYTES,
    PING,
    ErrorCode,
    frame,
)
from dledger.rpc.http2.abuse import EARNED_BY_A_MESSAGE, Patience
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.http2.stream import Piece, Stream

AnyStream = TypeVar("AnyStream", bound=Stream)

OUTPUT_BYTES = 128 * 1024
"""The connection collects so much for one write. The rest waits on its stream, as pending."""


class Sending(Generic[AnyStream]):
    def __init__(self, limits: Http2Limits, wants_flush: Callable[[], None], now_s: float) -> None:
        self.limits = limits
        self.streams: dict[int, AnyStream] = {}
        self.peer_initial_window = DEFAULT_WINDOW_BYTES
        self.peer_max_frame = DEFAULT_FRAME_BYTES
        self.send_window = DEFAULT_WINDOW_BYTES
        self.is_paused = False
        self._wants_flush = wants_flush
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._patience = Patience(now_s)
        self._blocked: OrderedDict[int, AnyStream] = OrderedDict()
        """Streams with pending data, and a window for it: they wait for the connection, in turns."""
        self._we_reset: OrderedDict[int, None] = OrderedDict()

    def _on_removed(self) -> None:
        """There is a stream less."""

    def _on_early_end(self, stream: AnyStream) -> None:
        """This side's half has ended, and the peer's has not."""

    def _gone(self, stream: Stream, code: ErrorCode, reason: str) -> None:
        if not stream.is_reset:
            stream.is_reset = True
            stream.pending, stream.pending_bytes = None, 0
            stream.on_reset(code, reason)

    # Windows -----------------------------------------------------------------------------------------------------

    def replenish(self, stream: Stream, size_bytes: int) -> None:
        """``size_bytes`` that were received on the stream take no room any more."""
        if stream.is_remote_ended or stream.is_reset:
            return
        stream.unreplenished += size_bytes
        if stream.unreplenished * 2 > self.limits.stream_window_bytes:
            self._send(frames.window_update(stream.id, stream.unreplenished))
            stream.receive_window += stream.unreplenished
            stream.unreplenished = 0

    # Sending -----------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        self._wants_flush()

    def ping(self) -> None:
        self._send(frame(PING, 0, 0, b"dledger\0"))

    @property
    def has_streams(self) -> bool:
        return bool(self.streams)

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def take_output(self) -> bytes:
        out, self._out, self._out_bytes = self._out, [], 0
        return b"".join(out)

    def send_headers(self, stream: AnyStream, block: bytes, *, is_end: bool = False) -> None:
        """At the beginning of this side's half, or as the end of one without anything pending."""
        flags = END_STREAM if is_end else 0
        size = self.peer_max_frame
        if len(block) <= size:
            self._send(frame(HEADERS, flags | END_HEADERS, stream.id, block))
        else:
            pieces = [block[at : at + size] for at in range(0, len(block), size)]
            self._send(frame(HEADERS, flags, stream.id, pieces[0]))
            for piece in pieces[1:-1]:
                self._send(frame(CONTINUATION, 0, stream.id, piece))
            self._send(frame(CONTINUATION, END_HEADERS, stream.id, pieces[-1]))
        if is_end:
            stream.is_local_ended = True
            self._half_left(stream)

    def send_data(self, stream: AnyStream, pieces: Sequence[Piece]) -> None:
        """As far as the windows and the transport have room; the rest is pending."""
        if stream.is_reset:
            return
        self._patience.left += EARNED_BY_A_MESSAGE
        if stream.pending is None:
            size = sum(map(len, pieces))
            if size <= self._room(stream):
                self._send_frame(stream, pieces, size)
                return
            stream.pending = []
            self._unblock(stream)
        for piece in pieces:
            if piece:
                stream.pending.append(piece)
                stream.pending_bytes += len(piece)
        self._pump(stream)

    def _send_frame(self, stream: AnyStream, pieces: Sequence[Piece], size: int) -> None:
        """One DATA frame, for which there is room."""
        stream.send_window -= size
        self.send_window -= size
        self._out_bytes += size
        self._out.append(HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
        self._out.extend(pieces)
        self._wants_flush()

    def send_unary(self, stream: AnyStream, head: bytes, pieces: Sequence[Piece], trailers: bytes) -> None:
        """A whole answer: headers, data, and trailers that end the stream."""
        size = sum(map(len, pieces))
        if size > self._room(stream) or stream.pending is not None or len(trailers) > self.peer_max_frame:
            self.send_headers(stream, head)
            self.send_data(stream, pieces)
            self.send_end(stream, trailers)
            return
        self._patience.left += EARNED_BY_A_MESSAGE
        stream.send_window -= size
        self.send_window -= size
        pack, stream_id = HEAD.pack, stream.id
        head_size, end_size = len(head), len(trailers)
        self._out += (
            pack(head_size >> 8, head_size & 0xFF, HEADERS, END_HEADERS, stream_id),
            head,
            pack(size >> 8, size & 0xFF, DATA, 0, stream_id),
            *pieces,
            pack(end_size >> 8, end_size & 0xFF, HEADERS, END_HEADERS | END_STREAM, stream_id),
            trailers,
        )
        self._out_bytes += head_size + size + end_size
        self._wants_flush()
        stream.is_local_ended = True
        self._half_left(stream)

    def send_end(self, stream: AnyStream, trailers: bytes = b"") -> None:
        """Ends this side's half behind what is pending, with ``trailers`` if there are any."""
        if stream.is_reset or stream.is_local_ended:
            return
        stream.is_local_ended = True
        if stream.pending is not None:
            stream.trailers = trailers
            return
        self._end_half(stream, trailers)

    def _end_half(self, stream: AnyStream, trailers: bytes) -> None:
        if trailers:
            self.send_headers(stream, trailers, is_end=True)
        else:
            self._send(frame(DATA, END_STREAM, stream.id))
            self._half_left(stream)

    def reset(self, stream: AnyStream, code: ErrorCode, reason: str = "") -> None:
        """Ends both halves at once, and tells the peer."""
        if self.streams.pop(stream.id, None) is None:
            return
        self._blocked.pop(stream.id, None)
        self._remember_reset(stream.id)
        self._on_removed()
        self._send(frames.reset(stream.id, code))
        self._gone(stream, code, reason)

    def _remember_reset(self, stream_id: int) -> None:
        self._we_reset[stream_id] = None
        if len(self._we_reset) > self.limits.max_remembered_resets:
            self._we_reset.popitem(last=False)

    def _forget_if_ended(self, stream: AnyStream) -> None:
        is_over = stream.is_local_ended and stream.is_remote_ended and stream.pending is None
        if is_over and self.streams.pop(stream.id, None) is not None:
            self._on_removed()

    def _half_left(self, stream: AnyStream) -> None:
        """This side has nothing more to say on the stream."""
        if stream.is_remote_ended:
            self._forget_if_ended(stream)
        else:
            self._on_early_end(stream)

    def set_paused(self, *, is_paused: bool) -> None:
        """The transport's buffer is full, or has room again."""
        self.is_paused = is_paused
        if not is_paused:
            self.pump()

    def keep_pending(self, stream: Stream, most_bytes: int) -> int:
        """Forgets what is pending on the stream but for so much at its front, which may then be sent anew. Returns how
        many bytes were forgotten."""
        pending = stream.pending
        if not pending:
            return 0
        pieces, kept = _taken(pending, most_bytes)
        pending[:] = [b"".join(pieces)]  # a copy: a view would keep all of it
        forgotten, stream.pending_bytes = stream.pending_bytes - kept, kept
        return forgotten

    def pump(self) -> None:
        """Sends what is pending, as far as there is room: in turns, a frame each, so that no stream waits for another's
        whole message. To be called behind ``take_output`` too."""
        while self._blocked and self.send_window > 0 and not self.is_paused and self._out_bytes < OUTPUT_BYTES:
            stream = next(iter(self._blocked.values()))
            self._blocked.move_to_end(stream.id)
            self._pump(stream, most_frames=1)

    def _look_at_window(self, stream: AnyStream) -> None:
        pending = stream.pending
        assert pending
        if isinstance(pending[0], memoryview):
            pending[0] = _without_rest(pending[0])
        if stream.send_window <= 0:
            self._blocked.pop(stream.id, None)  # its own window is what it waits for
        if min(stream.send_window, self.send_window) <= 0:
            stream.on_blocked()

    def _unblock(self, stream: AnyStream) -> None:
        if stream.send_window > 0:
            self._blocked[stream.id] = stream

    def _room(self, stream: AnyStream) -> int:
        """So many bytes may leave on the stream with one frame, now."""
        if self.is_paused:
            return -1
        return min(stream.send_window, self.send_window, self.peer_max_frame, OUTPUT_BYTES - self._out_bytes)

    def _pump(self, stream: AnyStream, most_frames: int = MAX_WINDOW_BYTES) -> None:
        """Sends what there is room for."""
        pending = stream.pending
        assert pending is not None
        while pending and most_frames:
            if (room := self._room(stream)) <= 0:
                break
            pieces, size = _taken(pending, room)
            stream.pending_bytes -= size
            self._send_frame(stream, pieces, size)
            most_frames -= 1
        if pending:
            self._look_at_window(stream)
            return
        stream.pending = None
        self._blocked.pop(stream.id, None)
        if stream.trailers is not None:
            self._end_half(stream, stream.trailers)
        stream.on_writable()


def _taken(pending: list[Piece], most_bytes: int) -> tuple[list[Piece], int]:
    """Up to so many bytes off its front."""
    pieces: list[Piece] = []
    left = most_bytes
    while pending and left:
        piece = pending.pop(0)
        if len(piece) > left:
            view = memoryview(piece)
            pending.insert(0, view[left:])
            piece = view[:left]
        pieces.append(piece)
        left -= len(piece)
    return pieces, most_bytes - left


def _without_rest(piece: memoryview) -> Piece:
    """A small part of a message is copied, as a view keeps all of it."""
    return bytes(piece) if 2 * piece.nbytes < memoryview(piece.obj).nbytes else piece
