"""A cut of ``python -m tests.etcd``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.etcd.client import Client
from tests.etcd.episode import play
from tests.etcd.operations import Operation, generate
from tests.etcd.servers import cluster, etcd, ours
from tests.etcd.stubs import rpc

OPERATIONS = 1_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_random_operations_have_etcds_answers(seed: int) -> None:
    assert play(generate(seed, OPERATIONS), etcd, ours) is None


@pytest.mark.timeout(300)
def test_the_judge_is_of_one_mind_with_itself() -> None:
    assert play(generate(14, OPERATIONS), etcd, etcd) is None


@contextmanager
def etcd_with_a_key() -> Iterator[str]:
    with etcd() as address:
        client = Client(address)
        put = Operation("Put", rpc.PutRequest(key=b"foreign"))
        client.end(put, client.begin(put))
        client.close()
        yield address


@pytest.mark.timeout(300)
def test_the_judge_sees_a_store_with_one_key_more() -> None:
    assert play(generate(15, 50), etcd, etcd_with_a_key) is not None


@pytest.mark.timeout(300)
def test_a_follower_of_a_cluster_has_etcds_answers() -> None:
    assert play(generate(16, OPERATIONS // 2), etcd, cluster) is None
