"""A client that appends only where it expects to: compare-and-set on the end of the log.

It has one batch under way, and sends it again, under the same sequence, until its outcome is known. What the leader
says must be right: an acknowledgement is of the index that was expected; a refusal rests on an end of the log that is
committed, and not older than what was acknowledged to anybody before the request.
"""

from __future__ import annotations

import asyncio
from random import Random

from dledger.common.batch import build_body, crc32c
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, WrongExpectedIndex
from dledger.group.leader.appender import Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from tests.simulation.answers import Answers, Question
from tests.simulation.clients import IsOver, register
from tests.simulation.groups import SimGroup
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.violation import Violation

PAUSE_S = 0.15
"""Between two contests, on average."""


class ContestClient:
    def __init__(self, name: str, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        self._name = name
        self._group = group
        self._trace = group.cluster.trace
        self._journal = group.journal
        self._random = random
        self._pace = pace
        self._answers = Answers(group)
        self._producer_id = 0
        self._sequence = 0
        self._number = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            leading = self._group.leaders()
            if not leading:
                await asyncio.sleep(0.05)
            elif not self._producer_id:
                self._producer_id = await register(self._random.choice(leading), self._answers, self._random)
                self._sequence = 0
            else:
                await self._contest(is_over)
                await asyncio.sleep(self._random.expovariate(self._pace / PAUSE_S))

    async def _contest(self, is_over: IsOver) -> None:
        """One batch, for the index that the client believes to be the next one, until its outcome is known."""
        self._number += 1
        tag = f"@{self._group.name}|{self._name}-{self._number}"
        records = [f"{tag}-{at}".encode() for at in range(self._random.choice((1, 1, 2)))]
        self._journal.attempted.update(records)
        # Never beyond the end: there a copy of the request that comes late might be taken after the refusal.
        expected, highest = self._journal.highest + 1, self._journal.highest
        is_in_doubt = False
        while not is_over():
            leading = self._group.leaders()
            if not leading:
                await asyncio.sleep(0.05)
                continue
            seat, known = self._random.choice(leading), self._journal.highest
            try:
                question = self._answers.ask(seat)
                async with asyncio.timeout(self._random.choice((0.2, 6.0))):
                    result = await seat.ask(lambda seat=seat: self._append(seat, records, expected))  # type: ignore[misc]
            except (TimeoutError, GoneError, OutcomeUnknown):
                is_in_doubt = True
            except WrongExpectedIndex as refusal:
                self._check_refusal(seat, refusal, expected, known)
                self._journal.refused.update(records)
                return
            except DLedgerError as refusal:
                if self._is_forgotten(question, refusal):
                    self._producer_id = 0
                    break
                self._answers.refused(question, refusal)
            else:
                self._acknowledge(result, records, expected, highest)
                return
            await asyncio.sleep(self._random.uniform(0.01, 0.1))
        if not is_in_doubt:
            self._journal.refused.update(records)
        self._producer_id = 0  # what is in doubt has its sequence

    async def _append(self, seat: Seat, records: list[bytes], expected: int) -> AppendResult:
        body = build_body(records)
        source = Source(self._producer_id, 0, self._sequence)
        appender = seat.replica.appender
        return await appender.append_body(body, crc32c(body), len(records), source, expect_index=expected)

    def _is_forgotten(self, question: Question, refusal: DLedgerError) -> bool:
        """A leader that was deposed without knowing it may not know the producer, or lack batches of it."""
        return self._answers.is_stale(question) and refusal.code in (Code.UNKNOWN_PRODUCER, Code.OUT_OF_ORDER)

    def _acknowledge(self, result: AppendResult, records: list[bytes], expected: int, highest: int) -> None:
        if result.base_index != expected:
            raise Violation("an expected index is kept", f"{records[0]!r} expects {expected} and got {result}")
        self._answers.acknowledged(result)
        self._journal.acknowledge(result.base_index, records, highest)
        self._sequence += len(records)
        self._trace.hit("branch contest won", self._name)

    def _check_refusal(self, seat: Seat, refusal: WrongExpectedIndex, expected: int, known: int) -> None:
        self._trace.hit("branch refused WRONG_EXPECTED_INDEX")
        committed = self._group.watch.chronicle.committed_index
        if refusal.next_index == expected or refusal.next_index <= known or refusal.next_index > committed + 1:
            raise Violation(
                "a wrong index is certain",
                f"{seat.name} says that {refusal.next_index} is the next index, to a client that expects {expected}; "
                f"{known} was acknowledged before, and {committed} is committed",
            )
