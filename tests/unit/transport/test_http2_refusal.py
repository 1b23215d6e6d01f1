"""A client of gRPC that was given the port for nodes is told so."""

from __future__ import annotations

import grpc
import pytest

from dledger.transport.http2_refusal import HTTP2_BEGINNING, Http2Refusal
from dledger.v1 import log_pb2, log_pb2_grpc
from tests.unit.transport.nodes import A, Nodes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def test_a_call_on_the_port_for_nodes_says_which_one_is_for_clients(nodes: Nodes) -> None:
    node = await nodes.start(A)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.port}") as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Get(log_pb2.GetRequest(), timeout=10)
            client_address = nodes.handlers[A].local_identity().client_address
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert refused.value.details() == f"this port is for nodes; clients use {client_address}"


def test_bytes_may_come_in_any_pieces() -> None:
    settings, headers = bytes.fromhex("000000040000000000"), bytes.fromhex("000001010500000003") + b"\x82"
    whole = PREFACE + settings + headers
    at_once = Http2Refusal("no").feed(whole)
    refusal = Http2Refusal("no")
    assert b"".join(refusal.feed(whole[at : at + 1]) for at in range(len(whole))) == at_once
    assert at_once.count(b"grpc-status") == 1


def test_a_frame_too_large_to_be_a_call_ends_it() -> None:
    refusal = Http2Refusal("no")
    assert PREFACE.startswith(HTTP2_BEGINNING)
    refusal.feed(PREFACE)
    with pytest.raises(ValueError, match="16777224 bytes"):
        refusal.feed(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")
