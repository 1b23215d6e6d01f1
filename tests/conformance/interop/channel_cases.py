"""gRPC's interoperability tests for a client, asked by dledger's channel of whatever server there is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dledger.rpc.client.call import StreamingCall, UnaryCall
from dledger.rpc.client.channel import Channel, StreamCall
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import prefixed
from tests.conformance.interop.service import ECHO_INITIAL, ECHO_TRAILING, SERVICE, messages

TIMEOUT_S = 20.0
REQUEST_SIZES = (27_182, 8, 1_828, 45_904)
ANSWER_SIZES = (31_415, 9, 2_653, 58_979)
LARGE_REQUEST, LARGE_ANSWER = 271_828, 314_159
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
METADATA = ((ECHO_INITIAL, "test_initial_metadata_value"), (ECHO_TRAILING, b"\xab\xab\xab"))
SOAK_CALLS = 200

Check = Callable[[Channel], Awaitable[None]]


def _unary(channel: Channel, name: str, answer: Any, service: str = SERVICE) -> Any:
    return channel.unary_unary(f"/{service}/{name}", _encoded, answer.FromString)


def _encoded(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


def _duplex(channel: Channel, timeout_s: float = TIMEOUT_S) -> StreamCall:
    method = channel.stream_stream(
        f"/{SERVICE}/FullDuplexCall", _encoded, messages.StreamingOutputCallResponse.FromString
    )
    return method(timeout=timeout_s)


def _upload(channel: Channel) -> StreamCall:
    method = channel.stream_stream(
        f"/{SERVICE}/StreamingInputCall", _encoded, messages.StreamingInputCallResponse.FromString
    )
    return method(timeout=TIMEOUT_S)


def _payload(size: int) -> Any:
    return messages.Payload(body=bytes(size))


def _asking(size: int, request_size: int = 0) -> Any:
    parameters = [messages.ResponseParameters(size=size)]
    return messages.StreamingOutputCallRequest(response_parameters=parameters, payload=_payload(request_size))


async def _failure(call: Awaitable[object]) -> RpcFailure:
    try:
        answer = await call
    except RpcFailure as failure:
        return failure
    raise AssertionError(f"it was answered: {answer!r:.60}")


def _is(found: object, expected: object) -> None:
    assert found == expected, f"{found!r:.100}, not {expected!r:.100}"


async def empty_unary(channel: Channel) -> None:
    _is(await _unary(channel, "EmptyCall", messages.Empty)(messages.Empty(), timeout=TIMEOUT_S), messages.Empty())


async def large_unary(channel: Channel) -> None:
    request = messages.SimpleRequest(response_size=LARGE_ANSWER, payload=_payload(LARGE_REQUEST))
    answer = await _unary(channel, "UnaryCall", messages.SimpleResponse)(request, timeout=TIMEOUT_S)
    _is(answer.payload.body, bytes(LARGE_ANSWER))


async def client_streaming(channel: Channel) -> None:
    call = _upload(channel)
    for size in REQUEST_SIZES:
        await call.write(messages.StreamingInputCallRequest(payload=_payload(size)))
    await call.done_writing()
    _is([each.aggregated_payload_size async for each in call], [sum(REQUEST_SIZES)])


async def server_streaming(channel: Channel) -> None:
    parameters = [messages.ResponseParameters(size=size) for size in ANSWER_SIZES]
    method = channel.unary_stream(
        f"/{SERVICE}/StreamingOutputCall", _encoded, messages.StreamingOutputCallResponse.FromString
    )
    call = method(messages.StreamingOutputCallRequest(response_parameters=parameters), timeout=TIMEOUT_S)
    _is([len(each.payload.body) async for each in call], list(ANSWER_SIZES))


async def ping_pong(channel: Channel) -> None:
    call = _duplex(channel)
    for request_size, size in zip(REQUEST_SIZES, ANSWER_SIZES, strict=True):
        await call.write(_asking(size, request_size))
        _is(len((await call.read()).payload.body), size)
    await call.done_writing()
    _is(await call.read(), None)


async def empty_stream(channel: Channel) -> None:
    call = _duplex(channel)
    await call.done_writing()
    _is(await call.read(), None)


async def timeout_on_sleeping_server(channel: Channel) -> None:
    call = _duplex(channel, 0.001)

    async def ask() -> None:
        await call.write(messages.StreamingOutputCallRequest(payload=_payload(27_182)))
        await call.read()

    _is((await _failure(ask())).status, StatusCode.DEADLINE_EXCEEDED)


async def cancel_after_begin(channel: Channel) -> None:
    call = _upload(channel)
    reading = asyncio.ensure_future(_failure(call.read()))
    await asyncio.sleep(0)
    call.cancel()
    _is((await reading).status, StatusCode.CANCELLED)


async def cancel_after_first_response(channel: Channel) -> None:
    call = _duplex(channel)
    await call.write(_asking(31_415, 27_182))
    _is(len((await call.read()).payload.body), 31_415)
    call.cancel()
    _is((await _failure(call.read())).status, StatusCode.CANCELLED)


async def custom_metadata(channel: Channel) -> None:
    """Of a unary call and of a stream, by what the channel itself stands on: its methods show no metadata."""
    connection = await channel.connected(None)
    request = messages.SimpleRequest(response_size=LARGE_ANSWER, payload=_payload(LARGE_REQUEST))
    unary = connection.open(UnaryCall, channel.block(f"/{SERVICE}/UnaryCall", TIMEOUT_S, METADATA))
    connection.send_data(unary, prefixed(_encoded(request)))
    connection.send_end(unary)
    await unary.answered
    stream = connection.open(StreamingCall, channel.block(f"/{SERVICE}/FullDuplexCall", TIMEOUT_S, METADATA))
    await stream.write(_encoded(_asking(31_415, 27_182)))
    await stream.read()
    stream.done_writing()
    _is(await stream.read(), None)
    for call in (unary, stream):
        assert METADATA[0] in call.initial_metadata, f"the initial metadata are {call.initial_metadata}"
        assert METADATA[1] in call.trailing_metadata, f"the trailing metadata are {call.trailing_metadata}"


async def status_code_and_message(channel: Channel) -> None:
    status = messages.EchoStatus(code=2, message="test status message")
    request = messages.SimpleRequest(response_status=status)
    unary = await _failure(_unary(channel, "UnaryCall", messages.SimpleResponse)(request, timeout=TIMEOUT_S))
    call = _duplex(channel)
    await call.write(messages.StreamingOutputCallRequest(response_status=status))
    await call.done_writing()
    for failure in (unary, await _failure(call.read())):
        _is((failure.status, failure.details), (StatusCode.UNKNOWN, "test status message"))


async def special_status_message(channel: Channel) -> None:
    request = messages.SimpleRequest(response_status=messages.EchoStatus(code=2, message=SPECIAL))
    failure = await _failure(_unary(channel, "UnaryCall", messages.SimpleResponse)(request, timeout=TIMEOUT_S))
    _is((failure.status, failure.details), (StatusCode.UNKNOWN, SPECIAL))


async def unimplemented_method(channel: Channel) -> None:
    call = _unary(channel, "UnimplementedCall", messages.Empty)
    _is((await _failure(call(messages.Empty(), timeout=TIMEOUT_S))).status, StatusCode.UNIMPLEMENTED)


async def unimplemented_service(channel: Channel) -> None:
    call = _unary(channel, "UnimplementedCall", messages.Empty, "grpc.testing.UnimplementedService")
    _is((await _failure(call(messages.Empty(), timeout=TIMEOUT_S))).status, StatusCode.UNIMPLEMENTED)


async def rpc_soak(channel: Channel) -> None:
    for _ in range(SOAK_CALLS):
        await large_unary(channel)


async def large_calls_side_by_side(channel: Channel) -> None:
    await asyncio.gather(*[large_unary(channel) for _ in range(50)])


CASES: tuple[Check, ...] = (
    empty_unary,
    large_unary,
    client_streaming,
    server_streaming,
    ping_pong,
    empty_stream,
    timeout_on_sleeping_server,
    cancel_after_begin,
    cancel_after_first_response,
    custom_metadata,
    status_code_and_message,
    special_status_message,
    unimplemented_method,
    unimplemented_service,
    rpc_soak,
    large_calls_side_by_side,
)


async def server_compressed_unary(channel: Channel) -> None:
    for is_compressed in (True, False):
        request = messages.SimpleRequest(
            response_size=LARGE_ANSWER,
            payload=_payload(LARGE_REQUEST),
            response_compressed=messages.BoolValue(value=is_compressed),
        )
        answer = await _unary(channel, "UnaryCall", messages.SimpleResponse)(request, timeout=TIMEOUT_S)
        _is(answer.payload.body, bytes(LARGE_ANSWER))


async def server_compressed_streaming(channel: Channel) -> None:
    sizes = (31_415, 92_653)
    parameters = [
        messages.ResponseParameters(size=size, compressed=messages.BoolValue(value=size == sizes[0])) for size in sizes
    ]
    method = channel.unary_stream(
        f"/{SERVICE}/StreamingOutputCall", _encoded, messages.StreamingOutputCallResponse.FromString
    )
    call = method(messages.StreamingOutputCallRequest(response_parameters=parameters), timeout=TIMEOUT_S)
    _is([len(each.payload.body) async for each in call], list(sizes))


COMPRESSION_CASES: tuple[Check, ...] = (server_compressed_unary, server_compressed_streaming)
