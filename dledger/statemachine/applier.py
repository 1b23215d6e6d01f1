"""Applying a log's records to a state machine, in order. No IO: records come in, what happened comes out.

Invariants: every record below ``next_index`` is applied, and none above; the state is a function of those records
alone. So position and state cannot get out of step, and nothing but the log has to be durable.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from dledger.common.errors import Code, error
from dledger.statemachine.api import Refused, StateMachine
from dledger.statemachine.records import Begin, Command, End, Part, decode

MAX_BEGUN = 16
"""Checkpoints that were begun and not ended whose digests are kept: a leader that dies leaves one."""


class Applied(NamedTuple):
    """A command was applied, or refused by the state machine (``refusal``)."""

    submitter: int
    request: int
    value: Any
    refusal: Refused | None = None


class Begun(NamedTuple):
    """The state is as of this checkpoint's BEGIN now: whoever writes the checkpoint takes its view here."""

    id: int
    digest: bytes
    submitter: int


class Ended(NamedTuple):
    """All parts of a checkpoint are in the log. ``digest`` is this node's own as of its BEGIN, ``said`` the writer's.
    An empty ``digest``: this node did not apply its way to that BEGIN, and has no word of its own on it."""

    id: int
    digest: bytes
    said: bytes


Event = Applied | Begun | Ended


class Applier:
    """Of one state machine. ``next_index`` is the first record that is not applied yet."""

    def __init__(self, machine: StateMachine, next_index: int = 0) -> None:
        self.machine = machine
        self.next_index = next_index
        self._begun: OrderedDict[int, bytes] = OrderedDict()

    def apply(self, index: int, term: int, value: bytes) -> Event | None:
        """Raises UNSUPPORTED_VERSION for what a newer program wrote, CORRUPT_LOG for what is no record of a state
        machine, and whatever ``StateMachine.apply`` raises but Refused: the state machine must not go on then."""
        assert index == self.next_index, f"record {index} comes where {self.next_index} is due"
        record = decode(index, value)
        event: Event | None = None
        match record:
            case Command():
                event = self._apply_command(index, term, record)
            case Begin(submitter):
                digest = self.machine.digest()
                self._begun[index] = digest
                if len(self._begun) > MAX_BEGUN:
                    self._begun.popitem(last=False)
                event = Begun(index, digest, submitter)
            case End():
                event = Ended(record.id, self._begun.pop(record.id, b""), record.digest)
            case Part():
                pass  # it tells nothing to who has the state already
        self.next_index = index + 1
        return event

    def _apply_command(self, index: int, term: int, command: Command) -> Applied | None:
        if command.version > self.machine.version:
            raise error(
                Code.UNSUPPORTED_VERSION,
                f"record {index} is a command of version {command.version}, and this program knows "
                f"{self.machine.version}: start the newer one",
            )
        if command.term not in (0, term):
            return None  # its leader was deposed before it was written
        try:
            value = self.machine.apply(command.payload)
        except Refused as refusal:
            return Applied(command.submitter, command.request, None, refusal)
        return Applied(command.submitter, command.request, value)
