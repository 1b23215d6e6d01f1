"""An append before it is acknowledged: a record and a future in a batch that will travel as one.

::

    gathering ──seal──▶ sealed ──first write──▶ sent ──answer──▶ settled
       │ its calls' time runs out: DeadlineExceeded     │ its calls' time runs out: OutcomeUnknown, the batch stays

Single records gather in one batch. Each ``append_many`` is a batch, and those that wait travel together as the *parts*
of the first one. So the cost of a batch, beside its bytes, is paid once.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

from dledger.client.results import AckSpan, acks_of
from dledger.common.batch import as_records, build_body, crc32c
from dledger.common.config import MAX_IN_ONE_MESSAGE_BYTES
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Ack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dledger.common.batch import Buffer

RECORD_OVERHEAD_BYTES = 64
"""What a pending record is charged beside its bytes: its future and its places in lists."""

_is_cancelled = asyncio.Future.cancelled
_is_done = asyncio.Future.done


class PendingBatch:
    """Records that travel together, and their waiting callers: a future a record, or one for the whole.

    Invariants: ``len(futures) == len(records)`` while it gathers; once ``sent``, body, parts, count and base_sequence
    never change until the batch is settled or taken back by ``take_apart``.
    """

    __slots__ = (
        "base_sequence",
        "body",
        "body_bytes",
        "body_crc",
        "charged_bytes",
        "count",
        "deadline",
        "doubtful",
        "expect_index",
        "futures",
        "opened_at",
        "parts",
        "records",
        "sent",
        "timeout_ms",
        "whole",
    )

    def __init__(self, opened_at: float, deadline: float, timeout_ms: float) -> None:
        self.opened_at = opened_at
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.records: list[bytes] = []
        """The records to be sent; kept beside the body only if the body has parts too."""
        self.parts: list[PendingBatch] = []
        self.futures: list[asyncio.Future[Ack]] = []
        self.whole: asyncio.Future[AckSpan] | None = None
        self.body = b""
        self.body_bytes = 0
        self.body_crc = 0
        self.charged_bytes = 0
        self.count = 0
        self.base_sequence = 0
        self.expect_index: int | None = None
        """The index that the first record must get; None: any. Such a batch is never shared."""
        self.sent = False
        self.doubtful = False
        """Whether an earlier attempt ended without saying what became of it."""

    def set_whole(self, records: Sequence[bytes], body_bytes: int, future: asyncio.Future[AckSpan]) -> None:
        """Makes it the batch of one call."""
        self.records, self.count, self.body_bytes, self.whole = list(records), len(records), body_bytes, future

    def absorb(self, other: PendingBatch) -> None:
        """The batch of a later call travels along. Both are whole calls, and none is sealed."""
        self.parts.append(other)
        self.body_bytes += other.body_bytes

    def seal(self) -> None:
        """Builds the body of the gathered records, without calls cancelled meanwhile. Once."""
        if self.body:
            return
        if any(map(_is_cancelled, self.futures)):
            kept = [(r, f) for r, f in zip(self.records, self.futures, strict=True) if not f.cancelled()]
            self.records = [record for record, _ in kept]
            self.futures = [future for _, future in kept]
        records = self.records
        if self.parts:
            records = list(chain(records, *(part.records for part in self.parts)))
        else:
            self.records = []
        self.count = len(records)
        if self.count:
            self.body = build_body(records)
            self.body_crc = crc32c(self.body)

    @property
    def empty(self) -> bool:
        """Whether nobody wants it sent (any more)."""
        return self.count == 0 if self.whole is None else self.whole.cancelled()

    @property
    def waited_for(self) -> bool:
        """Whether some call still waits for its outcome; of its parts each knows for itself."""
        if self.whole is not None:
            return not self.whole.done()
        return not all(map(_is_done, self.futures))

    def each(self) -> Iterable[PendingBatch]:
        """Itself and its parts, in the order of the calls."""
        return (self, *self.parts)

    def take_apart(self) -> Sequence[PendingBatch]:
        """Takes it back: it is known not to have been appended. Its calls, as they were: each gets a new sequence when
        it is sent again."""
        assert not self.doubtful, "a batch of unknown outcome keeps its place"
        self.sent = False
        if not self.parts:
            return [self]
        apart = [self, *self.parts]
        self.parts, self.body = [], b""
        self.count = len(self.records)
        self.body_bytes -= sum(part.body_bytes for part in apart[1:])
        return apart

    def acknowledge(self, first_index: int, term: int, timestamp_ms: int) -> None:
        """Completes every call that still waits."""
        if self.whole is None:
            for future, ack in zip(self.futures, acks_of(first_index, self.count, term, timestamp_ms), strict=False):
                if not future.done():
                    future.set_result(ack)
            return
        for part in self.each():
            count = len(part.records) if self.parts else self.count
            if part.whole is not None and not part.whole.done():
                part.whole.set_result(AckSpan(first_index, count, term, timestamp_ms))
            first_index += count

    def fail(self, make: Callable[[], DLedgerError]) -> None:
        """Fails every call that still waits, each with an exception of its own, and forgets them; its parts' too."""
        for part in self.each():
            part.fail_own(make)

    def fail_own(self, make: Callable[[], DLedgerError]) -> None:
        """As ``fail``, without its parts."""
        waiting: Sequence[asyncio.Future[Ack] | asyncio.Future[AckSpan]] = self.futures
        if self.whole is not None:
            waiting = [self.whole]
        for future in waiting:
            if not future.done():
                future.set_exception(make())
        self.futures = []


def check_record_size(size_bytes: int, max_record_bytes: int) -> None:
    """Raises RECORD_TOO_LARGE."""
    if size_bytes > max_record_bytes:
        text = f"a record has {size_bytes} bytes; the limit is {max_record_bytes}"
        raise error(Code.RECORD_TOO_LARGE, text, size_bytes=size_bytes, max_record_bytes=max_record_bytes)


def build_bodies(records: Iterable[object], max_record_bytes: int, max_batch_bytes: int) -> list[tuple[bytes, int]]:
    """The bodies and counts of the batches for one call. Raises as ``split_records``, and BATCH_TOO_LARGE."""
    bodies = [(build_body(part), len(part)) for part in split_records(records, max_record_bytes, max_batch_bytes)]
    for body, _ in bodies:
        check_body_size(body)
    return bodies


def check_body_size(body: Buffer) -> None:
    """Raises BATCH_TOO_LARGE for what no server can be told to take: gRPC would end the stream of all the others."""
    size_bytes = memoryview(body).nbytes
    if size_bytes > MAX_IN_ONE_MESSAGE_BYTES:
        text = (
            f"a batch has {size_bytes} bytes; no server takes more than {MAX_IN_ONE_MESSAGE_BYTES}: append less at once"
        )
        raise error(Code.BATCH_TOO_LARGE, text)


def split_records(records: Iterable[object], max_record_bytes: int, max_batch_bytes: int) -> list[Sequence[bytes]]:
    """The records of the batches for one call: one batch, unless that exceeds ``max_batch_bytes``.

    Raises REQUEST_WITH_EMPTY_BODYS, RECORD_TOO_LARGE or UNEXPECTED_ARGUMENT.
    """
    checked = as_records(records)
    if not checked:
        raise error(Code.REQUEST_WITH_EMPTY_BODYS, "there is no record to append: give at least one (it may be empty)")
    size_bytes = body_bytes(checked)
    if size_bytes > max_record_bytes:
        check_record_size(max(map(len, checked)), max_record_bytes)
    return [checked] if size_bytes <= max_batch_bytes else _split(checked, max_batch_bytes)


def body_bytes(records: Sequence[bytes]) -> int:
    """How large the body of ``records`` is."""
    return sum(map(len, records)) + 4 * (len(records) + 1)


def _split(records: Sequence[bytes], max_batch_bytes: int) -> list[Sequence[bytes]]:
    parts: list[list[bytes]] = []
    size_bytes = max_batch_bytes
    for record in records:
        added = len(record) + 4
        if size_bytes + added > max_batch_bytes:
            parts.append([])
            size_bytes = 4
        parts[-1].append(record)
        size_bytes += added
    return list(parts)
