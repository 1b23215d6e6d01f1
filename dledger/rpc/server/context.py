"""What a handler is told of its call, and tells it: as ``grpc.aio.ServicerContext``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from dledger.rpc.server.request import Request
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import Metadata, compressed, prefixed

GZIP = 2
"""As ``grpc.Compression.Gzip``."""
EOF = object()
"""What ``read`` returns behind the last request."""


class Aborted(Exception):
    """Raised by ``abort``: the call ends with this status."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Call(Protocol):
    """What a context asks of its call."""

    request: Request
    peer: str
    deadline_s: float | None
    is_reset: bool
    is_local_ended: bool
    is_head_sent: bool

    async def turn(self) -> int: ...

    async def read(self) -> Any: ...

    async def write(self, answer: Any) -> None: ...

    def send_head(self) -> None: ...

    def add_done_callback(self, callback: Callable[[], None]) -> None: ...


class ServerContext:
    __slots__ = ("_call", "code", "compresses", "details", "initial", "is_next_plain", "trailers")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.code: int | None = None
        self.details = ""
        self.initial: Iterable[tuple[str, str | bytes]] = ()
        self.trailers: Iterable[tuple[str, str | bytes]] = ()
        self.compresses = False
        """Answers go out as gzip."""
        self.is_next_plain = False
        """But not the next one."""

    @property
    def has_trailers(self) -> bool:
        return bool(self.trailers or self.details)

    # About the call ----------------------------------------------------------------------------------------------

    def invocation_metadata(self) -> Metadata:
        return self._call.request.metadata

    def peer(self) -> str:
        return self._call.peer

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        deadline_s = self._call.deadline_s
        return None if deadline_s is None else max(0.0, deadline_s - asyncio.get_running_loop().time())

    def cancelled(self) -> bool:
        return self._call.is_reset

    async def turn(self) -> int:
        """To be awaited before a large answer is made: returns when the server has room for it. So many bytes of it
        the client takes at once; the rest waits until it reads. Raises CancelledError when the call is gone."""
        return await self._call.turn()

    def done(self) -> bool:
        return self._call.is_reset or self._call.is_local_ended

    # Answers -----------------------------------------------------------------------------------------------------

    async def read(self) -> Any:
        request = await self._call.read()
        return EOF if request is None else request

    async def write(self, answer: Any) -> None:
        await self._call.write(answer)

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self.initial = tuple(metadata)
        self._call.send_head()

    def set_compression(self, compression: int) -> None:
        """``grpc.Compression.Gzip`` compresses the answers, if the client takes that. Every other value leaves them as
        they are. Raises RuntimeError behind the initial metadata."""
        if self._call.is_head_sent:
            raise RuntimeError("compression is chosen before the initial metadata are sent")
        self.compresses = compression == GZIP and self._call.request.takes_gzip

    def disable_next_message_compression(self) -> None:
        self.is_next_plain = True

    def framed(self, message: bytes) -> tuple[bytes, bytes]:
        """An answer, as it is sent."""
        if not self.compresses:
            return prefixed(message)
        if self.is_next_plain:
            self.is_next_plain = False
            return prefixed(message)
        return prefixed(compressed(message), is_compressed=True)

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self.trailers = tuple(metadata)

    def set_code(self, code: Any) -> None:
        self.code = number_of(code)

    def set_details(self, details: str) -> None:
        self.details = details

    async def abort(
        self, code: Any, details: str = "", trailing_metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> NoReturn:
        """Ends the call with that status. Raises, so that nothing of the handler runs behind it."""
        self.trailers = (*self.trailers, *trailing_metadata)
        raise Aborted(number_of(code), details)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._call.add_done_callback(lambda: callback(self))


def number_of(code: Any) -> int:
    """Of a status code, this package's or ``grpc.StatusCode``."""
    value = code.value
    return int(value[0]) if isinstance(value, tuple) else StatusCode(value)
