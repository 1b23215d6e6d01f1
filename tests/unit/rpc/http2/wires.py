"""A client's and a server's connection, with the bytes between them in the test's hands: no socket, no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import literal
from dledger.rpc.client.call import UnaryCall
from dledger.rpc.client.connection import ClientConnection
from dledger.rpc.http2.connection import Http2Connection
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.server.connection import ServerConnection
from dledger.rpc.server.dispatch import Dispatch, quick


def heads(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """The headers of a call, as a block that enters no table."""
    fields = ((b":path", path), (b"content-type", b"application/grpc"), *more)
    return b"\x83\x86" + b"".join(literal(*each) for each in fields)


HEADS = heads(b"/test/Echo")


class SeenFrame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def frames_in(data: bytes) -> list[SeenFrame]:
    found = []
    while data:
        high, low, kind, flags, stream_id = frames.HEAD.unpack_from(data)
        end = frames.FRAME_HEADER_BYTES + (high << 8 | low)
        found.append(SeenFrame(kind, flags, stream_id, data[frames.FRAME_HEADER_BYTES : end]))
        data = data[end:]
    return found


class Method(NamedTuple):
    """As ``grpc.RpcMethodHandler``."""

    unary_unary: Any = None
    unary_stream: Any = None
    stream_unary: Any = None
    stream_stream: Any = None
    request_streaming: bool = False
    response_streaming: bool = False
    request_deserializer: Any = None
    response_serializer: Any = None


@quick
async def echo(request: bytes, _context: object) -> bytes:
    return request


def echo_dispatch() -> Dispatch:
    dispatch = Dispatch()
    dispatch.add_methods("test", {"Echo": Method(echo)})
    return dispatch


class Server:
    """A server's side that a raw client talks to."""

    def __init__(self, limits: Http2Limits | None = None, dispatch: Dispatch | None = None) -> None:
        self.now_s = 0.0
        self.connection = ServerConnection(
            limits or Http2Limits(), lambda: None, self.now_s, dispatch or echo_dispatch(), "ipv4:127.0.0.1:1"
        )
        self.connection.take_output()

    def greet(self) -> None:
        self.take(frames.PREFACE + frames.settings_frame({}))

    def take(self, data: bytes) -> list[SeenFrame]:
        """What the server answers to these bytes."""
        self.connection.receive(data, self.now_s)
        return frames_in(output_of(self.connection))

    def open(self, stream_id: int, path: bytes, *more: tuple[bytes, bytes], flags: int = 0) -> list[SeenFrame]:
        """Headers alone."""
        return self.take(frames.frame(frames.HEADERS, frames.END_HEADERS | flags, stream_id, heads(path, *more)))

    def data(self, stream_id: int, data: bytes, *, flags: int = 0) -> list[SeenFrame]:
        return self.take(frames.frame(frames.DATA, flags, stream_id, data))

    def output(self) -> list[SeenFrame]:
        return frames_in(output_of(self.connection))

    def call(self, stream_id: int, message: bytes = b"x", *, flags: int = 0) -> list[SeenFrame]:
        return self.take(
            frames.frame(frames.HEADERS, frames.END_HEADERS | flags, stream_id, HEADS)
            + frames.frame(frames.DATA, frames.END_STREAM, stream_id, prefix(message) + message)
        )

    @property
    def fault(self) -> frames.ErrorCode | None:
        return self.connection.fault.code if self.connection.fault is not None else None


def output_of(connection: Http2Connection[Any]) -> bytes:
    """All that it has to send, as through a transport that takes everything."""
    out = b""
    while more := connection.take_output():
        out += more
        connection.pump()
    return out


def prefix(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big")


class Pair:
    """A client and a server. ``exchange`` carries bytes to and fro until nobody has more to say."""

    def __init__(
        self,
        *,
        client_limits: Http2Limits | None = None,
        server_limits: Http2Limits | None = None,
        cut: Callable[[bytes], list[bytes]] = lambda data: [data],
    ) -> None:
        """``cut`` says in which pieces bytes arrive."""
        self._cut = cut
        self.client = ClientConnection(client_limits or Http2Limits(), lambda: None, 0.0, lambda: None)
        self.server = ServerConnection(
            server_limits or Http2Limits(), lambda: None, 0.0, echo_dispatch(), "ipv4:127.0.0.1:1"
        )

    def exchange(self) -> None:
        while (there := output_of(self.client)) or self.server.has_output:
            for piece in self._cut(there):
                self.server.receive(piece, 0.0)
            for piece in self._cut(output_of(self.server)):
                self.client.receive(piece, 0.0)

    def begin(self, message: bytes) -> UnaryCall:
        call = self.client.open(UnaryCall, HEADS)
        self.client.send_data(call, (prefix(message), message))
        self.client.send_end(call)
        return call
