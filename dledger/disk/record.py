"""The checksummed record: how everything but frames is stored. Segment headers, marks, votes, identities, small states.

Little-endian::

    offset  size     field     meaning
    0       4        magic     b"DLR\\x01" (the last byte is the version)
    4       4        kind      what the payload is: a record read in another's place is not taken for it
    8       8        sequence  which of several copies is the newest
    16      4        length    of the payload
    20      4        crc       CRC-32C of the 20 bytes before and the payload
    24      length   payload

Later versions keep this layout, so that this program can tell a record of a newer one (``NewerFormat``) from rot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from dledger.common.batch import Buffer, crc32c
from dledger.common.errors import NewerFormat

READMIT = "give the node an empty data directory, then 'dledger admin readmit ID'"
"""The advice for a directory with more damage than a node repairs."""

RECORD_HEADER_BYTES = 24
RECORD_VERSION = 1
_MAGIC = int.from_bytes(b"DLR\x01", "little")
_VERSION_SHIFT = 24
_ANY_VERSION = (1 << _VERSION_SHIFT) - 1
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
    GROUP = 12
    SCRUB = 11


class Record(NamedTuple):
    """A record with a good checksum."""

    sequence: int
    payload: bytes


def pack_record(kind: RecordKind, sequence: int, payload: Buffer) -> bytes:
    """The stored bytes of one record."""
    head = _HEAD.pack(_MAGIC, kind, sequence, len(payload), 0)[:_CHECKED_HEAD_BYTES]
    return b"".join((head, crc32c(payload, crc32c(head)).to_bytes(4, "little"), payload))


def unpack_record(kind: RecordKind, buffer: Buffer) -> Record | None:
    """The record ``buffer`` begins with, or None when there is no good one of this kind. Raises ``NewerFormat`` for a
    good one, of any kind, that a newer program wrote."""
    view = memoryview(buffer)
    if len(view) < RECORD_HEADER_BYTES:
        return None
    magic, stored_kind, sequence, length, crc = _HEAD.unpack(view[:RECORD_HEADER_BYTES])
    version = magic >> _VERSION_SHIFT
    is_known = magic == _MAGIC and stored_kind == kind
    is_newer = (magic ^ _MAGIC) & _ANY_VERSION == 0 and version > RECORD_VERSION
    payload = view[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + length]
    if not (is_known or is_newer) or len(payload) != length:
        return None
    if crc32c(payload, crc32c(view[:_CHECKED_HEAD_BYTES])) != crc:
        return None
    if is_newer:
        raise NewerFormat("record", version, RECORD_VERSION)
    return Record(sequence, bytes(payload))


@contextmanager
def in_file(path: str) -> Iterator[None]:
    """What is read inside is the file ``path``: a ``NewerFormat`` says so."""
    try:
        yield
    except NewerFormat as newer:
        raise newer.in_file(path) from newer
