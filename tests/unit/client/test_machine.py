"""The client against a log that misbehaves in whatever order: what it says of each append is so, now and later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger import client
from dledger.client.results import Acks
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, SequenceError
from dledger.common.types import Ack, Entry
from tests.unit.client.fake_server import FakeCluster

T = TypeVar("T")

SETTINGS = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TIMEOUT_MS = 60_000
"""Nothing here takes so long: whatever can be appended is."""
NODES = 3
BATCH = 3
FOR_GOOD = (Code.DISK_FULL, Code.RECORD_TOO_LARGE, Code.UNKNOWN_GROUP)
"""With these a batch may be refused that is surely not in the log."""
PASSING = (
    Code.LEADER_PENDING_FULL,
    Code.LEADER_NOT_READY,
    Code.LEADER_TRANSFERRING,
    Code.OUT_OF_ORDER,
    Code.SHUTTING_DOWN,
    Code.TERM_CHANGED,
)


class Misbehaving(RuleBasedStateMachine):
    """Three nodes, and all that may go wrong between them and a client."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.log = self.run(self._begin())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _begin(self) -> client.Log:
        self.cluster = FakeCluster()
        for _ in range(NODES):
            await self.cluster.add_node()
        self.cluster.lead(self.cluster.nodes[0])
        return await self.connect()

    async def connect(self) -> client.Log:
        log = client.connect(self.cluster.endpoints, timeout_ms=TIMEOUT_MS, rng=random.Random(7))
        return await log.__aenter__()

    async def _end(self) -> None:
        await self.log.close()
        for node in self.cluster.nodes:
            await node.stop()

    def teardown(self) -> None:
        self.run(self._end())
        self.runner.close()

    @rule()
    def lose_the_next_answer(self) -> None:
        self.cluster.faults.drop_answers += 1

    @rule()
    def break_the_stream(self) -> None:
        self.cluster.faults.break_streams += 1

    @rule(code=st.sampled_from(PASSING))
    def refuse_for_now(self, code: Code) -> None:
        self.cluster.faults.refuse_appends.append(code)

    @rule(node=st.integers(0, NODES - 1))
    def let_another_lead(self, node: int) -> None:
        self.cluster.lead(self.cluster.nodes[node])

    @rule()
    def restart_the_leader(self) -> None:
        async def restart() -> None:
            assert self.cluster.leader is not None
            await self.cluster.leader.stop()
            await self.cluster.leader.start()

        self.run(restart())


class PlainAppends(Misbehaving):
    """Acknowledged: there, once, at that index, in the order of the calls. Refused: never there. Else: said so."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.waiting: list[tuple[list[bytes], Awaitable[Ack | Acks]]] = []
        self.acknowledged: dict[bytes, int] = {}
        self.refused: dict[bytes, DLedgerError] = {}
        self.may_be_in_doubt = False
        """Something else than an answer may follow an answer that was lost."""

    def teardown(self) -> None:
        self.hear_of_all()
        self.what_it_said_is_so()
        super().teardown()

    def _new(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % number for number in range(self.count - count, self.count)]

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        async def start() -> None:
            self.waiting += [([record], self.log.enqueue(record)) for record in self._new(count)]

        self.run(start())

    @rule(count=st.integers(1, 6))
    def append_many(self, count: int) -> None:
        async def start() -> None:
            records = self._new(count)
            self.waiting.append((records, self.log.enqueue_many(records)))

        self.run(start())

    @rule(code=st.sampled_from(FOR_GOOD))
    def refuse_for_good(self, code: Code) -> None:
        self.cluster.faults.refuse_appends.append(code)
        self.may_be_in_doubt = True

    @rule()
    def forget_all_producers(self) -> None:
        self.cluster.faults.lose_producers = True
        self.may_be_in_doubt = True

    @rule(code=st.sampled_from(FOR_GOOD))
    def lose_the_next_answer_and_refuse_what_comes_behind(self, code: Code) -> None:
        self.cluster.faults.drop_answers += 1
        self.cluster.faults.refuse_after_drop = code
        self.may_be_in_doubt = True

    @rule()
    def hear_of_all(self) -> None:
        async def hear() -> list[Ack | Acks | BaseException]:
            return await asyncio.gather(*(told for _, told in self.waiting), return_exceptions=True)

        for (records, _), told in zip(self.waiting, self.run(hear()), strict=True):
            match told:
                case Ack():
                    self.acknowledged[records[0]] = told.index
                case Acks():
                    self.acknowledged.update(zip(records, (ack.index for ack in told), strict=True))
                case OutcomeUnknown():
                    assert self.may_be_in_doubt, f"{records}: {told!r}, and nothing happened that leaves a doubt"
                case DLedgerError():
                    assert told.code in FOR_GOOD, f"{records}: {told!r}"
                    self.refused.update(dict.fromkeys(records, told))
                case _:
                    raise AssertionError(f"{records}: {told!r}")
        self.waiting.clear()
        faults = self.cluster.faults
        faults.refuse_after_drop = None
        self.may_be_in_doubt = faults.lose_producers or any(code in FOR_GOOD for code in faults.refuse_appends)

    @rule()
    def close_and_connect_again(self) -> None:
        self.hear_of_all()
        self.run(self.log.close())
        self.log = self.run(self.connect())

    @rule()
    def read_all(self) -> None:
        async def read() -> list[tuple[int, bytes]]:
            return [(entry.index, entry.value) async for entry in self.log.read(0)]

        known = len(self.cluster.records())
        found = self.run(read())
        assert len(found) >= known  # more may have come meanwhile
        assert found == list(enumerate(self.cluster.records()))[: len(found)]

    @rule(at=st.floats(0, 1, exclude_max=True))
    def get_one(self, at: float) -> None:
        records = self.cluster.records()
        if records:
            index = int(at * len(records))
            entry = self.run(self._get(index))
            assert (entry.index, entry.value) == (index, records[index])

    async def _get(self, index: int) -> Entry:
        return await self.log.get(index)

    @invariant()
    def what_it_said_is_so(self) -> None:
        records = self.cluster.records()
        assert len(set(records)) == len(records), "a record is there twice"
        for record, index in self.acknowledged.items():
            assert records[index] == record, f"{record!r} was acknowledged at {index}, where {records[index]!r} is"
        for record in self.refused.keys() & set(records):
            raise AssertionError(f"{record!r} is there, and was refused: {self.refused[record]!r}")

    @invariant()
    def the_order_is_that_of_the_calls(self) -> None:
        numbers = [int(record) for record in self.cluster.records()]
        assert numbers == sorted(numbers)


class NamedAppends(Misbehaving):
    """A job that dies and is begun again appends each record once; a later epoch ends the ones before it."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.has_begun = False
        self.done: dict[int, int] = {}
        """By epoch: of how many batches a job has heard that they are there."""

    async def _work(self, epoch: int, batches: int, *, dies: bool) -> None:
        async with self.log.producer("job", epoch=epoch) as producer:
            for batch in range(batches):
                await producer.enqueue_many([b"%d/%d" % (epoch, batch * BATCH + at) for at in range(BATCH)])
            if dies:
                raise InterruptedError

    @rule(batches=st.integers(1, 5))
    def do_the_job(self, batches: int) -> None:
        self.run(self._work(self.epoch, batches, dies=False))
        self.has_begun = True
        self.done[self.epoch] = max(batches, self.done.get(self.epoch, 0))

    @rule(batches=st.integers(1, 5))
    def die_amid_the_job(self, batches: int) -> None:
        with pytest.raises(InterruptedError):
            self.run(self._work(self.epoch, batches, dies=True))

    @rule()
    def begin_a_later_epoch(self) -> None:
        self.epoch += 1
        self.has_begun = False

    @rule()
    def let_a_job_of_an_earlier_epoch_go_on(self) -> None:
        if not (self.epoch and self.has_begun):
            return
        before = self.cluster.records()
        with pytest.raises(SequenceError) as fenced:
            self.run(self._work(self.epoch - 1, 5, dies=False))
        assert fenced.value.code is Code.PRODUCER_FENCED
        assert self.cluster.records() == before

    @invariant()
    def each_epoch_has_its_records_once_and_in_order(self) -> None:
        records = [tuple(map(int, record.split(b"/"))) for record in self.cluster.records()]
        for epoch in range(self.epoch + 1):
            numbers = [number for of_epoch, number in records if of_epoch == epoch]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= BATCH * self.done.get(epoch, 0)


TestPlainAppends = PlainAppends.TestCase
TestPlainAppends.settings = SETTINGS
TestNamedAppends = NamedAppends.TestCase
TestNamedAppends.settings = SETTINGS
