"""Submits commands to a state machine's log, each in a session, and waits for their answers.

A command is appended again under the same request if its append has an unknown outcome. The state machine applies one
of the copies, and both get its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol

from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, error
from dledger.common.futures import release, retrieve
from dledger.rpc.client.retry import PASSING
from dledger.statemachine.api import StateMachine
from dledger.statemachine.applier import Applied, Applier, Dropped
from dledger.statemachine.records import Command, OpenSession, encode
from dledger.statemachine.sessions import MAX_ANSWERS, Answer

RETRY_S = 10.0
"""How long a command of unknown outcome is appended again."""


NOT_APPLIED = {"applied": "no"}
"""In the metadata of SESSION_EXPIRED, if this attempt surely changed nothing."""


class AppendsRecords(Protocol):
    """A state machine's log, as far as it matters here."""

    async def append(self, record: bytes) -> int:
        """The index of the record, once it is committed. Raises OutcomeUnknown when it may have been or be yet."""
        ...


@dataclass(slots=True)
class Waiting:
    """For one command."""

    session: int
    answer: asyncio.Future[Answer]
    appends: int = 0
    index: int | None = None
    """Where a copy of it surely is."""
    was_dropped: bool = False
    """A copy of it was not applied, for want of its session."""


class Submitter:
    def __init__(self, log: AppendsRecords, machine: Callable[[], StateMachine], random: Random) -> None:
        """``machine``: the present one, which encodes the answers."""
        self.id = random.getrandbits(64)
        self._log = log
        self._machine = machine
        self._random = random
        self._opening: asyncio.Future[int] | None = None
        """Done when there is a session; its result is the session's id."""
        self._asked = 0
        """Requests for sessions."""
        self._requests = 0
        """Of the present session."""
        self._acknowledged = 0
        """Up to here nobody waits for an answer any more."""
        self._finished: set[int] = set()
        """Requests above that nobody waits for."""
        self._waiting: dict[tuple[int, int], Waiting] = {}
        """By session and request."""
        self._relayed: dict[tuple[int, int], asyncio.Task[Answer]] = {}
        """The same, of those that were counted elsewhere."""
        self._has_room: asyncio.Future[None] | None = None
        self._restored_at = 0
        """Records below were not seen one by one, but for those that were before the last restore."""

    # What the runner tells ---------------------------------------------------------------------------------------

    def on_event(self, event: Applied | Dropped) -> None:
        match event:
            case Applied(command, answer):
                self._answer(command, answer)
            case Dropped(command, is_of_another_term):
                self._refuse(command, is_of_another_term=is_of_another_term)

    def on_restored(self, applier: Applier) -> None:
        """The state was replaced by a later one: what was applied meanwhile stands in its sessions."""
        for (session, request), waiting in list(self._waiting.items()):
            answer = applier.sessions.answer(session, request)
            is_passed = waiting.index is not None and waiting.index < applier.next_index
            if waiting.answer.done():
                continue
            if answer is not None:
                waiting.answer.set_result(answer)
            elif is_passed:
                waiting.answer.set_exception(_expired())
        self._restored_at = applier.next_index

    def end(self, failure: Callable[[], DLedgerError]) -> None:
        """The state machine does not go on."""
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(failure())

    def _answer(self, command: Command, answer: Answer) -> None:
        waiting = self._of(command)
        if waiting is not None:
            waiting.answer.set_result(answer)

    def _refuse(self, command: Command, *, is_of_another_term: bool) -> None:
        waiting = self._of(command)
        if waiting is None:
            return
        if is_of_another_term:
            waiting.answer.set_exception(
                error(Code.NOT_LEADER, "the term of the command is over: it was not carried out")
            )
        else:
            if self._is_present(command.session):
                self._opening = None
            waiting.was_dropped = True
            waiting.answer.set_exception(_expired())

    def _of(self, command: Command) -> Waiting | None:
        if command.submitter != self.id:
            return None
        waiting = self._waiting.get((command.session, command.request))
        return None if waiting is None or waiting.answer.done() else waiting

    # Submitting --------------------------------------------------------------------------------------------------

    async def submit(self, payload: bytes, *, version: int, term: int = 0) -> Any:
        """What ``StateMachine.apply`` returned for it. Raises Refused, and NOT_LEADER when it was to count in another
        term. Raises the errors of an append when it surely was not appended. Raises OutcomeUnknown, SESSION_EXPIRED
        among these, when it may be carried out yet, or was."""
        while True:
            if self._is_full:
                await self._wait_for_room()
            session = await self._session()
            if not self._is_present(session) or self._is_full:
                continue  # the session ended, or others took the room, while this one waited
            self._requests += 1
            command = Command(payload, version, self.id, self._requests, term, session, self._acknowledged)
            waiting = Waiting(session, asyncio.get_running_loop().create_future())
            self._waiting[session, command.request] = waiting
            try:
                answer = await self._carry_out(command, waiting)
            except OutcomeUnknown as unknown:
                if unknown.code is Code.SESSION_EXPIRED and waiting.was_dropped and waiting.appends == 1:
                    continue  # its only copy was not applied
                raise
            finally:
                self._finish(command)
            return self._decoded(answer)

    async def submit_in(self, command: Command) -> Any:
        """One of a submitter that counts the commands of its session itself, and may give it again. Raises as
        ``submit``. Raises SESSION_EXPIRED also where an earlier copy was carried out, and its answer is forgotten;
        with ``NOT_APPLIED`` where this attempt changed nothing."""
        key = command.session, command.request
        relayed = self._relayed.get(key)
        if relayed is None:
            # A task of its own: it goes on when the first of those that wait for it gives up.
            relayed = asyncio.get_running_loop().create_task(self._relay(command), name="relayed-command")
            self._relayed[key] = relayed
            relayed.add_done_callback(partial(self._on_relayed, key))
        return self._decoded(await asyncio.shield(relayed))

    async def _relay(self, command: Command) -> Answer:
        key = command.session, command.request
        waiting = self._waiting[key] = Waiting(command.session, asyncio.get_running_loop().create_future())
        try:
            return await self._carry_out(command, waiting)
        except OutcomeUnknown as unknown:
            if unknown.code is Code.SESSION_EXPIRED and waiting.was_dropped and waiting.appends == 1:
                raise error(unknown.code, str(unknown), **NOT_APPLIED) from None
            raise
        finally:
            self._forget(key)

    def _on_relayed(self, key: tuple[int, int], relayed: asyncio.Task[Answer]) -> None:
        del self._relayed[key]
        retrieve(relayed)  # perhaps nobody waits for it any more

    def _decoded(self, answer: Answer) -> Any:
        if answer.is_refusal:
            raise self._machine().decode_refusal(answer.value)
        return self._machine().decode_answer(answer.value)

    async def _carry_out(self, command: Command, waiting: Waiting) -> Answer:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RETRY_S
        backoff: Backoff | None = None
        unknown: OutcomeUnknown | None = None
        record = encode(command)
        while True:
            waiting.appends += 1
            try:
                waiting.index = await self._log.append(record)
                if waiting.index < self._restored_at and not waiting.answer.done():
                    raise _expired()
            except OutcomeUnknown as failure:
                unknown = failure
            except DLedgerError as refusal:
                if unknown is None:
                    raise
                if refusal.code not in PASSING:
                    raise unknown from refusal
            else:
                return await waiting.answer
            backoff = backoff or Backoff(self._random)
            await asyncio.wait([waiting.answer], timeout=backoff.next_s())
            if waiting.answer.done():
                return waiting.answer.result()
            if loop.time() > until_s:
                raise unknown

    def _finish(self, command: Command) -> None:
        """Nobody waits for it any more."""
        self._forget((command.session, command.request))
        if self._is_present(command.session):
            self._finished.add(command.request)
            while self._acknowledged + 1 in self._finished:
                self._acknowledged += 1
                self._finished.discard(self._acknowledged)
        release(self._has_room)

    def _forget(self, key: tuple[int, int]) -> None:
        waiting = self._waiting.pop(key)
        if not waiting.answer.done():
            waiting.answer.cancel()
        else:
            retrieve(waiting.answer)  # a caller that gave up does not hear of it

    def _is_present(self, session: int) -> bool:
        opening = self._opening
        return opening is not None and opening.done() and opening.result() == session

    @property
    def _is_full(self) -> bool:
        return self._opening is not None and self._requests - self._acknowledged >= MAX_ANSWERS

    async def _wait_for_room(self) -> None:
        """Of a session's requests so many at most are without an answer: the later ones wait."""
        while self._is_full:
            if self._has_room is None or self._has_room.done():
                self._has_room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._has_room)

    async def _session(self) -> int:
        """Raises what an append raises: no command was appended then."""
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.ensure_future(self._open())
            opening.add_done_callback(self._opened)
        return opening.result() if opening.done() else await asyncio.shield(opening)

    def _opened(self, opening: asyncio.Future[int]) -> None:
        is_there = not opening.cancelled() and opening.exception() is None
        if not is_there and self._opening is opening:
            self._opening = None

    async def open_session(self) -> int:
        """A new one. It is made when its record is applied, so before any command in it. Raises what an append raises,
        but not OutcomeUnknown: no command was appended."""
        self._asked += 1
        try:
            return await self._log.append(encode(OpenSession(self.id, self._asked))) + 1
        except OutcomeUnknown as unknown:
            raise error(
                Code.LEADER_NOT_READY, f"no session could be opened, and no command was appended: {unknown}"
            ) from unknown

    async def _open(self) -> int:
        session = await self.open_session()
        # Here, and not in a callback: a caller that asks before the callback would count on from the session before.
        self._requests = self._acknowledged = 0
        self._finished.clear()
        return session


def _expired() -> DLedgerError:
    return error(
        Code.SESSION_EXPIRED,
        "the session of this command ended, and with it what became of the command: it may have been carried out",
    )
