"""The store of a node is served once it is there: after a start, and after its state was built anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.common.types import NodeId
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.headers import fill_header
from dledger.server.meta.meta_backend import MetaBackend
from dledger.server.meta.meta_store import MetaStore
from dledger.store.commands import command
from tests.unit.group.rot import until
from tests.unit.server.clusters import Cluster, running

ALL = rpc.RangeRequest(key=b"\0", range_end=b"\0")


def backend_of(cluster: Cluster, node_id: str) -> MetaBackend:
    node = cluster.nodes[node_id]
    return MetaBackend(node, node.meta)


async def put(cluster: Cluster, count: int) -> int:
    """Returns the revision of the last one."""
    revision = 0
    for at in range(count):
        request = command(rpc.PutRequest(key=b"k%d" % at))
        answer = await cluster.ask(lambda node, request=request: node.meta.runner.submit(request))  # type: ignore[misc]
        revision = answer.header.revision
    return revision


def is_served(backend: MetaBackend) -> bool:
    try:
        return bool(backend.store.pairs.revision)
    except Unavailable:
        return False


async def test_a_node_that_was_started_again_serves_nothing_before_it_has_what_was_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        revision = await put(cluster, 5)
        await cluster.stop("n2")
        cluster.is_told = False
        cluster.faults.partition([NodeId("n2")], [NodeId("n0"), NodeId("n1")])
        await cluster.start("n2")
        backend = backend_of(cluster, "n2")
        await asyncio.sleep(0.3)
        for look in (lambda: backend.store, lambda: backend.watches):
            with pytest.raises(DLedgerError) as refusal:
                look()
            assert refusal.value.code is Code.LEADER_NOT_READY
        cluster._network.heal()
        cluster.is_told = True
        await backend.until_there()
        assert backend.store.range(ALL).header.revision >= revision
        assert backend.watches.revision >= revision


async def test_a_state_that_is_built_anew_is_served_once_it_is_as_far_as_it_was(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        revision = await put(cluster, 5)
        backend = backend_of(cluster, "n1")
        await until(lambda: is_served(backend) and backend.store.pairs.revision >= revision)
        stream = backend.watches.open(lambda: None)
        stream.create(rpc.WatchCreateRequest(key=b"k0"))
        cluster.nodes["n1"].meta.runner.rebuild()
        assert not is_served(backend)
        await backend.until_there()
        assert backend.store.pairs.revision >= revision
        [created] = [stream.next() for _ in range(1)]
        assert created is not None
        assert created.header.revision >= revision
        assert not stream.is_ready, "nothing that was there before the watch"
        stream.close()


async def test_a_node_that_hears_no_leader_says_so_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.server.meta.meta_store.WAIT_S", 0.05)
    async with running(tmp_path) as cluster:
        await cluster.stop("n1", "n2")
        await cluster.stop("n0")
        await cluster.start("n0")
        backend = backend_of(cluster, "n0")
        with pytest.raises(DLedgerError) as refusal:
            await backend.until_there()
        assert refusal.value.code is Code.LEADER_NOT_READY


async def test_the_directory_of_groups_does_not_wait_until_the_store_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot ask the leader has its groups all the same, and no group is said to be missing that is not."""
    never = asyncio.Event()

    async def ask(_: MetaStore) -> None:
        await never.wait()

    monkeypatch.setattr(MetaStore, "_learn_least", ask)
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        assert {entry.name for entry in await cluster.ask(lambda node: node.directory.groups())} == {
            "default",
            "orders",
        }
        assert not any(is_served(backend_of(cluster, node_id)) for node_id in cluster.nodes)


async def test_who_waits_for_a_state_that_a_trim_overtook_lets_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as cluster:
        await put(cluster, 1)
        backend, runner = backend_of(cluster, "n1"), cluster.nodes["n1"].meta.runner
        await backend.until_there()
        monkeypatch.setattr("dledger.server.meta.meta_store.WAIT_S", 0.05)
        monkeypatch.setattr(runner, "_applier", None)
        with pytest.raises(Unavailable):
            await backend.until_there()


async def test_what_was_carried_out_is_answered_also_where_the_group_fails_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as cluster:
        await put(cluster, 1)
        node = cluster.nodes["n1"]
        backend, term = backend_of(cluster, "n1"), node.meta.replica().term
        await backend.until_there()

        def failed(_group: str) -> NoReturn:
            raise error(Code.DISK_ERROR, "the disk failed")

        monkeypatch.setattr(node, "replica", failed)
        answer = rpc.PutResponse(header=rpc.ResponseHeader(revision=7))
        fill_header(backend, answer)
        assert (answer.header.revision, answer.header.raft_term) == (7, term)
