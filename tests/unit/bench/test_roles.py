"""What a limit over sockets measures runs in processes that have nothing of the one that measures."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from pathlib import Path

import grpc.aio
import pytest

from bench.limits.roles import accept, connect, role, server
from bench.work import MeasurementFailed

HEARD_S = 30.0


def collects(listening: socket.socket) -> None:
    with accept(listening) as measuring:
        gc.collect()
        measuring.sendall(b"collected")
        measuring.recv(1)


def says_its_name(listening: socket.socket) -> None:
    with accept(listening) as measuring:
        measuring.sendall(str(os.getpid()).encode())
        measuring.recv(1)


class Unknown:
    """To whoever is to begin with it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.listdir, ("/no/such/directory",)


async def leave_a_server_to_the_collector() -> None:
    serving = grpc.aio.server()
    serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    await serving.stop(None)
    knot: list[object] = [serving]
    knot.append(knot)


def heard(port: int) -> bytes:
    with connect(port) as asking:
        asking.settimeout(HEARD_S)
        return asking.recv(100)


def test_a_role_does_not_collect_what_this_process_left() -> None:
    """A fork would wait in its collector for a thread of gRPC that it does not have, for ever."""
    gc.disable()
    try:
        asyncio.run(leave_a_server_to_the_collector())
        with server(collects) as (_, port):
            assert heard(port) == b"collected"
    finally:
        gc.enable()


def test_a_role_is_a_process_of_its_own_that_ends_with_the_block() -> None:
    with server(says_its_name) as (process, port):
        assert int(heard(port)) == process.pid != os.getpid()
        assert Path(f"/proc/{process.pid}").exists()
    assert not process.is_alive()


def test_a_role_that_cannot_begin_is_told() -> None:
    with (
        pytest.raises(MeasurementFailed, match=r"^the process of says_its_name has ended before it began"),
        role(says_its_name, Unknown()),
    ):
        pass
