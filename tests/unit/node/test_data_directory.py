"""A data directory is whole, or it is refused: a node that began anew would vote against what it promised."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from dledger.common.batch import Buffer
from dledger.common.config import NodeConfig
from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import DEFAULT_GROUP, Member, NodeId, NodeStart
from dledger.disk.disk import Disk, OsDisk
from dledger.disk.syncer import Handle
from dledger.node.identity import open_identity
from dledger.node.node import Node
from tests.unit.log.harness import FullDisk


def config_of(data_dir: Path) -> NodeConfig:
    peers = {f"n{number}": f"127.0.0.1:{1 + 10 * number}" for number in range(3)}
    return NodeConfig(id="n0", peers=peers, data_dir=data_dir)


async def opened(data_dir: Path, disk: Disk | None = None) -> None:
    """A start of a member of three that nobody hears of, and its stop."""
    node = Node(config_of(data_dir), disk=disk)
    try:
        await node.open()
    finally:
        await node.stop()


def remove_groups(data_dir: Path) -> None:
    shutil.rmtree(data_dir / "groups")


def remove_group(data_dir: Path) -> None:
    shutil.rmtree(data_dir / "groups" / "default")


def remove_log(data_dir: Path) -> None:
    for path in (data_dir / "groups" / "default").iterdir():
        if path.name not in ("hard_state", "group"):
            path.unlink()


def remove_hard_state(data_dir: Path) -> None:
    (data_dir / "groups" / "default" / "hard_state").unlink()


def remove_record(data_dir: Path) -> None:
    (data_dir / "groups" / "default" / "group").unlink()


@pytest.mark.parametrize("remove", [remove_groups, remove_group, remove_log, remove_hard_state, remove_record])
async def test_a_directory_that_lost_its_group_is_damage_not_a_new_one(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    await opened(tmp_path)
    remove(tmp_path)
    for _ in range(2):  # the refusal must not make what the next start would take for its own
        with pytest.raises(DLedgerError, match="readmit") as refused:
            await opened(tmp_path)
        assert refused.value.code is Code.CORRUPT_LOG


async def test_a_directory_that_lost_the_book_of_its_peers_is_damage_once_the_node_has_spoken(tmp_path: Path) -> None:
    await opened(tmp_path)
    (tmp_path / "peers").unlink()
    await opened(tmp_path)  # nobody has heard of it yet
    identity = await open_identity(OsDisk(), tmp_path, NodeId("n0"), Random(1))
    await identity.begin_start()
    await identity.close()
    (tmp_path / "peers").unlink()
    for _ in range(2):
        with pytest.raises(CorruptLog, match="readmit"):
            await opened(tmp_path)


class SlowDisk(OsDisk):
    """Its first write to the book of peers waits to be let go."""

    def __init__(self, book: Path) -> None:
        super().__init__()
        self._book = book
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == self._book:
            self.has_begun.set()
            assert self.may_go_on.wait(10)
        super().pwritev(handle, buffers, offset)


def meet(node: Node) -> None:
    """Somebody whom the book does not have yet."""
    assert node._book is not None
    assert node._book.of(DEFAULT_GROUP).remember(Member(NodeId("n1"), "127.0.0.1:11"), NodeStart(b"u", 1, (1,)))


async def test_who_gives_up_waiting_for_the_book_of_peers_lets_no_second_writer_in_beside_the_first(
    tmp_path: Path,
) -> None:
    await opened(tmp_path)
    disk = SlowDisk(tmp_path / "peers")
    node = Node(config_of(tmp_path), disk=disk)
    await node.open()
    meet(node)
    impatient = asyncio.ensure_future(node.keep_peers())
    await asyncio.to_thread(disk.has_begun.wait, 10)
    disk.has_begun.clear()
    impatient.cancel()
    patient = asyncio.ensure_future(node.keep_peers())
    await asyncio.wait([impatient])
    assert not await asyncio.to_thread(disk.has_begun.wait, 0.2), "a second writer"
    disk.may_go_on.set()
    await patient
    await node.stop()


async def test_a_book_of_peers_that_did_not_change_needs_no_room(tmp_path: Path) -> None:
    await opened(tmp_path)
    disk = FullDisk()
    node = Node(config_of(tmp_path), disk=disk)
    await node.open()
    disk.is_full = True
    await node.keep_peers()
    disk.is_full = False
    await node.stop()


class DyingDisk(OsDisk):
    """Does so many more changes, and then none."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self._left = changes

    def _change(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        if create and not self.exists(path):
            self._change()
        return super().open(path, create=create, exclusive=exclusive, read_only=read_only)

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        self._change()
        super().pwritev(handle, buffers, offset)

    def fdatasync(self, handle: Handle) -> None:
        self._change()
        super().fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        self._change()
        super().fsync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def mkdir(self, path: str) -> None:
        self._change()
        super().mkdir(path)


async def test_a_first_start_that_ended_at_any_moment_is_begun_again(tmp_path: Path) -> None:
    for changes in range(200):
        data_dir = tmp_path / str(changes)
        try:
            await opened(data_dir, DyingDisk(changes))
        except (DLedgerError, OSError):
            await opened(data_dir)
        else:
            break
    assert changes > 20, "the start made less than it has to"
    assert changes < 199, "the start never came to its end"
