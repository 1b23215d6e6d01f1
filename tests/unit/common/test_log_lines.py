"""Lines of the log never hold up who logs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from dledger.common.log_lines import LogLines

PIPE_BYTES = 65_536


class Reader:
    """Of what is written: it reads only when it is told to."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.reads.set()
        self.text = ""

    def write(self, data: bytes) -> None:
        assert self.reads.wait(10)
        self.text += data.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.reads.set()


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text})


def test_lines_are_written_in_order(reader: Reader) -> None:
    lines = LogLines(reader.write)
    for number in range(100):
        lines.handle(record(str(number)))
    lines.flush()
    assert reader.lines == [str(number) for number in range(100)]
    lines.close()


def test_what_finds_no_room_is_counted_and_told_when_lines_are_read_again(reader: Reader) -> None:
    lines = LogLines(reader.write, most_lines=3)
    lines.setFormatter(logging.Formatter("%(message)s %(held_back)s", defaults={"held_back": ""}))
    reader.reads.clear()
    lines.handle(record("first"))
    while lines._lines:  # until the thread has taken it
        threading.Event().wait(0.001)
    for number in range(8):
        lines.handle(record(str(number)))
    reader.reads.set()
    lines.flush()
    assert [line.strip() for line in reader.lines] == ["first", "0", "1", "2", "lines were not logged 5"]
    lines.close()


def test_the_end_does_not_wait_for_a_reader_that_does_not_read(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.common.log_lines.FLUSH_TIMEOUT_S", 0.01)
    lines = LogLines(reader.write)
    reader.reads.clear()
    lines.handle(record("kept"))
    lines.close()
    assert not reader.text
    reader.reads.set()


def test_a_reader_that_is_gone_is_nobodys_trouble() -> None:
    reading, writing = os.pipe()
    lines = LogLines(lambda data: _write(writing, data))
    os.close(reading)
    for _ in range(3):
        lines.handle(record("unheard"))
        lines.flush()
    lines.close()
    os.close(writing)


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)
