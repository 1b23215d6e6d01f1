"""Leases that expire: when, is each server's own affair. What goes then, and how a watch is told of it, is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.etcd.client import Client
from tests.etcd.operations import Operation
from tests.etcd.servers import etcd, ours
from tests.etcd.stubs import rpc

pytestmark = pytest.mark.timeout(120)

LEASE = 77


@pytest.fixture(params=[etcd, ours], ids=["etcd", "ours"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with request.param() as address:
        client = Client(address)
        yield client
        client.close()


def do(client: Client, kind: str, request: object) -> object:
    operation = Operation(kind, request)  # type: ignore[arg-type]
    answer = client.end(operation, client.begin(operation))
    assert answer.status == "OK", answer
    return answer.message


def test_a_lease_takes_its_keys_with_it_in_one_revision(client: Client) -> None:
    granted = do(client, "LeaseGrant", rpc.LeaseGrantRequest(ID=LEASE, TTL=1))
    assert granted.TTL == 2, "a shorter one is raised to it"  # type: ignore[attr-defined]
    for key in (b"b", b"a", b"c"):
        do(client, "Put", rpc.PutRequest(key=key, lease=LEASE))
    client.now.create(rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", watch_id=5))
    client.now.catch_up(client.revision + 1)
    assert client.now.transcripts()[5][1:] == [
        f'type: DELETE kv {{ key: "{key}" mod_revision: {client.revision + 1} }}' for key in "abc"
    ]
    left = do(client, "LeaseTimeToLive", rpc.LeaseTimeToLiveRequest(ID=LEASE))
    assert left.TTL == -1  # type: ignore[attr-defined]
    alive = do(client, "LeaseKeepAlive", rpc.LeaseKeepAliveRequest(ID=LEASE))
    assert alive.TTL == 0  # type: ignore[attr-defined]


def test_a_lease_that_is_kept_alive_stays(client: Client) -> None:
    do(client, "LeaseGrant", rpc.LeaseGrantRequest(ID=LEASE, TTL=2))
    do(client, "LeaseGrant", rpc.LeaseGrantRequest(ID=LEASE + 1, TTL=4))
    do(client, "Put", rpc.PutRequest(key=b"kept", lease=LEASE))
    do(client, "Put", rpc.PutRequest(key=b"gone", lease=LEASE + 1))
    for _ in range(100):
        do(client, "LeaseKeepAlive", rpc.LeaseKeepAliveRequest(ID=LEASE))
        found = do(client, "Range", rpc.RangeRequest(key=b"\0", range_end=b"\0"))
        keys = [each.key for each in found.kvs]  # type: ignore[attr-defined]
        if b"gone" not in keys:
            break
        client.now.wait_for_more(0.1)
    assert keys == [b"kept"]
