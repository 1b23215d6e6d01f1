from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from dledger import client
from tests.unit.client.fake_server import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three nodes, of which the first leads."""
    cluster = FakeCluster()
    for _ in range(3):
        await cluster.add_node()
    cluster.lead(cluster.nodes[0])
    yield cluster
    for node in cluster.nodes:
        await node.stop()


@pytest.fixture
async def leap(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``leap(60)``: a minute has passed for this loop, at an event of the test's choice however busy the machine is."""
    loop = asyncio.get_running_loop()
    measured_s, ahead_s = loop.time, 0.0

    def leap(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    monkeypatch.setattr(loop, "time", lambda: measured_s() + ahead_s)
    return leap


@pytest.fixture
async def log(cluster: FakeCluster) -> AsyncIterator[client.Log]:
    async with client.connect(cluster.endpoints, timeout_ms=5_000, rng=random.Random(7)) as log:
        yield log
