"""The checksummed record: how everything but frames is stored. Segment headers, marks, votes, identities, small states.

Little-endian::

    offset  size     field     meaning
    0       4        magic     b"DLR\\x01" (the last byte is the version)
    4       4        kind      what the payload is: a record read in another's place is not taken for it
    8       8        sequence  which of several copies is the newest
    16      4        length    of the payload
    20      4        crc       CRC-32C of the 20 bytes before and the payload
    24      length   payload
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from dledger.common.batch import Buffer, crc32c

READMIT = "give the node an empty data directory, then 'dledger admin readmit ID'"
"""What to do about a directory that is damaged beyond what a node repairs."""

RECORD_HEADER_BYTES = 24
_MAGIC = int.from_bytes(b"DLR\x01", "little")
_HEAD = Struct("<IIQII")
_CHECKED_HEAD_BYTES = 20


class RecordKind(IntEnum):
    """What a record's payload is."""

    SEGMENT_HEADER = 1
    SYNC_MARK = 2
    COMMIT_HINT = 3
    FOOTER = 4
    TRAILER = 5
    LOG_STATE = 6
    HARD_STATE = 7
    IDENTITY = 8
    PEER_BOOK = 9
    ORIGIN = 10
    GROUP = 11
    SCRUB = 11


class Record(NamedTuple):
    """A record whose checksum was right."""

    sequence: int
    payload: bytes


def pack_record(kind: RecordKind, sequence: int, payload: Buffer) -> bytes:
    """The stored bytes of one record."""
    head = _HEAD.pack(_MAGIC, kind, sequence, len(payload), 0)[:_CHECKED_HEAD_BYTES]
    return b"".join((head, crc32c(payload, crc32c(head)).to_bytes(4, "little"), payload))


def unpack_record(kind: RecordKind, buffer: Buffer) -> Record | None:
    """The record ``buffer`` begins with, or None when there is no good one of this kind."""
    if len(buffer) < RECORD_HEADER_BYTES:
        return None
    view = memoryview(buffer)
    magic, stored_kind, sequence, length, crc = _HEAD.unpack(view[:RECORD_HEADER_BYTES])
    payload = view[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + length]
    if magic != _MAGIC or stored_kind != kind or len(payload) != length:
        return None
    if crc32c(payload, crc32c(view[:_CHECKED_HEAD_BYTES])) != crc:
        return None
    return Record(sequence, bytes(payload))
