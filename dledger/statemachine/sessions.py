"""Sessions: the first answer to each command is kept until its submitter has it, so a retry gets it again. No IO.

A session is made by a record, and its id is that record's place, so an id is never used twice. A command of a session
that does not exist is not applied: its outcome is unknown, as an earlier copy of it may have been.

All of this is part of the state: every node has the same table, and it is in the digest and in the checkpoints.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from google.protobuf.message import DecodeError

from dledger.common.errors import Code, error
from dledger.v1 import statemachine_pb2 as pb

MAX_ANSWERS = 64
"""Of a session, not acknowledged: so many commands may be under way in it."""
MAX_SESSIONS = 1_000
"""When another one is made, the one that was used the longest ago ends."""


class Answer(NamedTuple):
    """What became of a command, as its state machine encoded it."""

    value: bytes
    is_refusal: bool = False


class Session:
    __slots__ = ("acknowledged", "answers")

    def __init__(self) -> None:
        self.acknowledged = 0
        """The submitter needs the answers up to this request no more."""
        self.answers: dict[int, Answer] = {}
        """By request: what it may still ask for again."""

    def forget(self, acknowledged: int) -> None:
        """The answers up to there."""
        before, self.acknowledged = self.acknowledged, acknowledged
        if acknowledged - before > len(self.answers):
            self.answers = {each: answer for each, answer in self.answers.items() if each > acknowledged}
        else:
            for each in range(before + 1, acknowledged + 1):
                self.answers.pop(each, None)


class Sessions:
    """Of one state machine. ``version``: of the commands that all voters know."""

    def __init__(self) -> None:
        self.version = 1
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        """In the order in which they were used last."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def used(self) -> dict[int, int]:
        """By session: the highest request that is known of it. It rises as the session is used."""
        return {at: max(each.answers, default=each.acknowledged) for at, each in self._sessions.items()}

    def open(self, session_id: int) -> None:
        self._sessions[session_id] = Session()
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def end(self, session_id: int) -> None:
        """Does nothing when there is none."""
        self._sessions.pop(session_id, None)

    def use(self, session_id: int, request: int, acknowledged: int) -> Session | None:
        """The session, for this command; None: the command must not be applied, and its outcome is unknown.

        Answers up to ``acknowledged`` are forgotten. A session ends if its submitter has more commands under way than
        it may.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return None
        if acknowledged > session.acknowledged:
            session.forget(acknowledged)
        if request > session.acknowledged + MAX_ANSWERS:
            self.end(session_id)
            return None
        self._sessions.move_to_end(session_id)
        return None if request <= session.acknowledged else session

    def answer(self, session_id: int, request: int) -> Answer | None:
        session = self._sessions.get(session_id)
        return session.answers.get(request) if session is not None else None

    # Checkpoints -------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Empty while there is nothing to say; the same table gives the same bytes on every node."""
        if not self._sessions and self.version == 1:
            return b""
        head = pb.MachineHead(version=self.version)
        for session_id, session in self._sessions.items():
            answers = [
                pb.MachineHead.Answer(request=each, is_refusal=answer.is_refusal, value=answer.value)
                for each, answer in sorted(session.answers.items())
            ]
            head.sessions.append(
                pb.MachineHead.Session(id=session_id, acknowledged=session.acknowledged, answers=answers)
            )
        return head.SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> Sessions:
        """Raises CORRUPT_LOG."""
        sessions = cls()
        if not data:
            return sessions
        try:
            head = pb.MachineHead.FromString(data)
        except DecodeError as reason:
            raise error(Code.CORRUPT_LOG, f"the sessions of a checkpoint cannot be read: {reason}") from reason
        sessions.version = head.version
        for each in head.sessions:
            session = sessions._sessions[each.id] = Session()
            session.acknowledged = each.acknowledged
            session.answers = {it.request: Answer(it.value, it.is_refusal) for it in each.answers}
        return sessions
