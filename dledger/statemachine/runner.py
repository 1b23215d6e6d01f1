"""Keeps one state machine up with its log: restores it, applies what is committed, and tells who waits.

::

    submit ── append ──▶ log ──▶ read (committed) ──▶ Applier ──▶ StateMachine
       ▲                                                 │ what came of it
       └─────────────────────────────────────────────────┘

Nothing is stored beside the log. A start, and a reader that was overtaken by a trim, begins with the log: with its
first record, or else with the first complete checkpoint (finder.py), which is read twice: to its END, then from BEGIN.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, OutOfRange, error
from dledger.rpc.client.retry import PASSING
from dledger.statemachine.api import MAX_PART_BYTES, StateMachine
from dledger.statemachine.applier import Applied, Applier, Begun, Ended
from dledger.statemachine.finder import Checkpoint, CheckpointFinder
from dledger.statemachine.records import Begin, Command, End, Part, decode, encode

logger = logging.getLogger(__name__)

Machine = TypeVar("Machine", bound=StateMachine)


class LogRecord(NamedTuple):
    """A committed record."""

    index: int  # type: ignore[assignment]  # a field, not tuple.index
    term: int
    value: bytes


class MachineLog(Protocol):
    """A group's log, as far as a state machine needs it. All calls may raise what a client's or a node's raise."""

    async def first_index(self) -> int:
        """Of the first record that the log still has."""
        ...

    async def commit_index(self) -> int:
        """Of the last record committed by the time of the call, or a later one; −1 when there is none."""
        ...

    def read(self, start: int) -> AsyncIterator[LogRecord]:
        """Committed records from ``start`` on, for ever. Raises OutOfRange where they were trimmed."""
        ...

    async def append(self, record: bytes) -> int:
        """The index of the record, once it is committed. Raises OutcomeUnknown when it may have been or be yet."""
        ...


class View(NamedTuple):
    """The state as of a checkpoint's BEGIN: later commands do not change it."""

    id: int
    digest: bytes
    parts: Iterator[bytes]


class Runner(Generic[Machine]):
    """``make`` gives the state before the first record; it is asked again whenever the state is built anew."""

    def __init__(self, log: MachineLog, make: Callable[[], Machine], *, random: Random, name: str = "") -> None:
        self.machine = make()
        """As of ``applied_index``."""
        self.restores = 0
        """How often a checkpoint was loaded."""
        self.on_applied: Callable[[], None] = lambda: None
        """Told when the state may have changed."""
        self.ended: Ended | None = None
        """The last checkpoint whose END was applied."""
        self._log = log
        self._make = make
        self._name = name
        self._random = random
        self._submitter = random.getrandbits(64)
        self._requests = 0
        self._pending: dict[int, asyncio.Future[Any]] = {}
        """By request: who waits for the outcome of a command."""
        self._views: asyncio.Queue[View] = asyncio.Queue()
        self._applier: Applier | None = None
        """None until the log's beginning was applied or restored."""
        self._progress: asyncio.Future[None] | None = None
        self._ended_by: BaseException | None = None

    # Following the log -------------------------------------------------------------------------------------------

    @property
    def applied_index(self) -> int:
        """Of the last record that is in the state; −1 before the first, and while the state is being restored."""
        return self._applier.next_index - 1 if self._applier is not None else -1

    async def run(self) -> None:
        """Until it is cancelled. Raises what the state machine cannot go on after: what ``Applier.apply`` raises, and
        CORRUPT_LOG for a trimmed log without a complete checkpoint that is sound. Errors that pass by themselves are
        waited out."""
        backoff = Backoff(self._random)
        try:
            while True:
                try:
                    await self._follow(backoff)
                except OutOfRange:
                    self._applier = None  # a trim overtook it: it begins anew with the log
                except DLedgerError as failure:
                    if failure.code not in PASSING:
                        raise
                await asyncio.sleep(backoff.next_s())
        except BaseException as failure:
            self._end(failure)
            raise

    async def _follow(self, backoff: Backoff) -> None:
        applier = self._applier
        if applier is None:
            applier = await self._load()
            self.machine, self._applier = applier.machine, applier  # type: ignore[assignment]  # made by ``make``
            self._tell_progress()
        async for record in self._log.read(applier.next_index):
            self._take(applier, record)
            backoff.reset()

    def _take(self, applier: Applier, record: LogRecord) -> None:
        match applier.apply(*record):
            case Applied(submitter, request, value, refusal) if submitter == self._submitter:
                waiting = self._pending.pop(request, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(value) if refusal is None else waiting.set_exception(refusal)
            case Begun(id, digest, submitter) if submitter == self._submitter:
                self._views.put_nowait(View(id, digest, applier.machine.checkpoint()))
            case Ended() as ended:
                self._check(ended)
                self.ended = ended
            case _:
                pass
        self._tell_progress()

    def _check(self, ended: Ended) -> None:
        if ended.digest and ended.digest != ended.said:
            logger.error(
                "the state differs from a checkpoint's of the same place",
                extra={
                    "machine": self._name,
                    "checkpoint": ended.id,
                    "own": ended.digest.hex(),
                    "said": ended.said.hex(),
                },
            )
            raise error(
                Code.CORRUPT_LOG,
                f"the state of {self._name or 'this state machine'} is another one than checkpoint {ended.id} says: "
                "it stops here; a restart builds it anew from a checkpoint",
            )

    def _tell_progress(self) -> None:
        self.on_applied()
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    def _end(self, failure: BaseException) -> None:
        self._ended_by = failure
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(self._unknown())
        self._pending.clear()
        self._tell_progress()

    def _unknown(self) -> DLedgerError:
        return error(Code.TERM_CHANGED, "the state machine ended before it came to this command; it may be carried out")

    # Restoring ---------------------------------------------------------------------------------------------------

    async def _load(self) -> Applier:
        first = await self._log.first_index()
        if first == 0:
            return Applier(self._make(), 0)
        finder, start = CheckpointFinder(), first
        while True:
            found = await self._find(finder, start)
            machine, digest = self._make(), _Digest()
            await machine.restore(self._parts(machine, found, digest))
            if digest.value == found.digest:
                self.restores += 1
                logger.info("restored from a checkpoint", extra={"machine": self._name, "checkpoint": found.id})
                return Applier(machine, found.id + 1)
            logger.error("a checkpoint is not what it says", extra={"machine": self._name, "checkpoint": found.id})
            start = found.end_index + 1

    async def _find(self, finder: CheckpointFinder, start: int) -> Checkpoint:
        """Waits for one where none is complete yet: a follower may still be behind."""
        async for record in self._log.read(start):
            found = finder.feed(record.index, record.value)
            if found is not None:
                return found
        raise error(Code.CORRUPT_LOG, "the log ended while a checkpoint was looked for")

    async def _parts(self, machine: StateMachine, found: Checkpoint, digest: _Digest) -> AsyncIterator[bytes]:
        async for record in self._log.read(found.id):
            if record.index >= found.end_index:
                return
            match decode(record.index, record.value):
                case Part(id, _, data) if id == found.id:
                    digest.value = machine.fold(digest.value, data)
                    yield data
                case _:
                    pass

    # What programs ask -------------------------------------------------------------------------------------------

    async def submit(self, payload: bytes, *, term: int = 0) -> Any:
        """What ``StateMachine.apply`` returned for it, once it is committed and applied here.

        Raises Refused when the state machine refuses it, what an append raises when it was surely not appended, and
        OutcomeUnknown when it may be carried out yet.
        """
        self._check_running()
        self._requests += 1
        request = self._requests
        waiting = self._pending[request] = asyncio.get_running_loop().create_future()
        command = Command(payload, self.machine.version, self._submitter, request, term)
        try:
            await self._log.append(encode(command))
            return await waiting
        finally:
            self._pending.pop(request, None)

    async def wait_applied(self, index: int) -> None:
        """Returns when the record at ``index``, and all before it, are in the state. Raises what ended the runner."""
        while self.applied_index < index:
            self._check_running()
            if self._progress is None:
                self._progress = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._progress)

    async def barrier(self) -> None:
        """Returns when everything that was committed before the call is in the state: a read of it is linearizable."""
        await self.wait_applied(await self._log.commit_index())

    async def checkpoint(self, pace: Callable[[int], Any] | None = None) -> int:
        """Writes a checkpoint into the log, and returns its id. One at a time. ``pace`` is awaited with the size of
        each part before the next one. Raises what an append raises: the checkpoint is incomplete then, and everybody
        ignores it; CORRUPT_LOG when the state is not what its own digest says."""
        self._check_running()
        began = await self._log.append(encode(Begin(self._submitter)))
        view = await self._view_of(began)
        number = size_bytes = 0
        digest = b""
        for data in view.parts:
            if len(data) > MAX_PART_BYTES:
                raise error(
                    Code.RECORD_TOO_LARGE, f"a part of a checkpoint has {len(data)} bytes, over {MAX_PART_BYTES}"
                )
            await self._log.append(encode(Part(began, number, data)))
            digest = self.machine.fold(digest, data)
            number, size_bytes = number + 1, size_bytes + len(data)
            if pace is not None:
                await pace(len(data))
        if digest != view.digest:
            raise error(Code.CORRUPT_LOG, "the state is not what its digest says: no checkpoint is made of it")
        await self._log.append(encode(End(began, number, size_bytes, digest)))
        return began

    async def _view_of(self, began: int) -> View:
        """Taken where BEGIN was applied. Views of attempts that failed are passed over."""
        await self.wait_applied(began)
        while True:
            view = self._views.get_nowait()
            if view.id == began:
                return view

    def _check_running(self) -> None:
        if self._ended_by is not None:
            raise error(Code.SHUTTING_DOWN, f"the state machine is not running any more: {self._ended_by}")


class _Digest:
    """Of the parts that were read."""

    def __init__(self) -> None:
        self.value = b""
