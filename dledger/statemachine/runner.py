"""Keeps one state machine up with its log: restores it, applies committed records, and answers waiting submitters.

::

    submit ── append ──▶ log ──▶ read (committed) ──▶ Applier ──▶ StateMachine
       ▲                                                 │ what came of it
       └─────────────────────────────────────────────────┘

Nothing is stored beside the log. A start, and a reader that was overtaken by a trim, begins with the log: with its
first record, or else with a checkpoint (finder.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, OutOfRange, error
from dledger.common.futures import release
from dledger.rpc.client.retry import PASSING
from dledger.statemachine.api import StateMachine
from dledger.statemachine.applier import Applied, Applier, Begun, Dropped, Ended, Event
from dledger.statemachine.checkpoints import Checkpoints
from dledger.statemachine.finder import CheckpointFinder
from dledger.statemachine.machine_log import LeadersLog, LogRecord, MachineLog
from dledger.statemachine.records import Begin, Command, Confirmed, encode
from dledger.statemachine.restoring import restore
from dledger.statemachine.submitter import Submitter
from dledger.statemachine.writer import DamagedState, Pace, View, write_parts

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE = 100
"""They are applied in a few milliseconds."""

Machine = TypeVar("Machine", bound=StateMachine)


class _Differs(Exception):
    """The state is another one than a checkpoint of the same place says."""

    def __init__(self, checkpoint_id: int, least_id: int = 0) -> None:
        super().__init__(checkpoint_id)
        self.checkpoint_id = checkpoint_id
        self.least_id = least_id
        """Where a majority has another state: only its checkpoint, or a later one, will do."""


class Runner(Generic[Machine]):
    """``make`` gives the state before the first record; it is asked again whenever the state is built anew."""

    def __init__(
        self,
        log: MachineLog,
        make: Callable[[], Machine],
        *,
        random: Random,
        name: str = "",
        is_on_a_node: bool = False,
        leader: LeadersLog | None = None,
    ) -> None:
        """``is_on_a_node``: the group's nodes confirm checkpoints. So only confirmed ones are restored from, and a
        state that differs is built anew. Elsewhere a difference ends the runner. ``leader``: where commands go, and
        where ``barrier`` asks; ``log`` itself by default."""
        self.machine = make()
        """As of ``applied_index``."""
        self.restores = 0
        """How often a checkpoint was loaded."""
        self.rebuilds = 0
        """How often the state was built anew because it differed."""
        self.is_rebuilding = False
        """The state was found to differ, and is not there again yet."""
        self.checkpoints = Checkpoints()
        self.on_applied: Callable[[], None] = lambda: None
        """Told when the state may have changed."""
        self._log = log
        self._make = make
        self._name = name
        self._random = random
        self._is_on_a_node = is_on_a_node
        self._leader = leader or log
        self._submitter = Submitter(self._leader, lambda: self.machine, random)
        self._least_id = 0
        """Of the checkpoint that the state may be restored from."""
        self._views: asyncio.Queue[View] = asyncio.Queue()
        self._applier: Applier | None = None
        """None until the log's beginning was applied or restored."""
        self._following: asyncio.Task[None] | None = None
        self._progress: asyncio.Future[None] | None = None
        self._ended_by: BaseException | None = None

    # Following the log -------------------------------------------------------------------------------------------

    @property
    def applied_index(self) -> int:
        """Of the last record that is in the state; −1 before the first, and while the state is being restored."""
        return self._applier.next_index - 1 if self._applier is not None else -1

    @property
    def next_index(self) -> int | None:
        """Of the first record that is not in the state; None while the state is being restored."""
        return self._applier.next_index if self._applier is not None else None

    @property
    def agreed_version(self) -> int:
        """Of the commands that all nodes know, as far as the log says so."""
        return self._applier.sessions.version if self._applier is not None else 1

    def sessions_used(self) -> dict[int, int]:
        """By session: its number of known requests, by which a leader sees the sessions in use."""
        return self._applier.sessions.used() if self._applier is not None else {}

    async def run(self) -> None:
        """Until it is cancelled. Raises the errors after which the state machine cannot go on. These are the errors of
        ``Applier.apply``, and CORRUPT_LOG for a state that differs elsewhere than on a node. Errors that pass by
        themselves are waited out."""
        backoff = Backoff(self._random)
        try:
            while True:
                following = self._following = asyncio.get_running_loop().create_task(
                    self._follow(backoff), name=f"state-machine-{self._name}"
                )
                try:
                    await asyncio.wait([following])
                finally:
                    following.cancel()
                self._judge_end(following)
                await asyncio.sleep(backoff.next_s())
        except BaseException as failure:
            self._end(failure)
            raise

    def _judge_end(self, following: asyncio.Task[None]) -> None:
        """Returns if following the log is to begin again; raises a final error."""
        if following.cancelled():
            return  # by ``rebuild``
        failure = following.exception()
        match failure:
            case None:
                pass
            case _Differs():
                self._on_difference(failure)
            case OutOfRange():
                self._applier = None  # a trim overtook it: it begins anew with the log
            case DLedgerError() if failure.code in PASSING:
                pass
            case _:
                raise failure

    async def _follow(self, backoff: Backoff) -> None:
        applier = self._applier
        if applier is None:
            applier = await self._load()
            self.machine, self._applier = applier.machine, applier  # type: ignore[assignment]  # made by ``make``
            self.is_rebuilding = False
            self._submitter.on_restored(applier)
            self._tell_progress()
        async for records in self._log.read(applier.next_index):
            await self._take_all(applier, records)
            backoff.reset()

    async def _load(self) -> Applier:
        self.checkpoints.forget_state()
        first = await self._log.first_index()
        if first == 0 and not self._least_id:
            return Applier(self._make(), 0)
        finder = CheckpointFinder(needs_confirmation=self._is_on_a_node, least_id=self._least_id)
        restored = await restore(self._log, self._make, finder, first, self._name)
        self.restores += 1
        self.checkpoints.restored(restored.found, is_confirmed=self._is_on_a_node)
        return restored.applier

    async def _take_all(self, applier: Applier, records: Sequence[LogRecord]) -> None:
        """Others have their turn in between, and hear how far it is."""
        for at in range(0, len(records), RECORDS_AT_ONCE):
            if at:
                await asyncio.sleep(0)
            for record in records[at : at + RECORDS_AT_ONCE]:
                self._take(applier, record)  # what it raises ends this state: nobody is to look at it any more
            self._tell_progress()

    def _take(self, applier: Applier, record: LogRecord) -> None:
        event = applier.apply(*record)
        self.checkpoints.applied(applier.log_bytes)
        if event is not None:
            self._on_event(applier, event)

    def _on_event(self, applier: Applier, event: Event) -> None:
        match event:
            case Applied() | Dropped():
                self._submitter.on_event(event)
            case Begun(id, digest, submitter):
                self.checkpoints.begun(event)
                if submitter == self._submitter.id:
                    machine = applier.machine
                    self._views.put_nowait(
                        View(id, digest, applier.sessions.encode(), machine.checkpoint(), machine.fold)
                    )
            case Ended():
                if not self.checkpoints.ended(event):
                    self._tell_difference(event)
                    raise _Differs(event.id)
            case Confirmed():
                if not self.checkpoints.confirmed(event):
                    logger.error("a majority has another state", extra={"machine": self._name, "checkpoint": event.id})
                    raise _Differs(event.id, event.id)

    def _tell_difference(self, ended: Ended) -> None:
        logger.error(
            "the state differs from a checkpoint's of the same place",
            extra={
                "machine": self._name,
                "checkpoint": ended.id,
                "own": ended.digest.hex(),
                "said": ended.said.hex(),
            },
        )

    def _on_difference(self, differs: _Differs) -> None:
        if not self._is_on_a_node:
            raise error(
                Code.CORRUPT_LOG,
                f"the state of {self._name or 'this state machine'} is another one than checkpoint "
                f"{differs.checkpoint_id} says: it stops here; a restart builds it anew from a checkpoint",
            )
        self.rebuild(least_id=differs.least_id)

    def rebuild(self, *, least_id: int = 0) -> None:
        """The state is not to be trusted. It is built anew, from a confirmed checkpoint (``least_id`` or a later one)
        or from the log's first record. Nothing of it is served meanwhile."""
        logger.error("the state is built anew", extra={"machine": self._name, "from_checkpoint": least_id})
        self.rebuilds += 1
        self.is_rebuilding = True
        self._least_id = max(self._least_id, least_id)
        self._applier, self.machine = None, self._make()
        self.checkpoints.forget_state()
        if self._following is not None:
            self._following.cancel()
        self._tell_progress()

    def contradicted(self, checkpoint_id: int) -> None:
        """A majority came to another digest than this node did, which wrote the checkpoint or agreed with it."""
        self.checkpoints.contradicted(checkpoint_id)
        self.rebuild()

    def _tell_progress(self) -> None:
        self.on_applied()
        progress, self._progress = self._progress, None
        release(progress)

    def _end(self, failure: BaseException) -> None:
        self._ended_by = failure
        self._submitter.end(
            lambda: error(
                Code.TERM_CHANGED, "the state machine ended before it came to this command; it may be carried out"
            )
        )
        self._tell_progress()

    # What programs ask -------------------------------------------------------------------------------------------

    async def submit(self, payload: bytes, *, version: int = 0, term: int = 0) -> Any:
        """What ``StateMachine.apply`` returned for it, once it is committed and applied here. ``version``: of this
        kind of command; 0: the latest that may be written.

        Raises Refused when the state machine refuses it, UNSUPPORTED_VERSION while not all nodes know such commands.
        Raises NOT_LEADER when it was to count in another ``term``, OutcomeUnknown when it may be carried out yet.
        Raises the errors of an append when it surely was not appended.
        """
        return await self._submitter.submit(payload, version=self._version(version), term=term)

    async def open_session(self) -> int:
        """For a submitter elsewhere that counts its commands itself. Raises the errors of an append, none of them
        OutcomeUnknown: a session that nobody knows of ends by itself."""
        self._check_running()
        return await self._submitter.open_session()

    async def submit_in(self, session: int, request: int, acknowledged: int, payload: bytes) -> Any:
        """As ``submit``, for a command of a submitter elsewhere: its ``request`` in its ``session``. It may be given
        again, on any node, and has its first answer then. Answers up to ``acknowledged`` are forgotten.

        Raises OutcomeUnknown of code SESSION_EXPIRED when there is no such session, or the answer was forgotten."""
        return await self._submitter.submit_in(
            Command(payload, self._version(0), self._submitter.id, request, 0, session, acknowledged)
        )

    def _version(self, wanted: int) -> int:
        """Of a command. Raises UNSUPPORTED_VERSION, and SHUTTING_DOWN when nothing runs any more."""
        self._check_running()
        agreed = min(self.machine.version, self.agreed_version) if self._is_on_a_node else self.machine.version
        if wanted > agreed:
            raise error(
                Code.UNSUPPORTED_VERSION,
                f"commands of version {wanted} are not written before all nodes know them: start the newer program "
                "everywhere",
            )
        return wanted or agreed

    async def wait_applied(self, index: int) -> None:
        """Returns when the record at ``index``, and all before it, are in the state. Raises what ended the runner."""
        while self.applied_index < index:
            self._check_running()
            if self._progress is None:
                self._progress = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._progress)

    async def barrier(self) -> None:
        """Returns when everything that was committed before the call is in the state: a read of it is linearizable."""
        await self.wait_applied(await self._leader.commit_index())

    async def checkpoint(self, pace: Pace | None = None, *, append: Callable[[bytes], Any] | None = None) -> int:
        """Writes a checkpoint into the log, and returns its id. One at a time. ``pace`` is awaited with the size of
        each part before the next one. ``append`` takes BEGIN and END, and returns the index.

        Raises the errors of an append: the checkpoint is incomplete then, and everybody ignores it. Raises CORRUPT_LOG
        when the state does not match its own digest.
        """
        self._check_running()
        append = append or self._log.append
        began: int = await append(encode(Begin(self._submitter.id)))
        view = await self._view_of(began)
        try:
            end = await write_parts(view, self._log.append, pace)
        except DamagedState:
            raise error(
                Code.CORRUPT_LOG, "the state is not what its digest says: no checkpoint is made of it"
            ) from None
        await append(encode(end))
        return began

    async def _view_of(self, began: int) -> View:
        """Taken where BEGIN was applied. Views of attempts that failed are passed over."""
        await self.wait_applied(began)
        while not self._views.empty():
            view = self._views.get_nowait()
            if view.id == began:
                return view
        raise error(Code.LEADER_NOT_READY, "the state was built anew, and no checkpoint is made now")

    def _check_running(self) -> None:
        if self._ended_by is not None:
            raise error(Code.SHUTTING_DOWN, f"the state machine is not running any more: {self._ended_by}")
