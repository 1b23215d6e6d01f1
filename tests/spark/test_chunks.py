"""Rows as batches: cut the same way however they came."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dledger.common.batch import check_body, records_of
from dledger.common.errors import DLedgerError
from dledger.spark.chunks import CHUNK_BYTES, Chunk, Chunker

LIMIT_BYTES = 1 << 22


def cut(records: list[bytes], batch_rows: int, arrow_type: pa.DataType | None = None) -> list[Chunk]:
    chunker = Chunker()
    values = pa.array(records, arrow_type or pa.binary())
    chunks: list[Chunk] = []
    for start in range(0, len(records), batch_rows):
        chunks += chunker.feed(pa.record_batch({"value": values.slice(start, batch_rows)}), "value")
    rest = chunker.rest()
    return chunks + ([rest] if rest is not None else [])


def records_in(chunks: list[Chunk]) -> list[bytes]:
    for chunk in chunks:
        check_body(chunk.body, chunk.count, LIMIT_BYTES)
    return [record for chunk in chunks for record in records_of(chunk.body, chunk.count)]


@pytest.mark.parametrize("seed", range(4))
def test_chunks_depend_on_the_rows_alone(seed: int) -> None:
    rng = random.Random(seed)
    records = [rng.randbytes(rng.choice([0, 10, 300, 60_000])) for _ in range(400)]
    whole = cut(records, len(records))
    assert records_in(whole) == records
    assert len(whole) > 1
    assert all(cut(records, rows) == whole for rows in (1, 7, 100))


def test_every_chunk_but_the_last_is_full() -> None:
    chunks = cut([b"x" * 1000] * 5000, 1000)
    assert all(CHUNK_BYTES - 1004 < len(chunk.body) <= CHUNK_BYTES for chunk in chunks[:-1])


def test_a_record_larger_than_a_chunk_is_one_of_its_own() -> None:
    records = [b"small", b"x" * (CHUNK_BYTES + 1), b"", b"small"]
    assert [chunk.count for chunk in cut(records, 2)] == [1, 1, 2]
    assert records_in(cut(records, 1)) == records


def test_text_is_appended_as_utf_8() -> None:
    assert records_in(cut(["ä", ""], 2, pa.string())) == ["ä".encode(), b""]  # type: ignore[list-item]


def test_no_rows_are_no_chunks() -> None:
    assert cut([], 1) == []


def test_a_null_is_refused_in_a_sentence() -> None:
    with pytest.raises(DLedgerError, match="column value holds a null"):
        cut([b"x", None], 2)  # type: ignore[list-item]
