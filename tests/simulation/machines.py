"""A small state machine on a group: what each node has of it, and the truth that its states are held against."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import reduce
from hashlib import blake2b
from operator import xor
from random import Random
from typing import TYPE_CHECKING

from dledger.common.errors import Code, DLedgerError, error
from dledger.group.replica import Replica
from dledger.statemachine.api import DIGEST_BYTES, Refused, StateMachine
from dledger.statemachine.keeper import Keeper, KeeperOptions
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.records import Command, decode
from dledger.statemachine.runner import Runner
from tests.simulation.machine_truth import FORGIVEN_VOTERS, MachineTruth
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.groups import SimGroup
    from tests.simulation.life import GroupLife
    from tests.simulation.seat import Seat

KEYS = 12
KEYS_PER_PART = 3
OPTIONS = KeeperOptions(
    checkpoint_after_bytes=2_500, checkpoint_bytes_per_s=4_000, look_interval_s=0.1, session_idle_s=15.0
)
"""Checkpoints come often, and take so long that leaders change meanwhile."""
FORGOTTEN_SHARE = 0.05
"""Of the appends: their outcome is not told, so that a command is appended again, and a checkpoint left incomplete."""


class Tally(StateMachine):
    """By key: how many commands it had, and a hash over them in order. Its digest is kept up to date with each command,
    as a state machine with much state would."""

    def __init__(self) -> None:
        self.state: dict[str, list[int]] = {}
        self._sum = 0
        """Of all that is in the state, by the commands."""

    def apply(self, command: bytes) -> list[int]:
        key, _, tag = command.rpartition(b"|")[2].decode().partition(":")
        if key == "no":
            raise Refused(f"no to {tag}")
        count, hashed = self.state.get(key, [0, 0])
        of_tag = blake2b(b"%d %s" % (hashed, tag.encode()), digest_size=4).digest()
        before, after = [count, hashed], [count + 1, int.from_bytes(of_tag, "big")]
        self._sum ^= _sum_of(key, after) ^ (_sum_of(key, before) if key in self.state else 0)
        self.state[key] = after
        return after

    def digest(self) -> bytes:
        return self._sum.to_bytes(DIGEST_BYTES, "big") if self.state else b""

    def fold(self, digest: bytes, part: bytes) -> bytes:
        return (int.from_bytes(digest, "big") ^ _sum_of_all(json.loads(part))).to_bytes(DIGEST_BYTES, "big")

    def contents(self) -> bytes:
        """Of the memory itself."""
        return blake2b(json.dumps(self.state, sort_keys=True).encode(), digest_size=DIGEST_BYTES).digest()

    def checkpoint(self) -> Iterator[bytes]:
        keys = sorted(self.state)
        cuts = range(0, len(keys), KEYS_PER_PART)
        pieces = [{key: self.state[key] for key in keys[at : at + KEYS_PER_PART]} for at in cuts]
        return iter([json.dumps(piece).encode() for piece in pieces])

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        self.state = {}
        async for part in parts:
            self.state.update(json.loads(part))
        self._sum = _sum_of_all(self.state)

    def flip(self, random: Random) -> bool:
        """A bit of its memory flips. Sometimes it does so while a command is applied, and is in the digest: others find
        it there. Else its parts are not what the digest says. False where there is no state yet."""
        if self.state:
            key = random.choice(sorted(self.state))
            count, hashed = self.state[key]
            self.state[key] = [count, hashed ^ 1 << random.randrange(32)]
            if random.random() < 0.6:
                self._sum = _sum_of_all(self.state)
        return bool(self.state)


def _sum_of(key: str, value: list[int]) -> int:
    return int.from_bytes(blake2b(json.dumps([key, *value]).encode(), digest_size=DIGEST_BYTES).digest(), "big")


def _sum_of_all(state: dict[str, list[int]]) -> int:
    return reduce(xor, [_sum_of(key, value) for key, value in state.items()], 0)


class TallyTruth(MachineTruth[Tally]):
    def __init__(self, group: SimGroup) -> None:
        super().__init__(group, Tally())
        self.outcomes: dict[bytes, object] = {}
        """By command that was applied."""
        self.refused: set[bytes] = set()
        """Commands that were surely not appended, by what their submitters were told."""

    def contents(self, machine: Tally) -> bytes:
        return machine.contents()

    def carry_out(self, index: int, command: Command) -> None:
        answer: object
        try:
            answer = self._machine.apply(command.payload)
        except Refused as refusal:
            answer = str(refusal)
        self.outcomes[command.payload] = answer
        if command.payload in self.refused:
            raise Violation("what failed is not applied", f"{command.payload!r} in {self._group.name}")


class _ForgetfulLog(LocalLog):
    """Now and then what became of an append is not told, though it is committed; or a command is appended again, as if
    the first answer had been lost."""

    def __init__(self, replica: Callable[[], Replica], random: Random) -> None:
        super().__init__(replica)
        self._chance = random

    async def append(self, record: bytes) -> int:
        index = await super().append(record)
        is_unknown = self._chance.random() < FORGOTTEN_SHARE
        if self._chance.random() < FORGOTTEN_SHARE and isinstance(decode(index, record), Command):
            try:
                index = await super().append(record)
            except DLedgerError:
                is_unknown = True  # one copy is there
        if is_unknown:
            raise error(Code.TERM_CHANGED, "the answer was lost")
        return index


class TallyOnSeat:
    """What one life of a node runs for the state machine of one group."""

    def __init__(self, life: GroupLife, random: Random) -> None:
        self._life = life
        self._group = life.seat.group
        self._damaged: Tally | None = None
        """A bit of its memory flipped."""
        self.runner: Runner[Tally] = Runner(
            _ForgetfulLog(self._replica, random), Tally, random=random, name=life.seat.name, is_on_a_node=True
        )
        self.runner.on_applied = self._on_applied
        self._keeper = Keeper(self.runner, "tally", self._replica, OPTIONS)
        loop = asyncio.get_running_loop()
        works = (self.runner.run(), self._keeper.run())
        self._tasks = [loop.create_task(work, name=f"machine {life.seat.name}") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._on_ended)

    def _replica(self) -> Replica:
        replica = self._life.node.groups.replicas.get(self._group.name)
        if replica is None or replica.failure is not None:
            raise error(Code.LEADER_NOT_READY, "the group is not open here")
        return replica

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail(Violation("a state machine goes on", f"{self._life.seat.name}: {failure!r}"))

    def _fail(self, violation: Violation) -> None:
        self._life.seat.cluster.world.fail(violation)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    @property
    def is_damaged(self) -> bool:
        """Its state was damaged, and is not built anew yet."""
        return self._damaged is self.runner.machine

    def flip(self, random: Random) -> bool:
        if self.runner.next_index is None or not self.runner.machine.flip(random):
            return False
        self._damaged = self.runner.machine
        return True

    def _on_applied(self) -> None:
        hit, name = self._life.seat.cluster.trace.hit, self._life.seat.name
        if self._damaged is not None and not self.is_damaged:
            self._damaged = None
            hit("branch damaged state built anew", name)
        truth = self._group.truth
        assert truth is not None
        try:
            truth.check_state(self._life)
        except Violation as violation:
            self._fail(violation)


def may_flip(group: SimGroup) -> bool:
    """Whether the others would outvote a damaged state: no other one is, and there are enough voters."""
    machines = [seat.life.machine for seat in group.up()]
    is_one_damaged = any(machine is not None and machine.is_damaged for machine in machines)
    return not is_one_damaged and group.voters >= FORGIVEN_VOTERS


def is_level(group: SimGroup, seats: Sequence[Seat]) -> bool:
    """Every state machine has all that is committed, the leader serves, and nothing is left to be trimmed."""
    truth = group.truth
    if truth is None:
        return True
    machines = [seat.life.machine for seat in seats]
    if any(each is None or each.runner.next_index != truth.next_index for each in machines):
        return False
    leaders = [seat.replica for seat in seats if seat.leads]
    return all(each.machine.is_serving and not each.retention._boundaries() for each in leaders)
