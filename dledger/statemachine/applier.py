"""Applying a log's records to a state machine, in order. No IO: records come in, what happened comes out.

Invariants: every record below ``next_index`` is applied, and none above; the state is a function of those records
alone. So position and state cannot get out of step, and nothing but the log has to be durable.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from dledger.common.errors import Code, error
from dledger.statemachine.api import DIGEST_BYTES, Refused, StateMachine
from dledger.statemachine.records import (
    Begin,
    Command,
    Confirmed,
    End,
    EndSession,
    Head,
    OpenSession,
    Part,
    Version,
    decode,
)
from dledger.statemachine.sessions import Answer, Sessions

MAX_BEGUN = 16
"""Digests are kept of so many checkpoints without an end: a leader that dies leaves one."""

PARTS = (Part, Head)
RECORD_COST_BYTES = 64
"""What a record takes in the log beside its own bytes, more or less."""


class Applied(NamedTuple):
    """A command was applied, or refused by the state machine, now or when it came first."""

    command: Command
    answer: Answer


class Dropped(NamedTuple):
    """A command was not applied: its session does not exist, or (``is_of_another_term``) its leader was deposed before
    it was written."""

    command: Command
    is_of_another_term: bool


class Begun(NamedTuple):
    """The state is as of this checkpoint's BEGIN now: the checkpoint's writer takes its view here."""

    id: int
    digest: bytes
    submitter: int


class Ended(NamedTuple):
    """All parts of a checkpoint are in the log. ``digest`` is this node's own as of its BEGIN, ``said`` the writer's.
    An empty ``digest``: this node did not apply its way to that BEGIN, and has no word of its own on it."""

    id: int
    digest: bytes
    said: bytes
    size_bytes: int


REMEDY = "see 'A command that stops all' in docs/statemachine.md"

Event = Applied | Dropped | Begun | Ended | Confirmed


class Applier:
    """Of one state machine. ``next_index`` is the first record that is not applied yet."""

    def __init__(self, machine: StateMachine, next_index: int = 0, sessions: Sessions | None = None) -> None:
        self.machine = machine
        self.sessions = sessions or Sessions()
        self.next_index = next_index
        self.log_bytes = 0
        """About the size of the applied records in the log, without the parts of checkpoints."""
        self._begun: OrderedDict[int, bytes] = OrderedDict()

    def apply(self, index: int, term: int, value: bytes) -> Event | None:
        """Raises UNSUPPORTED_VERSION for a record of a newer program, CORRUPT_LOG for a record of no state machine.
        Raises any exception of ``StateMachine.apply`` but Refused. The state machine must not go on after one of
        these."""
        assert index == self.next_index, f"record {index} comes where {self.next_index} is due"
        try:
            event = self._apply(index, term, value)
        except Exception as failure:
            failure.add_note(f"{type(self.machine).__name__} failed at record {index} of the log: {REMEDY}")
            raise
        self.next_index = index + 1
        return event

    def _apply(self, index: int, term: int, value: bytes) -> Event | None:
        record = decode(index, value)
        if not isinstance(record, PARTS):
            self.log_bytes += len(value) + RECORD_COST_BYTES
        if isinstance(record, Command):
            return self._take_command(index, term, record)
        match record:
            case OpenSession():
                self.sessions.open(index + 1)
            case EndSession():
                if record.term in (0, term):
                    self.sessions.end(record.session)
            case Version():
                self._check_version(index, "opens the way for commands", record.version)
                self.sessions.version = max(self.sessions.version, record.version)
            case Begin():
                return self._begin(index, record)
            case End():
                return Ended(record.id, self._begun.pop(record.id, b""), record.digest, record.size_bytes)
            case Confirmed():
                return record
            case Part() | Head():
                pass  # it tells nothing to a program that has the state already
        return None

    def _begin(self, index: int, record: Begin) -> Begun:
        digest = joined_digest(self.sessions.encode(), self.machine.digest())
        self._begun[index] = digest
        if len(self._begun) > MAX_BEGUN:
            self._begun.popitem(last=False)
        return Begun(index, digest, record.submitter)

    def _check_version(self, index: int, what: str, version: int) -> None:
        if version > self.machine.version:
            raise error(
                Code.UNSUPPORTED_VERSION,
                f"record {index} {what} of version {version}, and this program knows {self.machine.version}: "
                "start the newer one",
            )

    def _take_command(self, index: int, term: int, command: Command) -> Applied | Dropped:
        self._check_version(index, "is a command", command.version)
        session = None
        if command.session:
            session = self.sessions.use(command.session, command.request, command.acknowledged)
            if session is None:
                return Dropped(command, is_of_another_term=False)
            known = session.answers.get(command.request)
            if known is not None:
                return Applied(command, known)
        if command.term not in (0, term):
            return Dropped(command, is_of_another_term=True)
        answer = self._apply_command(command.payload)
        if session is not None:
            session.answers[command.request] = answer
        return Applied(command, answer)

    def _apply_command(self, payload: bytes) -> Answer:
        machine = self.machine
        try:
            answer = machine.apply(payload)
        except Refused as refusal:
            return Answer(machine.encode_refusal(refusal), is_refusal=True)
        return Answer(machine.encode_answer(answer))


def joined_digest(head: bytes, of_machine: bytes) -> bytes:
    """The digest of a whole state: of its head (``Sessions.encode``) and of the state machine's own."""
    return blake2b(head + of_machine, digest_size=DIGEST_BYTES).digest() if head else of_machine
