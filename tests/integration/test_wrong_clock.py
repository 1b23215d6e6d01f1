"""A real node under libfaketime, whose clock is ten years ahead: neither its records nor later ones have that time."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from dledger.v1 import admin_pb2
from tests.integration.nodes import CALL_TIMEOUT_S, DEADLINE_S, Nodes, eventually, running
from tests.support.lacking import cannot

LIBRARIES = "*/faketime/libfaketime.so.1"
TEN_YEARS = "+3650d"
MOST_AHEAD_S = 15.0
"""What a leader may stamp over the clocks of a majority, 10 s, and what a busy machine takes."""


def faketime() -> Path:
    found = next(Path("/usr/lib").glob(LIBRARIES), None)
    if found is None:
        cannot("libfaketime cannot be found: apt install faketime")
    return found


async def start_ten_years_ahead(nodes: Nodes, node_id: str, library: Path) -> None:
    fake = {"LD_PRELOAD": str(library), "FAKETIME": TEN_YEARS, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in fake.items():
            environment.setenv(name, value)
        await nodes.restart(node_id)


async def make_leader(nodes: Nodes, node_id: str) -> None:
    """A busy machine may need more than one attempt: each has the time of two elections."""
    await nodes.settled()

    async def leads() -> bool:
        if (leader := await nodes.leader()) == node_id:
            return True
        request = admin_pb2.TransferLeadershipRequest(target_id=node_id)
        with suppress(grpc.aio.AioRpcError):
            await nodes[leader].admin.TransferLeadership(request, timeout=CALL_TIMEOUT_S)
        return False

    await eventually(leads, f"{node_id} leads", 2 * DEADLINE_S)


async def seconds_ahead(nodes: Nodes) -> float:
    """Of a record that is appended now, over this machine's clock."""
    answer = await nodes[await nodes.leader()].append(b"x")
    return answer.timestamp_ms / 1000 - time.time()


@pytest.mark.timeout(120)
async def test_a_leader_ten_years_ahead_says_so_and_leaves_no_record_of_that_time(tmp_path: Path) -> None:
    library = faketime()
    async with running(tmp_path) as nodes:
        [wrong, *_] = await nodes.followers()
        await nodes.terminate(wrong)
        await start_ten_years_ahead(nodes, wrong, library)
        await make_leader(nodes, wrong)
        assert await seconds_ahead(nodes) < MOST_AHEAD_S

        async def is_told_of() -> bool:
            return "this leader's clock is ahead" in nodes.log_of(wrong)

        await eventually(is_told_of, "the leader says that its clock is ahead")
        status = await nodes[wrong].admin.Status(admin_pb2.StatusRequest(), timeout=CALL_TIMEOUT_S)
        assert status.clock_ahead_ms > 3_600 * 86_400_000
        await nodes.terminate(wrong)
        await nodes.restart(wrong)
        assert await seconds_ahead(nodes) < MOST_AHEAD_S
