"""One look at a file system for all logs on it."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from dledger.common.config import MIB, Limits
from dledger.common.errors import DiskError
from dledger.common.types import META_GROUP, DiskState
from dledger.disk.room import RoomWatch
from tests.support.virtual_time import virtual_time

LIMITS = Limits(disk_warn_free_bytes=100 * MIB, disk_refuse_free_bytes=10 * MIB)


class Device:
    def __init__(self) -> None:
        self.free = 1 << 30
        self.has_room = True
        self.failure: OSError | None = None
        self.looks = self.proofs = 0

    def free_bytes(self) -> int:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return self.free

    async def prove(self) -> bool:
        self.proofs += 1
        await asyncio.sleep(0.1)
        if self.failure is not None:
            raise self.failure
        return self.has_room


def state_of(room: RoomWatch) -> DiskState:
    return room.state_below(LIMITS.disk_refuse_free_bytes)


def watch_of(device: Device) -> RoomWatch:
    return RoomWatch("/data", LIMITS, device.free_bytes, device.prove)


@virtual_time
async def test_however_many_ask_it_is_looked_at_once_a_second_and_proven_by_one() -> None:
    device = Device()
    room = watch_of(device)
    assert [room.look() for _ in range(200)] == [True, *[False] * 199]
    proof = asyncio.create_task(room.prove())
    await asyncio.sleep(1.01)
    assert [room.look() for _ in range(200)] == [False] * 200
    await proof
    assert (device.looks, device.proofs) == (2, 1)


@virtual_time
@pytest.mark.parametrize(
    ("free", "state"), [(1 << 30, DiskState.OK), (100 * MIB - 1, DiskState.LOW), (10 * MIB - 1, DiskState.FULL)]
)
async def test_the_watermarks_say_what_the_room_is_good_for(free: int, state: DiskState) -> None:
    device = Device()
    device.free = free
    room = watch_of(device)
    room.look()
    assert (state_of(room), room.free_bytes) == (state, free)


@virtual_time
async def test_what_the_device_refused_stands_until_room_is_proven() -> None:
    device = Device()
    room = watch_of(device)
    assert room.look()
    await room.prove()
    room.refused()
    device.has_room = False
    await asyncio.sleep(1)
    assert room.look()
    await room.prove()
    assert state_of(room) is DiskState.FULL
    device.has_room = True
    await asyncio.sleep(1)
    assert room.look()
    await room.prove()
    assert state_of(room) is DiskState.OK
    await asyncio.sleep(1)
    assert not room.look(), "there is nothing to prove any more"


@virtual_time
async def test_an_unknown_room_changes_nothing_and_a_failed_proof_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Device()
    room = watch_of(device)
    room.look()
    device.failure = OSError(errno.EIO, "broken")
    with pytest.raises(DiskError):
        await room.prove()
    await asyncio.sleep(1)
    assert room.look()
    assert (state_of(room), room.free_bytes) == (DiskState.OK, 1 << 30)
    assert "not known" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


@virtual_time
async def test_a_log_with_a_lower_limit_goes_on_when_others_are_full() -> None:
    device = Device()
    device.free = 5 * MIB
    room = watch_of(device)
    room.look()
    assert [room.state_below(limit * MIB) for limit in (10, 5)] == [DiskState.FULL, DiskState.LOW]
    room.refused()
    assert room.state_below(0) is DiskState.FULL, "what the device says holds for all"


def test_the_directory_of_groups_has_the_lower_limit_and_never_a_higher_one() -> None:
    assert Limits().refuse_free_bytes(META_GROUP) == 256 * MIB
    assert Limits().refuse_free_bytes("orders.17") == Limits().disk_refuse_free_bytes == 1024 * MIB
    assert Limits(disk_refuse_free_bytes=MIB).refuse_free_bytes(META_GROUP) == MIB


def test_a_refusal_names_the_setting_that_it_comes_from() -> None:
    assert Limits().refuse_setting(META_GROUP) == "disk_refuse_meta_free_bytes"
    assert Limits().refuse_setting("orders.17") == "disk_refuse_free_bytes"
    assert Limits(disk_refuse_free_bytes=MIB).refuse_setting(META_GROUP) == "disk_refuse_free_bytes"
