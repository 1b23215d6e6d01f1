"""A client of gRPC that was given the port for nodes is told so."""

from __future__ import annotations

import grpc
import pytest

from dledger.v1 import log_pb2, log_pb2_grpc
from tests.unit.transport.nodes import A, Nodes


async def test_a_call_on_the_port_for_nodes_says_which_one_is_for_clients(nodes: Nodes) -> None:
    node = await nodes.start(A)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.port}") as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Get(log_pb2.GetRequest(), timeout=10)
            client_address = nodes.handlers[A].local_identity().client_address
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert refused.value.details() == f"that is {A}'s peer port; clients: {client_address}"
