from __future__ import annotations

import asyncio
import select
import socket
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest

from dledger.common.errors import Code, ConfigError
from dledger.common.types import NodeId
from dledger.metrics import GroupCollector, GroupMetrics, make_registry, start_metrics_server
from dledger.metrics import server as metrics_server
from dledger.v1 import log_pb2, log_pb2_grpc


def fetch(port: int, query: str = "") -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics{query}", timeout=5) as response:
        return str(response.read(), "utf-8")


async def test_metrics_are_served_until_the_server_is_closed() -> None:
    registry = make_registry(GroupCollector([GroupMetrics("default", NodeId("n0"), term=3)]))
    server = start_metrics_server(registry, "127.0.0.1", 0)
    try:
        text = await asyncio.to_thread(fetch, server.port)
    finally:
        await server.close()
    assert 'dledger_term{group="default",node="n0"} 3.0' in text
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


@pytest.mark.parametrize("told", ["that is n0's metrics port; clients: h:1", "long " * 100])
async def test_a_client_of_grpc_is_told_which_port_it_took(told: str) -> None:
    server = start_metrics_server(make_registry(), "127.0.0.1", 0, told_to_clients=told)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await log_pb2_grpc.LogServiceStub(channel).Get(log_pb2.GetRequest(), timeout=5)
    finally:
        await server.close()
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, told)


async def test_metrics_that_are_asked_for_by_name_are_served_alone() -> None:
    registry = make_registry(GroupCollector([GroupMetrics("default", NodeId("n0"), term=3)]))
    server = start_metrics_server(registry, "127.0.0.1", 0)
    try:
        text = await asyncio.to_thread(fetch, server.port, "?name[]=dledger_term")
    finally:
        await server.close()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'dledger_term{group="default",node="n0"} 3.0'
    ]


async def test_another_path_than_the_metrics_is_not_found() -> None:
    server = start_metrics_server(make_registry(), "127.0.0.1", 0)
    try:
        with pytest.raises(HTTPError) as refusal:
            await asyncio.to_thread(urlopen, f"http://127.0.0.1:{server.port}/metrix", timeout=5)
    finally:
        await server.close()
    with refusal.value as answer:
        assert (answer.code, answer.read()) == (404, b"the metrics are at /metrics\n")


async def test_connections_that_say_nothing_take_no_more_than_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 2)
    server = start_metrics_server(make_registry(), "127.0.0.1", 0)
    try:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(3)]
        assert await asyncio.to_thread(silent[0].recv, 1) == b""
        assert "process_" in await asyncio.to_thread(fetch, server.port)
        for connection in silent:
            connection.close()
    finally:
        await server.close()


async def test_a_request_has_a_deadline_that_no_byte_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.2)
    server = start_metrics_server(make_registry(), "127.0.0.1", 0)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:

            def trickle() -> None:
                while True:
                    slow.sendall(b"r")
                    if select.select([slow], [], [], 0.05)[0]:
                        assert slow.recv(1) == b""
                        return

            await asyncio.wait_for(asyncio.to_thread(trickle), 5)
    finally:
        await server.close()


def test_a_port_in_use_is_a_config_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*in use.*http_port") as caught:
            start_metrics_server(make_registry(), "127.0.0.1", port)
    assert caught.value.code is Code.CONFIG_ERROR
    assert "\n" not in str(caught.value)
