"""The beginning and the end of a Node: once each, and whole whatever fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.config import NodeConfig
from dledger.errors import Code, ConfigError, DiskError, error
from dledger.server.node import Node
from dledger.server.rpc import typed_refusal


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
