"""What a server's call does beyond its handler: compressed answers, and refusals before the request has ended."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import pytest
from hpack import Decoder

from dledger.common import http2_frames as frames
from dledger.common.http2_frames import frame, literal
from dledger.rpc import wire
from dledger.rpc.server.context import ServerContext
from dledger.rpc.server.dispatch import Dispatch, quick
from tests.support.virtual_time import virtual_time
from tests.unit.rpc.http2.wires import HEADS, SeenFrame, Server, prefix

Behaviour = Callable[[bytes, ServerContext], Awaitable[bytes]]
TAKES_GZIP = HEADS + literal(b"grpc-accept-encoding", b"identity, gzip")
TEXT = b"the same words again and again; " * 100


class _Method(NamedTuple):
    """As ``grpc.RpcMethodHandler``."""

    unary_unary: Any = None
    stream_unary: Any = None
    request_streaming: bool = False
    response_streaming: bool = False
    request_deserializer: Any = None
    response_serializer: Any = None


def server(behaviour: Behaviour) -> Server:
    dispatch = Dispatch()
    dispatch.add_methods("test", {"Echo": _Method(quick(behaviour))})
    made = Server(dispatch=dispatch)
    made.greet()
    return made


def called(made: Server, heads: bytes = TAKES_GZIP) -> list[SeenFrame]:
    return made.take(
        frame(frames.HEADERS, frames.END_HEADERS, 1, heads)
        + frame(frames.DATA, frames.END_STREAM, 1, prefix(TEXT) + TEXT)
    )


def fields(seen: list[SeenFrame]) -> dict[bytes, bytes]:
    """Of the headers and trailers among the frames."""
    decoder = Decoder()
    blocks = [each.payload for each in seen if each.kind == frames.HEADERS]
    return dict(field for block in blocks for field in decoder.decode(block, raw=True))


def data(seen: list[SeenFrame]) -> bytes:
    return b"".join(each.payload for each in seen if each.kind == frames.DATA)


async def gzipped(request: bytes, context: ServerContext) -> bytes:
    context.set_compression(grpc.Compression.Gzip)
    return request


@virtual_time
async def test_an_answer_is_compressed_when_the_handler_asks_for_it() -> None:
    seen = called(server(gzipped))
    assert fields(seen)[b"grpc-encoding"] == b"gzip"
    assert data(seen)[0] == 1
    assert len(data(seen)) < len(TEXT) / 10
    assert wire.Messages(len(TEXT), b"gzip").feed(data(seen)) == [TEXT]


@virtual_time
async def test_an_answer_is_left_as_it_is_for_a_client_that_does_not_take_gzip() -> None:
    seen = called(server(gzipped), HEADS)
    assert b"grpc-encoding" not in fields(seen)
    assert data(seen) == prefix(TEXT) + TEXT


@virtual_time
async def test_one_message_can_be_left_out_of_the_compression() -> None:
    async def plain(request: bytes, context: ServerContext) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        context.disable_next_message_compression()
        return request

    seen = called(server(plain))
    assert fields(seen)[b"grpc-encoding"] == b"gzip"
    assert data(seen) == prefix(TEXT) + TEXT


@virtual_time
async def test_compression_cannot_be_chosen_behind_the_initial_metadata() -> None:
    async def late(request: bytes, context: ServerContext) -> bytes:
        await context.send_initial_metadata(())
        with pytest.raises(RuntimeError):
            context.set_compression(grpc.Compression.Gzip)
        return request

    assert fields(called(server(late)))[b"grpc-status"] == b"0"


@virtual_time
async def test_an_encoding_that_is_not_known_is_refused_with_those_that_are() -> None:
    seen = called(server(gzipped), HEADS + literal(b"grpc-encoding", b"snappy"))
    assert fields(seen)[b"grpc-status"] == b"12"
    assert fields(seen)[b"grpc-accept-encoding"] == b"identity,deflate,gzip"


@virtual_time
async def test_a_method_that_there_is_not_is_refused_before_the_request_ends() -> None:
    made = server(gzipped)
    heads = b"\x83\x86" + literal(b":path", b"/test/Nothing") + literal(b"content-type", b"application/grpc")
    seen = made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, heads))
    assert fields(seen)[b"grpc-status"] == b"12"
    assert not made.connection.streams


@virtual_time
async def test_a_call_that_is_cancelled_before_its_handler_began_leaves_no_coroutine_behind() -> None:
    begun = []

    async def count(requests: AsyncIterator[bytes], _context: ServerContext) -> bytes:
        begun.append([each async for each in requests])
        return b""

    dispatch = Dispatch()
    dispatch.add_methods("test", {"Echo": _Method(stream_unary=count, request_streaming=True)})
    made = Server(dispatch=dispatch)
    made.greet()
    with warnings.catch_warnings(record=True) as warned:
        made.take(frame(frames.HEADERS, frames.END_HEADERS, 1, HEADS) + frames.reset(1, frames.ErrorCode.CANCEL))
        await asyncio.sleep(1)
        gc.collect()
    assert not begun
    assert not warned
