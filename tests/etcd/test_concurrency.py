"""Our locks and elections beside those of etcd's Go package ``concurrency``, which etcdctl uses: one queue."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE

import pytest

import dledger
from dledger import BlockingStore
from tests.etcd.programs import program
from tests.etcd.servers import ours

SAY = "import os; print(os.environ['ETCD_LOCK_KEY'], os.environ['ETCD_LOCK_REV'])"
HOLD = "import time; print(1, flush=True); time.sleep(1)"


@pytest.fixture
def address() -> Iterator[str]:
    with ours() as address:
        yield address


@pytest.fixture
def store(address: str) -> Iterator[BlockingStore]:
    with dledger.connect_cluster_blocking(address) as cluster:
        yield cluster.store()


@contextmanager
def etcdctl(address: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(program("etcdctl")), f"--endpoints={address}", *arguments]
    with subprocess.Popen(command, stdout=PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def until_waiting(store: BlockingStore, name: str, count: int) -> None:
    """Returns when so many stand in the queue."""
    with store.watch(prefix=f"{name}/") as watch:
        batches = iter(watch)
        while store.count(prefix=f"{name}/") < count:
            next(batches)


def test_etcds_client_waits_for_a_lock_of_ours(store: BlockingStore, address: str) -> None:
    lock = store.lock("job").__enter__()
    token = lock.token
    with etcdctl(address, "lock", "job", "--", sys.executable, "-c", SAY) as theirs:
        until_waiting(store, "job", 2)
        assert theirs.poll() is None
        lock.__exit__(None, None, None)
        key, revision = first_line(theirs).decode().split()
        assert theirs.wait(timeout=30) == 0
    assert key.startswith("job/")
    assert int(revision) > token


def test_we_wait_for_a_lock_of_etcds_client(store: BlockingStore, address: str) -> None:
    with etcdctl(address, "lock", "job", "--ttl", "5", "--", sys.executable, "-c", HOLD) as theirs:
        assert first_line(theirs)
        held = store.range(prefix="job/")[0]
        taken = threading.Event()

        def take() -> None:
            with store.lock("job") as lock:
                assert lock.token > held.create_revision
                taken.set()

        taking = threading.Thread(target=take)
        taking.start()
        until_waiting(store, "job", 2)
        assert not taken.is_set()
        taking.join(timeout=30)
    assert taken.is_set()


def test_etcds_client_is_elected_behind_one_of_ours(store: BlockingStore, address: str) -> None:
    election = store.election("boss")
    with etcdctl(address, "elect", "--listen", "boss") as observer:
        leadership = election.campaign("ours").__enter__()
        assert first_line(observer).decode().strip() == leadership.key.decode()
        assert first_line(observer) == b"ours\n"
        with etcdctl(address, "elect", "boss", "theirs") as theirs:
            until_waiting(store, "boss", 2)
            leadership.proclaim("ours again")
            assert [first_line(observer), first_line(observer)][1] == b"ours again\n"
            leadership.__exit__(None, None, None)
            key = first_line(theirs).strip()
            leader = election.leader()
            assert leader is not None
            assert (leader.key, leader.value) == (key, b"theirs")
            assert leader.create_revision > 0
