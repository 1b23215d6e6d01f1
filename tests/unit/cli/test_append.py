"""``dledger append`` as the shell sees it: what is appended, what it says of it, and how it fails."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from dledger.cli.options import Target
from dledger.client import Acks
from dledger.client.pending import check_record_size
from dledger.common.batch import build_body
from dledger.common.config import MAX_IN_ONE_MESSAGE_BYTES, Limits
from dledger.common.errors import Code, error
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog

NOT_THE_END = "; the input was not read to its end"


def test_append_takes_a_record_a_line(dledger: Run, fake: FakeLog) -> None:
    outcome = dledger("append", "-o", "json", log=fake, stdin=b"one\r\n\ntwo")
    assert fake.records == [b"one\r", b"", b"two"]
    assert outcome.code == 0
    result = outcome.last_json
    assert (result["count"], result["first_index"], result["last_index"], result["term"]) == (3, 0, 2, 3)
    assert set(result) == {"count", "first_index", "last_index", "term", "records_per_s"}


def test_append_takes_everything_as_one_with_raw(dledger: Run, fake: FakeLog) -> None:
    assert dledger("append", "--raw", log=fake, stdin=b"one\ntwo\n").code == 0
    assert fake.records == [b"one\ntwo\n"]


def test_append_takes_a_text_or_a_file(dledger: Run, fake: FakeLog, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    assert dledger("append", "-d", "x\ny", log=fake).code == 0
    assert dledger("append", "--file", str(tmp_path / "lines"), log=fake).code == 0
    assert fake.records == [b"x\ny", b"a", b"b"]
    assert dledger("append", "-d", "x", "--file", str(tmp_path / "lines"), log=fake).code == 2


def test_append_gives_the_servers_the_largest_record_that_one_of_them_can_be_told_to_take(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[Limits] = []

    def connect(_: Target, *, limits: Limits, **__: object) -> FakeLog:
        connected.append(limits)
        return fake

    monkeypatch.setattr(Target, "connect", connect)
    assert dledger("append", "-d", "x").code == 0
    limits = connected[0]
    body = build_body([bytes(limits.max_record_bytes)])
    assert len(body) == limits.max_batch_bytes == MAX_IN_ONE_MESSAGE_BYTES


def test_append_takes_every_text_that_is_given(dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dledger("append", "-d", "a b", "-d", "", "-d", "c", log=fake).code == 0
    monkeypatch.setenv("DLEDGER_RECORD", "d e")
    assert dledger("append", log=fake).code == 0
    assert fake.records == [b"a b", b"", b"c", b"d e"]


SERVERS_REFUSAL = error(Code.RECORD_TOO_LARGE, "a record has 12 bytes; the limit is 4")


def test_a_record_that_the_servers_find_too_large_is_named_by_its_line_and_whose_limit_it_is(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 2)
    fake.refusals[1] = SERVERS_REFUSAL
    outcome = dledger("append", log=fake, stdin=b"1\n2\n3\nfar-too-long\n")
    assert outcome.code == 5
    whose = "(max_record_bytes of the servers: raise it in every node's --config, or append smaller records)"
    assert outcome.err.startswith(f"dledger: line 4: a record has 12 bytes; the limit is 4 {whose}")


def test_a_record_that_is_all_of_the_input_has_no_line(dledger: Run, fake: FakeLog) -> None:
    fake.refusals[0] = SERVERS_REFUSAL
    assert "line" not in dledger("append", "--raw", log=fake, stdin=b"1\n2\n3\n4\n").err


def test_nothing_behind_a_record_that_may_be_too_large_is_sent_before_it_is_taken(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 1)
    monkeypatch.setattr("dledger.cli.append.ALONE_ABOVE_BYTES", 10)
    fake.refusals[2] = SERVERS_REFUSAL
    assert dledger("append", log=fake, stdin=b"1\n2\nfar-too-long\n4\n").code == 5
    assert fake.records == [b"1", b"2"]


def test_a_record_that_no_server_takes_is_refused_with_its_line(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enqueue_many(records: Sequence[bytes]) -> asyncio.Future[Acks]:
        check_record_size(max(map(len, records)), 4)
        return FakeLog.enqueue_many(fake, records)

    monkeypatch.setattr(fake, "enqueue_many", enqueue_many)
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 2)
    outcome = dledger("append", log=fake, stdin=b"1\n2\n3\nfar-too-long\n5\n")
    assert (outcome.code, fake.records) == (5, [b"1", b"2"])
    assert outcome.err.startswith("dledger: line 4: a record has 12 bytes, and no server takes more than 4: ")


def test_append_says_when_a_variable_gives_what_is_appended(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_RECORD", "inherited")
    outcome = dledger("append", log=fake, stdin=b"typed\n")
    assert (outcome.code, fake.records) == (0, [b"inherited"])
    assert outcome.err == "dledger: what DLEDGER_RECORD gives is appended, stdin is not read\n"


def test_append_expects_an_index_of_each_batch(dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 2)
    outcome = dledger("append", "--expect-index", "0", "-o", "json", log=fake, stdin=b"1\n2\n3\n")
    assert (outcome.code, fake.records) == (0, [b"1", b"2", b"3"])


def test_append_that_expects_another_index_appends_nothing(dledger: Run, fake: FakeLog) -> None:
    fake.records = [b"there"]
    outcome = dledger("append", "--expect-index", "0", "-d", "x", log=fake)
    assert (outcome.code, fake.records) == (5, [b"there"])
    assert "0 is expected, 1 comes" in outcome.err


def test_nothing_behind_a_batch_that_gets_another_index_is_appended(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 1)
    fake.on_records = lambda: fake.records.append(b"another's") if len(fake.records) == 1 else None
    outcome = dledger("append", "--expect-index", "0", log=fake, stdin=b"1\n2\n3\n")
    assert (outcome.code, fake.records) == (5, [b"1", b"another's"])
    assert "1 acknowledged, 0 unknown, " in outcome.err


@pytest.mark.parametrize("impossible", ["-1", "x"])
def test_an_index_that_cannot_be_is_refused_as_an_option(dledger: Run, fake: FakeLog, impossible: str) -> None:
    assert dledger("append", "--expect-index", impossible, "-d", "x", log=fake).code == 2
    assert not fake.records


def test_append_of_nothing_appends_nothing(dledger: Run, fake: FakeLog) -> None:
    outcome = dledger("append", "-o", "json", log=fake, stdin=b"")
    assert (outcome.code, outcome.last_json["count"], outcome.last_json["first_index"]) == (0, 0, None)


@pytest.mark.parametrize(
    ("code", "unknown", "exit_code"),
    [(Code.DISK_FULL, 0, 5), (Code.WAIT_QUORUM_ACK_TIMEOUT, 2, 4), (Code.TIMEOUT, 0, 3)],
)
def test_append_says_what_was_acknowledged_before_it_failed(
    dledger: Run, monkeypatch: pytest.MonkeyPatch, code: Code, unknown: int, exit_code: int
) -> None:
    fake = FakeLog()
    monkeypatch.setattr("dledger.cli.records.BATCH_RECORDS", 2)
    monkeypatch.setattr("dledger.cli.append.BATCHES_IN_FLIGHT", 1)
    fake.refusals[1] = error(code, "it did not work")
    outcome = dledger("append", "-o", "json", log=fake, stdin=b"1\n2\n3\n4\n5\n6\n")
    assert outcome.code == exit_code
    told = outcome.last_json
    assert (told["count"], told["first_index"], told["last_index"]) == (2, 0, 1)
    assert (told["acknowledged"], told["unknown"], told["not_appended"]) == (2, unknown, 4 - unknown)
    assert f"it did not work (2 acknowledged, {unknown} unknown, {4 - unknown} not appended" in outcome.err
    assert outcome.err.count("\n") == 1
    assert fake.records == [b"1", b"2"]


def test_an_append_that_fails_says_whether_that_is_all_of_its_input(dledger: Run, fake: FakeLog) -> None:
    fake.refusals[0] = error(Code.DISK_FULL, "it did not work")
    outcome = dledger("append", "-d", "x", "-o", "json", log=fake)
    assert outcome.last_json["input_ended"] is True
    assert outcome.err == "dledger: it did not work (0 acknowledged, 0 unknown, 1 not appended)\n"


def test_an_input_that_cannot_be_read_to_its_end_is_a_failure_with_a_tally(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = iter([b"1\n2\n"])
    monkeypatch.setattr("os.read", lambda *_: next(chunks, None) or failing_read())
    outcome = dledger("append", "-o", "json", log=fake, stdin=b"")
    assert outcome.code == 2
    told = outcome.last_json
    assert (told["count"], told["unknown"], told["not_appended"], told["input_ended"]) == (2, 0, 0, False)
    assert outcome.err.startswith("dledger: the input cannot be read: Input/output error; give another (2 ack")


def failing_read() -> bytes:
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture(params=["pipe", "terminal"])
def idle_input(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two lines on stdin, and then nothing, without an end."""
    reading, writing = os.pipe() if request.param == "pipe" else reversed(pty.openpty())
    os.write(writing, b"1\n2\n")
    monkeypatch.setattr("dledger.cli.append.STDIN", reading)
    yield
    os.close(reading)
    os.close(writing)


@pytest.mark.usefixtures("idle_input")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_input_is_idle_is_130_and_says_what_was_acknowledged(
    dledger: Run, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """What is typed in a terminal comes line by line."""
    fake = FakeLog()

    def interrupt() -> None:
        if len(fake.records) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(fake, "on_records", interrupt)
    outcome = dledger("append", "-o", "json", log=fake)
    assert outcome.code == 130
    assert (outcome.last_json["acknowledged"], outcome.last_json["unknown"]) == (2, 0)
    assert outcome.err == f"dledger: interrupted (2 acknowledged, 0 unknown, 0 not appended{NOT_THE_END})\n"


class Leaderless(FakeLog):
    """Answers no append; closing it waits for all of them, as the client does. Interrupted then, and once more."""

    def enqueue_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> asyncio.Future[Acks]:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        self._call: asyncio.Future[Acks] = asyncio.get_running_loop().create_future()
        return self._call

    async def __aexit__(self, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait((self._call,))


def test_an_interrupt_that_waits_for_outcomes_says_so_and_a_second_one_ends_it(dledger: Run) -> None:
    outcome = dledger("append", "-d", "x", "--timeout", "7.5", "-o", "json", log=Leaderless())
    assert outcome.code == 130
    assert (outcome.last_json["acknowledged"], outcome.last_json["unknown"]) == (0, 1)
    waits, ended = outcome.err.splitlines()
    assert waits.startswith("dledger: waiting for the outcome of what was sent, 7.5 s at most (records: 1); ")
    assert waits.endswith("a second Ctrl-C ends it at once")
    assert ended == "dledger: interrupted (0 acknowledged, 1 unknown, 0 not appended)"


class Entered(FakeLog):
    """Does something once it is connected."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self._then = then

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().call_soon(self._then)
        return self


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Without a writer: whoever opens it to read waits for one."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_a_fifo_that_nobody_writes_to_can_be_interrupted(dledger: Run, fifo: Path) -> None:
    interrupting = Entered(lambda: os.kill(os.getpid(), signal.SIGINT))
    outcome = dledger("append", "--file", str(fifo), log=interrupting)
    assert outcome.code == 130
    assert "interrupted (0 acknowledged" in outcome.err


def test_a_fifo_is_read_from_its_first_writer_to_the_end_of_its_last(dledger: Run, fifo: Path) -> None:
    log = Entered(lambda: fifo.write_bytes(b"1\n2\n"))
    assert dledger("append", "--file", str(fifo), log=log).code == 0
    assert log.records == [b"1", b"2"]


@pytest.mark.usefixtures("idle_input")
@pytest.mark.parametrize(
    ("code", "unknown", "exit_code"), [(Code.WAIT_QUORUM_ACK_TIMEOUT, True, 4), (Code.TIMEOUT, False, 3)]
)
def test_an_append_that_fails_while_the_input_is_idle_says_so_at_once(
    dledger: Run, fake: FakeLog, code: Code, unknown: bool, exit_code: int
) -> None:
    fake.refusals[0] = error(code, "it did not work")
    outcome = dledger("append", "-o", "json", log=fake)
    assert outcome.code == exit_code
    told = outcome.last_json
    assert bool(told["unknown"]) is unknown
    assert bool(told["not_appended"]) is not unknown
    tally = f"{told['acknowledged']} acknowledged, {told['unknown']} unknown, {told['not_appended']} not appended"
    assert outcome.err == f"dledger: it did not work ({tally}{NOT_THE_END})\n"


class Hesitant(FakeLog):
    """Its appends wait for a leader, each for a moment."""

    def enqueue_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> asyncio.Future[Acks]:
        assert self.on_wait is not None
        self.on_wait(error(Code.LEADER_NOT_READY, "no leader is known"))
        return super().enqueue_many(records, expect_index=expect_index)


def test_append_says_what_it_waits_for_once_it_has_lasted(dledger: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dledger("append", "-d", "x", log=Hesitant()).err == ""
    monkeypatch.setattr("dledger.cli.append.PATIENCE_S", 0.0)
    outcome = dledger("append", "-d", "x", log=Hesitant())
    assert (outcome.code, outcome.err) == (0, "waiting: no leader is known\n")
