"""A client of a group's state machine: submits commands, and reads behind a barrier."""

from __future__ import annotations

import asyncio
from random import Random

from dledger.common.errors import DLedgerError, OutcomeUnknown
from dledger.statemachine.api import Refused
from tests.simulation.answers import Answers
from tests.simulation.clients import IsOver
from tests.simulation.groups import SimGroup
from tests.simulation.machine_truth import SeatMachine
from tests.simulation.machines import KEYS, TallyTruth
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.violation import Violation

REFUSED_SHARE = 0.05
"""Of the commands: the state machine refuses them."""
READ_SHARE = 0.2


class MachineClient:
    """Asks whoever leads. Never submits a command again: the node that was asked does."""

    def __init__(self, name: str, group: SimGroup, random: Random, *, pace: float = 1.0) -> None:
        assert isinstance(group.truth, TallyTruth)
        self._name = name
        self._group = group
        self._truth = group.truth
        self._trace = group.cluster.trace
        self._random = random
        self._pace = pace
        self._answers = Answers(group)
        self._number = 0
        self.acknowledged = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            seats = [seat for seat in self._group.leaders() if seat.life.machine is not None]
            if seats:
                seat = self._random.choice(seats)
                together = [self._submit(seat) for _ in range(self._random.choice((1, 1, 3)))]
                if self._random.random() < READ_SHARE:
                    together.append(self._read(seat))
                await asyncio.gather(*together)
            await asyncio.sleep(self._random.expovariate(self._pace / 0.15))

    def _command(self) -> bytes:
        self._number += 1
        is_to_fail = self._random.random() < REFUSED_SHARE
        key = "no" if is_to_fail else f"k{self._random.randrange(KEYS)}"
        return f"@{self._group.name}|{key}:{self._name}-{self._number}".encode()

    async def _submit(self, seat: Seat) -> None:
        command, machine = self._command(), seat.life.machine
        assert machine is not None

        async def submit() -> object:
            try:
                return await machine.runner.submit(command)
            except Refused as refusal:
                return str(refusal)

        before = self._trust(machine)
        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(self._random.choice((1.0, 12.0))):
                answer = await seat.ask(submit)
        except (TimeoutError, GoneError):
            self._trace.hit("branch command unknown", self._name)
        except OutcomeUnknown as unknown:
            self._trace.hit(f"branch command {unknown.code.name}", self._name)
        except DLedgerError as refusal:
            self._answers.refused(question, refusal)
            self._refuse(command)
        else:
            self._judge(command, answer, is_trusted=before is not None and before == self._trust(machine))

    def _trust(self, machine: SeatMachine) -> int | None:
        """Answers of one state are alike; of a damaged one nothing is known."""
        return None if machine.is_damaged or self._truth.is_spoiled else machine.runner.rebuilds

    def _refuse(self, command: bytes) -> None:
        self._truth.refused.add(command)
        if command in self._truth.outcomes:
            raise Violation("what failed is not applied", f"{command!r} in {self._group.name}")

    def _judge(self, command: bytes, answer: object, *, is_trusted: bool) -> None:
        if command not in self._truth.outcomes:
            raise Violation("what is answered was applied", f"{command!r} in {self._group.name}")
        if is_trusted and answer != self._truth.outcomes[command]:
            told = f"{command!r} has {answer}, and first had {self._truth.outcomes[command]}"
            raise Violation("a command has its first answer", f"{told}, in {self._group.name}")
        self.acknowledged += 1
        self._group.journal.appends += 1

    async def _read(self, seat: Seat) -> None:
        """Linearizable: all that was committed when it was asked is in the state."""
        machine = seat.life.machine
        assert machine is not None
        least = self._truth.next_index

        async def read() -> int | None:
            await machine.runner.barrier()
            return machine.runner.next_index

        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(2):
                next_index = await seat.ask(read)
        except (TimeoutError, GoneError):
            return
        except DLedgerError as refusal:
            self._answers.refused(question, refusal)
            return
        if next_index is not None and next_index < least:
            raise Violation("linearizable reads", f"{seat.name} is before {next_index}, {least} were committed")
