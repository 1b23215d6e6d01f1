"""The truth of a state machine on a group's log: what its committed records come to, applied one by one.

It applies them in its own way: each request of a session that exists once. A node's state must equal the truth as of
the same record, unless its memory was damaged and it has not found out yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from dledger.common.batch import records_of
from dledger.common.types import LogPoint, TrimPoint
from dledger.log.frame.frame import Frame
from dledger.statemachine import sessions
from dledger.statemachine.api import StateMachine
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

Machine = TypeVar("Machine", bound=StateMachine)

FORGIVEN_VOTERS = 3
"""With fewer a damaged state is the majority's."""


class SeatMachine(Protocol):
    """What one life of a node runs for the state machine of one group."""

    @property
    def runner(self) -> Runner[Any]: ...

    @property
    def is_damaged(self) -> bool:
        """Its state was damaged, and is not built anew yet."""

    def flip(self, random: Random) -> bool:
        """Something happens to its state. False where there is none yet."""

    def stop(self) -> None: ...


class _Begun(NamedTuple):
    """A checkpoint that is being written: the truth as of its BEGIN, and what was written of it."""

    truth: list[bytes]
    parts: list[bytes]
    heads: list[bytes]


class MachineTruth(ABC, Generic[Machine]):
    """Of one group. Told of every frame that is written, and of each point when it is committed."""

    def __init__(self, group: SimGroup, machine: Machine) -> None:
        self._group = group
        self._hit = group.cluster.trace.hit
        self._machine = machine
        self._records: dict[LogPoint, list[bytes]] = {}
        self._sessions: dict[int, int] = {}
        """Those that exist: up to where their answers are acknowledged. The one that was used last is the last."""
        self._answered: set[tuple[int, int]] = set()
        """The requests of sessions that were carried out."""
        self._contents: list[bytes] = [self.contents(machine)]
        """Before each record, and behind the last one."""
        self._begun: dict[int, _Begun] = {}
        self.right: dict[int, int] = {}
        """Checkpoints that are complete, and are what the truth was: where they end."""
        self.confirmed: set[int] = set()
        self.is_spoiled = False
        """A damaged state was confirmed where it had the majority: of too few voters."""

    @property
    def next_index(self) -> int:
        return len(self._contents) - 1

    @abstractmethod
    def contents(self, machine: Machine) -> bytes:
        """What two states that are equal have in common, and no others."""

    @abstractmethod
    def carry_out(self, index: int, command: Command) -> None:
        """A command counts: it is applied."""

    def written(self, frame: Frame) -> None:
        if frame.header.count and frame.header.base_index >= self.next_index:
            self._records[frame.header.point] = records_of(frame.body, frame.header.count)

    def committed(self, point: LogPoint, base_index: int, term: int) -> None:
        for index, value in enumerate(self._records.pop(point, ()), base_index):
            self._apply(index, term, value)
            self._contents.append(self.contents(self._machine))

    def _apply(self, index: int, term: int, value: bytes) -> None:
        match decode(index, value):
            case OpenSession():
                self._open_session(index + 1)
            case EndSession(session, of_term) if of_term in (0, term):
                if self._sessions.pop(session, None) is not None:
                    self._hit("branch session ended", self._group.name)
            case Command() as command:
                self._take_command(index, term, command)
            case Begin():
                self._begun[index] = _Begun([part for part in self._machine.checkpoint() if part], [], [])
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

    def _open_session(self, session: int) -> None:
        self._sessions[session] = 0
        if len(self._sessions) > sessions.MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
            self._hit("branch session made room", self._group.name)

    def _take_command(self, index: int, term: int, command: Command) -> None:
        request = command.session, command.request
        if command.session not in self._sessions:
            self._hit("branch command of no session", self._group.name)
            return
        acknowledged = max(self._sessions.pop(command.session), command.acknowledged)
        if command.request > acknowledged + sessions.MAX_ANSWERS:
            return  # its client has too much under way: the session ends
        self._sessions[command.session] = acknowledged
        if request in self._answered or command.request <= acknowledged:
            self._hit("branch retried command", self._group.name)
        elif command.term not in (0, term):
            self._hit("branch command of an earlier term", self._group.name)
        else:
            self._answered.add(request)
            self.carry_out(index, command)

    def _end(self, index: int, end: End) -> None:
        begun = self._begun.pop(end.id, None)
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
            self._hit("branch checkpoint complete", self._group.name)
        else:
            self._hit("branch checkpoint of a damaged state", self._group.name)

    def _confirm(self, checkpoint_id: int) -> None:
        self.confirmed.add(checkpoint_id)
        if checkpoint_id not in self.right:
            self.wrong(f"checkpoint {checkpoint_id} is confirmed")
        self._hit("branch checkpoint confirmed", self._group.name)

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
        if self.contents(machine.runner.machine) != self._contents[next_index]:
            raise Violation(
                "a state is that of the commands", f"{share.seat.name} has another one before record {next_index}"
            )
