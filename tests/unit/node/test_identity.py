"""Whose data directory it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dledger.common.batch import Buffer
from dledger.common.errors import Code, ConfigError, CorruptLog, DLedgerError
from dledger.common.types import MAX_START_NONCES, Durability, LogPoint, NodeId, NodeStart, Position, Term
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.node.identity import Identity, open_identity

N0, N1 = NodeId("n0"), NodeId("n1")


async def start(directory: Path, node_id: NodeId = N0) -> Identity:
    identity = await open_identity(OsDisk(), directory, node_id, Random(7))
    await identity.begin_start()
    return identity


async def test_every_start_raises_the_counter_and_keeps_the_uuid(tmp_path: Path) -> None:
    first, second = await starts(tmp_path, 2)
    assert (first.start_count, second.start_count) == (1, 2)
    assert first.node_uuid == second.node_uuid


async def starts(directory: Path, count: int) -> list[NodeStart]:
    """One after the other."""
    seen = []
    for at in range(count):
        identity = await open_identity(OsDisk(), directory, N0, Random(at))
        await identity.begin_start()
        seen.append(identity.start)
        await identity.close()
    return seen


async def test_a_start_knows_the_nonces_of_those_before_it(tmp_path: Path) -> None:
    first, second, third = await starts(tmp_path, 3)
    assert [third.nonce_of(at) for at in range(5)] == [
        None,
        first.start_nonces[-1],
        second.start_nonces[-1],
        third.start_nonces[-1],
        None,
    ]


async def test_of_very_many_starts_the_last_nonces_are_kept(tmp_path: Path) -> None:
    identity = await open_identity(OsDisk(), tmp_path, N0, Random(7))
    for _ in range(MAX_START_NONCES + 1):
        await identity.begin_start()
    await identity.close()
    last = (await starts(tmp_path, 1))[0]
    assert len(last.start_nonces) == MAX_START_NONCES
    assert last.nonce_of(3) is not None
    assert last.nonce_of(2) is None


async def test_where_the_log_was_cut_first_is_kept_until_it_is_known_what_was_there(tmp_path: Path) -> None:
    cut_behind = LogPoint(Position(7), Term(2), 3)
    identity = await start(tmp_path)
    await identity.lose_tail(cut_behind)
    await identity.close()
    identity = await start(tmp_path)
    assert identity.tail_is_unknown
    assert identity.cut_behind == cut_behind
    await identity.tail_is_known()
    await identity.close()
    identity = await start(tmp_path)
    assert not identity.tail_is_unknown
    assert identity.cut_behind is None
    await identity.close()


async def test_a_start_that_never_spoke_is_none(tmp_path: Path) -> None:
    """Else a node that fails to start, again and again, would use up the nonces that prove where it comes from."""
    (before,) = await starts(tmp_path, 1)
    silent = await open_identity(OsDisk(), tmp_path, N0, Random(7))
    await silent.close()
    (after,) = await starts(tmp_path, 1)
    assert after.start_count == 2
    assert after.nonce_of(1) == before.start_nonces[-1]


async def test_a_directory_in_use_is_refused_with_its_holder(tmp_path: Path) -> None:
    holder = await start(tmp_path)
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
        await start(tmp_path)
    await holder.close()


async def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    await (await start(tmp_path)).close()
    with pytest.raises(ConfigError, match="belongs to node 'n0'"):
        await start(tmp_path, N1)


async def test_a_refused_start_leaves_the_directory_free(tmp_path: Path) -> None:
    await (await start(tmp_path)).close()
    with pytest.raises(ConfigError):
        await start(tmp_path, N1)
    await (await start(tmp_path)).close()


async def test_groups_without_an_identity_are_damage(tmp_path: Path) -> None:
    (tmp_path / "groups").mkdir()
    with pytest.raises(CorruptLog):
        await start(tmp_path)


async def test_a_directory_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        await start(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EIO, Code.DISK_ERROR), (errno.ENOSPC, Code.DISK_FULL), (errno.EROFS, Code.CONFIG_ERROR)]
)
async def test_a_disk_that_fails_is_told_from_a_directory_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: Code
) -> None:
    def refuse(*_: object, **__: object) -> Handle:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(OsDisk, "open", refuse)
    with pytest.raises(DLedgerError, match=os.strerror(number)) as refused:
        await start(tmp_path)
    assert refused.value.code is code


class Machine(OsDisk):
    """A machine that can lose its memory."""

    def __init__(self, boot: str) -> None:
        super().__init__()
        self._boot = boot

    def boot_id(self) -> str:
        return self._boot


async def start_on(boot: str, directory: Path, durability: Durability) -> Identity:
    identity = await open_identity(Machine(boot), directory, N0, Random(7), durability)
    await identity.close()
    return identity


async def test_a_process_that_died_alone_owes_nothing(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.INTERVAL)
    assert not (await start_on("first", tmp_path, Durability.INTERVAL)).owes_catch_up


async def test_lost_memory_without_fsync_is_a_debt_that_restarts_do_not_settle(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.INTERVAL)
    for _ in range(2):  # nobody looks into the log
        found = await start_on("second", tmp_path, Durability.INTERVAL)
        assert (found.owes_catch_up, found.debt_is_new) == (True, True)
    await found.owe_catch_up()
    again = await start_on("second", tmp_path, Durability.FSYNC)
    assert (again.owes_catch_up, again.debt_is_new) == (True, False)


async def test_what_was_written_without_fsync_is_a_debt_until_the_log_is_synced(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.NONE)
    await start_on("first", tmp_path, Durability.FSYNC)
    assert (await start_on("second", tmp_path, Durability.FSYNC)).owes_catch_up


async def test_a_log_that_was_synced_is_as_this_start_is_configured(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.NONE)
    synced = await start_on("first", tmp_path, Durability.FSYNC)
    synced.log_is_synced()
    await synced.begin_start()
    assert not (await start_on("second", tmp_path, Durability.FSYNC)).owes_catch_up


async def test_a_settled_debt_stays_settled(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.NONE)
    await (await start_on("second", tmp_path, Durability.NONE)).settle_debt()
    assert not (await start_on("second", tmp_path, Durability.NONE)).owes_catch_up


async def test_what_was_written_under_fsync_owes_nothing_whatever_follows(tmp_path: Path) -> None:
    await start_on("first", tmp_path, Durability.FSYNC)
    assert not (await start_on("second", tmp_path, Durability.INTERVAL)).owes_catch_up


class FullDisk(OsDisk):
    """Has no room for a byte more."""

    is_full = False

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        if self.is_full and offset + sum(map(len, buffers)) > self.size(handle):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().pwritev(handle, buffers, offset)


async def test_a_full_disk_does_not_keep_a_node_from_starting(tmp_path: Path) -> None:
    await (await start(tmp_path)).close()
    (tmp_path / "LOCK").write_bytes(b"")
    disk = FullDisk()
    disk.is_full = True
    again = await open_identity(disk, tmp_path, N0, Random(7))
    await again.begin_start()
    assert again.start.start_count == 2
    await again.close()
