"""The leader's intake: appends that arrive in one turn of the loop become frames with one shared write and one group
commit.

Batches of producers and streams keep their own frames. Appends without a producer share one, once ``AppendCoalescer``
lets them go. By the turn alone each would have a frame of its own, for gRPC brings them one by one. Nothing here looks
at a single record of a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.common.batch import Buffer, as_records, body_sums, build_body, check_body, crc32c
from dledger.common.config import MAX_MACHINE_RECORD_BYTES
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import LogPoint, Position
from dledger.group.context import GroupContext
from dledger.group.leader.append_coalescer import AppendCoalescer
from dledger.group.leader.index_refusals import IndexRefusals
from dledger.group.leader.quorum_ack_checker import AppendResult, QuorumAckChecker, Waiter
from dledger.log.frame.control import no_op_body, producer_body
from dledger.log.frame.frame import FILLING, ControlKind, Frame, make_frame
from dledger.log.frame.producers import KnownRange, NamedProducer
from dledger.raft.membership import with_disks

PER_RECORD_BYTES = 4
"""What a record takes in a body beside its own bytes: its offset."""
MAX_MACHINE_BATCH_BYTES = MAX_MACHINE_RECORD_BYTES + 64 * 1024


class Source(NamedTuple):
    """The producer of a batch, and the place in its sequence at which the batch begins."""

    producer_id: int = 0
    producer_epoch: int = 0
    base_sequence: int = 0


NO_SOURCE = Source()


@dataclass(slots=True)
class Batch:
    """A checked batch, waiting for this turn's write."""

    body: Buffer
    body_crc: int
    count: int
    source: Source = NO_SOURCE
    control: ControlKind = ControlKind.DATA
    sums: Sequence[int] | None = None
    """``body_sums``, where they were needed already."""
    expect_index: int | None = None
    """The index that its first record must get; None: any."""
    behind: asyncio.Future[AppendResult] | None = None
    """The batch before it on its stream: if that one was refused, so is this one."""
    waiters: list[tuple[asyncio.Future[AppendResult], int, int]] = field(default_factory=list)
    """The callers that wait, each with its records: first ordinal and number."""
    on_written: Callable[[Position], None] | None = None
    """Told where the frame is, once it is in the log."""


class Appender:
    """Open only while this node leads and has written its term's no-op."""

    def __init__(self, context: GroupContext, checker: QuorumAckChecker) -> None:
        self._context = context
        self._log = context.log
        self._checker = checker
        self._queue: list[Batch] = []
        self._queued_bytes = 0
        self._shared: list[tuple[Sequence[bytes], asyncio.Future[AppendResult]]] = []
        self._shared_bytes = 0
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()
        self._coalescer = AppendCoalescer(self._loop, self._flush_guarded)
        self._index_refusals = IndexRefusals(context)
        self._term = 0
        self._is_open = False
        self._closed_by: DLedgerError | None = None
        """Since it was open last."""

    @property
    def _limits_batch_bytes(self) -> int:
        limit = self._context.config.limits.max_batch_bytes
        return max(limit, MAX_MACHINE_BATCH_BYTES) if self._context.machine.has_machine else limit

    # Opening and closing with the term ---------------------------------------------------------------------------

    def open(self, term: int) -> None:
        """Writes the term's no-op, the first frame of every leader, and takes appends from then on.

        A full disk refuses it like any frame, and ``retry_open`` tries again. Until it is written and committed the
        leader serves neither appends nor linearizable reads.
        """
        self._term, self._closed_by = term, None
        self._is_open = self._write([self._no_op()], self._timestamp_ms())

    def retry_open(self) -> bool:
        """Whether it is open now."""
        if self._term and not self._is_open:
            self.open(self._term)
        return self._is_open

    def _no_op(self) -> Batch:
        """The term's no-op. It carries the cluster's id, which the very first leader mints, and the members.

        It names disks. So a node that comes later with a member's id and another disk is recognised (``Roster``). The
        frame that founds the cluster names the disks of all founders, as they have all met. A later no-op names only
        this leader's own disk, as the leader may have met a peer that it should doubt.
        """
        context, known = self._context, self._log.state.members
        is_founding = self._log.last.position == 0
        named = [member.id for member in known] if is_founding else [context.core.node_id]
        members = with_disks(known, {each: context.disk_of(each) for each in named})
        body = no_op_body(context.cluster_id_or_new(), members)
        return Batch(body, crc32c(body), 0, control=ControlKind.NO_OP)

    def close(self, refusal: DLedgerError) -> None:
        """What was not written yet was surely not appended."""
        self._term = 0
        self._is_open = False
        self._closed_by = refusal
        for batch in self._queue:
            _refuse(batch, refusal)
        for _, future in self._shared:
            _set_exception(future, refusal)
        self._coalescer.end()
        self._queue.clear()
        self._shared.clear()
        self._queued_bytes = self._shared_bytes = 0

    def _check_open(self, size_bytes: int) -> None:
        self._context.admission.check_leader()
        if not self._is_open:
            raise self._context.admission.not_ready()
        if size_bytes > self._limits_batch_bytes:
            limit = self._limits_batch_bytes
            raise error(
                Code.BATCH_TOO_LARGE, f"the batch has {size_bytes} bytes; the limit is {limit}: send less at once"
            )
        self._checker.check_room(len(self._queue) + len(self._shared), self._queued_bytes + self._shared_bytes)

    # What callers bring ------------------------------------------------------------------------------------------

    def append_body(
        self,
        body: Buffer,
        body_crc: int,
        count: int,
        source: Source = NO_SOURCE,
        behind: asyncio.Future[AppendResult] | None = None,
        *,
        expect_index: int | None = None,
    ) -> asyncio.Future[AppendResult]:
        """A ready-made body. Raises at once when it is refused; the future tells the rest.

        ``behind`` is the caller's append before this one: if that fails, this is not appended either. With
        ``expect_index`` the future raises WRONG_EXPECTED_INDEX unless the first record gets that index.
        """
        _check_expected(expect_index)
        self._check_open(len(body))
        self._context.admission.check_room()
        sums = body_sums(body)
        if (sums[-1] if sums else crc32c(body)) != body_crc:
            raise error(Code.CORRUPT_BATCH, "the body does not match its crc; send it again")
        check_body(body, count, self._context.machine.max_record_bytes())
        batch = Batch(body, body_crc, count, source, sums=sums, expect_index=expect_index, behind=behind)
        return self._enqueue(batch)

    def append_records(
        self, given: Iterable[object], source: Source = NO_SOURCE, *, expect_index: int | None = None
    ) -> asyncio.Future[AppendResult]:
        """Records as they came in a unary call, or from the host program. Raises at once when they are refused.
        ``expect_index``: as for ``append_body``."""
        _check_expected(expect_index)
        records = as_records(given)
        if not records:
            raise error(Code.REQUEST_WITH_EMPTY_BODYS, "the append has no record; send at least one, it may be empty")
        largest = max(map(len, records))
        limit = self._context.machine.max_record_bytes()
        if largest > limit:
            raise error(Code.RECORD_TOO_LARGE, f"a record has {largest} bytes; the limit is {limit}")
        size_bytes = sum(map(len, records)) + PER_RECORD_BYTES * (len(records) + 1)
        self._check_open(size_bytes)
        self._context.admission.check_room()
        if source.producer_id or expect_index is not None:
            # In a frame shared with others, the first record would be somebody else's.
            body = build_body(records)
            batch = Batch(body, crc32c(body), len(records), source, expect_index=expect_index)
            return self._enqueue(batch)
        if self._shared_bytes + size_bytes > self._limits_batch_bytes:
            self._seal_shared()
            self._schedule()
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        self._shared.append((records, future))
        self._shared_bytes += size_bytes
        if self._coalescer.came():
            self._schedule()
        return future

    def append_control(
        self, kind: ControlKind, body: bytes = b"", on_written: Callable[[Position], None] | None = None
    ) -> asyncio.Future[AppendResult]:
        """A control frame, its body from log/frame/control.py; ``base_index`` of the result is the frame's position,
        and ``on_written`` is told it before that is committed. Refused and answered as any append; but for what fills
        the log, it may be written on a full disk."""
        self._check_open(len(body))
        if kind in FILLING:
            self._context.admission.check_room()
        return self._enqueue(Batch(body, crc32c(body), 0, control=kind, on_written=on_written))

    def new_producer(self) -> asyncio.Future[AppendResult]:
        """Registers a producer: its id is the position of the frame that says so."""
        return self.append_control(ControlKind.PRODUCER)

    async def named_producer(self, name: str) -> NamedProducer:
        """The producer of that name, a new one if the log knows none; returns once it is committed.

        A producer that the next frame may forget is registered anew, and its entry stays as it is. Two calls at a time
        get the same one. Raises what an append raises.
        """
        self._check_open(0)
        producers = self._log.state.producers
        producers.check_room(name)
        known = producers.named(name)
        if known is None or producers.forgets_at(self._timestamp_ms()):
            await self.append_control(ControlKind.PRODUCER, producer_body(name))
        elif known.id > self._context.core.commit_position:
            await self.committed(known.id)
        known = self._log.state.producers.named(name)
        if known is None:
            raise error(Code.LEADER_NOT_READY, f"producer {name!r} was forgotten a moment after it was made; try again")
        return known

    def committed(self, position: int) -> asyncio.Future[AppendResult]:
        """Done when the frame at ``position`` is committed. This leader has the frame, and it is not committed yet.
        Fails as an append made now would fail: with TERM_CHANGED and WAIT_QUORUM_ACK_TIMEOUT."""
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        frame = KnownRange(0, 0, position, position, self._term, self._log.state.last_timestamp_ms, 0)
        self._checker.join(frame, future, self._context.now_s())
        return future

    def _enqueue(self, batch: Batch) -> asyncio.Future[AppendResult]:
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        batch.waiters.append((future, 0, batch.count))
        is_idle = not self._queue and not self._checker
        self._queue.append(batch)
        self._queued_bytes += len(batch.body)
        if is_idle and not self._is_scheduled:
            self._flush_guarded()  # nothing to share a write with: not even a turn of the loop is waited for
        else:
            self._schedule()
        return future

    def _seal_shared(self) -> None:
        """Makes one batch of the single appends that came together."""
        if not self._shared:
            return
        records: list[bytes] = []
        waiters = []
        for group, future in self._shared:
            waiters.append((future, len(records), len(group)))
            records.extend(group)
        body = build_body(records)
        self._queue.append(Batch(body, crc32c(body), len(records), waiters=waiters))
        self._queued_bytes += len(body)
        self._shared.clear()
        self._shared_bytes = 0
        self._coalescer.left(waiters[0][0])

    # The turn's write --------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_guarded)

    def flush(self) -> None:
        """Writes now what would be written at the end of this turn, or later."""
        self._seal_shared()
        self._flush_guarded()

    def _flush_guarded(self) -> None:
        self._context.guard(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._coalescer.may_go:
            self._seal_shared()
        batches, self._queue, self._queued_bytes = self._queue, [], 0
        try:
            self._write_in_order(batches)
        except Exception:
            unknown = error(Code.TERM_CHANGED, "the leader failed while it wrote; the append may yet be committed")
            for batch in batches:
                _refuse(batch, unknown)
            raise

    def _write_in_order(self, batches: list[Batch]) -> None:
        """A batch of a producer, or one that expects an index, is judged by the log. So batches that bear on it are
        written there first."""
        timestamp_ms = self._timestamp_ms()
        group: list[Batch] = []
        producers: set[int] = set()
        registers = changes_settings = False
        for batch in batches:
            producer_id = batch.source.producer_id
            must_write = batch.expect_index is not None or changes_settings  # they may seal the group
            if group and producer_id:
                # Another one that comes may have it forgotten, and so may the time that has passed.
                may_forget = registers or self._log.state.producers.forgets_at(timestamp_ms)
                must_write |= may_forget or producer_id in producers
            if group and must_write:
                self._write(group, timestamp_ms)
                group, producers, registers, changes_settings = [], set(), False, False
            if self._is_new(batch):
                group.append(batch)
                producers.add(producer_id)
                registers |= batch.control is ControlKind.PRODUCER
                changes_settings |= batch.control is ControlKind.SETTINGS
        if group:
            self._write(group, timestamp_ms)

    def _timestamp_ms(self) -> int:
        """The timestamp of frames written now: never before the last frame's."""
        leadership, now_ms = self._context.core.leadership, self._context.wall_clock_ms()
        if leadership is not None:
            now_ms = leadership.stamp_ms(now_ms, self._context.now_ms())
        return max(now_ms, self._log.state.last_timestamp_ms)

    def _is_new(self, batch: Batch) -> bool:
        """Whether the batch is to be written. False when it is refused, or is a duplicate: that one is answered when
        the first is committed. A batch that expects an index must come first in the next write."""
        refusal_before = _failure_of(batch.behind) or self._closed_by
        if refusal_before is not None:
            _refuse(batch, refusal_before)
            return False
        if self._index_refusals.take_along(batch.waiters[0][0], batch.behind):
            return False
        if batch.source.producer_id:
            try:
                known = self._log.state.producers.check(*batch.source, batch.count, batch.body_crc)
            except DLedgerError as refusal:
                self._refuse_by_log(batch, refusal)
                return False
            if known is not None:
                # Before the expected index: a retry of what is in the log is no refusal.
                self._answer_duplicate(batch, known)
                return False
        if self._log.state.settings.is_sealed and batch.control in FILLING:
            _refuse(batch, error(Code.GROUP_SEALED, "the group is being removed, and takes no record any more"))
            return False
        if batch.expect_index is None or batch.expect_index == self._log.state.next_index:
            return True
        last = self._log.last.position
        committed = self.committed(last) if last > self._context.core.commit_position else None
        self._index_refusals.add(batch.waiters[0][0], batch.expect_index, committed)
        return False

    def _refuse_by_log(self, batch: Batch, refusal: DLedgerError) -> None:
        """REPEATED_REQUEST says that the batch surely was appended. So it is not told before everything in the log is
        committed."""
        last = self._log.last.position
        if refusal.code is not Code.REPEATED_REQUEST or last <= self._context.core.commit_position:
            _refuse(batch, refusal)
            return

        def told(committed: asyncio.Future[AppendResult]) -> None:
            if not committed.cancelled():
                _refuse(batch, _failure_of(committed) or refusal)

        self.committed(last).add_done_callback(told)

    def _answer_duplicate(self, batch: Batch, known: KnownRange) -> None:
        for future, _, _ in batch.waiters:
            if known.position <= self._context.core.commit_position:
                if not future.done():
                    future.set_result(AppendResult(known.base_index, known.count, known.term, known.timestamp_ms))
            else:
                self._checker.join(known, future, self._context.now_s())

    def _write(self, batches: list[Batch], timestamp_ms: int) -> bool:
        """False when the disk refused it: no frame of it is kept, and all waiting callers are told."""
        previous, index = self._log.last, self._log.state.next_index
        frames = []
        for batch in batches:
            frame = self._frame(batch, previous, index, timestamp_ms)
            frames.append(frame)
            previous, index = frame.header.point, frame.header.end_index
        try:
            self._log.append(frames, sync_after_turn=True)
        except DLedgerError as refusal:
            for batch in batches:
                _refuse(batch, refusal)
            self._context.on_append_refused(refusal)
            return False
        now_s = self._context.now_s()
        for batch, frame in zip(batches, frames, strict=True):
            header = frame.header
            base = header.base_index if batch.count else header.position
            waiters = [Waiter(future, base + first, count) for future, first, count in batch.waiters]
            self._checker.add(header, now_s, waiters)
            if batch.on_written is not None:
                batch.on_written(Position(header.position))
        self._context.on_appended(frames)
        return True

    def _frame(self, batch: Batch, previous: LogPoint, index: int, timestamp_ms: int) -> Frame:
        return make_frame(
            previous,
            term=self._term,
            base_index=index,
            count=batch.count,
            body=batch.body,
            body_crc=batch.body_crc,
            timestamp_ms=timestamp_ms,
            attributes=batch.control,
            producer_id=batch.source.producer_id,
            producer_epoch=batch.source.producer_epoch,
            base_sequence=batch.source.base_sequence,
            sums=batch.sums,
        )


def _failure_of(appended: asyncio.Future[AppendResult] | None) -> DLedgerError | None:
    if appended is None or not appended.done() or appended.cancelled():
        return None
    failure = appended.exception()
    return failure if isinstance(failure, DLedgerError) else None


def _check_expected(expect_index: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what can be no record's index."""
    if expect_index is None or (
        isinstance(expect_index, int) and not isinstance(expect_index, bool) and expect_index >= 0
    ):
        return
    raise error(Code.UNEXPECTED_ARGUMENT, f"expect_index is {expect_index!r}: give an int from 0 on")


def _refuse(batch: Batch, refusal: DLedgerError) -> None:
    for future, _, _ in batch.waiters:
        _set_exception(future, refusal)


def _set_exception(future: asyncio.Future[AppendResult], refusal: DLedgerError) -> None:
    if not future.done():
        future.set_exception(refusal.copy())
