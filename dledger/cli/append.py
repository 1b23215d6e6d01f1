"""``dledger append``: lines in, acknowledged records out."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dledger.cli.interrupts import cancelled_by_signals
from dledger.cli.options import Target, client_options, option, output_option
from dledger.cli.output import Progress, print_fields, print_json
from dledger.cli.record_limits import LARGEST_RECORD_BYTES, limits_for, with_whose_limit
from dledger.cli.records import line_batches, whole
from dledger.cli.runtime import EXIT_INTERRUPTED, EXIT_OUTPUT, complain, run
from dledger.cli.streams import OutputError, discard_output
from dledger.cli.units import RECORD_INDEX
from dledger.cli.waiting import Waiting
from dledger.common.config import Limits
from dledger.common.errors import MAX_QUOTED_CHARS, Code, ConfigError, DLedgerError, OutcomeUnknown, error
from dledger.common.memory import keep_freed_memory

if TYPE_CHECKING:
    from dledger.client import Acks, Log

BATCHES_IN_FLIGHT = 8
ALONE_ABOVE_BYTES = Limits().max_record_bytes
"""What servers take by default. Behind a larger record nothing is sent until it is taken. If it is refused, the user
makes it smaller and goes on with its line. Nothing behind it is in the log."""
PATIENCE_S = 1.0
"""A failover is a delay of less: nothing is said of it."""
STDIN = 0


@dataclass(slots=True)
class Tally:
    """The outcomes of the records so far. ``read`` are those taken from the input. ``submitted`` are those of them that
    were handed to the client. ``refused`` are those of the submitted that surely are not in the log."""

    read: int = 0
    input_ended: bool = False
    """Whether ``read`` are all that there are."""
    submitted: int = 0
    submitted_bytes: int = 0
    acknowledged: int = 0
    refused: int = 0
    first_index: int | None = None
    last_index: int | None = None
    term: int | None = None
    failure: DLedgerError | None = None

    @property
    def unknown(self) -> int:
        return self.submitted - self.acknowledged - self.refused

    @property
    def not_appended(self) -> int:
        """Of those that were read: surely not in the log, refused or never sent."""
        return self.read - self.submitted + self.refused

    @property
    def outcomes(self) -> str:
        """In words."""
        told = f"{self.acknowledged} acknowledged, {self.unknown} unknown, {self.not_appended} not appended"
        return told if self.input_ended else f"{told}; the input was not read to its end"


class Sent(NamedTuple):
    """What is known of a batch while it is in flight."""

    records: int
    size_bytes: int
    largest_line: int
    """Where the largest of its records stands."""

    @classmethod
    def of(cls, batch: list[bytes], first_line: int) -> Sent:
        """Of records that begin at ``first_line``."""
        sizes_bytes = list(map(len, batch))
        return cls(len(batch), sum(sizes_bytes), first_line + sizes_bytes.index(max(sizes_bytes)))


class Appender:
    """Keeps a bounded number of batches in flight, and stops at the first that fails."""

    def __init__(
        self,
        log: Log,
        tally: Tally,
        progress: Progress,
        waiting: Waiting,
        *,
        is_lines: bool,
        expect_index: int | None = None,
    ) -> None:
        """``expect_index``: the index that the first record must get, and the others behind it; None: any."""
        self._waiting = waiting
        self._log = log
        self._expect_index = expect_index
        self._is_lines = is_lines
        self._tally = tally
        self._progress = progress
        self._slots = asyncio.Semaphore(BATCHES_IN_FLIGHT)
        self._in_flight: set[asyncio.Future[Acks]] = set()
        self._failed = asyncio.Event()

    async def run(self, batches: AsyncIterator[list[bytes]]) -> None:
        """Appends every batch. What came of it is in the tally, also when this is cancelled."""
        failing = asyncio.create_task(self._failed.wait(), name="append failed")
        feeding = asyncio.create_task(self._feed(batches), name="feed")
        try:
            await asyncio.wait((failing, feeding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            feeding.cancel()
            failing.cancel()
            # It reads ``batches`` until then, which nobody else may close meanwhile.
            await asyncio.wait((failing, feeding))
        if not feeding.cancelled() and (failure := feeding.exception()) is not None:
            if not isinstance(failure, DLedgerError):
                raise failure
            self._fail(failure, 0)
        # Everything in flight gets its outcome within the client's own timeout.
        if self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _feed(self, batches: AsyncIterator[list[bytes]]) -> None:
        async for batch in batches:
            self._tally.read += len(batch)
            await self._slots.acquire()
            if self._failed.is_set():
                return
            if not self._in_flight:
                self._waiting.restart()
            sent = Sent.of(batch, self._tally.submitted + 1)
            self._tally.submitted += sent.records
            try:
                call = self._log.enqueue_many(batch, **self._expected())
            except DLedgerError as refusal:
                self._fail(self._placed(refusal, sent), sent.records)
                return
            self._in_flight.add(call)
            call.add_done_callback(partial(self._settle, sent))
            if sent.size_bytes > ALONE_ABOVE_BYTES or self._expect_index is not None:
                await asyncio.wait((call,))  # what follows would rest on an index that this one may not get

    def _expected(self) -> dict[str, int]:
        """The index that the next batch expects: the one behind the acknowledged records. Nothing else is under way
        then."""
        return {} if self._expect_index is None else {"expect_index": self._expect_index + self._tally.acknowledged}

    def _placed(self, refusal: DLedgerError, sent: Sent) -> DLedgerError:
        """For a record that is too large: the refusal with the record's line, and with the owner of the limit."""
        explained = with_whose_limit(refusal)
        if explained is refusal or not self._is_lines:
            return explained
        return error(refusal.code, f"line {sent.largest_line}: {explained}")

    def _settle(self, sent: Sent, call: asyncio.Future[Acks]) -> None:
        self._in_flight.discard(call)
        self._slots.release()
        if call.cancelled():
            return
        failure = call.exception()
        if failure is None:
            self._acknowledge(call.result(), sent.size_bytes)
        elif isinstance(failure, DLedgerError):
            self._fail(self._placed(failure, sent), sent.records)
        else:
            self._fail(error(Code.INTERNAL_ERROR, f"{type(failure).__name__}: {failure}"), 0)

    def _acknowledge(self, acks: Acks, size_bytes: int) -> None:
        self._waiting.restart()
        tally = self._tally
        tally.acknowledged += len(acks)
        tally.submitted_bytes += size_bytes
        if tally.first_index is None:
            tally.first_index = acks.first_index
        tally.last_index = acks.last_index
        tally.term = acks.term
        self._progress.update(tally.submitted_bytes + tally.acknowledged, f"{tally.acknowledged:,} records")

    def _fail(self, failure: DLedgerError, count: int) -> None:
        unknown = isinstance(failure, OutcomeUnknown)
        if not unknown:
            self._tally.refused += count
        # An unknown outcome is the graver news.
        if self._tally.failure is None or (unknown and not isinstance(self._tally.failure, OutcomeUnknown)):
            self._tally.failure = failure
        self._failed.set()


class RecordOption(click.Option):
    """-d. Its variable is one record: of a flag that may be repeated click would take it apart at spaces."""

    def value_from_envvar(self, ctx: click.Context) -> tuple[str, ...] | None:
        value = self.resolve_envvar_value(ctx)
        return None if value is None else (value,)


@click.command(short_help="Appends one record per line of stdin.")
@click.argument("words", metavar="", nargs=-1)
@option("-d", "--data", env="RECORD", metavar="TEXT", multiple=True, cls=RecordOption,
        help="A record, given here instead of on stdin; may be repeated.")  # fmt: skip
@option("--file", env="FILE", metavar="PATH", type=click.Path(exists=True, dir_okay=False), help="Instead of stdin.")
@option("--raw", env="RAW", is_flag=True, help="All of the input as one record.")
@option("--expect-index", env="EXPECT_INDEX", metavar="INDEX", type=RECORD_INDEX, default=None,
        help="Append only if the first record gets this index.")  # fmt: skip
@output_option("text", "json")
@client_options
def append(
    *,
    target: Target,
    words: tuple[str, ...],
    data: tuple[str, ...],
    file: str | None,
    raw: bool,
    expect_index: int | None,
    output: str,
) -> None:
    """Appends one record per line of stdin, or of a file, and waits until a majority has them on disk.

    Lines end at \\n alone, which is not kept; a last line without one is a record too. Memory stays the same however
    long the input is. A failover of the cluster is not a failure. When it fails half-way it says how many of the
    records that it had read were acknowledged, of how many the outcome is unknown, and how many are surely not
    appended; with -o json as acknowledged (and count), unknown, not_appended, and input_ended: whether it had read all.
    With --expect-index it exits with 5 and names the true next index if another append came first. A long input goes in
    batches of 512 KiB, each of which expects to follow the one before: it may be appended in part by then.
    Ctrl-C and SIGTERM end it so too, once what was sent has its outcome; a second one at once.

    \b
    printf 'a\\nb\\n' | dledger append
    dledger append -d 'one record' -d 'and another'
    dledger append --file big.log -o json
    """
    if words:
        raise ConfigError(_as_meant(" ".join(words)))
    if data and file is not None:
        raise ConfigError("-d and --file are two inputs: give one of them")
    _tell_of_inherited_input()
    tally = Tally()
    started = time.monotonic()
    keep_freed_memory()
    try:
        run(_append(target, tally, data, file, raw=raw, expect_index=expect_index))
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain(f"interrupted ({tally.outcomes})")
        _report(tally, output, time.monotonic() - started, failed=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except DLedgerError as failure:
        _report(tally, output, time.monotonic() - started, failed=True)
        if not tally.read:
            raise
        text = f"{failure} ({tally.outcomes})"
        raise type(failure)(text, code=failure.code, metadata=failure.metadata) from None
    _report(tally, output, time.monotonic() - started, failed=False)


def _as_meant(text: str) -> str:
    """The command to type for a record, or a file, given without its flag."""
    short = text if len(text) <= MAX_QUOTED_CHARS else "TEXT"
    told = f"a record stands behind -d, or comes on stdin: dledger append -d {shlex.quote(short)}"
    if os.access(text, os.R_OK):
        told += f"; and a file behind --file: dledger append --file {shlex.quote(short)}"
    return told


def _tell_of_inherited_input() -> None:
    """What a variable gives is appended instead of stdin: said, because the command line does not show it."""
    context = click.get_current_context()
    for name, variable in (("data", "DLEDGER_RECORD"), ("file", "DLEDGER_FILE")):
        if context.get_parameter_source(name) is click.core.ParameterSource.ENVIRONMENT:
            complain(f"what {variable} gives is appended, stdin is not read")


async def _append(
    target: Target,
    tally: Tally,
    data: tuple[str, ...],
    file: str | None,
    *,
    raw: bool,
    expect_index: int | None,
) -> None:
    descriptor = _open(file) if file else STDIN
    try:
        with (
            Progress("appending", None if data else _size(descriptor)) as progress,
            Waiting(PATIENCE_S) as waiting,
            cancelled_by_signals(lambda: _say_what_is_waited_for(tally, target, progress)),
        ):
            async with (
                target.connect(limits=limits_for(LARGEST_RECORD_BYTES), on_wait=waiting.tell) as log,
                aclosing(_input(tally, data, descriptor, raw=raw)) as batches,
            ):
                is_lines = not data and not raw
                appender = Appender(log, tally, progress, waiting, is_lines=is_lines, expect_index=expect_index)
                await appender.run(batches)
    finally:
        if file:
            os.close(descriptor)
    if tally.failure is not None:
        raise tally.failure


def _say_what_is_waited_for(tally: Tally, target: Target, progress: Progress) -> None:
    """At the first Ctrl-C: the client is closed once all that it was given has its outcome, or its time is up."""
    if tally.unknown:
        progress.clear()
        most = f"{target.timeout_ms / 1000:g} s at most (records: {tally.unknown})"
        complain(f"waiting for the outcome of what was sent, {most}; a second Ctrl-C ends it at once")


def _open(file: str) -> int:
    """To read from. Opening a FIFO would wait for its writer, with no signal heard. So the loop waits for the writer
    instead, as it does for the data."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


async def _input(tally: Tally, data: tuple[str, ...], descriptor: int, *, raw: bool) -> AsyncGenerator[list[bytes]]:
    if not data and not raw:
        async for batch in line_batches(descriptor):
            yield batch
        tally.input_ended = True
        return
    records = [record.encode(errors="surrogateescape") for record in data] or [await whole(descriptor)]
    tally.input_ended = True
    yield records


def _size(descriptor: int) -> int | None:
    found = os.fstat(descriptor)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _report(tally: Tally, output: str, seconds: float, *, failed: bool) -> None:
    """Prints the outcome. If it cannot be written it is said on stderr instead, with an exit code of its own unless
    there is a graver one."""
    try:
        _print_report(tally, output, seconds, failed=failed)
    except OutputError as reason:
        discard_output()
        span = "" if tally.first_index is None else f", {tally.first_index} to {tally.last_index}"
        complain(f"records appended: {tally.acknowledged}{span}; but stdout cannot be written: {reason.strerror}")
        if not failed:
            raise click.exceptions.Exit(EXIT_OUTPUT) from None


def _print_report(tally: Tally, output: str, seconds: float, *, failed: bool) -> None:
    rate = round(tally.acknowledged / seconds) if seconds > 0 else 0
    span = {"first_index": tally.first_index, "last_index": tally.last_index, "term": tally.term}
    fields: dict[str, Any] = {"count": tally.acknowledged, **span, "records_per_s": rate}
    if failed:
        fields |= {"acknowledged": tally.acknowledged, "unknown": tally.unknown, "not_appended": tally.not_appended}
        fields["input_ended"] = tally.input_ended
    if output == "json":
        print_json(fields)
    elif not failed:
        print_fields("appended", fields)
    sys.stdout.flush()
