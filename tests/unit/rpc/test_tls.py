"""gRPC over TLS: the certificate is checked, and both sides agree on HTTP/2 in the handshake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext, SSLError, create_default_context
from typing import Any, NamedTuple

import grpc
import pytest

from dledger.rpc.client.channel import Channel
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.server.server import GrpcServer
from dledger.rpc.status import StatusCode
from tests.support import tls

ECHO = "/test/Echo"
LARGE = bytes(3_000_000)


class _Method(NamedTuple):
    """As ``grpc.RpcMethodHandler``."""

    unary_unary: Any
    request_streaming: bool = False
    response_streaming: bool = False
    request_deserializer: Any = None
    response_serializer: Any = None


async def echo(request: bytes, _context: object) -> bytes:
    return request


@asynccontextmanager
async def serving(ssl: SSLContext | None) -> AsyncIterator[int]:
    """The port of a server."""
    server = GrpcServer()
    server.add_registered_method_handlers("test", {"Echo": _Method(echo)})
    port = await server.bind("127.0.0.1", 0, ssl=ssl)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def channel(port: int, ssl: SSLContext | None) -> AsyncIterator[Channel]:
    made = Channel(f"localhost:{port}", ssl=ssl)
    try:
        yield made
    finally:
        await made.close()


async def refused(made: Channel) -> RpcFailure:
    with pytest.raises(RpcFailure) as caught:
        await made.unary_unary(ECHO)(b"x", timeout=5)
    assert caught.value.status is StatusCode.UNAVAILABLE
    assert not caught.value.was_sent
    return caught.value


async def test_calls_pass_over_tls() -> None:
    async with serving(tls.of_server()) as port, channel(port, tls.of_client()) as made:
        assert await made.unary_unary(ECHO)(LARGE, timeout=10) == LARGE


async def test_the_library_of_grpc_is_served_over_tls() -> None:
    async with serving(tls.of_server()) as port:
        credentials = grpc.ssl_channel_credentials(tls.CERTIFICATE.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as made:
            call: Any = made.unary_unary(ECHO)
            assert await call(LARGE[:1_000_000], timeout=10) == LARGE[:1_000_000]


async def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    async with serving(tls.of_server()) as port, channel(port, create_default_context()) as made:
        assert "self-signed certificate" in (await refused(made)).details


async def test_a_server_without_tls_is_told_from_one_that_is_not_there() -> None:
    async with serving(None) as port, channel(port, tls.of_client()) as made:
        assert "no TLS" in (await refused(made)).details


async def test_a_server_that_does_not_offer_http2_gets_no_call() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.of_server())
    async with server, channel(server.sockets[0].getsockname()[1], tls.of_client()) as made:
        assert "ALPN" in (await refused(made)).details


async def test_a_client_that_does_not_ask_for_http2_is_not_served() -> None:
    async with serving(tls.of_server()) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=tls.of_client())
        with suppress(ConnectionError, SSLError):  # an end without a farewell, as some versions of the library tell it
            assert not await reader.read()
        writer.close()
