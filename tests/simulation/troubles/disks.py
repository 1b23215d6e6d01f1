"""Disks and clocks: slow, full, hung, failing, rotten, another's, an older one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

from dledger.common.types import NodeStart, Position
from dledger.disk.record import RECORD_HEADER_BYTES, RecordKind, unpack_record
from dledger.group.replica import Replica
from dledger.log.segment.segment import FIRST_PAGE_BYTES, SEGMENT_SUFFIX, STATE_SUFFIX, unpack_mark
from dledger.log.segment.snapshot_file import COPY_ALIGN_BYTES
from tests.simulation.debts import lacks_tail, owes
from tests.simulation.disk import NORMAL_S, Trap
from tests.simulation.groups import SimGroup
from tests.simulation.host import SimHost
from tests.simulation.platter import PAGE_BYTES, ROOMY_BYTES, SECTOR_BYTES, Platter
from tests.simulation.process import Declined
from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene, Trouble
from tests.support.slots import TWO_SLOTS

FEWEST_VOTERS = 3
"""Of fewer, no majority is left without one."""
BOTH_COPIES_SHARE = 0.3
"""Of the rot in what a trimmed log begins with."""


class DiskTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random

    def all(self) -> list[Trouble]:
        return [
            Trouble(3, self.slow_disk),
            Trouble(2, self.failing_sync),
            Trouble(2, self.failing_operation),
            Trouble(2, self.failing_read),
            Trouble(2, self.full_disk),
            Trouble(2, self.hung_disk),
            Trouble(2, self.mend_disk, is_gentle=True),
            Trouble(2, self.clock_jump),
            Trouble(2, self.wipe),
            Trouble(2, self.back_up),
            Trouble(4, self.restore),
            Trouble(4, self.rot),
            Trouble(6, self.rot_of_the_beginning),
            Trouble(1, self.rot_of_a_slot),
            Trouble(3, self.unreadable_page),
            Trouble(5, self.readmit, is_gentle=True),
        ]

    # How it behaves ----------------------------------------------------------------------------------------------

    async def slow_disk(self) -> None:
        host = self._scene.any()
        host.mood.sync_s = self._random.choice((NORMAL_S, (0.005, 0.05), (0.0001, 0.3)))
        if host.mood.sync_s != NORMAL_S:
            self._scene.hit("slow disk", host.id, host.mood.sync_s)

    async def failing_sync(self) -> None:
        if host := self._scene.any_up():
            host.mood.fails_next_sync = True

    async def failing_operation(self) -> None:
        """EIO at one of the next operations, whichever it is."""
        host = self._scene.any()
        host.mood.trap = Trap(self._random.randrange(1, 40), partial(self._scene.hit, "EIO at an operation", host.id))

    async def failing_read(self) -> None:
        """EIO at one of the next reads: the node does without what stands there, or stops."""
        host = self._scene.any()
        host.mood.read_trap = Trap(self._random.randrange(1, 40), partial(self._scene.hit, "EIO at a read", host.id))

    async def full_disk(self) -> None:
        host = self._scene.any()
        full = host.platter.capacity_bytes > host.platter.used_bytes + 4096
        host.platter.capacity_bytes = host.platter.used_bytes if full else ROOMY_BYTES
        if full:
            self._scene.hit("full disk", host.id)

    async def hung_disk(self) -> None:
        leaders = [seat.host for seat in self._scene.pick().leaders()]
        host = self._random.choice([*leaders, self._scene.any()])
        host.mood.is_hung = not host.mood.is_hung
        if host.mood.is_hung:
            self._scene.hit("hung disk", host.id)

    async def mend_disk(self) -> None:
        for host in self._cluster.hosts.values():
            host.mend_disk()

    async def clock_jump(self) -> None:
        host = self._scene.any()
        before_ms = host.clock_ahead_ms
        host.set_clock(self._random.choice((0, -3_600_000, 5, 3_600_000)))
        if host.clock_ahead_ms != before_ms:
            self._scene.hit("clock jump", host.id, host.clock_ahead_ms)

    # What it forgets ---------------------------------------------------------------------------------------------

    async def wipe(self) -> None:
        if (host := self._scene.any_up()) and (start := _start_of(host)):
            await self._forget("wiped disk", host, start._replace(start_count=0), host.wipe)

    async def back_up(self) -> None:
        """Not of an only voter: restored, it leads by what it has, and asks nobody (a stated limit)."""
        host = self._scene.any_up()
        if host is None or self._scene.backup is not None or host.is_rotten:
            return
        is_alone = any(seat.replica.core.membership.voters == {host.id} for seat in host.seats if seat.is_up)
        if not is_alone and (start := _start_of(host)):
            host.crash()
            self._scene.backup = host, start, copy.deepcopy(host.platter)

    async def restore(self) -> None:
        if self._scene.backup is not None:
            host, start, backup = self._scene.backup
            if await self._forget("old backup", host, start, lambda: host.restore(backup)):
                self._scene.backup = None

    async def _forget(self, name: str, host: SimHost, before: NodeStart, change: Callable[[], None]) -> bool:
        """``host`` comes back with another disk."""
        if not self._may_forget(host, before):
            return False
        host.crash()
        change()
        self._scene.doubt(host)
        self._scene.hit(name, host.id)
        return True

    def _may_forget(self, host: SimHost, before: NodeStart) -> bool:
        """Those who know a start of it after ``before`` can tell; a voter that does not is the stated limit, so all
        others must, in every group. And only where they are a majority without it."""
        if self._scene.forgetful is not None or host.is_starting:
            return False
        groups = self._scene.groups
        is_in = [group for group in groups if group.names(host.id)]
        if self._cluster.founding not in is_in:
            return False  # with another disk it would never hear of the cluster again
        if any(not group.settled_members() for group in groups):
            return False  # it may be a member of that one
        is_member = [group for group in groups if any(each.id == host.id for each in group.settled_members())]
        return {*is_in} == {*is_member} and all(self._may_be_forgotten_by(group, host, before) for group in is_in)

    def _may_be_forgotten_by(self, group: SimGroup, host: SimHost, before: NodeStart) -> bool:
        members = group.settled_members()
        voters = [member.id for member in members if member.voter]
        others = [self._cluster.hosts[member.id] for member in members if member.id != host.id]
        if host.id not in voters or len(voters) < FEWEST_VOTERS:
            return False
        if any(other.is_beyond_repair or other.awaits_repair for other in others):
            return False
        if any(owes(other, group.name) or lacks_tail(other, group.name) for other in others):
            return False
        known = [other.seat(group.name).knows(host.id) for other in others]
        return all(uuid == before.node_uuid and count > before.start_count for uuid, count in known)

    # What rots ---------------------------------------------------------------------------------------------------

    async def rot(self) -> None:
        """One bit, one sector in another's place, or one that was never written: in what is marked as durable. The node
        never serves it, and never cuts it; it takes it back from the others, or says that it is beyond repair."""
        host = self._rotting(self._cluster.up())
        if host is None:
            return
        found = [(path, *extent) for path in host.platter.paths() if (extent := durable_extent(host, path))]
        if not found:
            return
        path, begin, end = self._random.choice(found)
        name = self._damage(host, path, begin, end)
        if name:
            self._scene.hit(name, host.id, path)
            if self._random.random() < 0.5:
                host.crash()

    async def unreadable_page(self) -> None:
        """The device gives a page of frames back no more, until it is written anew: the node takes it from the others.
        Where it cannot go on, or start, without it, it says that the disk fails, until that is mended."""
        host = self._rotting(self._cluster.up())
        if host is None:
            return
        paths = [path for path in host.platter.paths() if path.endswith(SEGMENT_SUFFIX)]
        extents = [(path, extent) for path in paths if (extent := durable_extent(host, path))]
        pages = [
            (path, page) for path, (begin, end) in extents for page in range(-(-begin // PAGE_BYTES), end // PAGE_BYTES)
        ]
        if pages:
            path, page = self._random.choice(pages)
            host.platter.find(path).unreadable.add(page)
            self._scene.hit("unreadable page", host.id, path)

    async def rot_of_the_beginning(self) -> None:
        """What a trimmed log begins with stands nowhere else, but there twice. Without either copy the node is beyond
        repair, and says so when it starts."""
        seats = {seat.host: seat for seat in self._scene.pick().up() if seat.host.is_up and _beginning(seat)}
        host = self._rotting(list(seats))
        path = _beginning(seats[host]) if host is not None else None
        if host is None or path is None or any(rot.path == path for rot in host.rot):
            return
        file = host.platter.find(path)
        copies = _copies(bytes(file.data)) if not file.dirty else []
        if len(copies) < 2:
            return
        rotting = copies if self._random.random() < BOTH_COPIES_SHARE else [self._random.choice(copies)]
        names = [name for copy in rotting if (name := self._damage(host, path, *copy))]
        if len(names) > 1:
            host.lost_beginning = path
        if names:
            self._scene.hit("rot of both copies" if len(names) > 1 else names[0], host.id, path)
            host.crash()

    def _rotting(self, among: list[SimHost]) -> SimHost | None:
        """One whose disk the others could do without. Before anything is committed they need every founder as it is: a
        first leader's frames may be nowhere else, and with a log that is not empty, and not whole, it founds nothing.
        """
        host = self._random.choice(among) if among else None
        if host is None:
            return None
        has_begun = all(group.watch.chronicle.commit_position for group in self._scene.groups if group.names(host.id))
        return host if has_begun and self.may_lose(host) else None

    def may_lose(self, host: SimHost) -> bool:
        """Whether the others could do without the disk of ``host``, and would know it for another one."""
        start = _start_of(host)
        return start is not None and self._may_forget(host, start._replace(start_count=0))

    def _damage(self, host: SimHost, path: str, begin: int, end: int) -> str:
        file = host.platter.find(path)
        offset = self._random.randrange(begin, end)
        number = offset // SECTOR_BYTES
        sector = number * SECTOR_BYTES
        kind = self._random.choice(("bit flip", "misdirected sector", "stale sector"))
        if kind == "bit flip":
            rotten, at = bytes([file.data[offset] ^ 1 << self._random.randrange(8)]), offset
        else:
            if kind == "stale sector":
                source = file.before.get(number, bytes(SECTOR_BYTES))
            else:
                other = self._random.randrange(-(-len(file.data) // SECTOR_BYTES)) * SECTOR_BYTES
                source = bytes(file.data[other : other + SECTOR_BYTES])
            at = max(sector, begin)
            rotten = source[at - sector : min(SECTOR_BYTES, end - sector)]
        if not rotten or file.data[at : at + len(rotten)] == rotten:
            return ""
        host.spoil(path, at, rotten)
        return kind

    async def rot_of_a_slot(self) -> None:
        """One of two good copies: the other counts."""
        down = [host for host in self._cluster.down() if host.lives]
        if not down:
            return
        host = self._random.choice(down)
        slots = [path for path in host.platter.paths() if _has_both_slots(host.platter, path)]
        if slots:
            path = self._random.choice(slots)
            file = host.platter.find(path)
            slot_bytes = TWO_SLOTS[path.rpartition("/")[2]].slot_bytes
            at = self._random.randrange(2) * slot_bytes + self._random.randrange(24)
            file.spoil(at, bytes([file.data[at] ^ 0x10]))
            self._scene.hit("rotten slot", host.id)
            host.mood.mend()
            await host.start()

    async def readmit(self) -> None:
        """As an operator does: a disk that is beyond repair is replaced by an empty one; the disk that is there is
        admitted as a learner's, group by group, and promoted when it has caught up."""
        for group in self._cluster.groups.values():
            doubted = self._scene.in_doubt.get(group.name)
            if doubted is not None and (group.is_removed or not group.names(doubted.id)):
                del self._scene.in_doubt[group.name]
        for lost in self._cluster.hosts.values():
            is_member = any(group.names(lost.id) for group in self._scene.groups)
            is_for_replacement = lost.is_beyond_repair and lost.is_down and is_member
            if is_for_replacement and self._scene.forgetful is None:
                lost.wipe()
                self._scene.doubt(lost)
                self._scene.hit("rotten disk replaced", lost.id)
        for name, host in list(self._scene.in_doubt.items()):
            await self._readmit(host.seat(name))

    async def _readmit(self, seat: Seat) -> None:
        if seat.host.is_starting:
            return
        if seat.is_down:
            self._scene.begin(seat.host.start(), f"start {seat.id}")
        if not seat.is_up or not any(member.id == seat.id for member in seat.group.members()):
            return

        async def readmit(replica: Replica) -> None:
            if not _has_met(replica, seat.host):
                raise Declined  # what it says of the disk would be said of the one before
            await replica.members.readmit(seat.id)
            await replica.members.promote(seat.id)

        if await self._scene.ask("readmit", seat.group, readmit):
            self._scene.in_doubt.pop(seat.group.name, None)


def _has_met(replica: Replica, host: SimHost) -> bool:
    """Whether the present start of ``host`` has said hello there."""
    start = _start_of(host)
    return start is not None and replica.start_of(host.id) == start


def _start_of(host: SimHost) -> NodeStart | None:
    node = host.life.node if host.is_up else None
    return node._identity.start if node is not None and node._identity is not None else None


def _beginning(seat: Seat) -> str | None:
    """The small state without which a trimmed log cannot be opened."""
    first = seat.replica.log._files.segments[0]  # type: ignore[attr-defined]
    return str(first.state_path) if first.previous.position else None


def _has_both_slots(platter: Platter, path: str) -> bool:
    """A power cut while one was written leaves the other alone."""
    slots = TWO_SLOTS.get(path.rpartition("/")[2])
    if slots is None:
        return False
    stored = bytes(platter.find(path).data)
    return all(unpack_record(slots.kind, stored[slot * slots.slot_bytes :]) is not None for slot in (0, 1))


def _copies(stored: bytes) -> list[tuple[int, int]]:
    """Where the good ones of a small state begin and end."""
    records = {at: unpack_record(RecordKind.LOG_STATE, stored[at:]) for at in range(0, len(stored), COPY_ALIGN_BYTES)}
    return [(at, at + RECORD_HEADER_BYTES + len(record.payload)) for at, record in records.items() if record]


def durable_extent(host: SimHost, path: str) -> tuple[int, int] | None:
    """Which bytes of a file say something that is durable for certain, and not to be written again."""
    file = host.platter.find(path)
    seat = next((each for each in host.seats if path.startswith(f"{each.directory}/")), None)
    if seat is None or not seat.is_up:
        return None
    if path.endswith(STATE_SUFFIX) and not file.dirty and path != _beginning(seat):
        return (0, len(file.data)) if file.data else None
    if not path.endswith(SEGMENT_SUFFIX):
        return None
    log = seat.replica.log
    segments = [each for each in log._files.segments if each.path == path]  # type: ignore[attr-defined]
    if not segments:
        return None
    segment = segments[0]
    if segment.sealed and not file.dirty:
        return FIRST_PAGE_BYTES, segment.end_offset
    mark = unpack_mark(bytes(file.medium[:FIRST_PAGE_BYTES]))
    if mark is None or mark.point.position <= Position(segment.previous.position):
        return None
    return FIRST_PAGE_BYTES, mark.offset
