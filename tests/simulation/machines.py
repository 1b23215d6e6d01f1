"""A state machine on a group: what each node has of it, and the truth that its states are held against.

The truth applies what is committed, record by record, in its own way: each request of a session that exists once. A
node's state must equal the truth as of the same record, unless its memory was damaged and it has not found out yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import reduce
from hashlib import blake2b
from operator import xor
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from dledger.common.batch import records_of
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import LogPoint, TrimPoint
from dledger.group.replica import Replica
from dledger.log.frame.frame import Frame
from dledger.statemachine.api import DIGEST_BYTES, Refused, StateMachine
from dledger.statemachine.keeper import Keeper, KeeperOptions
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.records import (
    Begin,
    Command,
    Confirmed,
    End,
    EndSession,
    Head,
    OpenSession,
    Part,
    decode,
)
from dledger.statemachine.runner import Runner
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
FORGIVEN_VOTERS = 3
"""With fewer a damaged state is the majority's."""


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


class _Begun(NamedTuple):
    """A checkpoint that is being written: the truth as of its BEGIN, and what was written of it."""

    truth: list[bytes]
    parts: list[bytes]
    heads: list[bytes]


class MachineTruth:
    """Of one group. Told of every frame that is written, and of each point when it is committed."""

    def __init__(self, group: SimGroup) -> None:
        self._group = group
        self._machine = Tally()
        self._records: dict[LogPoint, list[bytes]] = {}
        self._sessions: dict[int, int] = {}
        """Those that exist: up to where their answers are acknowledged."""
        self._answers: dict[tuple[int, int], object] = {}
        self._contents: list[bytes] = [self._machine.contents()]
        """Before each record, and behind the last one."""
        self._begun: dict[int, _Begun] = {}
        self.outcomes: dict[bytes, object] = {}
        """By command that was applied."""
        self.refused: set[bytes] = set()
        """Commands that were surely not appended, by what their submitters were told."""
        self.right: dict[int, int] = {}
        """Checkpoints that are complete, and are what the truth was: where they end."""
        self.confirmed: set[int] = set()
        self.is_spoiled = False
        """A damaged state was confirmed where it had the majority: of too few voters."""

    @property
    def next_index(self) -> int:
        return len(self._contents) - 1

    def written(self, frame: Frame) -> None:
        if frame.header.count and frame.header.base_index >= self.next_index:
            self._records[frame.header.point] = records_of(frame.body, frame.header.count)

    def committed(self, point: LogPoint, base_index: int, term: int) -> None:
        for index, value in enumerate(self._records.pop(point, ()), base_index):
            self._apply(index, term, value)
            self._contents.append(self._machine.contents())

    def _apply(self, index: int, term: int, value: bytes) -> None:
        match decode(index, value):
            case OpenSession():
                self._sessions[index + 1] = 0
            case EndSession(session, of_term) if of_term in (0, term):
                if self._sessions.pop(session, None) is not None:
                    self._group.cluster.trace.hit("branch session ended", self._group.name)
            case Command() as command:
                self._apply_command(command)
            case Begin():
                self._begun[index] = _Begun(list(self._machine.checkpoint()), [], [])
            case Part(id, number, data) if id in self._begun and number == len(self._begun[id].parts):
                self._begun[id].parts.append(data)
            case Head(id, number, data) if id in self._begun and number == len(self._begun[id].heads):
                self._begun[id].heads.append(data)
            case End() as end:
                self._end(index, end)
            case Confirmed(id, _):
                self._confirm(id)
            case _:
                pass

    def _apply_command(self, command: Command) -> None:
        request = command.session, command.request
        if command.session not in self._sessions:
            self._group.cluster.trace.hit("branch command of no session", self._group.name)
            return
        acknowledged = max(self._sessions[command.session], command.acknowledged)
        self._sessions[command.session] = acknowledged
        if request in self._answers or command.request <= acknowledged:
            self._group.cluster.trace.hit("branch retried command", self._group.name)
            return
        answer: object
        try:
            answer = self._machine.apply(command.payload)
        except Refused as refusal:
            answer = str(refusal)
        self._answers[request] = self.outcomes[command.payload] = answer
        if command.payload in self.refused:
            raise Violation("what failed is not applied", f"{command.payload!r} in {self._group.name}")

    def _end(self, index: int, end: End) -> None:
        begun = self._begun.pop(end.id, None)
        hit = self._group.cluster.trace.hit
        if begun is None or (len(begun.parts), len(begun.heads)) != (end.parts, end.heads):
            raise Violation("an END stands behind all parts", f"{end} in {self._group.name}")
        digest = b""
        for part in begun.parts:
            digest = self._machine.fold(digest, part)
        head = b"".join(begun.heads)
        if end.digest != (blake2b(head + digest, digest_size=16).digest() if head else digest):
            raise Violation("an END says what the parts are", f"{end} in {self._group.name}")
        if begun.parts == begun.truth:
            self.right[end.id] = index
            hit("branch checkpoint complete", self._group.name)
        else:
            hit("branch checkpoint of a damaged state", self._group.name)

    def _confirm(self, checkpoint_id: int) -> None:
        self.confirmed.add(checkpoint_id)
        if checkpoint_id not in self.right:
            self.wrong(f"checkpoint {checkpoint_id} is confirmed")
        self._group.cluster.trace.hit("branch checkpoint confirmed", self._group.name)

    def wrong(self, what: str) -> None:
        """A damaged state prevails, as may be where it was one of too few."""
        if self._group.voters >= FORGIVEN_VOTERS:
            raise Violation("a damaged state does not prevail", f"{what} in {self._group.name}")
        self.is_spoiled = True

    # What is held against it -------------------------------------------------------------------------------------

    def check_trim(self, who: str, trim: TrimPoint) -> None:
        """A trim leaves a checkpoint that is confirmed, and right."""
        left = [each for each in self.confirmed if each >= trim.first_index and (each in self.right or self.is_spoiled)]
        if not left:
            raise Violation("a trim leaves a confirmed checkpoint", f"{who} trims before {trim.first_index}")

    def check_state(self, share: GroupLife) -> None:
        machine = share.machine
        assert machine is not None
        next_index, own = machine.runner.next_index, machine.runner.checkpoints.own
        if next_index is None or self.is_spoiled:
            return
        differs = own is not None and own.digest != own.said
        if own is not None and differs and next_index > self.right.get(own.id, next_index):
            raise Violation("a state that differs is built anew", f"{share.seat.name} goes on behind {own.id}")
        if machine.is_damaged:
            return
        if next_index > self.next_index:
            raise Violation("only what is committed is applied", f"{share.seat.name} is at {next_index}")
        if machine.runner.machine.contents() != self._contents[next_index]:
            raise Violation(
                "a state is that of the commands", f"{share.seat.name} has another one before record {next_index}"
            )


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


class SeatMachine:
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
