"""On a client: a checkpoint is made when it is asked for, by a program that is level, and trims nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dledger.client import Log
from dledger.common.errors import Code, InvalidRequest, OutcomeUnknown, WrongExpectedIndex, error
from dledger.common.types import Ack, Consistency, Entry
from dledger.statemachine.api import Refused
from dledger.statemachine.records import Begin, Command, Confirmed, End, decode, encode
from dledger.statemachine.replicated import MAX_ATTEMPTS, replicate
from tests.unit.statemachine.memory import Counter, MemoryMachineLog


class ClientSide:
    """As ``dledger.client.Log``, as far as it is used here, on a log in memory."""

    def __init__(self, log: MemoryMachineLog) -> None:
        self.log = log
        self.conditions: list[int] = []
        self.before_condition = 0
        """So many records others append right before each conditional one."""

    async def bounds(self, _: Consistency = Consistency.LINEARIZABLE) -> tuple[int, int]:
        return self.log.first, len(self.log.records) - 1

    async def read(self, start: int, **_: object):  # type: ignore[no-untyped-def]  # an async generator
        async for records in self.log.read(start):
            for record in records:
                yield Entry(record.index, record.term, 0, record.value)

    async def append(self, record: bytes, *, expect_index: int | None = None) -> Ack:
        if expect_index is not None:
            for _ in range(self.before_condition):
                await self.log.append(encode(Command(b"1", 1, 0, 0)))
            self.conditions.append(expect_index)
            if expect_index != len(self.log.records):
                raise error(Code.WRONG_EXPECTED_INDEX, "another one", next_index=len(self.log.records))
        return Ack(await self.log.append(record), 1, 0)


async def test_begin_and_end_are_written_only_by_a_program_that_is_level() -> None:
    log = MemoryMachineLog()
    side = ClientSide(log)
    async with replicate(cast("Log", side), Counter) as counter:
        await counter.submit(b"3")
        await log.append(encode(Command(b"2", 1, 0, 0)))
        began = await counter.checkpoint()
        assert counter.machine.value == 5
    records = [decode(*record[::2]) for record in log.records]
    assert isinstance(records[began], Begin)
    end = next(each for each in records if isinstance(each, End))
    assert {began, records.index(end)} <= set(side.conditions)
    assert not [each for each in records if isinstance(each, Confirmed)]
    assert log.first == 0, "nothing is trimmed"


async def test_a_program_that_never_gets_level_writes_no_checkpoint() -> None:
    log = MemoryMachineLog()
    side = ClientSide(log)
    async with replicate(cast("Log", side), Counter) as counter:
        await counter.submit(b"3")
        side.before_condition = 1
        with pytest.raises(WrongExpectedIndex):
            await counter.checkpoint()
    assert len(side.conditions) == MAX_ATTEMPTS
    assert not [each for each in log.records if isinstance(decode(*each[::2]), Begin)]


async def test_two_programs_that_checkpoint_at_once_both_succeed_and_either_is_restored_from() -> None:
    log = MemoryMachineLog()
    one, other = ClientSide(log), ClientSide(log)
    async with replicate(cast("Log", one), Counter) as here, replicate(cast("Log", other), Counter) as there:
        await here.submit(b"3")
        began = await asyncio.gather(here.checkpoint(), there.checkpoint())
    for at in began:
        log.trim(at)
        async with replicate(cast("Log", ClientSide(log)), Counter) as late:
            await late.barrier()
            assert late.machine.value == 3


@pytest.mark.parametrize("command", [None, "3", 3, [b"3"]])
async def test_what_is_not_bytes_is_no_command_and_is_not_appended(command: Any) -> None:
    log = MemoryMachineLog()
    async with replicate(cast("Log", ClientSide(log)), Counter) as counter:
        with pytest.raises(InvalidRequest, match="is bytes, not"):
            await counter.submit(command)
        assert await counter.submit(b"3") == 3
    assert not [each for each in log.records if decode(*each[::2]) == Command(b"", 1, 0, 0)]


async def test_a_command_that_stops_the_machine_is_named_and_passed_once_apply_refuses_it() -> None:
    log = MemoryMachineLog()

    class Careful(Counter):
        def apply(self, command: bytes) -> int:
            if not command.isdigit():
                raise Refused("digits")
            return super().apply(command)

    async def stop_it() -> None:
        async with replicate(cast("Log", ClientSide(log)), Counter) as counter:
            await counter.submit(b"3")
            with pytest.raises(OutcomeUnknown):
                await counter.submit(b"")

    with pytest.raises(ValueError, match="invalid literal") as failed:
        await stop_it()
    assert f"failed at record {len(log.records) - 1} " in failed.value.__notes__[0]
    async with replicate(cast("Log", ClientSide(log)), Careful) as careful:
        assert await careful.submit(b"4") == 7
