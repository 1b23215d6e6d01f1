"""Clients that remember what they were told: producers that pipeline and retry, and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from dledger.common.batch import build_body, crc32c, record_at
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown
from dledger.common.types import Consistency
from dledger.group.leader.appender import Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from tests.simulation.answers import Answers, Question
from tests.simulation.groups import SimGroup
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.violation import Violation

PAUSE_S = 0.2
"""Between two rounds of a producer, on average; longer for one of a lower ``pace``."""
IsOver = Callable[[], bool]


@dataclass(eq=False, slots=True)
class Sent:
    """One batch of a producer."""

    records: list[bytes]
    source: Source
    highest_before: int
    """What was acknowledged to anyone before it was first sent."""
    in_doubt: bool = False
    """It may be in the log."""
    base_index: int = -1
    """Where it is, once acknowledged."""


async def register(seat: Seat, answers: Answers, random: Random) -> int:
    """The id of a new producer, of epoch 0; or 0, after a pause, where the server gave none."""
    try:
        question = answers.ask(seat)
        async with asyncio.timeout(1.0):
            registered = await seat.ask(seat.replica.appender.new_producer)
    except (DLedgerError, TimeoutError, GoneError) as failure:
        if isinstance(failure, DLedgerError):
            answers.refused(question, failure)
        await asyncio.sleep(random.uniform(0.01, 0.1))
        return 0
    return registered.base_index


class ProducerClient:
    """One idempotent producer. Keeps its batches, in order, until their outcome is known, wherever the leader is."""

    def __init__(self, name: str, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        self._name = name
        self._group = group
        self._trace = group.cluster.trace
        self._journal = group.journal
        self._random = random
        self._pace = pace
        self._answers = Answers(group)
        self._window = random.choice((1, 3, 6))
        self._producer_id = 0
        self._epoch = 0
        self._sequence = 0
        self._number = 0
        self._pending: list[Sent] = []
        self._done: list[Sent] = []
        """The last few that were acknowledged."""
        self.acknowledged = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            seat = self._some_leader()
            if seat is None:
                await asyncio.sleep(0.05)
            elif not self._producer_id:
                self._producer_id = await register(seat, self._answers, self._random)
                self._epoch = self._sequence = 0
            else:
                await self._round(seat)
        self._abandon()

    def _some_leader(self) -> Seat | None:
        leading = self._group.leaders()
        return self._random.choice(leading) if leading else None

    def _abandon(self) -> None:
        """What was never in doubt is surely not there."""
        for sent in self._pending:
            if not sent.in_doubt:
                self._journal.refused.update(sent.records)
        self._pending.clear()
        self._done.clear()
        self._producer_id = 0

    # Rounds ------------------------------------------------------------------------------------------------------

    async def _round(self, seat: Seat) -> None:
        """Sends what is pending, in order as a rule, and waits for all the answers."""
        self._fill()
        batches = list(self._pending)
        if self._random.random() < 0.05:
            self._random.shuffle(batches)
        if self._done and self._random.random() < 0.05:
            batches.append(self._random.choice(self._done))  # a request that was long under way
        timeout_s = self._random.choice((0.2, 1.0, 6.0))
        answers = [asyncio.ensure_future(self._attempt(seat, sent, timeout_s)) for sent in batches]
        await asyncio.wait(answers)
        codes = [code for answer in answers if (code := answer.result()) is not None]
        self._pending = [sent for sent in self._pending if sent.base_index < 0]
        if Code.UNKNOWN_PRODUCER in codes:
            self._abandon()
        elif not self._pending and self._random.random() < 0.03:
            await self._fence(seat)
        await asyncio.sleep(
            self._random.uniform(0.01, 0.1) if codes else self._random.expovariate(self._pace / PAUSE_S)
        )

    def _fill(self) -> None:
        while len(self._pending) < self._window and (not self._pending or self._random.random() < 0.7):
            records = [self._record() for _ in range(self._random.choice((1, 1, 2, 5)))]
            source = Source(self._producer_id, self._epoch, self._sequence)
            self._sequence += len(records)
            self._pending.append(Sent(records, source, self._journal.highest))

    def _record(self) -> bytes:
        self._number += 1
        record = f"@{self._group.name}|{self._name}-{self._number}-".encode() + b"." * self._random.choice((0, 10, 300))
        self._journal.attempted.add(record)
        return record

    async def _attempt(self, seat: Seat, sent: Sent, timeout_s: float) -> Code | None:
        """Why it is not acknowledged; None: it is."""
        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(timeout_s):
                result = await seat.ask(lambda: _append(seat, sent))
        except (TimeoutError, GoneError):
            sent.in_doubt = True
            self._trace.hit("branch outcome unknown", self._name)
            return Code.TERM_CHANGED
        except DLedgerError as refusal:
            sent.in_doubt |= isinstance(refusal, OutcomeUnknown)
            self._trace.hit(f"branch refused {refusal.code.name}")
            self._answers.refused(question, refusal, *self._reasons(question, sent))
            # What was acknowledged long ago may be forgotten; then its producer goes on nevertheless.
            return None if sent.base_index >= 0 else refusal.code
        self._acknowledge(sent, result)
        return None

    def _reasons(self, question: Question, sent: Sent) -> list[Code]:
        """What may be said of ``sent``. Never that it conflicts: a batch is sent again as it was. Nor that it is of
        long ago: what is sent again is among the last few."""
        reasons = []
        if self._answers.is_stale(question):
            reasons += [Code.UNKNOWN_PRODUCER, Code.OUT_OF_ORDER]
        elif sent.base_index < 0 and sent not in self._pending[:1]:
            reasons.append(Code.OUT_OF_ORDER)  # one before it may not have arrived
        if sent.source.producer_epoch < self._epoch:
            reasons.append(Code.PRODUCER_FENCED)
        return reasons

    def _acknowledge(self, sent: Sent, result: AppendResult) -> None:
        self._answers.acknowledged(result)
        if sent.base_index >= 0:
            if result.base_index != sent.base_index:
                raise Violation("a retry is the same", f"{sent.records[0]!r} got {sent.base_index}, then {result}")
            return
        sent.base_index = result.base_index
        self._journal.acknowledge(result.base_index, sent.records, sent.highest_before)
        self._trace.note("ack", self._name, result.base_index, len(sent.records))
        self.acknowledged += len(sent.records)
        self._done = [*self._done[-9:], sent]

    async def _fence(self, seat: Seat) -> None:
        """Goes on under the next epoch; an append of the old one is refused from then on."""
        old = Source(self._producer_id, self._epoch, self._sequence)
        self._epoch, self._sequence = self._epoch + 1, 0
        records = [self._record()]
        self._sequence = len(records)
        first = Sent(records, Source(self._producer_id, self._epoch, 0), self._journal.highest)
        self._pending.append(first)
        code = await self._attempt(seat, first, 6.0)
        if code is not None:
            return
        self._pending.remove(first)
        self._done.clear()
        late = Sent([self._record()], old, self._journal.highest)
        code = await self._attempt(seat, late, 6.0)
        if code is None:
            raise Violation("a fenced producer is refused", f"{old} was taken behind {first.source}")
        if not late.in_doubt:
            self._journal.refused.update(late.records)


async def _append(seat: Seat, sent: Sent) -> AppendResult:
    """Inside the server."""
    body = build_body(sent.records)
    return await seat.replica.appender.append_body(body, crc32c(body), len(sent.records), sent.source)


class PlainClient:
    """Appends without a producer: never tries again, so what is in doubt may be there, once."""

    def __init__(self, name: str, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        self._name = name
        self._group = group
        self._trace = group.cluster.trace
        self._journal = group.journal
        self._random = random
        self._pace = pace
        self._answers = Answers(group)
        self._number = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            leading = self._group.leaders()
            if leading:
                together = [self._append(self._random.choice(leading)) for _ in range(self._random.choice((1, 2, 4)))]
                await asyncio.gather(*together)
            await asyncio.sleep(self._random.expovariate(self._pace / 0.25))

    async def _append(self, seat: Seat) -> None:
        self._number += 1
        tag = f"@{self._group.name}|{self._name}-{self._number}"
        records = [f"{tag}-{at}".encode() for at in range(self._random.choice((1, 1, 3)))]
        self._journal.attempted.update(records)
        highest = self._journal.highest
        if not seat.is_up:
            return
        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(6):
                result = await seat.ask(lambda: _append_plainly(seat, records))
        except (TimeoutError, GoneError, OutcomeUnknown):
            return
        except DLedgerError as refusal:
            self._answers.refused(question, refusal)
            self._journal.refused.update(records)
            return
        self._answers.acknowledged(result)
        self._journal.acknowledge(result.base_index, records, highest)


async def _append_plainly(seat: Seat, records: list[bytes]) -> AppendResult:
    return await seat.replica.appender.append_records(records)


class ReaderClient:
    """Linearizable reads of whoever leads, committed ones of anybody."""

    def __init__(self, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        self._group = group
        self._trace = group.cluster.trace
        self._journal = group.journal
        self._random = random
        self._pace = pace
        self._answers = Answers(group)

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            reads = [self._linearizable(seat) for seat in self._group.leaders()]
            if up := self._group.up():
                reads.append(self._committed(self._random.choice(up)))
            await asyncio.gather(*reads)
            await asyncio.sleep(self._random.expovariate(self._pace / 0.1))

    async def _linearizable(self, seat: Seat) -> None:
        least = self._journal.least_read

        async def read() -> tuple[int, bytes | None]:
            reader = seat.replica.reader
            if seat.has_lease:
                self._trace.hit("branch lease read", seat.id)
            point = await reader.read_point(Consistency.LINEARIZABLE)
            if point.commit_index < least or least < 0:
                return point.commit_index, None
            return point.commit_index, (await reader.get(least, point)).value

        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(2):
                commit_index, value = await seat.ask(read)
        except (TimeoutError, GoneError):
            return
        except DLedgerError as refusal:
            self._answers.refused_read(question, refusal, least)
            return
        if commit_index < least:
            raise Violation(
                "linearizable reads",
                f"{seat.name} reads up to {commit_index}, {least} was acknowledged, or read, before",
            )
        self._journal.read_up_to = max(self._journal.read_up_to, commit_index)
        self._check_committed(seat, commit_index)
        if value is not None:
            self._journal.saw(least, value, who=seat.name)
        self._journal.reads += 1

    def _check_committed(self, seat: Seat, commit_index: int) -> None:
        committed = self._group.watch.chronicle.committed_index
        if commit_index > committed:
            raise Violation("only what is committed is read", f"{seat.name} reads up to {commit_index} of {committed}")

    async def _committed(self, seat: Seat) -> None:
        """From some record on, as far as this node knows of commits."""
        share = self._random.random()

        begin = 0

        async def read() -> tuple[int, dict[int, bytes]]:
            nonlocal begin
            reader, first = seat.replica.reader, seat.replica.log.state.first_index
            point = await reader.read_point(Consistency.COMMITTED)
            begin = max(first, point.commit_index - int(share * 40))
            seen: dict[int, bytes] = {}
            if begin > point.commit_index:
                return point.commit_index, seen  # it begins where it does not know of commits yet
            async for frames, _ in reader.read(begin, None, point, follow=False):
                for frame in frames:
                    header = frame.header
                    for at in range(header.count):
                        seen[header.base_index + at] = record_at(frame.body, header.count, at)
            return point.commit_index, seen

        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(2):
                commit_index, seen = await seat.ask(read)
        except (TimeoutError, GoneError):
            return
        except DLedgerError as refusal:
            self._answers.refused_read(question, refusal, begin)
            return
        self._check_committed(seat, commit_index)
        if not seen.keys() >= set(range(begin, commit_index + 1)):
            raise Violation("reads have no gap", f"{seat.name} read {sorted(seen)} of {begin} to {commit_index}")
        for index, value in seen.items():
            self._journal.saw(index, value, who=seat.name)
        self._journal.reads += 1
