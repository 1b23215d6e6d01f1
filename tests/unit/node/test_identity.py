"""Whose data directory it is, and which groups are in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dledger.common.batch import Buffer
from dledger.common.errors import Code, ConfigError, CorruptLog, DLedgerError
from dledger.common.types import MAX_START_NONCES, NodeId, NodeStart
from dledger.disk.disk import OsDisk
from dledger.disk.record import RecordKind, pack_record
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import SLOT_BYTES
from dledger.node.identity import Identity, open_identity
from dledger.v1.storage_pb2 import IdentityRecord

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


async def test_which_groups_are_here_outlasts_restarts(tmp_path: Path) -> None:
    identity = await start(tmp_path)
    await identity.keep_group("orders.7")
    await identity.keep_group("bills.9")
    await identity.keep_group("orders.7")
    await identity.close()
    identity = await start(tmp_path)
    assert identity.groups == ("orders.7", "bills.9")
    await identity.close()


async def test_a_removed_group_is_remembered_as_removed(tmp_path: Path) -> None:
    identity = await start(tmp_path)
    await identity.keep_group("orders.7")
    for _ in range(2):
        await identity.remove_group("orders.7")
    await identity.close()
    identity = await start(tmp_path)
    assert identity.groups == ()
    assert identity.removed_groups == ("orders.7",)
    await identity.close()


async def test_a_directory_of_the_first_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    record = IdentityRecord(node_id=N0, node_uuid=b"u" * 16, start_count=3, groups_of_first_format=["default"])
    stored = pack_record(RecordKind.IDENTITY, 1, record.SerializeToString())
    (tmp_path / "identity").write_bytes(stored.ljust(SLOT_BYTES, b"\0") * 2)
    with pytest.raises(DLedgerError, match="start a new cluster") as refused:
        await start(tmp_path)
    assert refused.value.code is Code.UNSUPPORTED_VERSION


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
