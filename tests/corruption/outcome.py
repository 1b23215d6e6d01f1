"""Damages one byte, or one sector, or one file; starts the node on it; says what became of it.

What a node may do with damage, and nothing else is right:

harmless
    nothing depends on the place; everything is there, and stays so
rebuilt
    everything is there, and the place holds again what follows from the rest: byte for byte what it held, where that is
    one of two copies, a segment's header or its trailer; elsewhere the next start finds everything, too
halts
    the start refuses with CORRUPT_LOG, and has changed nothing
refuses the read
    it starts; whoever asks for the place is told CORRUPT_LOG, and the rest is served
repaired
    given good copies of the frames, by this harness or, in ``trio.py``, by the other nodes: everything is there again,
    byte for byte
cut as a torn tail
    frames behind the sync mark, as a crash leaves them, of a node that is alone: the log ends before them
cut, fetched again
    the same where others have them: the start has cut something, and so the node asks the voters for it before it
    votes (TailQuery); the frames that they have go on where the log ends, and everything is there again, byte for byte
"""

from __future__ import annotations

from dledger.common.errors import CorruptLog
from dledger.common.types import DEFAULT_GROUP, Index
from dledger.group.group_record import GroupRecord
from dledger.group.hard_state import HardStateStore
from dledger.log.damage.damaged_log import DamagedLog, open_damaged
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import following, parse_frame
from dledger.log.log_api import Damaged
from dledger.log.verify import _Verifier
from dledger.node.identity import Identity
from tests.corruption.damage import Damage
from tests.corruption.expected import Outcome, expected
from tests.corruption.node import CUT_BEHIND, LOCK, PEERS, SLOTS, VOTE, StoredNode, open_slots
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk
from tests.crashes.promises import GROUP, LIMITS
from tests.unit.log.harness import MEMBERS, Witness, all_frames, open_at

_MOST_REPAIRS = 10


async def outcome_of(node: StoredNode, damage: Damage, *, has_peers: bool = False) -> tuple[Outcome, str]:
    """What a start on it, and reading everything, come to; and what is wrong, if anything is. ``has_peers``: it is
    given every frame that it lacks, as other nodes would."""
    outcome, reason = await _outcome_of(node, damage, has_peers=has_peers)
    right = expected(damage, has_peers=has_peers)
    if outcome in right or reason:
        return outcome, reason
    return Outcome.WRONG, f"{outcome}; it should be {' or '.join(sorted(right))}"


async def _outcome_of(node: StoredNode, damage: Damage, *, has_peers: bool) -> tuple[Outcome, str]:
    files = dict(node.disk.image.files)
    if damage.content is None:
        del files[damage.path]
    else:
        files[damage.path] = damage.content
    damaged = Image(tuple(sorted(files.items())), node.disk.image.directories)
    platter = RecordedPlatter(damaged)
    try:
        outcome = await _started(node, damage, platter, has_peers=has_peers)
        if outcome is Outcome.REBUILT:
            await _check_rebuilt(node, damage, platter.image())
        return outcome, ""
    except CorruptLog as refused:
        if _changed(damaged, platter.image()):
            return Outcome.WRONG, f"it halts, but has changed something: {refused}"
        return Outcome.HALTS, ""
    except Exception as wrong:  # noqa: BLE001 – whatever else comes of it is wrong
        return Outcome.WRONG, f"{type(wrong).__name__}: {wrong}"


async def _check_rebuilt(node: StoredNode, damage: Damage, image: Image) -> None:
    if Outcome.HARMLESS in expected(damage, has_peers=True):
        again = await _started(node, damage, RecordedPlatter(image), has_peers=False)
        assert again in (Outcome.HARMLESS, Outcome.REBUILT), f"the next start finds less than all: {again}"
        return
    now, before = dict(image.files)[damage.path], dict(node.disk.image.files)[damage.path]
    settled = node.settled.get(damage.path.rpartition("/")[2])
    if settled is None:
        assert now[damage.offset : damage.end] == before[damage.offset : damage.end], "it is not what it was"
    else:  # a start may have something to note in both
        assert now == settled, "the slots are not what a start leaves on sound ones"


async def _started(node: StoredNode, damage: Damage, platter: RecordedPlatter, *, has_peers: bool) -> Outcome:
    disk = RecordingDisk(platter)
    name = damage.path.rpartition("/")[2]
    if name in SLOTS or name == LOCK:
        opened = await open_slots(disk, name)
        if isinstance(opened, Identity):
            assert opened.start.node_uuid == node.node_uuid, "it is another node"
            assert opened.groups == (DEFAULT_GROUP,), "it has forgotten its group"
        elif isinstance(opened, GroupRecord):
            assert opened.cut_behind == CUT_BEHIND, "it has forgotten what it lost"
        elif isinstance(opened, HardStateStore):
            assert opened.state == VOTE, f"it has forgotten its vote: {opened.state}"
        else:
            assert {peer: opened.of(DEFAULT_GROUP).disk_of(peer) for peer in PEERS} == PEERS, (
                "it has forgotten its peers"
            )
    elif damage.path.startswith(f"{GROUP}/"):
        return await _LogStart(node, damage, disk, platter, has_peers=has_peers).outcome()
    return healed(damage, platter.image())


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
        self._is_reopened = False

    async def outcome(self) -> Outcome:
        """Raises CorruptLog where the start refuses."""
        log = await self._open()
        witness = Witness(log)
        try:
            await log._sealer.drain()
            assert log.commit_hint <= log.last.position, "the commit hint lies beyond the log"
            while True:
                try:
                    frames = await everything(log)
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
            is_cut = len(frames) < len(self._node.frames)
            if is_cut:
                self._check_cut(log)
            if is_cut and self._has_peers:
                await self._fetch(log, witness)
                frames = await everything(log)
            _check_frames(self._node, log, frames)
            if self._repairs:
                return Outcome.REPAIRED
            if is_cut:
                return Outcome.FETCHED if self._has_peers else Outcome.CUT
            return healed(self._damage, self._platter.image())
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
        self._is_reopened = True
        return await open_at(GROUP, self._disk, LIMITS, must_exist=True)

    def _check_refusal(self, log: FileLog) -> None:
        assert log.damaged(), "a read is refused, and nothing is said to be damaged"
        self._check_verify()

    def _check_verify(self) -> None:
        report = _Verifier(self._disk, GROUP).run()
        assert not report.ok, "a read finds it, a verify does not"

    def _check_cut(self, log: FileLog) -> None:
        end = log.last.position
        assert end >= self._node.marked, f"frames below the mark are cut: it ends at {end}"
        assert self._damage.reaches_behind_the_mark, f"frames are cut that were not damaged: it ends at {end}"

    async def _fetch(self, log: FileLog, witness: Witness) -> None:
        """As TailQuery does. It is asked after a start that has cut something, and when a repaired log is opened."""
        asks = self._is_reopened or log.recovery.torn_bytes
        assert asks, f"frames are cut, and nobody is asked for them: it ends at {log.last.position}"
        frames = [parse_frame(raw) for raw in self._node.frames]
        behind = [each for each in frames if each.header.position > log.last.position]
        log.append(list(following(behind, log.last, log.state.next_index, LIMITS.max_record_bytes)))
        await witness.all_durable()

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


async def everything(log: FileLog) -> tuple[bytes, ...]:
    """Every stored frame, read in order and each by its index. Raises CorruptLog."""
    frames = await all_frames(log)
    for frame in frames:
        if frame.header.count:
            assert (await log.frame_of(Index(frame.header.base_index))).raw == frame.raw, "the index leads elsewhere"
    await log.state_at_start()
    return tuple(frame.raw for frame in frames)


def _check_frames(node: StoredNode, log: FileLog, frames: tuple[bytes, ...]) -> None:
    assert frames == node.frames[: len(frames)], "other frames are served than were stored"
    if len(frames) == len(node.frames):
        assert log.state.encode() == node.state, "the small state is another one"


def healed(damage: Damage, image: Image) -> Outcome:
    """What the damaged place holds now."""
    now = dict(image.files).get(damage.path)
    if damage.content is None:
        return Outcome.HARMLESS if now is None else Outcome.REBUILT
    slot_bytes = SLOTS.get(damage.path.rpartition("/")[2])
    if slot_bytes is not None and now is not None and now[:slot_bytes] == now[slot_bytes : 2 * slot_bytes]:
        return Outcome.REBUILT  # though a number that counts up may have come to what it was damaged to
    if now is None or now[damage.offset : damage.end] != damage.content[damage.offset : damage.end]:
        return Outcome.REBUILT
    return Outcome.HARMLESS


def _changed(before: Image, after: Image) -> bool:
    """Whether a file of the log, or of a promise, was. The lock is taken by a start that is refused, too."""
    return _kept(before) != _kept(after)


def _kept(image: Image) -> dict[str, bytes]:
    return {path: content for path, content in image.files if not path.endswith("/LOCK")}
