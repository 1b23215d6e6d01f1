"""The client's side of one HTTP/2 connection: it opens streams, one a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dledger.common.http2_frames import STREAM_ID_MASK, ConnectionFault, ErrorCode
from dledger.rpc.client.answer import Answer, understand
from dledger.rpc.client.call import ClientCall
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.http2.connection import Http2Connection
from dledger.rpc.http2.headers import Fields
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.status import StatusCode

AnyCall = TypeVar("AnyCall", bound=ClientCall)


class ClientConnection(Http2Connection[ClientCall]):
    is_server = False

    def __init__(
        self, limits: Http2Limits, wants_flush: Callable[[], None], now_s: float, on_removed: Callable[[], None]
    ) -> None:
        self._next_id = 1
        self._on_removed_call = on_removed
        self.is_leaving = False
        """The server takes no further calls here."""
        super().__init__(limits, wants_flush, now_s)

    @property
    def takes_calls(self) -> bool:
        return not (self.is_leaving or self.is_lost or self.is_going_away or self.fault is not None)

    @property
    def has_room(self) -> bool:
        return len(self.streams) < self.peer_max_streams

    def open(self, kind: type[AnyCall], block: bytes) -> AnyCall:
        """Begins a call with these headers. ``takes_calls`` must hold."""
        stream_id = self._next_id
        self._next_id += 2
        call = kind(self, stream_id)
        self.streams[stream_id] = call
        self.send_headers(call, block)
        if self._next_id > STREAM_ID_MASK:
            self.is_leaving = True  # every id was used: the next call begins another connection
        return call

    def _understand(self, fields: Fields) -> Answer:
        return understand(fields)

    def _on_new_stream(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        """Behind the end of a stream: trailers of a call that was given up."""
        self.decode(stream_id, block)
        if self._is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream that nobody opened")

    def _on_removed(self) -> None:
        self._on_removed_call()

    def _on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        self.is_leaving = True
        untouched = [call for stream_id, call in self.streams.items() if stream_id > last_stream_id]
        for call in untouched:
            text = f"the server takes no further calls ({reason})" if reason else "the server takes no further calls"
            call.fail(RpcFailure(StatusCode.UNAVAILABLE, text, was_sent=False, is_local=True))

    def end_calls(self) -> None:
        """The client is closed."""
        for call in list(self.streams.values()):
            call.cancel()

    def _is_idle(self, stream_id: int) -> bool:
        return not stream_id & 1 or stream_id >= self._next_id
