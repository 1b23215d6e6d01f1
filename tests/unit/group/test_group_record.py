"""What a group on one node may have lost: durable before it speaks, and its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import CorruptLog
from dledger.common.types import Durability, LogPoint, Member, NodeId, Position, Term
from dledger.disk.disk import OsDisk
from dledger.group.group_record import GROUP_RECORD_NAME, GroupRecord

GROUP = "orders.7"
FOUNDERS = (Member(NodeId("n0"), "h:1", node_uuid=b"u" * 16, admitted_start_count=3, admitted_start_nonce=9),)


class Machine(OsDisk):
    """A machine that can lose its memory."""

    def __init__(self, boot: str) -> None:
        super().__init__()
        self._boot = boot

    def boot_id(self) -> str:
        return self._boot


async def open_on(
    boot: str, directory: Path, durability: Durability = Durability.FSYNC, *, must_exist: bool = False
) -> GroupRecord:
    return await GroupRecord.open(
        Machine(boot), directory / GROUP, GROUP, durability, founders=FOUNDERS, must_exist=must_exist
    )


async def test_founders_are_kept_with_their_disks(tmp_path: Path) -> None:
    await open_on("first", tmp_path)
    again = await GroupRecord.open(OsDisk(), tmp_path / GROUP, GROUP, Durability.FSYNC)
    assert again.founders == FOUNDERS


async def test_where_the_log_was_cut_first_is_kept_until_it_is_known_what_was_there(tmp_path: Path) -> None:
    cut_behind = LogPoint(Position(7), Term(2), 3)
    record = await open_on("first", tmp_path)
    await record.lose_tail(cut_behind)
    record = await open_on("first", tmp_path)
    assert record.tail_is_unknown
    assert record.cut_behind == cut_behind
    await record.tail_is_known()
    record = await open_on("first", tmp_path)
    assert not record.tail_is_unknown
    assert record.cut_behind is None


async def test_a_start_that_ends_before_it_says_what_it_found_leaves_the_tail_unknown(tmp_path: Path) -> None:
    await (await open_on("first", tmp_path)).begin_start()
    await open_on("first", tmp_path)  # it is killed here, with the log open
    killed = await open_on("first", tmp_path)
    assert killed.tail_is_unknown
    killed.tail_is_unknown = False
    await killed.begin_start()
    assert not (await open_on("first", tmp_path)).tail_is_unknown


async def test_a_process_that_died_alone_owes_nothing(tmp_path: Path) -> None:
    await open_on("first", tmp_path, Durability.INTERVAL)
    assert not (await open_on("first", tmp_path, Durability.INTERVAL)).owes_catch_up


async def test_lost_memory_without_fsync_is_a_debt_that_restarts_do_not_settle(tmp_path: Path) -> None:
    await open_on("first", tmp_path, Durability.INTERVAL)
    for _ in range(2):  # nobody looks into the log
        found = await open_on("second", tmp_path, Durability.INTERVAL)
        assert (found.owes_catch_up, found.debt_is_new) == (True, True)
    await found.owe_catch_up()
    again = await open_on("second", tmp_path)
    assert (again.owes_catch_up, again.debt_is_new) == (True, False)


async def test_what_was_written_without_fsync_is_a_debt_until_the_log_is_synced(tmp_path: Path) -> None:
    await open_on("first", tmp_path, Durability.NONE)
    await open_on("first", tmp_path)
    assert (await open_on("second", tmp_path)).owes_catch_up


async def test_a_log_that_was_synced_is_as_this_start_is_configured(tmp_path: Path) -> None:
    await open_on("first", tmp_path, Durability.NONE)
    synced = await open_on("first", tmp_path)
    synced.log_is_synced()
    await synced.begin_start()
    assert not (await open_on("second", tmp_path)).owes_catch_up


async def test_a_settled_debt_stays_settled(tmp_path: Path) -> None:
    await open_on("first", tmp_path, Durability.NONE)
    await (await open_on("second", tmp_path, Durability.NONE)).settle_debt()
    assert not (await open_on("second", tmp_path, Durability.NONE)).owes_catch_up


async def test_what_was_written_under_fsync_owes_nothing_whatever_follows(tmp_path: Path) -> None:
    await open_on("first", tmp_path)
    assert not (await open_on("second", tmp_path, Durability.INTERVAL)).owes_catch_up


async def test_one_groups_debt_is_not_anothers(tmp_path: Path) -> None:
    mine = await open_on("first", tmp_path)
    await mine.owe_catch_up()
    other = await GroupRecord.open(OsDisk(), tmp_path / "bills.9", "bills.9", Durability.FSYNC)
    assert not other.owes_catch_up
    await other.owe_catch_up()
    await other.settle_debt()
    assert (await open_on("first", tmp_path)).owes_catch_up


@pytest.mark.parametrize("must_exist", [True, False])
async def test_a_record_that_is_gone_is_damage_and_no_new_group(tmp_path: Path, must_exist: bool) -> None:
    await open_on("first", tmp_path)
    (tmp_path / GROUP / GROUP_RECORD_NAME).rename(tmp_path / GROUP / "hard_state")
    with pytest.raises(CorruptLog, match="may have lost"):
        await open_on("first", tmp_path, must_exist=must_exist)


async def test_a_first_start_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / GROUP).mkdir()
    (tmp_path / GROUP / f"{GROUP_RECORD_NAME}.tmp").write_bytes(b"half")
    assert (await open_on("first", tmp_path)).founders == FOUNDERS
