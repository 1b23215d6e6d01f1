"""A server's connection, with a count of the requests in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dledger.common.http2_frames import ConnectionFault, ErrorCode
from dledger.rpc.http2.connection import Http2Connection
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.http2.stream import Stream
from dledger.rpc.server.held import Held, HeldRequests

AnyStream = TypeVar("AnyStream", bound=Stream)


class HoldingConnection(Http2Connection[AnyStream]):
    def __init__(self, limits: Http2Limits, wants_flush: Callable[[], None], now_s: float, held: Held) -> None:
        self.held = held
        self.held_requests = HeldRequests(held)
        self._unfinished_bytes = 0
        super().__init__(limits, wants_flush, now_s)

    def receive(self, data: bytes, now_s: float) -> None:
        super().receive(data, now_s)
        why = self._count_unfinished()
        if why and self.fault is None:
            self.break_off(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, why))

    def end(self, code: ErrorCode, reason: str) -> None:
        super().end(code, reason)
        self._count_unfinished()

    def _count_unfinished(self) -> str:
        unfinished = self.unfinished_bytes
        more, self._unfinished_bytes = unfinished - self._unfinished_bytes, unfinished
        return self.held_requests.add(more) if more else ""
