"""The server's side of one HTTP/2 connection: requests become calls."""

from __future__ import annotations

from collections.abc import Callable

from dledger.common.http2_frames import ConnectionFault, ErrorCode, StreamFault
from dledger.rpc.http2.headers import Fields
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.server.call import ServerCall
from dledger.rpc.server.dispatch import Dispatch
from dledger.rpc.server.holding import HoldingConnection
from dledger.rpc.server.request import Request, Trailers, understand
from dledger.rpc.wire import WireFault, timeout_s

MAX_GAPS = 64


class ServerConnection(HoldingConnection[ServerCall]):
    is_server = True

    def __init__(
        self, limits: Http2Limits, wants_flush: Callable[[], None], now_s: float, dispatch: Dispatch, peer: str
    ) -> None:
        self.dispatch = dispatch
        self.peer = peer
        """The client's address, as gRPC writes it: ``ipv4:127.0.0.1:4711``."""
        self._gaps: list[tuple[int, int]] = []
        """Ids that the client passed over: they count as closed, and were never open."""
        super().__init__(limits, wants_flush, now_s, dispatch.held)

    def _understand(self, fields: Fields) -> Request | Trailers:
        found = understand(fields)
        if isinstance(found, Request):
            return found._replace(handler=self.dispatch.find(found.path))
        return found

    def _on_new_stream(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        last = self.last_peer_stream_id
        if not stream_id & 1 or (stream_id <= last and self._was_passed_over(stream_id)):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} cannot be opened by a client now")
        found = self.headers.known_prefix(block)
        if found is not None:
            request, value = found
        else:
            request, value = self._decoded(stream_id, block), b""
        if stream_id <= last:
            if stream_id in self._we_reset:
                return
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS on a stream that has ended")
        if stream_id > last + 2 and len(self._gaps) < MAX_GAPS:
            self._gaps.append((last + 1, stream_id - 1))
        self.last_peer_stream_id = stream_id
        if isinstance(request, Trailers):
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a request has a method, a scheme and a path")
        if self.is_going_away or len(self.streams) >= self.limits.max_streams or not self.held.takes_calls:
            raise StreamFault(stream_id, ErrorCode.REFUSED_STREAM, "no further streams now")
        if value:
            request = _with_timeout(request, value)
        call = self.streams[stream_id] = ServerCall(
            self, stream_id, request, self.peer, self.dispatch.max_message_bytes
        )
        self.held.calls += 1
        if is_end:
            call.is_remote_ended = True
        call.begin(is_end=is_end)
        if is_end:
            self._forget_if_ended(call)

    def _decoded(self, stream_id: int, block: bytes) -> Request | Trailers:
        try:
            decoded: Request | Trailers = self.decode(stream_id, block)
        except StreamFault:
            self.last_peer_stream_id = max(self.last_peer_stream_id, stream_id)
            raise
        return decoded

    def _was_passed_over(self, stream_id: int) -> bool:
        return any(first <= stream_id <= last for first, last in self._gaps)

    def cancel_all(self) -> None:
        for call in list(self.streams.values()):
            self.reset(call, ErrorCode.CANCEL, "the server stops")

    def _on_removed(self) -> None:
        self.held.calls -= 1

    def _on_early_end(self, stream: ServerCall) -> None:
        """It is answered: the client need not send the rest (RFC 9113, 8.1)."""
        self.reset(stream, ErrorCode.NO_ERROR, "it is answered")

    def _is_idle(self, stream_id: int) -> bool:
        return stream_id > self.last_peer_stream_id or not stream_id & 1


def _with_timeout(request: Request, value: bytes) -> Request:
    try:
        return request._replace(timeout_s=timeout_s(value))
    except WireFault as fault:
        return request._replace(fault=fault)
