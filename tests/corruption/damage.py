"""Damages one byte, or one sector, or one file; starts the node on it; says what became of it.

What a node may do with damage, and nothing else is right:

harmless
    nothing depends on the place; everything is there, and stays so
rebuilt
    everything is there, and the place holds again what follows from the rest
halts
    the start refuses with CORRUPT_LOG, and has changed nothing
refuses the read
    it starts; whoever asks for the place is told CORRUPT_LOG, and the rest is served
repaired
    where other nodes have good copies of the frames: everything is there again, byte for byte
cut as a torn tail
    frames behind the sync mark, as a crash leaves them: the log ends before them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random
from typing import NamedTuple

from dledger.errors import CorruptLog
from dledger.storage.damage import Damaged
from dledger.storage.damaged_log import DamagedLog, open_damaged
from dledger.storage.frame import parse_frame
from dledger.storage.hard_state import HardStateStore
from dledger.storage.identity import open_identity
from dledger.storage.log import FileLog
from dledger.storage.peer_book import PeerBook
from dledger.storage.verify import _Verifier
from dledger.types import Index, NodeId
from tests.corruption.node import PEERS, UNUSED, VOTE, Region, StoredNode
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk
from tests.crashes.promises import DATA, GROUP, LIMITS
from tests.simulation.platter import SECTOR_BYTES
from tests.unit.storage.harness import MEMBERS, Witness, all_frames, open_at

_MOST_REPAIRS = 10


class Outcome(StrEnum):
    """What became of one damage."""

    HARMLESS = "harmless"
    REBUILT = "rebuilt"
    HALTS = "halts"
    REFUSES = "refuses the read"
    REPAIRED = "repaired"
    CUT = "cut as a torn tail"
    WRONG = "WRONG"


class Damage(NamedTuple):
    """One damage to one file."""

    path: str
    structure: str
    offset: int
    content: bytes | None
    """The whole file, damaged; None: it is gone."""
    reaches_behind_the_mark: bool

    def __str__(self) -> str:
        return f"{self.structure}, {self.path} at {self.offset}"


Pattern = Callable[[int], int]
"""What a byte becomes: never itself."""

FLIPS: tuple[Pattern, ...] = tuple(lambda byte, bit=bit: byte ^ (1 << bit) for bit in range(8))  # type: ignore[misc]
INVERTED: Pattern = lambda byte: byte ^ 0xFF  # noqa: E731 – one of the patterns, as the others are


def damaged_bytes(
    node: StoredNode, regions: dict[str, list[Region]], patterns: tuple[Pattern, ...], stride: int = 1
) -> Iterator[Damage]:
    """Every byte, with every pattern; of room that nothing uses every ``stride``-th."""
    for path, content in node.image.files:
        for region in regions[path]:
            step = stride if region.structure in (UNUSED, "room for frames to come") else 1
            for offset in range(region.begin, region.end, step):
                for pattern in patterns:
                    damaged = bytearray(content)
                    damaged[offset] = pattern(content[offset])
                    yield Damage(path, region.structure, offset, bytes(damaged), _is_behind(region))


def damaged_sectors(node: StoredNode, regions: dict[str, list[Region]]) -> Iterator[Damage]:
    """Each sector zeroed, and each with what belongs elsewhere in its file: where it differs."""
    for path, content in node.image.files:
        for begin in range(0, len(content), SECTOR_BYTES):
            sector = content[begin : begin + SECTOR_BYTES]
            other = content[begin - SECTOR_BYTES :][:SECTOR_BYTES] if begin else content[-SECTOR_BYTES:]
            for name, piece in (("zeroed", bytes(len(sector))), ("misdirected", other[: len(sector)])):
                if piece != sector:
                    damaged = content[:begin] + piece.ljust(len(sector), b"\0") + content[begin + SECTOR_BYTES :]
                    behind = _any_behind(regions[path], begin, begin + len(sector))
                    yield Damage(path, f"a sector {name}", begin, damaged, behind)


def damaged_files(node: StoredNode, regions: dict[str, list[Region]]) -> Iterator[Damage]:
    """Each file gone, and cut short at each sector."""
    for path, content in node.image.files:
        yield Damage(path, "a file gone", 0, None, reaches_behind_the_mark=False)
        for end in range(0, len(content), SECTOR_BYTES):
            behind = _any_behind(regions[path], end, len(content))
            yield Damage(path, "a file cut short", end, content[:end], behind)


def _is_behind(region: Region) -> bool:
    return region.structure.endswith("above the mark") or region.structure == "room for frames to come"


def _any_behind(regions: list[Region], begin: int, end: int) -> bool:
    return any(_is_behind(each) for each in regions if each.begin < end and each.end > begin)


async def outcome_of(node: StoredNode, damage: Damage, *, has_peers: bool = False) -> tuple[Outcome, str]:
    """What a start on it, and reading everything, come to; and what is wrong, if anything is. ``has_peers``: other
    nodes have every frame, and give it."""
    files = dict(node.image.files)
    if damage.content is None:
        del files[damage.path]
    else:
        files[damage.path] = damage.content
    damaged = Image(tuple(sorted(files.items())), node.image.directories)
    platter = RecordedPlatter(damaged)
    try:
        return await _started(node, damage, platter, has_peers=has_peers), ""
    except CorruptLog as refused:
        if _changed(damaged, platter.image()):
            return Outcome.WRONG, f"it halts, but has changed something: {refused}"
        return Outcome.HALTS, ""
    except Exception as wrong:  # noqa: BLE001 – whatever else comes of it is wrong
        return Outcome.WRONG, f"{type(wrong).__name__}: {wrong}"


async def _started(node: StoredNode, damage: Damage, platter: RecordedPlatter, *, has_peers: bool) -> Outcome:
    disk = RecordingDisk(platter)
    name = damage.path.rpartition("/")[2]
    if name == "identity":
        identity = await open_identity(disk, DATA, NodeId("n0"), Random(2))
        assert identity.start.node_uuid == node.node_uuid, "it is another node"
        assert identity.has_group("default"), "it has forgotten its group"
        await identity.close()
    elif name == "hard_state":
        store = await HardStateStore.open(disk, GROUP, must_exist=True)
        assert store.state == VOTE, f"it has forgotten its vote: {store.state}"
    elif name == "peers":
        book = await PeerBook.open(disk, DATA, must_exist=True)
        assert {peer: book.disk_of(peer) for peer in PEERS} == PEERS, "it has forgotten its peers"
    elif damage.path.startswith(f"{GROUP}/"):
        return await _LogStart(node, damage, disk, platter, has_peers=has_peers).outcome()
    return _healed(damage, platter)


class _LogStart:
    """The start of a log whose files are damaged."""

    def __init__(
        self, node: StoredNode, damage: Damage, disk: RecordingDisk, platter: RecordedPlatter, *, has_peers: bool
    ) -> None:
        self._node = node
        self._damage = damage
        self._disk = disk
        self._platter = platter
        self._has_peers = has_peers
        self._repairs = 0

    async def outcome(self) -> Outcome:
        """Raises CorruptLog where the start refuses."""
        log = await self._open()
        witness = Witness(log)
        try:
            await log._sealer.drain()
            assert log.commit_hint <= log.last.position, "the commit hint lies beyond the log"
            while True:
                try:
                    frames = await _everything(log)
                except Damaged:
                    self._check_refusal(log)
                    if not self._has_peers:
                        return Outcome.REFUSES
                    await self._repair(log)
                except CorruptLog:
                    assert isinstance(await witness.failure(), CorruptLog)
                    self._check_verify()
                    return Outcome.REFUSES
                else:
                    break
            healed = _judged(self._node, self._damage, log, frames, self._platter)
            return Outcome.REPAIRED if self._repairs else healed
        finally:
            await log.close()

    async def _open(self) -> FileLog:
        try:
            return await open_at(GROUP, self._disk, LIMITS, must_exist=True)
        except CorruptLog as why:
            if not self._has_peers:
                raise
            damaged = await open_damaged(self._disk, GROUP, "default", members=MEMBERS, why=why)
        await self._repair(damaged)
        await damaged.close()
        return await open_at(GROUP, self._disk, LIMITS, must_exist=True)

    def _check_refusal(self, log: FileLog) -> None:
        assert log.damaged(), "a read is refused, and nothing is said to be damaged"
        self._check_verify()

    def _check_verify(self) -> None:
        report = _Verifier(self._disk, GROUP).run()
        assert not report.ok, "a read finds it, a verify does not"

    async def _repair(self, log: FileLog | DamagedLog) -> None:
        """Gives what it lacks, as the other nodes have it."""
        for damaged in log.damaged():
            frames = [parse_frame(raw) for raw in self._node.frames]
            await log.repair(
                damaged, [each for each in frames if damaged.first <= each.header.position <= damaged.last]
            )
        assert not log.damaged(), "it was given everything, and lacks something"
        self._repairs += 1
        assert self._repairs < _MOST_REPAIRS, "it is repaired again and again"


async def _everything(log: FileLog) -> tuple[bytes, ...]:
    frames = await all_frames(log)
    for frame in frames:
        assert (await log.frame_of(Index(frame.header.base_index))).raw == frame.raw
    await log.state_at_start()
    return tuple(frame.raw for frame in frames)


def _judged(
    node: StoredNode, damage: Damage, log: FileLog, frames: tuple[bytes, ...], platter: RecordedPlatter
) -> Outcome:
    assert frames == node.frames[: len(frames)], "other frames are served than were stored"
    assert log.last.position >= node.marked, f"frames below the mark are cut: it ends at {log.last.position}"
    if len(frames) < len(node.frames):
        assert damage.reaches_behind_the_mark, f"frames are cut that were not damaged: it ends at {log.last.position}"
        return Outcome.CUT
    assert log.state.encode() == node.state, "the small state is another one"
    return _healed(damage, platter)


def _healed(damage: Damage, platter: RecordedPlatter) -> Outcome:
    now = dict(platter.image().files).get(damage.path)
    if damage.content is None:
        return Outcome.HARMLESS if now is None else Outcome.REBUILT
    if now is None or now[damage.offset : damage.offset + 1] != damage.content[damage.offset : damage.offset + 1]:
        return Outcome.REBUILT
    return Outcome.HARMLESS


def _changed(before: Image, after: Image) -> bool:
    """Whether a file of the log, or of a promise, was. The lock is taken by a start that is refused, too."""
    return _kept(before) != _kept(after)


def _kept(image: Image) -> dict[str, bytes]:
    return {path: content for path, content in image.files if not path.endswith("/LOCK")}
