"""The store without an event loop, against a server of another process."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import dledger
from dledger import BlockingStore, Compare, Op, Store
from dledger.common.errors import DLedgerError, LeaseLost
from tests.etcd.servers import ours


@pytest.fixture
def cluster() -> Iterator[dledger.BlockingCluster]:
    with ours() as address, dledger.connect_cluster_blocking(address, timeout_ms=5_000) as cluster:
        yield cluster


@pytest.fixture
def store(cluster: dledger.BlockingCluster) -> BlockingStore:
    return cluster.store()


def test_it_has_the_methods_of_the_store() -> None:
    own = {"close", "end", "read"}
    public = {name for name in vars(Store) if not name.startswith("_")} - own
    assert public <= set(vars(BlockingStore))
    for name in public - {"lock"}:
        theirs = inspect.signature(getattr(Store, name)).parameters
        assert theirs == inspect.signature(getattr(BlockingStore, name)).parameters, name


def test_keys_are_read_and_changed(store: BlockingStore) -> None:
    assert store.put("a", "1") == 2
    found = store.get("a")
    assert found is not None
    assert found.value == b"1"
    assert store.txn([Compare.value("a", "==", "1")], [Op.put("b", "2")]).succeeded
    assert [pair.key for pair in store.range()] == [b"a", b"b"]
    assert [len(page) for page in store.pages()] == [2]
    assert store.delete(prefix="a").deleted == 1
    assert store.count() == 1
    store.compact(3)
    assert store.status().compact_revision == 3


def test_threads_share_a_store(store: BlockingStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        revisions = list(pool.map(lambda number: store.put(f"k{number}", ""), range(100)))
    assert sorted(revisions) == list(range(2, 102))


def test_a_watch_is_a_loop(store: BlockingStore) -> None:
    with store.watch(prefix="a") as watch:
        store.put("a1", "1")
        store.put("a2", "2")
        seen: list[bytes] = []
        for batch in watch:
            seen += [event.value for event in batch]
            if len(seen) == 2:
                break
    assert seen == [b"1", b"2"]


def test_closing_a_watch_releases_the_thread_that_waits(store: BlockingStore) -> None:
    watch = store.watch("a")
    watch.started()
    seen: list[object] = []
    waiting = threading.Thread(target=lambda: seen.extend(watch))
    waiting.start()
    watch.close()
    waiting.join(timeout=20)
    assert not waiting.is_alive()
    assert not seen


def test_a_lease_is_kept_alive_while_its_thread_works(store: BlockingStore) -> None:
    with store.lease(60) as lease:
        store.put("a", "1", lease=lease)
        assert lease.is_alive
        lease.check()
        assert store.leases() == [lease.id]
        assert store.lease_times(lease, keys=True).keys == (b"a",)
        assert store.keep_lease_alive(lease) == lease.ttl_s
    assert store.get("a") is None


def test_a_lease_that_is_lost_ends_its_block_with_an_error(store: BlockingStore) -> None:
    lease = store.lease(2).__enter__()
    store.revoke_lease(lease)
    lease.lost()
    with pytest.raises(LeaseLost):
        lease.__exit__(None, None, None)


def test_a_lock_keeps_others_out(store: BlockingStore) -> None:
    with store.lock("job") as lock:
        assert lock.is_held
        assert store.txn([lock.compare], [Op.put("a", "1")]).succeeded
        with pytest.raises(DLedgerError, match="not free"):
            store.lock("job", wait_ms=50).__enter__()
        lock.check()
    with store.lease(10) as lease, store.lock("job", lease=lease) as again:
        assert again.token > lock.token
        assert again.key == b"job/%x" % lease.id


def test_an_election_has_a_leader(store: BlockingStore) -> None:
    election = store.election("boss")
    with election.campaign("one") as leadership:
        leadership.proclaim("two")
        leader = election.leader()
        assert leader is not None
        assert (leader.value, leader.create_revision) == (b"two", leadership.token)
        assert next(iter(election.observe())) == leader
    assert election.leader() is None


def test_a_closed_client_serves_no_store(cluster: dledger.BlockingCluster, store: BlockingStore) -> None:
    cluster.close()
    with pytest.raises(DLedgerError, match="not open"):
        store.get("a")
