"""Any node takes any call: plain gRPC at nodes that do not lead, or have nothing of the group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dledger.v1 import admin_pb2, log_pb2
from tests.integration.conftest import Tell
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, Stubs, eventually, everything, refusal_in, running
from tests.integration.test_grpc_api import batch, records_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITERS = 8
KILLS = 2
APPENDS_BETWEEN = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("any-node")) as started:
        await started[await started.leader()].append(b"record 0")
        yield started


async def test_a_follower_answers_every_call_as_the_leader_does(nodes: Nodes) -> None:
    for follower in await nodes.followers():
        at = nodes[follower]
        ack = await at.append(b"one", b"two")
        assert (await at.get(ack.base_index + 1)).entry.value == b"two"
        producer = await at.log.InitProducer(log_pb2.InitProducerRequest(), timeout=CALL_TIMEOUT_S)
        first = await at.append(b"three", producer_id=producer.producer_id)
        assert (await at.append(b"three", producer_id=producer.producer_id)) == first
        assert first.base_index == ack.base_index + 2
        streamed = await at.append_stream(batch(b"four", b"five"), batch(b"six"))
        assert [each.base_index - first.base_index for each in streamed] == [1, 3]
        gets = [log_pb2.GetStreamRequest(indexes=[ack.base_index]), log_pb2.GetStreamRequest(indexes=[1 << 40])]
        [found], [missing] = [
            each.results for each in await everything(at.log.GetStream(iter(gets), timeout=CALL_TIMEOUT_S))
        ]
        assert found.entry.value == b"one"
        assert missing.error.reason == "INDEX_OUT_OF_RANGE"
        request = log_pb2.ReadRequest(start_index=ack.base_index)
        answers = await everything(at.log.Read(request, timeout=CALL_TIMEOUT_S))
        values = [b"one", b"two", b"three", b"four", b"five", b"six"]
        assert records_in([each for answer in answers for each in answer.batches]) == values
        records = log_pb2.ReadRecordsRequest(start_index=ack.base_index)
        answers = await everything(at.log.ReadRecords(records, timeout=CALL_TIMEOUT_S))
        assert [each.entry.value for each in answers] == values


async def test_a_refusal_of_the_leaders_comes_through_a_follower_as_it_is(nodes: Nodes) -> None:
    follower = nodes[(await nodes.followers())[0]]
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await follower.append(b"x", expect_index=0)
    refusal = refusal_in(failure.value)
    assert (refusal.status, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_EXPECTED_INDEX")
    assert int(refusal.metadata["next_index"]) > 0


async def test_a_read_that_follows_at_a_follower_ends_with_the_callers_deadline(nodes: Nodes) -> None:
    follower = nodes[(await nodes.followers())[0]]
    start = (await follower.append(b"before")).base_index
    call: Any = follower.log.ReadRecords(log_pb2.ReadRecordsRequest(start_index=start, follow=True), timeout=1.0)
    assert (await call.read()).entry.value == b"before"
    await follower.append(b"after")
    assert (await call.read()).entry.value == b"after"
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call.read()
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_node_without_the_group_takes_its_calls_too(nodes: Nodes) -> None:
    absent, *members = nodes.ids

    async def created() -> bool:
        for each in nodes.ids:
            try:
                await nodes[each].admin.CreateGroup(admin_pb2.CreateGroupRequest(name="orders", members=members))
            except grpc.aio.AioRpcError as failure:
                if refusal_in(failure).reason == "GROUP_EXISTS":
                    return True
        return False

    await eventually(created, "the group is there")

    async def led() -> bool:
        try:
            return bool((await nodes[members[0]].status("orders")).leader_id)
        except grpc.aio.AioRpcError:
            return False

    await eventually(led, "the group is led")
    at = nodes[absent]
    ack = await at.append(b"an order", group="orders")
    assert (await at.get(ack.base_index, group="orders")).entry.value == b"an order"
    request = log_pb2.ReadRecordsRequest(group="orders")
    answers = await everything(at.log.ReadRecords(request, timeout=CALL_TIMEOUT_S))
    assert [each.entry.value for each in answers] == [b"an order"]
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await at.append_here(b"x", group="orders")
    assert refusal_in(failure.value).reason == "NOT_HERE"


async def test_a_group_that_there_is_not_is_unknown_to_every_node(nodes: Nodes) -> None:
    for each in nodes.ids:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await nodes[each].append(b"x", group="no-such-group")
        assert refusal_in(failure.value).reason == "UNKNOWN_GROUP", each


class Writer:
    """A plain client of one node: it appends a record at a time, and repeats a call until it is answered."""

    def __init__(self, stubs: Stubs, name: int) -> None:
        self._stubs = stubs
        self._name = name
        self.acknowledged: dict[bytes, int] = {}
        self.refusals: Counter[str] = Counter()
        self.is_wanted = True

    async def run(self) -> None:
        producer = await self._asked(self._stubs.log.InitProducer, log_pb2.InitProducerRequest())
        sequence = 0
        while self.is_wanted:
            record = b"%d/%d" % (self._name, sequence)
            request = log_pb2.AppendRequest(records=[record], producer_id=producer.producer_id, base_sequence=sequence)
            self.acknowledged[record] = (await self._asked(self._stubs.log.Append, request)).base_index
            sequence += 1

    async def _asked(self, method: Any, request: Any) -> Any:
        while True:
            try:
                return await method(request, timeout=2.0, wait_for_ready=True)
            except grpc.aio.AioRpcError as failure:
                trailing = dict(failure.trailing_metadata() or ())
                reason = refusal_in(failure).reason if "grpc-status-details-bin" in trailing else failure.code().name
                if reason not in PASSING:
                    raise
                self.refusals[reason] += 1
                await asyncio.sleep(0.02)


PASSING = {
    "NOT_LEADER", "LEADER_NOT_READY", "LEADER_TRANSFERRING", "TERM_CHANGED", "WAIT_QUORUM_ACK_TIMEOUT",
    "SHUTTING_DOWN", "DEADLINE_EXCEEDED",
}  # fmt: skip


async def test_kill_9_of_the_leader_amid_appends_at_one_follower_loses_nothing_and_doubles_nothing(
    nodes: Nodes, tell: Tell
) -> None:
    door = (await nodes.followers())[0]
    writers = [Writer(nodes[door], name) for name in range(WRITERS)]
    tasks = [asyncio.ensure_future(writer.run()) for writer in writers]
    kills = 0
    while kills < KILLS:
        before = sum(len(writer.acknowledged) for writer in writers)

        async def more(before: int = before) -> bool:
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
            return sum(len(writer.acknowledged) for writer in writers) >= before + APPENDS_BETWEEN

        await eventually(more, "appends go on")
        leader = await nodes.leader()
        if leader == door:
            await nodes[door].admin.TransferLeadership(admin_pb2.TransferLeadershipRequest(), timeout=CALL_TIMEOUT_S)
            continue
        await nodes.cluster.kill(leader)
        kills += 1
        await eventually(more, "appends go on")
        await nodes.restart(leader)
    for writer in writers:
        writer.is_wanted = False
    await asyncio.gather(*tasks)
    request = log_pb2.ReadRecordsRequest()
    answers = await everything(nodes[door].log.ReadRecords(request, timeout=CALL_TIMEOUT_S))
    held = [(each.entry.value, each.entry.index) for each in answers]
    times = Counter(value for value, _ in held)
    acknowledged = {record: index for writer in writers for record, index in writer.acknowledged.items()}
    tell(f"{len(acknowledged)} appends through {door}; {sum((writer.refusals for writer in writers), Counter())}")
    assert {record: index for record, index in held if record in acknowledged} == acknowledged
    assert {times[record] for record in acknowledged} == {1}
