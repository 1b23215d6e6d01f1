"""The frame: what travels between nodes and lies on every disk, byte for byte the same, for ever.

A frame is a header of 88 bytes, a body, and zeros up to a multiple of 8. Little-endian::

    offset  size  field            meaning
    0       4     magic            b"DLF\\x01" (the last byte is the version)
    4       4     frame_len        header and body, without the padding
    8       4     header_crc       CRC-32C of the header without this field
    12      4     body_crc         CRC-32C of the body
    16      8     position         Raft's number: +1 a frame of any kind, from 1
    24      8     term             of the leader that made it
    32      8     base_index       the index of the first record (for a control frame: of the next record)
    40      4     count            records in the body; 0: a control frame
    44      4     attributes       bits 0–7 the control kind, bits 8–11 the codec of the body (0: none); the rest 0
    48      8     timestamp_ms     never below the previous frame's
    56      8     producer_id      0: none
    64      8     base_sequence    the producer's sequence of the first record
    72      4     producer_epoch
    76      4     reserved         0
    80      8     chain            BLAKE2b-64(previous chain ‖ this header without header_crc and chain)

``body_crc`` lies in the header, so the chain covers the body too. Two logs are equal up to a position iff their chains
there are (up to collisions of CRC-32C). A control frame's body is a ``dledger.v1.ControlRecord``.

Later versions keep magic, header_crc and the length of the header. So this program can tell a frame of a newer one
(``NewerFormat``) from rot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from dledger.common.batch import Buffer, body_sums, check_body, crc32c, record_at, records_of
from dledger.common.errors import Code, DLedgerError, NewerFormat, error
from dledger.common.types import Entry, LogPoint, Position, Term

HEADER_BYTES = 88
FRAME_VERSION = 1
MAGIC = int.from_bytes(b"DLF\x01", "little")
_VERSION_SHIFT = 24
_ANY_VERSION = (1 << _VERSION_SHIFT) - 1

_HEADER = Struct("<IIIIQQQIIQQQIIQ")
_PLACE = Struct("<4xI16xQQI4xQ")
_BEFORE_CRC = slice(0, 8)
_AFTER_CRC = slice(12, HEADER_BYTES)
_CHAINED_AFTER_CRC = slice(12, 80)
_PADDING = tuple(bytes(n) for n in range(8))

CONTROL_KIND_MASK = 0xFF
CODEC_MASK = 0xF00
KNOWN_ATTRIBUTES = CONTROL_KIND_MASK


MAX_FRAMES_READ = 1_024
"""One read, and one APPEND, holds no more frames, however small: parsing them takes some ten milliseconds, in which
nothing else has a turn."""


class ControlKind(IntEnum):
    """What a control frame says. More kinds follow with fences."""

    DATA = 0
    NO_OP = 1
    """Opens a term: the first frame of every leader."""
    PRODUCER = 2
    """Hands out a producer id: the frame's own position."""
    MEMBERSHIP = 3
    """All members from now on; effective when appended."""
    TRIM = 4
    """Where the log begins, once the frame is committed."""
    SETTINGS = 5
    """What the group agrees on (``types.GroupSettings``); effective when appended."""


FILLING = frozenset({ControlKind.DATA, ControlKind.PRODUCER})
"""What fills a log; the rest is seldom written, small, and needed to bring a full disk out of it."""


class FrameHeader(NamedTuple):
    """The fields of a frame's header, in the order they are stored."""

    magic: int
    frame_len: int
    header_crc: int
    body_crc: int
    position: int
    term: int
    base_index: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    attributes: int
    timestamp_ms: int
    producer_id: int
    base_sequence: int
    producer_epoch: int
    reserved: int
    chain: int

    @property
    def stored_bytes(self) -> int:
        """What the frame takes in a segment: its length, padded to 8."""
        return (self.frame_len + 7) & ~7

    @property
    def point(self) -> LogPoint:
        return LogPoint(Position(self.position), Term(self.term), self.chain)

    @property
    def control_kind(self) -> ControlKind:
        return ControlKind(self.attributes & CONTROL_KIND_MASK)

    @property
    def end_index(self) -> int:
        """One past the frame's last record."""
        return self.base_index + self.count


class Place(NamedTuple):
    """The fields of a header that tell the places of its records. The header was checked before."""

    frame_len: int
    term: int
    base_index: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    timestamp_ms: int


def unpack_place(head: Buffer) -> Place:
    """Checks nothing."""
    return Place._make(_PLACE.unpack_from(head))


class Frame:
    """A header with its bytes, ready for ``writev``. ``buffers`` joined are the stored bytes, padding included."""

    __slots__ = ("body", "buffers", "header", "sums")

    def __init__(
        self, header: FrameHeader, body: Buffer, buffers: tuple[Buffer, ...], sums: Sequence[int] | None = None
    ) -> None:
        """``sums`` are ``body_sums(body)``."""
        self.header = header
        self.body = body
        self.buffers = buffers
        self.sums = sums

    def __repr__(self) -> str:
        h = self.header
        return f"Frame(position={h.position}, term={h.term}, base_index={h.base_index}, count={h.count})"

    @property
    def raw(self) -> bytes:
        """The stored bytes in one piece."""
        return b"".join(self.buffers)

    def entry(self, index: int) -> Entry:
        """Record ``index``, which is one of the frame's."""
        header = self.header
        value = record_at(self.body, header.count, index - header.base_index)
        return Entry(index, header.term, header.timestamp_ms, value)

    def values(self) -> list[bytes]:
        """Of all its records, taken apart at once: for a program that wants them all."""
        return records_of(self.body, self.header.count)

    def entries(self, start: int, end: int | None = None) -> Iterator[Entry]:
        """Its records from ``start`` on, up to before ``end``."""
        header = self.header
        last = header.end_index if end is None else min(header.end_index, end)
        for index in range(max(start, header.base_index), last):
            yield self.entry(index)


def chain_of(previous_chain: int, head: Buffer) -> int:
    """The chain of the frame with the header bytes ``head``, after a frame with ``previous_chain``."""
    digest = blake2b(previous_chain.to_bytes(8, "little"), digest_size=8)
    view = memoryview(head)
    digest.update(view[_BEFORE_CRC])
    digest.update(view[_CHAINED_AFTER_CRC])
    return int.from_bytes(digest.digest(), "little")


def make_frame(
    previous: LogPoint,
    *,
    term: int,
    base_index: int,
    count: int,
    body: Buffer,
    body_crc: int,
    timestamp_ms: int,
    attributes: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    sums: Sequence[int] | None = None,
) -> Frame:
    """The frame that follows ``previous``. Only a leader makes frames; everyone else copies them. ``sums``: those of
    ``body``, if they are at hand."""
    frame_len = HEADER_BYTES + len(body)
    fields = (
        body_crc,
        previous.position + 1,
        term,
        base_index,
        count,
        attributes,
        timestamp_ms,
        producer_id,
        base_sequence,
        producer_epoch,
        0,
    )
    head = bytearray(_HEADER.pack(MAGIC, frame_len, 0, *fields, 0))
    chain = chain_of(previous.chain, head)
    head[80:88] = chain.to_bytes(8, "little")
    header_crc = _header_crc(head)
    head[8:12] = header_crc.to_bytes(4, "little")
    header = FrameHeader(MAGIC, frame_len, header_crc, *fields, chain)
    return Frame(header, body, (head, body, _PADDING[-frame_len & 7]), sums or body_sums(body))


def _header_crc(head: Buffer) -> int:
    view = memoryview(head)
    return crc32c(view[_AFTER_CRC], crc32c(view[_BEFORE_CRC]))


def parse_header(buffer: Buffer, offset: int = 0) -> FrameHeader:
    """The header at ``offset``, its checksum verified. Raises CORRUPT_LOG, and ``NewerFormat`` for a good header that a
    newer program wrote; says nothing of body and chain."""
    head = memoryview(buffer)[offset : offset + HEADER_BYTES]
    if len(head) < HEADER_BYTES:
        raise error(Code.CORRUPT_LOG, f"a frame header needs {HEADER_BYTES} bytes, only {len(head)} are left")
    header = FrameHeader._make(_HEADER.unpack(head))
    if header.magic != MAGIC:
        raise _no_frame(header, head)
    if header.header_crc != _header_crc(head):
        raise error(Code.CORRUPT_LOG, "the header's checksum does not match")
    if header.frame_len < HEADER_BYTES or header.attributes & ~KNOWN_ATTRIBUTES or header.reserved:
        raise error(Code.CORRUPT_LOG, "the header has a field this version does not know")
    return header


def _no_frame(header: FrameHeader, head: memoryview) -> DLedgerError:
    version = header.magic >> _VERSION_SHIFT
    is_newer = (header.magic ^ MAGIC) & _ANY_VERSION == 0 and version > FRAME_VERSION
    if is_newer and header.header_crc == _header_crc(head):
        return NewerFormat("frame", version, FRAME_VERSION)
    return error(Code.CORRUPT_LOG, f"no frame begins here (magic {header.magic:#010x})")


def parse_frame(buffer: Buffer, offset: int = 0) -> Frame:
    """The frame at ``offset``, header and body checksums verified, sharing ``buffer``'s memory. Raises as
    ``parse_header``."""
    header = parse_header(buffer, offset)
    return parse_body(header, memoryview(buffer)[offset : offset + header.stored_bytes])


def parse_body(header: FrameHeader, raw: memoryview) -> Frame:
    """The frame of a ``header`` that was just parsed from the beginning of ``raw``. Raises as ``parse_frame``."""
    if len(raw) < header.stored_bytes:
        raise error(Code.CORRUPT_LOG, f"frame {header.position} needs {header.stored_bytes} bytes, {len(raw)} are left")
    frame_len = header.frame_len
    body = raw[HEADER_BYTES:frame_len]
    sums = body_sums(body)
    if (sums[-1] if sums else crc32c(body)) != header.body_crc:
        raise error(Code.CORRUPT_LOG, f"the body of frame {header.position} does not match its checksum")
    if frame_len & 7 and any(raw[frame_len:]):
        raise error(Code.CORRUPT_LOG, f"the padding of frame {header.position} is not zero")
    return Frame(header, body, (raw,), sums)


def parse_frames(buffer: Buffer) -> list[Frame]:
    """All frames of ``buffer``, which must hold whole frames and nothing else. Raises CORRUPT_LOG."""
    frames = []
    offset = 0
    while offset < len(buffer):
        frame = parse_frame(buffer, offset)
        frames.append(frame)
        offset += frame.header.stored_bytes
    return frames


def check_link(previous: LogPoint, next_index: int, header: FrameHeader, head: Buffer) -> None:
    """Raises CORRUPT_LOG unless the frame follows ``previous`` without a gap and links to its chain."""
    if header.position != previous.position + 1 or header.base_index != next_index:
        raise error(
            Code.CORRUPT_LOG,
            f"frame {header.position} at index {header.base_index} does not follow "
            f"position {previous.position} and index {next_index - 1}",
        )
    if header.term < previous.term:
        raise error(Code.CORRUPT_LOG, f"frame {header.position} has term {header.term} after term {previous.term}")
    if header.chain != chain_of(previous.chain, head):
        raise error(Code.CORRUPT_LOG, f"frame {header.position} does not link to the frame before it")


def check_frame_body(frame: Frame, max_record_bytes: int) -> None:
    """Raises CORRUPT_BATCH unless a data frame's offsets fit its count (control frames have none)."""
    if frame.header.count:
        check_body(frame.body, frame.header.count, max_record_bytes)


def following(frames: Iterable[Frame], previous: LogPoint, next_index: int, max_record_bytes: int) -> Iterator[Frame]:
    """``frames`` as long as each follows the one before, the first ``previous``. Raises CORRUPT_LOG and CORRUPT_BATCH
    at one that does not. Their own checksums were checked when they were parsed."""
    for frame in frames:
        check_link(previous, next_index, frame.header, frame.buffers[0])
        check_frame_body(frame, max_record_bytes)
        previous, next_index = frame.header.point, frame.header.end_index
        yield frame
