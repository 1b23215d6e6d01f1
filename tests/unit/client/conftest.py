from __future__ import annotations

import random
from collections.abc import AsyncIterator

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
async def log(cluster: FakeCluster) -> AsyncIterator[client.Log]:
    async with client.connect(cluster.endpoints, timeout_ms=5_000, rng=random.Random(7)) as log:
        yield log
