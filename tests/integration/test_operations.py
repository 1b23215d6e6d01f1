"""What operators and their tools look at: health, reflection, /metrics, logs."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import urllib.request
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dledger.common.open_files import KEPT_BACK, WANTED_FILES
from dledger.server.etcd.services import SERVICE_NAMES
from dledger.server.store_service import STORE_SERVICE
from tests.integration.nodes import CALL_TIMEOUT_S, DEADLINE_S, Nodes, everything, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LOG_SERVICE = "dledger.v1.LogService"
SERVICES = {
    LOG_SERVICE,
    "dledger.v1.AdminService",
    STORE_SERVICE,
    *SERVICE_NAMES,
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    flags = ("--log-format", "json", "--log-level", "debug")
    async with running(tmp_path_factory.mktemp("operations"), serve_flags=flags) as started:
        yield started


# Metrics -------------------------------------------------------------------------------------------------------------


class Scrape:
    """One node's /metrics, as Prometheus reads it."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name that has these labels, and others perhaps."""
        [value] = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == f"dledger_{name}" and labels.items() <= sample.labels.items()
        ]
        return value


async def scrape(nodes: Nodes, node_id: str) -> Scrape:
    url = f"http://{nodes.cluster.nodes[node_id].http_address}/metrics"

    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=CALL_TIMEOUT_S) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            return str(response.read().decode())

    return Scrape(await asyncio.to_thread(fetch))


async def test_metrics_of_every_node_say_who_leads_and_how_far_the_log_is(nodes: Nodes) -> None:
    leader = await nodes.leader()
    for number in range(20):
        await nodes[leader].append(b"%d" % number)
    last_index, position, _, leader = await nodes.settled()
    term = (await nodes[leader].status()).term
    for node_id in nodes.ids:
        told = await scrape(nodes, node_id)
        expected = {
            "has_leader": 1,
            "is_leader": node_id == leader,
            "term": term,
            "first_index": 0,
            "commit_index": last_index,
            "last_index": last_index,
            "commit_position": position,
            "last_position": position,
            "proposals_pending": 0,
            "proposals_failed_total": 0,
            "leader_changes_total": 1,
            "records_appended_total": last_index + 1,
            "torn_bytes_cut_total": 0,
            "corruptions_found_total": 0,
        }
        labels = {"group": "default", "node": node_id}
        assert {name: told.value(name, **labels) for name in expected} == expected
        assert told.value("fsync_duration_seconds_count", **labels) > 0
        assert 0 < told.value("fsync_duration_seconds_sum", **labels) < 60
        assert told.value("bytes_appended_total", **labels) > 20 * 96


async def test_the_leaders_metrics_say_how_appends_and_followers_do(nodes: Nodes) -> None:
    _, position, _, leader = await nodes.settled()
    told = await scrape(nodes, leader)
    of_default = {"group": "default", "node": leader}
    assert told.value("proposals_committed_total", **of_default) == position
    assert told.value("append_duration_seconds_count", **of_default) == position
    assert told.value("append_duration_seconds_bucket", **of_default, le="+Inf") == position
    for follower in await nodes.followers():
        labels = {**of_default, "peer": follower}
        assert told.value("peer_connected", **labels) == 1
        assert told.value("follower_lag_frames", **labels) == 0
        assert told.value("peer_round_trip_seconds_count", **labels) > 0
        assert told.value("peer_round_trip_seconds_sum", **labels) < 60


async def test_reads_are_counted(nodes: Nodes) -> None:
    leader = await nodes.leader()
    await nodes[leader].append(b"to be read")
    before = await scrape(nodes, leader)
    await nodes[leader].get(0)
    after = await scrape(nodes, leader)
    for name in ("reads_total", "read_index_rounds_total"):
        assert after.value(name, group="default") == before.value(name, group="default") + 1


async def test_every_family_says_what_it_is_and_keeps_the_naming_rules(nodes: Nodes) -> None:
    told = await scrape(nodes, "n0")
    ours = [family for name, family in told.families.items() if name.startswith("dledger_")]
    assert len(ours) >= 25
    for family in ours:
        assert family.documentation, family.name
        assert family.type in {"gauge", "counter", "histogram"}, family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
    assert {"process_resident_memory_bytes", "python_info"} <= set(told.families)


# Reflection and health -----------------------------------------------------------------------------------------------


async def test_reflection_lists_the_services_and_describes_them(nodes: Nodes) -> None:
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(nodes["n0"].channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=LOG_SERVICE),
    ]
    listed, described = await everything(reflection.ServerReflectionInfo(iter(requests), timeout=CALL_TIMEOUT_S))
    assert {service.name for service in listed.list_services_response.service} == SERVICES
    assert b"AppendStreamRequest" in described.file_descriptor_response.file_descriptor_proto[0]


class Watch:
    """A health watch on one node, as a load balancer keeps it."""

    def __init__(self, nodes: Nodes, node_id: str) -> None:
        self._health: Any = health_pb2_grpc.HealthStub(nodes[node_id].channel)
        self._call = self._health.Watch(health_pb2.HealthCheckRequest(service=LOG_SERVICE))

    async def next(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return int((await self._call.read()).status)

    async def check(self, service: str = LOG_SERVICE) -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await self._health.Check(request, timeout=CALL_TIMEOUT_S)).status)

    def cancel(self) -> None:
        self._call.cancel()


async def test_every_node_serves_while_a_leader_is_known(nodes: Nodes) -> None:
    await nodes.leader()
    for node_id in nodes.ids:
        watch = Watch(nodes, node_id)
        assert await watch.next() == SERVING
        assert await watch.check() == SERVING
        assert await watch.check("") == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await watch.check("dledger.v1.NoService")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        watch.cancel()


@pytest.mark.parametrize("left", ["leader", "follower"])
async def test_a_node_without_a_majority_does_not_serve_until_it_is_back(nodes: Nodes, left: str) -> None:
    leader = await nodes.leader()
    alone = leader if left == "leader" else (await nodes.followers())[0]
    others = [node_id for node_id in nodes.ids if node_id != alone]
    watch = Watch(nodes, alone)
    assert await watch.next() == SERVING
    for other in others:
        nodes.signal(other, signal.SIGSTOP)
    assert await watch.next() == NOT_SERVING
    assert await watch.check() == NOT_SERVING
    assert await watch.check("") == SERVING
    status = await nodes[alone].status()
    assert (status.role != "leader", status.leader_id) == (True, "")
    assert (await scrape(nodes, alone)).value("has_leader", group="default") == 0
    for other in others:
        nodes.signal(other, signal.SIGCONT)
    assert await watch.next() == SERVING
    await nodes.leader()
    watch.cancel()


async def test_a_node_that_stops_says_so_before_it_goes(nodes: Nodes) -> None:
    [follower, _] = await nodes.followers()
    watch = Watch(nodes, follower)
    assert await watch.next() == SERVING
    stopping = asyncio.create_task(nodes.terminate(follower))
    assert await watch.next() == NOT_SERVING
    assert await stopping == [0]
    await nodes.restart(follower)


# Logs ----------------------------------------------------------------------------------------------------------------


async def test_logs_are_one_json_object_a_line(nodes: Nodes) -> None:
    leader = await nodes.leader()
    for node_id in nodes.ids:
        events = [json.loads(line) for line in nodes.log_of(node_id).splitlines()]
        for event in events:
            assert {"time", "level", "logger", "event"} <= set(event)
            assert datetime.fromisoformat(event["time"]).tzinfo is not None
            assert event["level"] in {"debug", "info", "warning", "error", "critical"}
            # Frozen by a test above with a sync under way, a node may take its disk for the one that stood still.
            assert event["level"] not in {"error", "critical"} or event.get("state") == "hung", event
        assert any(event["event"] == "serving" and event["node"] == node_id for event in events)
        last = [event for event in events if event["event"] == "role changed" and event["group"] == "default"][-1]
        assert (last["leader"], last["role"]) == (leader, "leader" if node_id == leader else "follower")


# The process ---------------------------------------------------------------------------------------------------------


async def test_a_node_takes_as_many_files_as_its_process_may_have_but_those_it_keeps_back(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    try:
        async with running(tmp_path, nodes=1) as alone:
            [pid] = alone.pids().values()
            taken, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert taken == min(hard, WANTED_FILES) - KEPT_BACK
