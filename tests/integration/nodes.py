"""Real nodes, and what the tests ask of them: over plain gRPC, without the SDK, and by signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from dledger.cli.cluster import LocalCluster
from dledger.common.types import Durability
from dledger.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

DEADLINE_S = 15.0
POLL_S = 0.02
CALL_TIMEOUT_S = 8.0


class Refusal(NamedTuple):
    """How a call was refused: the gRPC status, and what the ErrorInfo beside it says."""

    status: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str]


def refusal_in(failure: Any) -> Refusal:
    """Every refusal of ours is typed, is one sentence on one line, and is understood by Google's own library."""
    status = rpc_status.from_call(failure)
    assert status is not None, f"an untyped refusal: {failure!r}"
    assert status.message == failure.details()
    assert status.message
    assert "\n" not in status.message
    [detail] = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert info.domain == "dledger"
    return Refusal(failure.code(), info.reason, status.message, dict(info.metadata))


async def refusal_of(call: Awaitable[object]) -> Refusal:
    """The refusal of a call that must be refused."""
    with pytest.raises(grpc.RpcError) as failure:
        await call
    return refusal_in(failure.value)


async def everything(call: Any) -> list[Any]:
    """All that a stream answers."""
    return [answer async for answer in call]


async def eventually(look: Callable[[], Awaitable[object]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Another process cannot be awaited: it is asked until it is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not await look():
        assert loop.time() < deadline, f"not within {deadline_s:g} s: {what}"
        await asyncio.sleep(POLL_S)


class Stubs:
    """One node's services."""

    def __init__(self, address: str) -> None:
        # A channel of its own: nothing of an earlier one's back-off when the node comes back.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200),
                   ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 200),
                   ("grpc.max_receive_message_length", -1)]  # fmt: skip
        self.address = address
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self.log: log_pb2_grpc.LogServiceAsyncStub = log_pb2_grpc.LogServiceStub(self.channel)
        self.admin: admin_pb2_grpc.AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(self.channel)

    async def append(self, *records: bytes, **fields: Any) -> log_pb2.AppendResponse:
        return await self.log.Append(log_pb2.AppendRequest(records=records, **fields), timeout=CALL_TIMEOUT_S)

    async def append_here(self, *records: bytes, **fields: Any) -> log_pb2.AppendResponse:
        """By this node or by nobody: the call is not sent on."""
        request = log_pb2.AppendRequest(records=records, **fields)
        return await self.log.Append(request, timeout=CALL_TIMEOUT_S, metadata=(("dledger-hops", "0"),))

    async def append_stream(self, *requests: log_pb2.AppendStreamRequest) -> list[log_pb2.AppendStreamResponse]:
        """All answers. With the blocking client: grpc.aio hides a refusal behind an error of its own when it comes
        while a request is being written."""

        def call() -> list[log_pb2.AppendStreamResponse]:
            with grpc.insecure_channel(self.address) as channel:
                stub = log_pb2_grpc.LogServiceStub(channel)
                return list(stub.AppendStream(iter(requests), timeout=CALL_TIMEOUT_S))

        return await asyncio.to_thread(call)

    async def get(self, index: int, **fields: Any) -> log_pb2.GetResponse:
        return await self.log.Get(log_pb2.GetRequest(index=index, **fields), timeout=CALL_TIMEOUT_S)

    async def status(self, group: str = "") -> admin_pb2.StatusResponse:
        return await self.admin.Status(admin_pb2.StatusRequest(group=group), timeout=CALL_TIMEOUT_S)


class Nodes:
    """A running cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.ids = list(cluster.nodes)
        self.stubs = {node.id: Stubs(node.client_address) for node in cluster.nodes.values()}

    def __getitem__(self, node_id: str) -> Stubs:
        return self.stubs[node_id]

    @property
    def running(self) -> list[str]:
        return [node.id for node in self.cluster.nodes.values() if node.running]

    def log_of(self, node_id: str) -> str:
        return self.cluster.nodes[node_id].log_file.read_text()

    async def leader(self) -> str:
        """Who leads, by its own word and to the knowledge of every node that runs."""
        found = ""

        async def agreed() -> bool:
            nonlocal found
            told = await self.statuses()
            found = told[0].leader_id if told else ""
            leads = {status.id for status in told if status.role == "leader"}
            return len(told) == len(self.running) and {status.leader_id for status in told} == {found} == leads

        await eventually(agreed, "all that run know the leader")
        return found

    async def followers(self) -> list[str]:
        leader = await self.leader()
        return [node_id for node_id in self.running if node_id != leader]

    async def statuses(self) -> list[admin_pb2.StatusResponse]:
        """Of all that run and answer."""
        told = []
        for node_id in self.running:
            try:
                told.append(await self[node_id].admin.Status(admin_pb2.StatusRequest(), timeout=1.0))
            except grpc.aio.AioRpcError:
                continue
        return told

    async def settled(self) -> tuple[int, int, int, str]:
        """Where all logs stand once they are equal: last index, position, chain; and who leads."""
        leader = await self.leader()
        told: list[admin_pb2.StatusResponse] = []

        async def equal() -> bool:
            nonlocal told
            told = await self.statuses()
            ends = {(status.position, status.chain, status.commit_index, status.last_index) for status in told}
            return len(told) == len(self.running) and len(ends) == 1 and told[0].commit_index == told[0].last_index

        await eventually(equal, "all logs are equal")
        return told[0].last_index, told[0].position, told[0].chain, leader

    def pids(self) -> dict[str, int]:
        return {node.id: node.process.pid for node in self.cluster.nodes.values() if node.process is not None}

    def signal(self, node_id: str, number: signal.Signals) -> None:
        process = self.cluster.nodes[node_id].process
        assert process is not None
        process.send_signal(number)

    async def terminate(self, *node_ids: str, number: Signals = Signals.SIGTERM) -> list[int]:
        """The signal to all of them at once; their exit codes."""
        processes = []
        for node_id in node_ids:
            node = self.cluster.nodes[node_id]
            assert node.process is not None
            node.expected_to_end = True
            processes.append(node.process)
            node.process.send_signal(number)
        async with asyncio.timeout(DEADLINE_S):
            return [await process.wait() for process in processes]

    async def restart(self, *node_ids: str) -> None:
        for node_id in node_ids:
            await self.cluster.restart(node_id)
        await self.leader()

    async def close(self) -> None:
        for node_id in self.running:
            self.signal(node_id, signal.SIGCONT)
        # What the tests have to say of a clean stop they say themselves.
        self.cluster.kill_all()
        await self.cluster.stop()
        for stubs in self.stubs.values():
            await stubs.channel.close()


@asynccontextmanager
async def running(
    data: Path, *, nodes: int = 3, durability: Durability = Durability.FSYNC, serve_flags: Iterable[str] = ()
) -> AsyncIterator[Nodes]:
    """``nodes`` nodes on free ports, of which one leads."""
    cluster = LocalCluster(data, nodes=nodes, durability=durability, serve_flags=serve_flags)
    await cluster.start()
    started = Nodes(cluster)
    try:
        await cluster.wait_ready()
        yield started
    finally:
        await started.close()


async def leader_of(nodes: Nodes, group: str) -> str:
    """Who leads the group, to the knowledge of every node that runs."""
    found: set[str] = set()

    async def agreed() -> bool:
        told = [await nodes[each].status(group) for each in nodes.running]
        found.clear()
        found.update(each.leader_id for each in told)
        return len(found) == 1 and found <= set(nodes.running)

    await eventually(agreed, f"all that run know the leader of {group}")
    return found.pop()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
