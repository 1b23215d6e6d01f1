"""A small node's whole disk, and what each of its bytes belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from dledger.common.types import DEFAULT_GROUP, Durability, LogPoint, Member, NodeId, NodeStart, Position, Term
from dledger.disk.record import RECORD_HEADER_BYTES
from dledger.group.group_record import GROUP_RECORD_NAME, GroupRecord
from dledger.group.hard_state import HardState, HardStateStore
from dledger.log.frame.frame import HEADER_BYTES, parse_header
from dledger.log.recovery.inventory import Durable, take_inventory
from dledger.log.segment.segment import FIRST_PAGE_BYTES, PREPARED_SUFFIX, SECTOR_BYTES, TRAILER_BYTES, Segment
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import COPY_ALIGN_BYTES
from dledger.node.identity import Identity, open_identity
from dledger.node.peer_book import PeerBook
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk
from tests.crashes.promises import DATA, GROUP, LIMITS
from tests.simulation.truth import FRAME_MAGIC
from tests.support.slots import TWO_SLOTS
from tests.unit.log.harness import Witness, abandon, all_frames, frames_after, open_at

VOTE = HardState(Term(7), NodeId("n2"))
CUT_BEHIND = LogPoint(Position(3), Term(1), 99)
"""Where an earlier start had cut the log, as the group's record says."""
PEERS = {NodeId("n1"): b"1" * 16, NodeId("n2"): b"2" * 16}
_IDLE_S = 0.05
_PAGE_PARTS = ("segment header", "sync mark", "commit hint", "sync mark", "origin")
SLOTS = {name: slots.slot_bytes for name, slots in TWO_SLOTS.items()}
LOCK = "LOCK"
UNUSED, ROOM, RESERVE = "room that nothing uses", "room for frames to come", "reserve"
FIRST_STATE, LATER_STATE = "the log's first small state", "a later small state"


class Region(NamedTuple):
    """Bytes of one file that belong together."""

    begin: int
    end: int
    structure: str


class StoredDisk(NamedTuple):
    """What a node has stored under ``DATA`` when it crashes."""

    image: Image

    def regions(self) -> dict[str, list[Region]]:
        """By path: every byte of every file belongs to one region."""
        disk = RecordingDisk(RecordedPlatter(self.image))
        files = SegmentFiles(disk, GROUP, "default")
        durable = take_inventory(files, disk.listdir(str(GROUP)))
        segments = {segment.path: segment for segment in files.segments}
        return {
            path: list(_filled(self._regions(path, content, segments, durable), len(content)))
            for path, content in self.image.files
        }

    @property
    def first_state(self) -> str:
        """The file with the small state that the log begins with, twice."""
        return min(path for path, _ in self.image.files if path.endswith(".state"))

    def _regions(self, path: str, content: bytes, segments: dict[str, Segment], durable: Durable) -> Iterator[Region]:
        name = path.rpartition("/")[2]
        if path in segments:
            yield from _of_segment(content, segments[path], durable)
        elif name in SLOTS:
            for slot in (0, 1):
                yield from _record(content, slot * SLOTS[name], f"{name}, slot {slot}")
        elif path == self.first_state:
            for copy in (0, 1):
                yield from _record(content, copy * COPY_ALIGN_BYTES, f"{FIRST_STATE}, copy {copy}")
        elif name.endswith(".state"):
            yield Region(0, len(content), LATER_STATE)
        elif name.endswith(PREPARED_SUFFIX):
            yield Region(0, len(content), UNUSED)
        else:
            yield Region(0, len(content), name)


class StoredNode(NamedTuple):
    """A node that crashed: what it has stored, and what a start must find."""

    disk: StoredDisk
    frames: tuple[bytes, ...]
    marked: int
    """The position of the newest sync mark: behind it lies what the last crash may explain."""
    state: bytes
    """The small state at the end."""
    node_uuid: bytes
    settled: dict[str, bytes]
    """By name, what the files of two slots hold when they were opened once more, and were sound."""


async def stored_node() -> StoredNode:
    """Several sealed segments behind an origin, an active one with frames on both sides of its mark, and all else."""
    platter = RecordedPlatter()
    disk = RecordingDisk(platter)
    identity = await open_identity(disk, DATA, NodeId("n0"), Random(1))
    record = await GroupRecord.open(disk, GROUP, DEFAULT_GROUP, Durability.FSYNC)
    store = await HardStateStore.open(disk, GROUP)
    log = await open_at(GROUP, disk, LIMITS)
    await identity.keep_group(DEFAULT_GROUP)
    await record.begin_start()
    await record.lose_tail(CUT_BEHIND)
    await identity.begin_start()
    book = await PeerBook.open(disk, DATA)
    for peer, node_uuid in PEERS.items():
        book.of(DEFAULT_GROUP).remember(Member(peer, "127.0.0.1:2"), NodeStart(node_uuid, 3, (1, 2, 3)))
    await book.save()
    await store.save(VOTE)
    witness = Witness(log)
    for count in (4, 4, 4, 4, 2):
        log.append(frames_after(log, count, size_bytes=37))
        await witness.all_durable()
        await log._sealer.drain()
    await log.trim(log.boundaries()[0].trim)
    await asyncio.sleep(_IDLE_S)
    marked = log.last.position
    log.append(frames_after(log, 2, size_bytes=37))
    await witness.all_durable()
    image = platter.image()
    frames = tuple(frame.raw for frame in await all_frames(log))
    settled = await _settled(image)
    node = StoredNode(StoredDisk(image), frames, marked, log.state.encode(), identity.start.node_uuid, settled)
    await abandon(log)
    await identity.close()
    return node


async def open_slots(disk: RecordingDisk, name: str) -> Identity | GroupRecord | HardStateStore | PeerBook:
    """What a start does with the file of two slots of this name, or with the lock."""
    if name in ("identity", LOCK):
        identity = await open_identity(disk, DATA, NodeId("n0"), Random(2))
        await identity.close()
        return identity
    if name == GROUP_RECORD_NAME:
        record = await GroupRecord.open(disk, GROUP, DEFAULT_GROUP, Durability.FSYNC, must_exist=True)
        await record.begin_start()
        return record
    if name == "hard_state":
        return await HardStateStore.open(disk, GROUP, must_exist=True)
    return await PeerBook.open(disk, DATA, must_exist=True)


async def _settled(image: Image) -> dict[str, bytes]:
    settled: dict[str, bytes] = {}
    for name in SLOTS:
        platter = RecordedPlatter(image)
        await open_slots(RecordingDisk(platter), name)
        (settled[name],) = [content for path, content in platter.image().files if path.endswith(f"/{name}")]
    return settled


def _of_segment(content: bytes, segment: Segment, durable: Durable) -> Iterator[Region]:
    for sector, part in enumerate(_PAGE_PARTS):
        yield from _record(content, sector * SECTOR_BYTES, part)
    position, offset = segment.name.base_position, FIRST_PAGE_BYTES
    end = segment.end_offset if segment.sealed else len(content)
    while offset < end and content.startswith(FRAME_MAGIC, offset):  # no footer yet of a segment that was being sealed
        header = parse_header(content, offset)
        where = " above the mark" if position > durable.point.position else ""
        yield Region(offset, offset + HEADER_BYTES, f"frame header{where}")
        yield Region(offset + HEADER_BYTES, offset + header.frame_len, f"frame body{where}")
        yield Region(offset + header.frame_len, offset + header.stored_bytes, f"frame padding{where}")
        offset += header.stored_bytes
        position += 1
    if segment.sealed:
        yield Region(offset, len(content) - TRAILER_BYTES, "footer")
        yield Region(len(content) - TRAILER_BYTES, len(content), "trailer")
    else:
        yield Region(offset, len(content), ROOM)


def _record(content: bytes, offset: int, structure: str) -> Iterator[Region]:
    """The record at ``offset``, if one was written there."""
    head = content[offset : offset + RECORD_HEADER_BYTES]
    if any(head):
        length = int.from_bytes(head[16:20], "little")
        yield Region(offset, offset + RECORD_HEADER_BYTES + length, structure)


def _filled(regions: Iterator[Region], size_bytes: int) -> Iterator[Region]:
    """With what lies between them."""
    at = 0
    for region in regions:
        if region.begin > at:
            yield Region(at, region.begin, UNUSED)
        if region.end > region.begin:
            yield region
        at = region.end
    if at < size_bytes:
        yield Region(at, size_bytes, UNUSED)
