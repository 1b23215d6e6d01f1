"""Three real nodes on simulated disks, one of which comes back to damage: what becomes of it by the nodes' own means.

Every damage has a cluster of its own. All of these are the same up to the moment of the crash: a log of several
segments, the first of them trimmed, and frames on both sides of the last sync mark. While the node is down the others
go on.
"""

from __future__ import annotations

import asyncio

from dledger.common.errors import CorruptLog
from dledger.common.types import GENESIS, LogPoint, NodeId
from dledger.disk import reserve
from dledger.log.segment.segment import SEGMENT_SUFFIX, STATE_SUFFIX
from dledger.raft.messages import FetchResponse, Message
from tests.corruption.damage import Damage
from tests.corruption.expected import Outcome, expected
from tests.corruption.node import StoredDisk
from tests.corruption.outcome import healed
from tests.corruption.three_nodes import IDLE_S, check_logs, image_of, judged, log_of, started, three_nodes
from tests.crashes.medium import Image
from tests.crashes.promises import DATA, LIMITS
from tests.simulation.host import SimHost
from tests.simulation.process import WorldLoop
from tests.simulation.seat import Seat
from tests.simulation.violation import Violation
from tests.support.virtual_time import run_virtual
from tests.unit.group.rot import append, level, trim, until

APPENDS = 14
ABOVE_THE_MARK = 2
MEANWHILE = 3
SMALL_RESERVE_BYTES = 8192
"""Of what is kept for a full disk: as small as everything else here."""
PATIENCE_S = 30
"""Several times as long as a scrub takes to come round."""


def crashed() -> StoredDisk:
    """What the crashed node has stored, in every one of these clusters."""
    return run_virtual(_crashed(), loop_factory=WorldLoop)


async def _crashed() -> StoredDisk:
    trio = Trio()
    try:
        return await trio.crash()
    finally:
        await trio.close()


def outcome_among_three(disk: StoredDisk, damage: Damage) -> tuple[Outcome, str]:
    """What one damage to ``disk``, of ``crashed``, comes to; and what is wrong, if anything is."""
    return judged(_outcome(disk, damage))


async def _outcome(disk: StoredDisk, damage: Damage) -> tuple[Outcome, str]:
    trio = Trio()
    try:
        assert await trio.crash() == disk, "the clusters are not all the same up to the crash"
        return await trio.outcome_of(damage)
    finally:
        await trio.close()


class Trio:
    """One cluster. To be made inside a ``WorldLoop``."""

    def __init__(self) -> None:
        self._reserve_bytes, reserve.RESERVE_BYTES = reserve.RESERVE_BYTES, SMALL_RESERVE_BYTES
        self._cluster = three_nodes()
        self._patient: SimHost
        self._leader: SimHost
        self._end = GENESIS
        """Of the patient's log when it crashed."""
        self._is_given = False
        """Another node has sent the patient what it had before."""
        self._is_cut = False
        """It was opened, once, without all that it had."""

    async def close(self) -> None:
        await self._cluster.bury()
        reserve.RESERVE_BYTES = self._reserve_bytes

    async def crash(self) -> StoredDisk:
        """Runs until one node has crashed, and the others have gone on; what that one has stored."""
        cluster = self._cluster
        self._leader = leader = await started(cluster)
        self._patient = patient = next(host for host in cluster.hosts.values() if host is not leader)
        await append(leader, APPENDS)
        await level(cluster)
        before = leader.replica.log.boundaries()[0].trim.first_index
        await trim(cluster, leader, before)
        while _in_last_segment(patient) != 1:
            await append(leader, 1)
            await level(cluster)
        await asyncio.sleep(IDLE_S)
        await append(leader, ABOVE_THE_MARK)
        last = leader.replica.log.last.position
        await until(lambda: patient.replica.log.durable_position == last, poll_s=0.0001)
        self._end = patient.replica.log.last
        patient.crash()
        await append(leader, MEANWHILE)
        self._listen()
        return StoredDisk(image_of(patient))

    def _listen(self) -> None:
        watch = self._cluster.watch
        said, restarted = watch.said, watch.restarted

        def hear(seat: Seat, peer: NodeId, message: Message) -> None:
            said(seat, peer, message)
            if isinstance(message, FetchResponse) and message.frames and seat.host is not self._patient:
                self._is_given |= message.frames[0].header.position <= self._end.position

        def see(seat: Seat, promised: LogPoint) -> None:
            self._is_cut |= seat.replica.log.last.position < self._end.position
            restarted(seat, promised)

        watch.said = hear  # type: ignore[method-assign]
        watch.restarted = see  # type: ignore[method-assign]

    async def outcome_of(self, damage: Damage) -> tuple[Outcome, str]:
        """What the crashed node's start, and half a minute among the others, come to; and what is wrong, if anything
        is."""
        self.put(damage)
        damaged = image_of(self._patient)
        try:
            await self._patient.start()
        except Violation as refused:
            return await self._halted(damage, damaged, refused)
        right = expected(damage, has_peers=True)
        try:
            await append(self._leader, 1)
            await level(self._cluster)
            await until(lambda: self._seen(damage) in right and self._patient.replica.core.may_vote, PATIENCE_S)
            frames = await check_logs(self._cluster)
            assert len(frames) > APPENDS + MEANWHILE - LIMITS.segment_max_frames, "there is nothing to compare"
        except TimeoutError:
            told = f"{self._seen(damage)}; it should be {' or '.join(sorted(right))}; {self._cluster.describe()}"
            return Outcome.WRONG, told
        except (AssertionError, CorruptLog) as wrong:
            return Outcome.WRONG, f"{type(wrong).__name__}: {wrong}"
        return self._seen(damage), ""

    def put(self, damage: Damage) -> None:
        patient = self._patient
        path = damage.path.replace(str(DATA), f"{DATA}/{patient.id}", 1)
        platter = patient.platter
        if damage.content is None:
            platter.unlink(path)
            platter.sync_directory(path.rpartition("/")[0])
        else:
            file = platter.find(path)
            file.data[:] = file.medium[:] = damage.content
        patient.lost_tail = damage.reaches_behind_the_mark

    async def _halted(self, damage: Damage, damaged: Image, refused: Violation) -> tuple[Outcome, str]:
        if not isinstance(refused.__cause__, CorruptLog):
            return Outcome.WRONG, str(refused)
        if "nothing was changed" in str(refused.__cause__) and _log_of(damaged) != _log_of(image_of(self._patient)):
            return Outcome.WRONG, f"it has changed something: {refused}"
        await append(self._leader, 1)  # the others are no worse for it
        right = expected(damage, has_peers=True)
        is_right = Outcome.HALTS in right
        return (Outcome.HALTS, "") if is_right else (Outcome.WRONG, f"{refused}; it should be {sorted(right)}")

    def _seen(self, damage: Damage) -> Outcome:
        if not self._patient.is_up:
            return Outcome.HALTS
        if self._is_cut and not self._patient.life.founding.was_damaged:
            return Outcome.FETCHED
        return Outcome.REPAIRED if self._is_given else healed(damage, image_of(self._patient))


def _log_of(image: Image) -> dict[str, bytes]:
    """That it was started, a node notes before it looks at its log."""
    return {path: content for path, content in image.files if path.endswith((SEGMENT_SUFFIX, STATE_SUFFIX))}


def _in_last_segment(host: SimHost) -> int:
    """How many frames the segment that takes frames has."""
    log = log_of(host)
    return log.last.position - log._files.active.name.base_position + 1
