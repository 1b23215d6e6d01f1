"""A channel: one node, reached over one HTTP/2 connection that is made when a call needs it, and made anew when it was
lost. Its methods are those of ``grpc.aio.Channel`` that clients use."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from ssl import SSLContext, SSLError
from typing import Any

from dledger.common.config import MIB, split_address
from dledger.common.futures import release, retrieve
from dledger.common.http2_frames import literal
from dledger.common.resolver import Resolver
from dledger.rpc.client.call import NO_GRPC, StreamingCall, UnaryCall
from dledger.rpc.client.connection import ClientConnection
from dledger.rpc.client.dial import dial
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.protocol import ALPN, Http2Protocol, agreed_on_http2
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import CONTENT_TYPE, metadata_block, prefixed, timeout_field
from dledger.version import __version__

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
CallMetadata = tuple[tuple[str, str | bytes], ...]

CONNECT_TIMEOUT_S = 5.0
LOOK_UP_PATIENCE_S = 2.0
KEEPALIVE_S = 10.0
"""A connection that was silent for so long while calls wait is asked whether it is still there."""
KEEPALIVE_TIMEOUT_S = 3.0
"""And is given up when nothing came so long after."""
CLIENT_LIMITS = Http2Limits(stream_window_bytes=4 * MIB, max_frame_bytes=MIB)

_POST_HTTP, _POST_HTTPS = b"\x83\x86", b"\x83\x87"
"""``:method: POST`` and ``:scheme``, by their places in HPACK's static table."""


class _Protocol(Http2Protocol[ClientConnection]):
    """The connection of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Calls for which the server allows no stream now."""
        self._asked_s = 0.0
        self._look: asyncio.TimerHandle | None = None
        self.is_http2 = True

    def make_connection(self, transport: asyncio.Transport) -> ClientConnection:
        self.is_http2 = agreed_on_http2(transport)
        self._look = self._loop.call_later(KEEPALIVE_TIMEOUT_S, self._keep_alive)
        return ClientConnection(CLIENT_LIMITS, self.wants_flush, self.heard_s, self._on_removed)

    def _on_removed(self) -> None:
        while self.waiting:
            if release(self.waiting.popleft()):
                return

    def on_end(self, reason: str) -> None:
        if self._look is not None:
            self._look.cancel()
        while self.waiting:
            release(self.waiting.popleft())

    def _keep_alive(self) -> None:
        self._look = self._loop.call_later(KEEPALIVE_TIMEOUT_S, self._keep_alive)
        if not self.connection.streams:
            return
        now_s = self._loop.time()
        if self._asked_s > self.heard_s:
            if now_s >= self._asked_s + KEEPALIVE_TIMEOUT_S:
                self.abort()
        elif now_s >= self.heard_s + KEEPALIVE_S - KEEPALIVE_TIMEOUT_S:
            self._asked_s = now_s
            self.connection.ping()


class Channel:
    """Of one event loop, and one process."""

    def __init__(
        self,
        address: str,
        *,
        resolver: Resolver | None = None,
        ssl: SSLContext | None = None,
        metadata: CallMetadata = (),
    ) -> None:
        """``ssl``: with the authorities that are trusted; it is made to ask for HTTP/2 by ALPN. ``metadata``: of every
        call."""
        if ssl is not None:
            ssl.set_alpn_protocols([ALPN])
        self.address = address
        self._metadata = metadata
        self._host, self._port = split_address(address)
        self._resolver = resolver or Resolver()
        self._ssl = ssl
        self._protocol: _Protocol | None = None
        self._connecting: asyncio.Task[_Protocol] | None = None
        self._is_closed = False
        self._pid = os.getpid()
        self._blocks: dict[str, bytes] = {}

    # As of ``grpc.aio.Channel`` ----------------------------------------------------------------------------------

    def unary_unary(
        self, path: str, request_serializer: Encode | None = None, response_deserializer: Decode | None = None
    ) -> UnaryUnary:
        return UnaryUnary(self, path, request_serializer, response_deserializer)

    def unary_stream(
        self, path: str, request_serializer: Encode | None = None, response_deserializer: Decode | None = None
    ) -> Streaming:
        return Streaming(self, path, request_serializer, response_deserializer, is_one_request=True)

    def stream_stream(
        self, path: str, request_serializer: Encode | None = None, response_deserializer: Decode | None = None
    ) -> Streaming:
        return Streaming(self, path, request_serializer, response_deserializer, is_one_request=False)

    async def close(self) -> None:
        """Ends every call at once."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.connection.end_calls()
            self._protocol.close()
            self._protocol = None

    # Calls -------------------------------------------------------------------------------------------------------

    def block(self, path: str, timeout_s: float | None, metadata: CallMetadata) -> bytes:
        """The headers of a call. The timeout stands last, where a server of this package looks for it."""
        block = self._blocks.get(path)
        if block is None:
            method = _POST_HTTPS if self._ssl is not None else _POST_HTTP
            block = method + b"".join(
                literal(name, value)
                for name, value in (
                    (b":path", path.encode()),
                    (b":authority", self.address.encode()),
                    (b"content-type", CONTENT_TYPE),
                    (b"te", b"trailers"),
                    (b"grpc-accept-encoding", b"identity, gzip"),
                    (b"user-agent", f"grpc-dledger/{__version__}".encode()),
                )
            )
            block += metadata_block(self._metadata)
            self._blocks[path] = block
        if metadata:
            block += metadata_block(metadata)
        return block if timeout_s is None else block + literal(b"grpc-timeout", timeout_field(timeout_s))

    async def connected(self, deadline_s: float | None) -> ClientConnection:
        """A connection that has room for a call. Raises RpcFailure."""
        while True:
            protocol = self._protocol
            if protocol is None or not protocol.connection.takes_calls:
                protocol = await self._before(deadline_s, self._connect())
                self._check_fresh(protocol.connection)
            if protocol.connection.has_room:
                return protocol.connection
            waiting = asyncio.get_running_loop().create_future()
            protocol.waiting.append(waiting)
            await self._before(deadline_s, waiting)

    @property
    def ready(self) -> ClientConnection | None:
        """The connection, if a call can begin on it at once."""
        protocol = self._protocol
        if protocol is None or self._pid != os.getpid():
            return None
        connection = protocol.connection
        return connection if connection.takes_calls and connection.has_room else None

    async def _before(self, deadline_s: float | None, awaited: Any) -> Any:
        try:
            async with asyncio.timeout_at(deadline_s):
                return await awaited
        except TimeoutError:
            text = f"the call's time was up before it could be sent to {self.address}"
            raise RpcFailure(StatusCode.DEADLINE_EXCEEDED, text, was_sent=False, is_local=True) from None

    async def _connect(self) -> _Protocol:
        """All that want a connection share one attempt."""
        self._check_usable()
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._attempt(), name=f"connect-{self.address}")
            self._connecting.add_done_callback(retrieve)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            self._check_usable()
            raise

    def _check_fresh(self, connection: ClientConnection) -> None:
        """What was just connected may have ended already."""
        if connection.fault is not None and not connection.has_settings:
            raise self._unreachable(NO_GRPC)
        if not connection.takes_calls:
            raise self._unreachable("the connection was closed at once")

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            text = "this client was made before a fork: connect anew in the child process"
            raise RpcFailure(StatusCode.UNAVAILABLE, text, was_sent=False, is_local=True)
        if self._is_closed:
            raise RpcFailure(StatusCode.CANCELLED, "the channel was closed", was_sent=False, is_local=True)

    async def _attempt(self) -> _Protocol:
        try:
            addresses = await self._resolver.resolve(self._host, LOOK_UP_PATIENCE_S)
        except TimeoutError:
            raise self._unreachable("its name cannot be looked up here: no nameserver answers") from None
        except OSError as reason:
            raise self._unreachable(f"its name cannot be looked up here ({reason.strerror or reason})") from reason
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                protocol = await dial(addresses, self._port, _Protocol, ssl=self._ssl, server_name=self._host)
        except TimeoutError:
            raise self._unreachable(f"no answer within {CONNECT_TIMEOUT_S:.0f} s") from None
        except OSError as reason:
            raise self._unreachable(_why(reason)) from reason
        if not protocol.is_http2:
            protocol.abort()
            raise self._unreachable("what listens there does not offer HTTP/2 over TLS (ALPN)")
        self._protocol = protocol
        return protocol

    def _unreachable(self, why: str) -> RpcFailure:
        return RpcFailure(StatusCode.UNAVAILABLE, f"cannot be reached: {why}", was_sent=False, is_local=True)


def _why(reason: OSError) -> str:
    if isinstance(reason, SSLError):  # its number is none of the operating system's
        return f"no TLS: {getattr(reason, 'verify_message', None) or reason.reason or reason}"
    return (os.strerror(reason.errno) if reason.errno else str(reason)).lower()


class UnaryUnary:
    """One method of a channel: awaiting a call of it gives the answer."""

    def __init__(self, channel: Channel, path: str, encode: Encode | None, decode: Decode | None) -> None:
        self._channel = channel
        self._path = path
        self._encode = encode
        self._decode = decode

    async def __call__(self, request: Any, *, timeout: float | None = None, metadata: CallMetadata = ()) -> Any:
        """Raises RpcFailure. ``timeout`` in seconds."""
        channel = self._channel
        deadline_s = None if timeout is None else asyncio.get_running_loop().time() + timeout
        connection = channel.ready or await channel.connected(deadline_s)
        message = self._encode(request) if self._encode is not None else request
        call = connection.open(UnaryCall, channel.block(self._path, timeout, metadata))
        if deadline_s is not None:
            call.expire_at(deadline_s)
        connection.send_data(call, prefixed(message))
        connection.send_end(call)
        try:
            answer = await call.answered
        except asyncio.CancelledError:
            call.cancel()
            raise
        return self._decode(answer) if self._decode is not None else answer


class Streaming:
    """One method of a channel that streams: a call of it begins at its first ``read`` or ``write``."""

    def __init__(
        self, channel: Channel, path: str, encode: Encode | None, decode: Decode | None, *, is_one_request: bool
    ) -> None:
        self.channel = channel
        self.path = path
        self.encode = encode
        self.decode = decode
        self._is_one_request = is_one_request

    def __call__(self, request: Any = None, *, timeout: float | None = None, metadata: CallMetadata = ()) -> StreamCall:
        return StreamCall(self, request, timeout, metadata, is_one_request=self._is_one_request)


class StreamCall:
    """A call under way, as ``grpc.aio.StreamStreamCall``: ``read``, ``write``, ``done_writing``, ``cancel``."""

    def __init__(
        self, method: Streaming, request: Any, timeout_s: float | None, metadata: CallMetadata, *, is_one_request: bool
    ) -> None:
        self._method = method
        self._request = request
        self._is_one_request = is_one_request
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._begun_s = asyncio.get_running_loop().time()
        self._call: StreamingCall | None = None
        self._beginning: asyncio.Task[StreamingCall] | None = None
        self._is_cancelled = False

    async def _begin(self) -> StreamingCall:
        channel = self._method.channel
        deadline_s = None if self._timeout_s is None else self._begun_s + self._timeout_s
        connection = channel.ready or await channel.connected(deadline_s)
        call = connection.open(StreamingCall, channel.block(self._method.path, self._timeout_s, self._metadata))
        self._call = call
        if deadline_s is not None:
            call.expire_at(deadline_s)
        if self._is_one_request:
            connection.send_data(call, prefixed(self._encoded(self._request)))
            connection.send_end(call)
        return call

    async def _begun(self) -> StreamingCall:
        if self._call is not None:
            return self._call
        if self._is_cancelled:
            raise RpcFailure(StatusCode.CANCELLED, "the caller cancelled it", was_sent=False, is_local=True)
        if self._beginning is None:
            self._beginning = asyncio.get_running_loop().create_task(self._begin())
            self._beginning.add_done_callback(retrieve)
        try:
            return await asyncio.shield(self._beginning)
        except asyncio.CancelledError:
            if self._beginning.cancelled():
                text = "the caller cancelled it"
                raise RpcFailure(StatusCode.CANCELLED, text, was_sent=False, is_local=True) from None
            raise

    def _encoded(self, request: Any) -> bytes:
        encode = self._method.encode
        message: bytes = encode(request) if encode is not None else request
        return message

    async def read(self) -> Any:
        """The next answer; None behind the last one. Raises RpcFailure."""
        message = await (await self._begun()).read()
        decode = self._method.decode
        return message if message is None or decode is None else decode(message)

    async def write(self, request: Any) -> None:
        """Returns when there is room for the next request. Raises RpcFailure."""
        await (await self._begun()).write(self._encoded(request))

    async def done_writing(self) -> None:
        (await self._begun()).done_writing()

    def cancel(self) -> None:
        """Ends the call. Nothing happens when it has ended."""
        self._is_cancelled = True
        if self._call is not None:
            self._call.cancel()
        elif self._beginning is not None:
            self._beginning.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (answer := await self.read()) is not None:
            yield answer
