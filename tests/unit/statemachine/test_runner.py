"""A state machine keeps up with its log, over restarts, trims, and checkpoints that are not what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.statemachine.api import Refused
from dledger.statemachine.records import Begin, Command, End, Part, decode, encode
from tests.unit.statemachine.memory import Counter, MemoryMachineLog, Running, applied


async def counted(log: MemoryMachineLog, *commands: int) -> None:
    async with Running(log) as runner:
        for command in commands:
            await runner.submit(b"%d" % command)


async def test_a_command_answers_with_what_came_of_it() -> None:
    async with Running(MemoryMachineLog()) as runner:
        assert [await runner.submit(b"3"), await runner.submit(b"4")] == [3, 7]


async def test_a_refused_command_changes_nothing_and_the_next_one_goes_on() -> None:
    log = MemoryMachineLog()
    async with Running(log) as runner:
        with pytest.raises(Refused, match="only counts up"):
            await runner.submit(b"-1")
        assert await runner.submit(b"1") == 1


async def test_every_node_comes_to_the_same_state() -> None:
    log = MemoryMachineLog()
    async with Running(log, seed=1) as one, Running(log, seed=2) as other:
        await asyncio.gather(*(each.submit(b"1") for each in (one, other) for _ in range(10)))
        assert await applied(one, log) == await applied(other, log) == 20
        assert one.machine.digest() == other.machine.digest()


async def test_a_start_reads_the_log_from_its_first_record() -> None:
    log = MemoryMachineLog()
    await counted(log, 1, 2, 3)
    async with Running(log, seed=2) as runner:
        assert await applied(runner, log) == 6
        assert runner.restores == 0


async def test_a_log_that_was_trimmed_is_restored_from_its_first_complete_checkpoint() -> None:
    log = MemoryMachineLog()
    async with Running(log) as runner:
        await runner.submit(b"5")
        await log.append(encode(Begin(99)))  # its writer died
        began = await runner.checkpoint()
        await runner.submit(b"6")
        await runner.checkpoint()
        await runner.submit(b"7")
    log.trim(began)
    async with Running(log, seed=2) as runner:
        assert await applied(runner, log) == 18
        assert runner.restores == 1


async def test_what_stands_before_the_checkpoint_is_not_applied_again() -> None:
    """The log may begin before the checkpoint: a trim falls on a boundary of its segments."""
    log = MemoryMachineLog()
    async with Running(log) as runner:
        await runner.submit(b"1")
        await runner.submit(b"2")
        await runner.checkpoint()
    log.trim(1)
    async with Running(log, seed=2) as runner:
        assert await applied(runner, log) == 3


async def test_commands_between_the_parts_of_a_checkpoint_are_applied_once() -> None:
    log = MemoryMachineLog()
    machine = Counter()
    machine.apply(b"4")
    part = next(machine.checkpoint())
    await log.append(encode(Command(b"4", 1, 0, 1)))
    await log.append(encode(Begin(0)))
    await log.append(encode(Part(1, 0, part)))
    await log.append(encode(Command(b"10", 1, 0, 2)))
    await log.append(encode(End(1, 1, len(part), machine.digest())))
    log.trim(1)
    async with Running(log) as runner:
        assert await applied(runner, log) == 14
        assert runner.restores == 1


async def test_two_writers_of_checkpoints_do_not_mix_their_parts() -> None:
    log = MemoryMachineLog()
    async with Running(log, Big, seed=1) as one, Running(log, Big, seed=2) as other:
        await one.submit(b"5")
        await asyncio.gather(one.checkpoint(), other.checkpoint())
    log.trim(1)
    async with Running(log, Big, seed=3) as runner:
        assert await applied(runner, log) == 5


class Big(Counter):
    """Its checkpoint has many parts."""

    def checkpoint(self) -> Iterator[bytes]:
        return iter([b"0"] * 20 + [b"%d" % self.value])


async def test_a_checkpoint_is_the_state_as_of_its_beginning_whatever_is_applied_meanwhile() -> None:
    log = MemoryMachineLog()
    async with Running(log, Big) as runner:
        await runner.submit(b"1")
        checkpoint = asyncio.create_task(runner.checkpoint())
        await asyncio.sleep(0)  # its BEGIN is in the log
        for _ in range(10):
            await runner.submit(b"1")
        await checkpoint
    parts = [each.data for each in (decode(*record[::2]) for record in log.records) if isinstance(each, Part)]
    assert int(b"".join(parts)) == 1


async def test_an_incomplete_checkpoint_is_not_loaded() -> None:
    log = MemoryMachineLog()
    await log.append(encode(Begin(0)))
    await log.append(encode(Part(0, 0, b"99")))
    await log.append(encode(End(0, 2, 2, b"")))  # one part is missing
    log.trim(0)
    log.first = 1
    async with Running(log) as runner:
        await asyncio.sleep(0.05)
        assert runner.applied_index == -1
        assert runner.restores == 0


async def test_a_checkpoint_whose_parts_rotted_is_passed_over_for_the_next() -> None:
    log = MemoryMachineLog()
    async with Running(log) as runner:
        await runner.submit(b"5")
        began = await runner.checkpoint()
        await runner.checkpoint()
    at = next(index for index, record in enumerate(log.records) if isinstance(decode(index, record.value), Part))
    log.records[at] = log.records[at]._replace(value=encode(Part(began, 0, b"6")))
    log.trim(began)
    async with Running(log, seed=2) as runner:
        assert await applied(runner, log) == 5


async def test_a_state_that_differs_from_a_checkpoint_of_the_same_place_stops() -> None:
    log = MemoryMachineLog()
    running = Running(log)
    async with running as runner:
        await runner.submit(b"1")
        other = Running(log, seed=2)
        async with other as rotten:
            await rotten.wait_applied(0)
            rotten.machine.value += 1  # a bit flips in its memory
            await runner.checkpoint()
            with pytest.raises(CorruptLog, match="another one than checkpoint"):
                await other.task
        assert await runner.submit(b"1") == 2


async def test_a_writer_whose_state_is_not_what_its_digest_says_ends_no_checkpoint() -> None:
    class Flipped(Counter):
        def digest(self) -> bytes:
            return b"as it was computed along the way"

    log = MemoryMachineLog()
    async with Running(log, Flipped) as runner:
        with pytest.raises(CorruptLog, match="no checkpoint"):
            await runner.checkpoint()
    assert not [True for index, record in enumerate(log.records) if isinstance(decode(index, record.value), End)]


async def test_a_reader_that_a_trim_overtakes_begins_anew_with_a_checkpoint() -> None:
    log = MemoryMachineLog()
    async with Running(log) as runner:
        await runner.submit(b"1")
        slow = Running(log, seed=2)
        began = await runner.checkpoint()
        await runner.submit(b"1")
        log.trim(began)
        async with slow as late:
            assert await applied(late, log) == 2
            assert late.restores == 1


async def test_a_command_of_a_newer_program_stops_the_state_machine() -> None:
    log = MemoryMachineLog()
    running = Running(log)
    async with running as runner:
        await log.append(encode(Command(b"1", 2, 0, 1)))
        with pytest.raises(DLedgerError, match="version 2") as stopped:
            await running.task
        assert stopped.value.code is Code.UNSUPPORTED_VERSION
        with pytest.raises(DLedgerError, match="not running"):
            await runner.submit(b"1")


async def test_a_command_of_another_term_does_nothing() -> None:
    log = MemoryMachineLog()
    log.term = 7
    async with Running(log) as runner:
        await log.append(encode(Command(b"1", 1, 0, 1, term=6)))
        await log.append(encode(Command(b"1", 1, 0, 1, term=7)))
        assert await applied(runner, log) == 1


async def test_records_that_are_no_state_machines_stop_it() -> None:
    log = MemoryMachineLog()
    running = Running(log)
    async with running:
        await log.append(b"\xff\xff plain")
        with pytest.raises(CorruptLog, match="other data"):
            await running.task


async def test_a_barrier_waits_for_what_was_committed_before_it() -> None:
    log = MemoryMachineLog()
    await counted(log, 1, 2)
    async with Running(log, seed=2) as runner:
        await runner.barrier()
        assert runner.machine.value == 3
