"""Lines become records whatever the chunks are, from any kind of file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.cli import records
from dledger.cli.records import LineSplitter, batches_of, chunks, line_batches, whole
from dledger.common.errors import Code, DLedgerError


@given(text=st.binary(max_size=200) | st.lists(st.sampled_from([b"a", b"\n", b"\r"])).map(b"".join), cuts=st.data())
def test_lines_do_not_depend_on_the_chunks(text: bytes, cuts: st.DataObject) -> None:
    splitter = LineSplitter()
    places = sorted(cuts.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    found: list[bytes] = []
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        if chunk := text[start:end]:
            found += splitter.feed(chunk)
    found += splitter.finish()
    expected = text.split(b"\n")
    assert found == (expected[:-1] if expected[-1] == b"" else expected)


def test_only_a_newline_ends_a_line() -> None:
    assert LineSplitter().feed(b"a\r\nb\x0bc\x85d\n") == [b"a\r", b"b\x0bc\x85d"]


def test_a_line_without_an_end_is_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LINE_MAX_BYTES", 10)
    splitter = LineSplitter()
    splitter.feed(b"12345")
    with pytest.raises(DLedgerError) as refused:
        splitter.feed(b"678901")
    assert refused.value.code is Code.RECORD_TOO_LARGE


def test_batches_keep_the_order_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BATCH_RECORDS", 3)
    monkeypatch.setattr(records, "BATCH_BYTES", 10)
    assert list(batches_of([b"1", b"2", b"3", b"4"])) == [[b"1", b"2", b"3"], [b"4"]]
    assert list(batches_of([b"123456", b"12345", b"x" * 20])) == [[b"123456"], [b"12345"], [b"x" * 20]]
    assert list(batches_of([])) == []


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\ntwo")
    with path.open("rb") as file:
        assert [line async for batch in line_batches(file.fileno()) for line in batch] == [b"one", b"", b"two"]


async def test_lines_come_as_they_are_written_to_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        batches = line_batches(reading)
        os.write(writing, b"one\ntw")
        assert await anext(batches) == [b"one"]
        os.write(writing, b"o\n")
        assert await anext(batches) == [b"two"]
        await batches.aclose()
    finally:
        os.close(reading)
        os.close(writing)


async def test_nothing_is_no_record_but_raw_makes_it_an_empty_one() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    assert [chunk async for chunk in chunks(nothing)] == []
    assert await whole(nothing) == b""
    os.close(nothing)
