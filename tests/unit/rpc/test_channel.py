"""A channel and a server over loopback: what users of either rely on."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from dledger.common.resolver import Resolver
from dledger.rpc.client.channel import Channel
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.server.server import GrpcServer
from dledger.rpc.status import StatusCode


class Method(NamedTuple):
    """As ``grpc.RpcMethodHandler``, of bytes."""

    behaviour: Any
    request_streaming: bool = False
    response_streaming: bool = False
    request_deserializer: Any = None
    response_serializer: Any = None

    def __getattr__(self, _: str) -> Any:
        return self.behaviour


class Service:
    """What a test sees of the server's side."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.told: list[Any] = []

    async def echo(self, request: bytes, context: Any) -> bytes:
        self.told.append((context.invocation_metadata(), context.time_remaining()))
        return request

    async def hang(self, _request: bytes, _context: Any) -> bytes:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return b""

    async def refuse(self, _request: bytes, context: Any) -> bytes:
        await context.abort(
            StatusCode.ABORTED, "no: ä%", trailing_metadata=(("why-bin", b"\x00\xff"), ("where", "here"))
        )
        return b""

    async def fail(self, _request: bytes, _context: Any) -> bytes:
        raise ZeroDivisionError("a bug")

    async def count(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def double(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request * 2

    async def flood(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        self.told.append(0)
        while True:
            self.told[0] += 1
            yield bytes(100_000)

    def methods(self) -> dict[str, Method]:
        return {
            "Echo": Method(self.echo),
            "Hang": Method(self.hang),
            "Refuse": Method(self.refuse),
            "Fail": Method(self.fail),
            "Count": Method(self.count, response_streaming=True),
            "Double": Method(self.double, request_streaming=True, response_streaming=True),
            "Flood": Method(self.flood, response_streaming=True),
        }


@pytest.fixture
async def service() -> Service:
    return Service()


async def serve(service: Service, port: int = 0, limits: Http2Limits | None = None) -> tuple[GrpcServer, int]:
    server = GrpcServer(limits)
    server.add_registered_method_handlers("test", service.methods())
    port = await server.bind("127.0.0.1", port)
    await server.start()
    return server, port


@pytest.fixture
async def channel(service: Service) -> AsyncIterator[Channel]:
    server, port = await serve(service)
    channel = Channel(f"127.0.0.1:{port}")
    yield channel
    await channel.close()
    await server.stop(0)


async def test_a_unary_call_carries_metadata_and_its_deadline(channel: Channel, service: Service) -> None:
    assert await channel.unary_unary("/test/Echo")(b"hi", timeout=30, metadata=(("a", "1"), ("b-bin", b"\0"))) == b"hi"
    [(metadata, left_s)] = service.told
    assert set(metadata) >= {("a", "1"), ("b-bin", b"\0")}
    assert 25 < left_s <= 30


async def test_a_refusal_arrives_with_its_words_and_metadata(channel: Channel) -> None:
    with pytest.raises(RpcFailure) as caught:
        await channel.unary_unary("/test/Refuse")(b"")
    failure = caught.value
    assert (failure.status, failure.details) == (StatusCode.ABORTED, "no: ä%")
    assert set(failure.metadata) == {("why-bin", b"\x00\xff"), ("where", "here")}
    assert not failure.is_local


@pytest.mark.parametrize(("method", "status"), [("Fail", StatusCode.UNKNOWN), ("None", StatusCode.UNIMPLEMENTED)])
async def test_what_no_handler_answers_has_a_status(channel: Channel, method: str, status: StatusCode) -> None:
    with pytest.raises(RpcFailure) as caught:
        await channel.unary_unary(f"/test/{method}")(b"")
    assert caught.value.status is status


async def test_a_deadline_ends_the_call_at_both_sides(channel: Channel, service: Service) -> None:
    with pytest.raises(RpcFailure) as caught:
        await channel.unary_unary("/test/Hang")(b"", timeout=0.05)
    assert caught.value.status is StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(service.cancelled.wait(), 5)


async def test_a_caller_that_is_cancelled_cancels_the_handler(channel: Channel, service: Service) -> None:
    call = asyncio.create_task(channel.unary_unary("/test/Hang")(b""))
    await service.begun.wait()
    call.cancel()
    await asyncio.wait_for(service.cancelled.wait(), 5)
    assert await channel.unary_unary("/test/Echo")(b"still there") == b"still there"


async def test_streams_of_answers_end_well(channel: Channel) -> None:
    answers = [answer async for answer in channel.unary_stream("/test/Count")(b"1000")]
    assert answers == [b"%d" % number for number in range(1_000)]


async def test_requests_and_answers_take_turns(channel: Channel) -> None:
    call = channel.stream_stream("/test/Double")()
    for request in (b"a", b"", b"x" * 300_000):
        await call.write(request)
        assert await call.read() == request * 2
    await call.done_writing()
    assert await call.read() is None


async def test_a_reader_that_stands_still_stops_the_writer(channel: Channel, service: Service) -> None:
    call = channel.unary_stream("/test/Flood")(b"")
    await call.read()
    seen = -1
    while seen != service.told[0]:
        seen = service.told[0]
        await asyncio.sleep(0.1)
    assert seen * 100_000 < 10_000_000, "what is under way is bounded by the windows"
    call.cancel()


async def test_many_calls_at_once_are_all_answered(channel: Channel) -> None:
    echo = channel.unary_unary("/test/Echo")
    requests = [b"%d" % number for number in range(5_000)]
    assert await asyncio.gather(*map(echo, requests)) == requests


async def test_a_lost_server_is_said_so_and_its_successor_found(service: Service) -> None:
    server, port = await serve(service)
    channel = Channel(f"127.0.0.1:{port}")
    echo = channel.unary_unary("/test/Echo")
    await echo(b"")
    hanging = asyncio.create_task(channel.unary_unary("/test/Hang")(b""))
    await service.begun.wait()
    await server.stop(0)
    with pytest.raises(RpcFailure) as lost:
        await hanging
    assert lost.value.was_sent
    with pytest.raises(RpcFailure) as refused:
        await echo(b"")
    assert (refused.value.status, refused.value.was_sent) == (StatusCode.UNAVAILABLE, False)
    server, _ = await serve(service, port)
    assert await echo(b"again") == b"again"
    await channel.close()
    await server.stop(0)


async def test_a_server_that_stops_answers_the_calls_it_has(service: Service) -> None:
    server, port = await serve(service)
    channel = Channel(f"127.0.0.1:{port}")
    call = channel.stream_stream("/test/Double")()
    await call.write(b"1")
    await call.read()
    stopping = asyncio.create_task(server.stop(5))
    await asyncio.sleep(0)
    await call.write(b"2")
    assert await call.read() == b"22"
    await call.done_writing()
    assert await call.read() is None
    await asyncio.wait_for(stopping, 2)
    await channel.close()


async def test_calls_beyond_the_servers_limit_wait_for_their_turn(service: Service) -> None:
    server, port = await serve(service, limits=Http2Limits(max_streams=3))
    channel = Channel(f"127.0.0.1:{port}")
    await channel.unary_unary("/test/Echo")(b"")  # the limit is known from the server's first frame on
    hanging = [asyncio.create_task(channel.unary_unary("/test/Hang")(b"")) for _ in range(3)]
    await service.begun.wait()
    with pytest.raises(RpcFailure) as late:
        await channel.unary_unary("/test/Echo")(b"", timeout=0.05)
    assert (late.value.status, late.value.was_sent) == (StatusCode.DEADLINE_EXCEEDED, False)
    waiting = asyncio.create_task(channel.unary_unary("/test/Echo")(b"mine"))
    await asyncio.sleep(0)
    hanging[0].cancel()
    assert await asyncio.wait_for(waiting, 5) == b"mine"
    await channel.close()
    await server.stop(0)
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_the_name_is_looked_up_at_each_connection(service: Service) -> None:
    server, port = await serve(service)
    looked_up: list[str] = []

    def look_up(host: str) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    channel = Channel(f"a.node:{port}", resolver=Resolver(look_up))
    await channel.unary_unary("/test/Echo")(b"")
    await server.stop(0)
    server, _ = await serve(service, port)
    await channel.unary_unary("/test/Echo")(b"")
    assert looked_up == ["a.node", "a.node"]
    await channel.close()
    await server.stop(0)


async def test_what_is_no_grpc_server_is_said_to_be_none() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    channel = Channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(RpcFailure, match="does not speak gRPC") as caught:
        await channel.unary_unary("/test/Echo")(b"")
    assert not caught.value.was_sent
    await channel.close()
    server.close()


def test_a_client_that_was_made_before_a_fork_says_what_to_do() -> None:
    async def made() -> Channel:
        return Channel("127.0.0.1:1")

    channel = asyncio.run(made())
    fork = multiprocessing.get_context("fork")
    told = fork.Queue()

    def child() -> None:
        async def call() -> None:
            try:
                await channel.unary_unary("/x")(b"")
            except RpcFailure as failure:
                told.put(str(failure))

        asyncio.run(call())

    process = fork.Process(target=child)
    process.start()
    assert "before a fork: connect anew in the child process" in told.get(timeout=10)
    process.join()


async def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await GrpcServer().bind("127.0.0.1", taken.getsockname()[1])
