"""One stream: its two halves, its windows, and what waits to be sent on it."""

from __future__ import annotations

from typing import Any, Protocol

from dledger.common.http2_frames import ErrorCode
from dledger.rpc.http2.limits import Http2Limits

Piece = bytes | memoryview
"""Of what is to be sent: written as it is, never changed."""


class OfStreams(Protocol):
    """What a stream asks of its connection."""

    limits: Http2Limits
    peer_initial_window: int

    def replenish(self, stream: Stream, size_bytes: int) -> None: ...


class Stream:
    """Subclasses are told what happens on it: the ``on_`` methods must not raise.

    The peer's half ends with its END_STREAM, this side's with ours. A stream with both halves ended, or reset, is
    forgotten by the connection.
    """

    __slots__ = (
        "_replenish",
        "id",
        "is_local_ended",
        "is_remote_ended",
        "is_reset",
        "pending",
        "pending_bytes",
        "receive_window",
        "send_window",
        "trailers",
        "unreplenished",
    )

    def __init__(self, connection: OfStreams, stream_id: int) -> None:
        self._replenish = connection.replenish
        self.id = stream_id
        self.is_local_ended = False
        """Nothing more may be sent on it; what is pending is still on its way."""
        self.is_remote_ended = False
        self.is_reset = False
        self.send_window = connection.peer_initial_window
        self.receive_window = connection.limits.stream_window_bytes
        self.unreplenished = 0
        """Consumed bytes for which the peer has no new window yet."""
        self.pending: list[Piece] | None = None
        """Data that waits for a window or for the transport: a few pieces."""
        self.pending_bytes = 0
        self.trailers: bytes | None = None
        """What ends this side once nothing is pending: a header block, or an empty one for a bare END_STREAM."""

    # Told by the connection --------------------------------------------------------------------------------------

    def on_headers(self, headers: Any, *, is_end: bool) -> None:
        """The peer's further headers: a response's, or trailers."""

    def on_data(self, data: bytes, *, is_end: bool) -> None:
        """``consumed`` is to be called when the data takes no room any more."""

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """The stream is gone: the peer has reset it, has broken the protocol on it, or the connection ended."""

    def on_writable(self) -> None:
        """Everything that was pending has gone to the transport."""

    def on_blocked(self) -> None:
        """The peer's window for it, or for all of the connection, is used up, and there is more to send."""

    # Done by subclasses ------------------------------------------------------------------------------------------

    def consumed(self, size_bytes: int) -> None:
        """The peer may send as many bytes again."""
        self._replenish(self, size_bytes)
