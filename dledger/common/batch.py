"""The body of a batch: many records as one buffer, built by clients, checked by the server, never taken apart there.

::

    offset  size             field
    0       4 · (count + 1)  offsets: i32 little-endian; offsets[0] = 0, ascending
    …       offsets[count]   the records' bytes, one after the other

Exactly the two buffers of an Arrow binary array, so a record is found in O(1) and a batch is handed on without a copy.
An empty record is legal, an empty batch is not.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from crc32c import crc32c

from dledger.common.errors import Code, error

Buffer = bytes | bytearray | memoryview

LARGE_BODY_BYTES = 32 << 10
"""Bodies of so many bytes have a sum for each piece, so that a record is read without the rest."""
PIECE_BYTES = 8 << 10
MAX_KEPT_SIGNS = 4096
"""Batches of up to so many records are checked with an integer kept from the one before."""

__all__ = [
    "LARGE_BODY_BYTES",
    "PIECE_BYTES",
    "Buffer",
    "as_record",
    "as_records",
    "body_offsets",
    "body_sums",
    "build_body",
    "check_body",
    "crc32c",
    "record_at",
    "records_of",
]


def build_body(records: Sequence[bytes]) -> bytes:
    """The body that holds ``records``. The caller has made sure there is at least one."""
    offsets = struct.pack(f"<{len(records) + 1}i", *accumulate(map(len, records), initial=0))
    return b"".join((offsets, *records))


def body_sums(body: Buffer) -> array[int] | None:
    """The running CRC-32C of a large body: from its beginning up to the end of each 8 KiB piece. The last one is the
    body's own checksum, and two neighbours tell whether the piece between them is good. None for smaller bodies. Costs
    little more than the body's checksum alone."""
    if len(body) < LARGE_BODY_BYTES:
        return None
    sums, view, crc = array("I"), memoryview(body), 0
    for at in range(0, len(view), PIECE_BYTES):
        crc = crc32c(view[at : at + PIECE_BYTES], crc)
        sums.append(crc)
    return sums


def as_record(record: object) -> bytes:
    """The bytes of a bytes-like record, copied if it could still change. Raises UNEXPECTED_ARGUMENT."""
    if isinstance(record, bytes | bytearray | memoryview):
        return bytes(record)
    raise error(Code.UNEXPECTED_ARGUMENT, f"a record is bytes, not {type(record).__name__}: encode it first")


def as_records(records: Iterable[object]) -> tuple[bytes, ...]:
    """The records of one append, copied so far as the caller could still change them. The length of each is its number
    of bytes (a view of wider items counts those). Raises UNEXPECTED_ARGUMENT unless all are bytes-like."""
    if isinstance(records, str | bytes | bytearray | memoryview) or not isinstance(records, Iterable):
        text = f"records is a {type(records).__name__}: give a list of bytes, one for each record"
        raise error(Code.UNEXPECTED_ARGUMENT, text)
    given = tuple(records)
    if set(map(type, given)) <= {bytes}:
        return given  # type: ignore[return-value]  # looked at just now, at C speed
    return tuple(map(as_record, given))


def body_offsets(body: Buffer, count: int) -> memoryview:
    """The ``count`` + 1 offsets of a body that was checked."""
    return memoryview(body)[: 4 * (count + 1)].cast("i")


def check_body(body: Buffer, count: int, max_record_bytes: int) -> None:
    """Raises CORRUPT_BATCH or RECORD_TOO_LARGE unless ``body`` is a well-formed body of ``count`` records.

    Runs at C speed: the server looks at offsets as a whole, never record by record.
    """
    table_bytes = 4 * (count + 1)
    if count < 1 or len(body) < table_bytes:
        raise error(Code.CORRUPT_BATCH, f"the batch says {count} records but its body has {len(body)} bytes")
    offsets = body_offsets(body, count)
    data_bytes = len(body) - table_bytes
    if offsets[0] != 0 or offsets[count] != data_bytes or not _ascend(offsets, count):
        raise error(Code.CORRUPT_BATCH, f"the offsets do not fit the batch's {count} records and {len(body)} bytes")
    if data_bytes > max_record_bytes:
        largest = max(end - start for start, end in pairwise(offsets.tolist()))
        if largest > max_record_bytes:
            raise error(Code.RECORD_TOO_LARGE, f"a record has {largest} bytes; the limit is {max_record_bytes}")


def _ascend(offsets: memoryview, count: int) -> bool:
    """Whether no offset is negative or below the one before, all ``count`` comparisons in one subtraction.

    The offsets are the 32-bit lanes of one large integer. Each lane's sign bit is set before the subtraction. A lane
    keeps that bit if it is not below the one subtracted from it. It borrows nothing from its neighbour either way.
    """
    signs = _signs(count)
    lanes = int.from_bytes(offsets, "little")
    later = lanes >> 32
    if later & signs:
        return False
    earlier = lanes & ((1 << 32 * count) - 1)
    return ((later | signs) - earlier) & signs == signs


def _signs(count: int) -> int:
    # Four bytes a record: those of large batches, of all sizes, would fill the memory and never leave it.
    return _kept_signs(count) if count <= MAX_KEPT_SIGNS else _make_signs(count)


def _make_signs(count: int) -> int:
    return int.from_bytes(b"\x00\x00\x00\x80" * count, "little")


_kept_signs = lru_cache(maxsize=64)(_make_signs)


def record_at(body: Buffer, count: int, ordinal: int) -> bytes:
    """Record number ``ordinal`` (0 … count − 1) of a checked body, in O(1)."""
    start, end = body_offsets(body, count)[ordinal : ordinal + 2]
    data = 4 * (count + 1)
    return bytes(memoryview(body)[data + start : data + end])


def records_of(body: Buffer, count: int) -> list[bytes]:
    """All records of a checked body. For clients and state machines: a log never takes a batch apart."""
    offsets = body_offsets(body, count).tolist()
    data = bytes(memoryview(body)[4 * (count + 1) :])
    return [data[start:end] for start, end in pairwise(offsets)]
