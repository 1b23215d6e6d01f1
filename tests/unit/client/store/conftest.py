from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from dledger import client
from dledger.client.store import Store
from tests.support.store_nodes import StoreNodes, TroubledBackend

TIMEOUT_MS = 5_000


@pytest.fixture
async def nodes() -> AsyncIterator[StoreNodes]:
    nodes = StoreNodes()
    await nodes.start()
    yield nodes
    await nodes.stop()


@pytest.fixture
def backend(nodes: StoreNodes) -> TroubledBackend:
    return nodes.backend


@pytest.fixture
async def cluster(nodes: StoreNodes) -> AsyncIterator[client.Cluster]:
    async with client.connect_cluster(nodes.endpoints, timeout_ms=TIMEOUT_MS, rng=random.Random(7)) as cluster:
        yield cluster


@pytest.fixture
async def store(cluster: client.Cluster) -> Store:
    return cluster.store()
