"""The service that gRPC's interoperability tests ask of a server, on dledger's gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any, NamedTuple
from unittest import mock

import grpc

from dledger.rpc import wire
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.server.server import GrpcServer

messages: Any = grpc.protos("tests/conformance/interop/testing.proto")

SERVICE = "grpc.testing.TestService"
ECHO_INITIAL = "x-grpc-test-echo-initial"
ECHO_TRAILING = "x-grpc-test-echo-trailing-bin"


class _CameCompressed(bytes):
    """A message that was compressed on its way: handlers are not told otherwise."""

    __slots__ = ()


class _Asked(NamedTuple):
    """A request."""

    message: Any
    is_compressed: bool

    def is_as_expected(self) -> bool:
        expected = self.message.expect_compressed
        return not self.message.HasField("expect_compressed") or expected.value == self.is_compressed


def _decoder(kind: Any) -> Callable[[bytes], _Asked]:
    return lambda data: _Asked(kind.FromString(bytes(data)), isinstance(data, _CameCompressed))


def _encode(answer: Any) -> bytes:
    data: bytes = answer.SerializeToString()
    return data


async def _echo_metadata(context: Any) -> None:
    given = context.invocation_metadata()
    initial = [(name, value) for name, value in given if name == ECHO_INITIAL]
    if initial:
        await context.send_initial_metadata(initial)
    context.set_trailing_metadata([(name, value) for name, value in given if name == ECHO_TRAILING])


async def _echo_status(request: Any, context: Any) -> None:
    if request.HasField("response_status"):
        # Numbers beyond those that have a name are no status that a handler can give.
        code = next(each for each in grpc.StatusCode if each.value[0] == request.response_status.code)
        await context.abort(code, request.response_status.message)


async def _refuse_compression(context: Any) -> None:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is compressed, or not, against what it says")


async def empty_call(_asked: _Asked, context: Any) -> Any:
    await _echo_metadata(context)
    return messages.Empty()


async def unary_call(asked: _Asked, context: Any) -> Any:
    request = asked.message
    if not asked.is_as_expected():
        await _refuse_compression(context)
    if request.response_compressed.value:
        context.set_compression(grpc.Compression.Gzip)
    await _echo_metadata(context)
    await _echo_status(request, context)
    return messages.SimpleResponse(payload=messages.Payload(body=bytes(request.response_size)))


async def streaming_output_call(asked: _Asked, context: Any) -> AsyncIterator[Any]:
    if any(each.compressed.value for each in asked.message.response_parameters):
        context.set_compression(grpc.Compression.Gzip)
    await _echo_metadata(context)
    async for answer in _answers(asked.message, context):
        yield answer


async def _answers(request: Any, context: Any) -> AsyncIterator[Any]:
    await _echo_status(request, context)
    for each in request.response_parameters:
        if each.interval_us:
            await asyncio.sleep(each.interval_us / 1e6)
        if not each.compressed.value:
            context.disable_next_message_compression()
        yield messages.StreamingOutputCallResponse(payload=messages.Payload(body=bytes(each.size)))


async def streaming_input_call(requests: AsyncIterator[_Asked], context: Any) -> Any:
    await _echo_metadata(context)
    size = 0
    async for asked in requests:
        if not asked.is_as_expected():
            await _refuse_compression(context)
        size += len(asked.message.payload.body)
    return messages.StreamingInputCallResponse(aggregated_payload_size=size)


async def full_duplex_call(requests: AsyncIterator[_Asked], context: Any) -> AsyncIterator[Any]:
    await _echo_metadata(context)
    async for asked in requests:
        async for answer in _answers(asked.message, context):
            yield answer


async def half_duplex_call(requests: AsyncIterator[_Asked], context: Any) -> AsyncIterator[Any]:
    await _echo_metadata(context)
    for asked in [asked async for asked in requests]:
        async for answer in _answers(asked.message, context):
            yield answer


def _handler() -> Any:
    request, stream_request = messages.SimpleRequest, messages.StreamingOutputCallRequest
    methods: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
        "EmptyCall": (grpc.unary_unary_rpc_method_handler, empty_call, messages.Empty),
        "UnaryCall": (grpc.unary_unary_rpc_method_handler, unary_call, request),
        "StreamingOutputCall": (grpc.unary_stream_rpc_method_handler, streaming_output_call, stream_request),
        "StreamingInputCall": (
            grpc.stream_unary_rpc_method_handler,
            streaming_input_call,
            messages.StreamingInputCallRequest,
        ),
        "FullDuplexCall": (grpc.stream_stream_rpc_method_handler, full_duplex_call, stream_request),
        "HalfDuplexCall": (grpc.stream_stream_rpc_method_handler, half_duplex_call, stream_request),
    }
    handlers = {
        name: kind(behaviour, request_deserializer=_decoder(asks), response_serializer=_encode)
        for name, (kind, behaviour, asks) in methods.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


@asynccontextmanager
async def serving(ssl: SSLContext | None = None, *, max_frame_bytes: int | None = None) -> AsyncIterator[int]:
    """The port of a server on 127.0.0.1. h2spec asks for a server with HTTP/2's default ``max_frame_bytes``."""
    server = GrpcServer(Http2Limits(max_frame_bytes=max_frame_bytes) if max_frame_bytes else None)
    server.add_generic_rpc_handlers((_handler(),))
    port = await server.bind("127.0.0.1", 0, ssl=ssl)
    decompressed = wire.decompressed

    def marked(message: bytes, encoding: bytes, limit_bytes: int) -> bytes:
        return _CameCompressed(decompressed(message, encoding, limit_bytes))

    with mock.patch.object(wire, "decompressed", marked):
        await server.start()
        try:
            yield port
        finally:
            await server.stop(0)
