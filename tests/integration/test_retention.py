"""Logs of real nodes that lose their beginning, and a node that was away meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from dledger.common.config import MIB
from dledger.v1 import admin_pb2, log_pb2
from tests.integration.load import Load
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, eventually, everything, refusal_of, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORD = bytes(64 * 1024)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    data = tmp_path_factory.mktemp("retention")
    config = data / "segments.toml"
    config.write_text(f"[limits]\nsegment_max_bytes = {MIB}\n")
    async with running(data, serve_flags=["--config", str(config)]) as started:
        yield started


async def fill(nodes: Nodes, leader: str, count: int) -> int:
    """The index of the last record."""
    answers = [await nodes[leader].append(RECORD) for _ in range(count)]
    return answers[-1].base_index


async def trim(nodes: Nodes, leader: str, before_index: int) -> admin_pb2.TrimResponse:
    return await nodes[leader].admin.Trim(admin_pb2.TrimRequest(before_index=before_index), timeout=CALL_TIMEOUT_S)


async def set_retention(nodes: Nodes, leader: str, max_bytes: int) -> None:
    request = admin_pb2.SetRetentionRequest(max_bytes=max_bytes)
    await nodes[leader].admin.SetRetention(request, timeout=CALL_TIMEOUT_S)


def segments(nodes: Nodes, node_id: str) -> int:
    return len(list(nodes.cluster.nodes[node_id].data_dir.glob("groups/default/*.log")))


async def test_a_trim_takes_the_same_from_every_node_and_says_where_the_log_begins(nodes: Nodes) -> None:
    leader = await nodes.leader()
    last = await fill(nodes, leader, 100)
    before = {node_id: segments(nodes, node_id) for node_id in nodes.ids}
    answer = await trim(nodes, leader, last - 20)
    assert last - 60 < answer.first_index <= last - 20
    assert answer.trimmed_bytes > 0

    async def trimmed_everywhere() -> bool:
        fewer = all(segments(nodes, node_id) < before[node_id] - 2 for node_id in nodes.ids)
        return fewer and {status.first_index for status in await nodes.statuses()} == {answer.first_index}

    await eventually(trimmed_everywhere, "every node has trimmed its log")
    for node_id in nodes.ids:
        request = log_pb2.ReadRequest(start_index=0, consistency=log_pb2.CONSISTENCY_COMMITTED)
        refusal = await refusal_of(everything(nodes[node_id].log.Read(request, timeout=CALL_TIMEOUT_S)))
        assert refusal.status is grpc.StatusCode.OUT_OF_RANGE
        assert refusal.reason == "INDEX_LESS_THAN_LOCAL_BEGIN"
        assert refusal.metadata["first_index"] == str(answer.first_index)


async def test_a_follower_that_was_away_past_the_trim_point_is_reset_and_equal_again_under_load(nodes: Nodes) -> None:
    away = (await nodes.followers())[0]
    await nodes.cluster.kill(away)
    async with Load(nodes.cluster.endpoints) as load:
        leader = await nodes.leader()
        last = await fill(nodes, leader, 100)
        first_index = (await trim(nodes, leader, last)).first_index
        await nodes.restart(away)
        await load.next_ack()
    await nodes.settled()
    assert (await nodes[away].status()).first_index == first_index
    assert "begins anew" in nodes.log_of(away)
    await nodes.cluster.kill(away)
    await nodes.restart(away)
    await nodes.settled()
    assert (await nodes[away].status()).first_index == first_index


async def test_a_policy_by_size_keeps_every_log_near_it_while_appends_go_on(nodes: Nodes) -> None:
    leader = await nodes.leader()
    await set_retention(nodes, leader, 4 * MIB)
    await fill(nodes, leader, 200)

    async def small_everywhere() -> bool:
        return all(status.log_size_bytes <= 6 * MIB for status in await nodes.statuses())

    await eventually(small_everywhere, "every log is near its limit")
    await set_retention(nodes, leader, 0)
    await nodes.settled()
