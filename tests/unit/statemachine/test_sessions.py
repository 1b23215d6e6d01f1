"""A command is applied once, whatever became of its append, and its submitter gets the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, error
from dledger.statemachine.api import Refused
from dledger.statemachine.applier import Applied, Applier, Dropped
from dledger.statemachine.records import Begin, Command, EndSession, OpenSession, Version, decode, encode
from dledger.statemachine.runner import Runner
from dledger.statemachine.sessions import MAX_ANSWERS, MAX_SESSIONS, Answer, Sessions
from tests.unit.statemachine.memory import Counter, MemoryMachineLog, Running

# The table ------------------------------------------------------------------------------------------------------------


def test_a_session_keeps_answers_until_they_are_acknowledged() -> None:
    sessions = Sessions()
    sessions.open(5)
    for request in (1, 2, 3):
        used = sessions.use(5, request, 0)
        assert used is not None
        used.answers[request] = Answer(b"%d" % request)
    assert sessions.answer(5, 2) == Answer(b"2")
    sessions.use(5, 4, 2)
    assert sessions.answer(5, 2) is None
    assert sessions.answer(5, 3) == Answer(b"3")
    assert sessions.use(5, 2, 0) is None, "a copy that comes late is not applied"


def test_more_commands_under_way_than_there_may_be_end_the_session() -> None:
    sessions = Sessions()
    sessions.open(1)
    assert sessions.use(1, MAX_ANSWERS, 0) is not None
    assert sessions.use(1, MAX_ANSWERS + 1, 0) is None
    assert 1 not in sessions


def test_the_session_that_was_used_the_longest_ago_makes_room() -> None:
    sessions = Sessions()
    for at in range(1, MAX_SESSIONS + 1):
        sessions.open(at)
    sessions.use(1, 1, 0)
    sessions.open(MAX_SESSIONS + 1)
    assert len(sessions) == MAX_SESSIONS
    assert 1 in sessions
    assert 2 not in sessions


def test_the_table_comes_back_from_a_checkpoint_as_it_was() -> None:
    sessions = Sessions()
    sessions.version = 3
    for at in (9, 4):
        sessions.open(at)
        used = sessions.use(at, 2, 1)
        assert used is not None
        used.answers[2] = Answer(b"x", is_refusal=at == 4)
    again = Sessions.decode(sessions.encode())
    assert again.encode() == sessions.encode()
    assert again.used() == {9: 2, 4: 2}
    assert again.answer(4, 2) == Answer(b"x", is_refusal=True)
    assert again.version == 3


def test_what_is_no_table_is_told() -> None:
    with pytest.raises(DLedgerError) as refused:
        Sessions.decode(b"\xff\xff")
    assert refused.value.code is Code.CORRUPT_LOG


# Applying -------------------------------------------------------------------------------------------------------------


def apply(applier: Applier, *records: object, term: int = 1) -> list[object]:
    return [applier.apply(applier.next_index, term, encode(record)) for record in records]  # type: ignore[arg-type]


def in_session(request: int, payload: bytes = b"1", **fields: int) -> Command:
    return Command(payload, 1, 7, request, session=1, **fields)


def test_a_copy_of_a_command_gets_the_first_answer_and_changes_nothing() -> None:
    applier = Applier(Counter())
    _, first, second, copy = apply(applier, OpenSession(7, 1), in_session(1), in_session(2, b"4"), in_session(1))
    assert isinstance(first, Applied)
    assert isinstance(copy, Applied)
    assert copy.answer == first.answer
    assert isinstance(second, Applied)
    machine = applier.machine
    assert isinstance(machine, Counter)
    assert machine.value == 5


def test_a_refusal_is_the_first_answer_too() -> None:
    applier = Applier(Counter())
    _, first, copy = apply(applier, OpenSession(7, 1), in_session(1, b"-1"), in_session(1, b"-1"))
    assert isinstance(first, Applied)
    assert first.answer.is_refusal
    assert isinstance(copy, Applied)
    assert copy.answer == first.answer


def test_a_command_of_a_session_that_ended_is_not_applied() -> None:
    applier = Applier(Counter())
    *_, dropped = apply(applier, OpenSession(7, 1), EndSession(1), in_session(1))
    assert dropped == Dropped(in_session(1), is_of_another_term=False)


def test_the_end_of_a_session_counts_in_its_leaders_term_alone() -> None:
    applier = Applier(Counter())
    *_, applied = apply(applier, OpenSession(7, 1), EndSession(1, term=2), in_session(1))
    assert isinstance(applied, Applied)


def test_a_command_of_another_term_is_dropped_unless_it_has_its_answer() -> None:
    applier = Applier(Counter())
    apply(applier, OpenSession(7, 1), in_session(1, term=1))
    (copy,) = apply(applier, in_session(1, term=1), term=2)
    assert isinstance(copy, Applied)
    assert apply(applier, in_session(2, term=1), term=2) == [Dropped(in_session(2, term=1), is_of_another_term=True)]


def test_a_state_machine_stops_where_the_way_is_opened_for_commands_that_it_does_not_know() -> None:
    with pytest.raises(DLedgerError, match="opens the way for commands of version 2") as stopped:
        apply(Applier(Counter()), Version(2))
    assert stopped.value.code is Code.UNSUPPORTED_VERSION


def test_what_a_checkpoint_holds_of_sessions_is_in_its_digest() -> None:
    one, other = Applier(Counter()), Applier(Counter())
    apply(one, OpenSession(7, 1), in_session(1))
    apply(other, OpenSession(7, 1), Command(b"1", 1, 7, 1))
    (mine,), (theirs,) = (
        [event.digest for event in apply(each, Begin(0)) if event is not None]  # type: ignore[attr-defined]
        for each in (one, other)
    )
    assert mine != theirs


# Submitting -----------------------------------------------------------------------------------------------------------


class Forgetful(MemoryMachineLog):
    """Tells of the first ``unknown`` commands that nobody knows whether they are there; of these, those whose number is
    in ``lost`` are not."""

    def __init__(self, unknown: int, lost: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.unknown = unknown
        self.lost = lost
        self.commands = 0

    async def append(self, record: bytes) -> int:
        if not isinstance(decode(0, record), Command):
            return await super().append(record)
        self.commands += 1
        index = -1 if self.commands in self.lost else await super().append(record)
        if self.commands <= self.unknown:
            raise error(Code.TERM_CHANGED, "nobody knows")
        return index


async def test_a_command_whose_append_was_lost_is_appended_again() -> None:
    log = Forgetful(2, lost=(1, 2))
    async with Running(log) as runner:
        assert await runner.submit(b"3") == 3
    assert log.commands == 3


async def test_a_command_that_was_appended_twice_counts_once() -> None:
    log = Forgetful(1)
    async with Running(log) as runner:
        assert await runner.submit(b"3") == 3
        assert await runner.submit(b"4") == 7
        again = [each.value for each in log.records if isinstance(decode(0, each.value), Command)]
        for value in again:
            await log.append(value)  # every copy, late
        await runner.barrier()
        assert runner.machine.value == 7


async def test_a_command_whose_session_ended_before_it_came_goes_on_in_another() -> None:
    log = MemoryMachineLog()
    async with Running(log) as runner:
        assert await runner.submit(b"1") == 1
        (session,) = runner.sessions_used()
        await log.append(encode(EndSession(session)))
        await runner.barrier()
        assert await runner.submit(b"1") == 2
        assert session not in runner.sessions_used()


async def test_of_a_command_that_may_have_been_applied_before_its_session_ended_nothing_is_known() -> None:
    class Ending(Forgetful):
        async def append(self, record: bytes) -> int:
            try:
                return await super().append(record)
            except OutcomeUnknown:
                await MemoryMachineLog.append(self, encode(EndSession(1)))
                raise

    async with Running(Ending(1, lost=(1,))) as runner:
        with pytest.raises(OutcomeUnknown) as unknown:
            await runner.submit(b"1")
        assert unknown.value.code is Code.SESSION_EXPIRED


async def test_more_commands_than_a_session_may_have_under_way_wait_for_each_other() -> None:
    async with Running(MemoryMachineLog()) as runner:
        answers = await asyncio.gather(*(runner.submit(b"1") for _ in range(3 * MAX_ANSWERS)))
        assert sorted(answers) == list(range(1, 3 * MAX_ANSWERS + 1))
        assert len(runner.sessions_used()) == 1


async def test_an_answer_is_what_it_was_whatever_its_kind() -> None:
    class Echo(Counter):
        def apply(self, command: bytes) -> object:  # type: ignore[override]
            return {b"none": None, b"bytes": b"\x00b", b"list": [1, "two", {"three": 3.5}]}[command]

    async with Running(MemoryMachineLog(), Echo) as runner:
        assert await runner.submit(b"none") is None
        assert await runner.submit(b"bytes") == b"\x00b"
        assert await runner.submit(b"list") == [1, "two", {"three": 3.5}]


async def test_an_answer_that_was_given_while_the_state_was_restored_is_found_in_it() -> None:
    log = MemoryMachineLog()
    async with Running(log) as helper:
        runner = Runner(log, Counter, random=Random(9))
        waiting = asyncio.create_task(runner.submit(b"5"))
        await asyncio.sleep(0.01)
        with pytest.raises(Refused):
            await helper.submit(b"-1")
        began = await helper.checkpoint()
        log.trim(began)
        following = asyncio.create_task(runner.run())
        async with asyncio.timeout(5):
            assert await waiting == 5
        assert runner.restores == 1
        following.cancel()
        await asyncio.wait([following])


class _AsksMeanwhile(MemoryMachineLog):
    """Somebody asks in the very turn in which the session's record is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.ask: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self.asked: list[asyncio.Task[Any]] = []

    async def append(self, record: bytes) -> int:
        index = await super().append(record)
        if self.ask is not None and isinstance(decode(index, record), OpenSession):
            self.asked.append(asyncio.create_task(self.ask()))
        return index


async def test_a_command_that_comes_while_its_session_begins_has_a_place_of_its_own() -> None:
    log = _AsksMeanwhile()
    async with Running(log) as runner:
        log.ask = lambda: runner.submit(b"10")
        answers = [await runner.submit(b"1"), *(await asyncio.gather(*log.asked))]
        assert (sorted(answers), runner.machine.value) in (([1, 11], 11), ([10, 11], 11))
