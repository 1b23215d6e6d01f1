"""The beginning and the end of a Node: once each, and whole whatever fails."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dledger.common.batch import Buffer
from dledger.common.config import NodeConfig
from dledger.common.errors import Code, ConfigError, DiskError, DLedgerError, error
from dledger.common.types import NodeId, Term
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.group.hard_state import HardState, HardStateStore
from dledger.node import node as node_module
from dledger.node.identity import Identity, open_identity
from dledger.node.node import Node
from dledger.rpc.server.refusals import typed_refusal


def node_at(data_dir: Path) -> Node:
    return Node(NodeConfig(id="n0", peers={"n0": "127.0.0.1:1", "n1": "127.0.0.1:11"}, data_dir=data_dir))


async def test_a_stop_that_fails_closes_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_at(tmp_path)
    await node.open()

    async def fail() -> None:
        raise error(Code.DISK_ERROR, "injected")

    monkeypatch.setattr(node.replica("").log, "close", fail)
    with pytest.raises(DiskError, match="injected"):
        await node.stop()
    again = node_at(tmp_path)  # the lock is free
    await again.open()
    await again.stop()


async def test_a_stop_that_is_given_up_waits_for_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs must not keep a host program from ending, nor be taken over while its writes may yet land."""
    node, hung = node_at(tmp_path), asyncio.Event()

    async def hang() -> None:
        await hung.wait()

    await node.open()
    node._keep(hang(), "hangs")
    with monkeypatch.context() as patched:
        patched.setattr(node.replica("").log, "close", hang)
        stopping = asyncio.create_task(node.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])
    with pytest.raises(ConfigError, match="in use"):
        await node_at(tmp_path).open()
    hung.set()
    await node.replica("").log.close()
    await node._free_directory()


@pytest.mark.parametrize("step", ["open_identity", "begin_start"])
async def test_a_stop_during_the_start_waits_for_what_is_opened_and_closes_it(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another task than the one that starts it."""
    node, is_there, goes_on = node_at(tmp_path), asyncio.Event(), asyncio.Event()
    owner = node_module if step == "open_identity" else Identity
    real = getattr(owner, step)

    async def slow(*args: object) -> object:
        result = await real(*args)
        is_there.set()
        await goes_on.wait()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, slow)
        starting = asyncio.create_task(node.start())
        await is_there.wait()
        stopping = asyncio.create_task(node.stop())
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(DLedgerError, match="stopped while it started"):
            await starting
        await stopping
    again = node_at(tmp_path)  # the lock is free
    await again.open()
    await again.stop()


async def test_a_start_whose_port_is_taken_is_none(tmp_path: Path) -> None:
    """Else a service that is started again and again would use up the nonces that prove where it comes from."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="cannot listen"):
            await Node(NodeConfig(id="n0", peers={"n0": address}, data_dir=tmp_path)).start()
    identity = await open_identity(OsDisk(), tmp_path, NodeId("n0"), Random(7))
    assert identity.start.start_count == 0
    await identity.close()


async def test_a_node_is_started_once(tmp_path: Path) -> None:
    node = node_at(tmp_path)
    await node.open()
    with pytest.raises(ConfigError, match="started once"):
        await node.start()
    assert node.replica("").failure is None, "and the one that runs is not stopped by it"
    await node.stop()
    with pytest.raises(ConfigError, match="started once"):
        await node.start()


def test_a_data_directory_that_is_no_path_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give a pathlib\.Path"):
        node_at("/data")  # type: ignore[arg-type]  # what a host program may give


@pytest.mark.parametrize("code", [Code.CORRUPT_LOG, Code.DIVERGED])
def test_a_damaged_log_sends_the_caller_to_another_node(code: Code) -> None:
    refusal = typed_refusal(error(code, "seg is damaged"))
    assert refusal.code is Code.SHUTTING_DOWN
    assert "seg is damaged" in str(refusal)


class SlowDisk(OsDisk):
    """Slow to write the votes, once it is told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self._votes: set[int] = set()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        handle = super().open(path, create=create, exclusive=exclusive, read_only=read_only)
        (self._votes.add if path.endswith("hard_state") else self._votes.discard)(handle)
        return handle

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        if handle in self._votes:
            self.has_begun.set()
            self.may_go_on.wait(30)
        super().pwritev(handle, buffers, offset)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_a_node_that_stops_while_it_votes(data_dir: Path, disk: SlowDisk) -> None:
    async def run() -> None:
        config = NodeConfig(id="n0", peers={"n0": f"127.0.0.1:{unused_port()}"}, data_dir=data_dir)
        node = Node(config, disk=disk)
        await node.start()
        await asyncio.to_thread(disk.has_begun.wait, 10)
        await node.stop()

    asyncio.run(run())


async def test_nobody_else_gets_the_directory_while_votes_are_written(tmp_path: Path) -> None:
    disk = SlowDisk()
    life = threading.Thread(target=run_a_node_that_stops_while_it_votes, args=(tmp_path, disk))
    life.start()
    try:
        await asyncio.to_thread(disk.has_begun.wait, 10)
        promised = HardState(Term(5), NodeId("n1"))
        for _ in range(100):
            await asyncio.sleep(0.03)
            try:
                identity = await open_identity(OsDisk(), tmp_path, NodeId("n0"), Random(1))
            except ConfigError:
                continue  # in use
            store = await HardStateStore.open(OsDisk(), tmp_path / "groups" / "default")
            await store.save(promised)
            disk.may_go_on.set()
            await asyncio.to_thread(life.join)
            await identity.close()
            kept = (await HardStateStore.open(OsDisk(), tmp_path / "groups" / "default")).state
            assert kept == promised, "what was promised is written over by the life before"
    finally:
        disk.may_go_on.set()
        await asyncio.to_thread(life.join)
