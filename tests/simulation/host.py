"""One machine of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DEFAULT_GROUP, LogPoint, NodeId, Role, Term
from dledger.group.replica import Replica
from dledger.node.node import Node
from dledger.raft.messages import AppendResponse, Message, PushResult, TakeLeadership
from tests.simulation.disk import DiskMood, SimDisk
from tests.simulation.excuses import may_end
from tests.simulation.life import Life
from tests.simulation.platter import ROOMY_BYTES, SECTOR_BYTES, Platter, Rot
from tests.simulation.process import GoneError, ProcessLoop
from tests.simulation.seat import Seat
from tests.simulation.trace import told
from tests.simulation.truth import has_mark
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster

T = TypeVar("T")

STOP_S = 10.0
"""A stop that takes longer ends as a kill."""


class SimHost:
    """One machine over all its lives: its disk, its clock, and the node that runs there now, if any."""

    def __init__(self, cluster: SimulatedCluster, node_id: NodeId, address: str, rate: float) -> None:
        self.id = node_id
        self.address = address
        self.peers: dict[str, str] = {}
        """Its configuration's."""
        self.cluster = cluster
        self.mood = DiskMood()
        self.rate = rate
        """Of its clock."""
        self.clock_ahead_ms = 0
        self._clock_before: list[tuple[float, int]] = []
        """Until when it was how far ahead."""
        self.rot: list[Rot] = []
        """What its medium does not hold any more: to be repaired."""
        self.has_rotted = False
        """Something did on this disk, repaired or not."""
        self.lost_beginning = ""
        """Which small state has no good copy any more, for as long as it is there."""
        self.is_beyond_repair = False
        """It refuses to start, for what rotted there: an operator has to give it another disk."""
        self.lives = 0
        self._disks = 0
        self._boots = 1
        self.platter = self._new_platter()
        self._life: Life | None = None
        self._starting = False
        self._seats: dict[str, Seat] = {}

    # Groups ------------------------------------------------------------------------------------------------------

    def seat(self, group: str = DEFAULT_GROUP) -> Seat:
        """Its place in the group, whether it is a member or not."""
        seat = self._seats.get(group)
        if seat is None:
            seat = self._seats[group] = Seat(self, self.cluster.group(group))
        return seat

    @property
    def seats(self) -> list[Seat]:
        """In every group that there is."""
        return [self.seat(name) for name in self.cluster.groups]

    # What it is in the founding group: most tests have no other one.

    @property
    def replica(self) -> Replica:
        return self.life.founding.replica

    @property
    def leads(self) -> bool:
        return self.seat().leads

    @property
    def term(self) -> Term:
        return self.seat().term

    @property
    def promised(self) -> LogPoint:
        return self.seat().promised

    @promised.setter
    def promised(self, point: LogPoint) -> None:
        self.seat().promised = point

    @property
    def lost_tail(self) -> bool:
        return self.seat().lost_tail

    @lost_tail.setter
    def lost_tail(self, lost_tail: bool) -> None:
        self.seat().lost_tail = lost_tail

    def knows(self, peer: NodeId) -> tuple[bytes, int]:
        return self.seat().knows(peer)

    # Disks -------------------------------------------------------------------------------------------------------

    def _new_platter(self) -> Platter:
        self._disks += 1
        platter = Platter(Random(self.cluster.random.getrandbits(64)))
        platter.mkdir("/data")
        return platter

    def wipe(self) -> None:
        """While down: another disk, and an empty one. Where its configuration names nobody else, an operator names the
        others, as to one who joins, or all as founders: it would found a cluster of its own
        (docs/gaps.md)."""
        assert self._life is None
        if self.peers.keys() <= {self.id}:
            hosts = self.cluster.hosts.values()
            self.peers = {other.id: other.address for other in hosts if other is not self or self._disks % 2}
        self.platter = self._new_platter()
        self._forget_disk()

    def restore(self, backup: Platter) -> None:
        """While down: the disk is what it was when ``backup`` was made."""
        assert self._life is None
        self._disks += 1
        self.platter = backup
        self._forget_disk()

    def _forget_disk(self) -> None:
        """Nothing of what stood on the last one is held against this one."""
        self.rot.clear()
        self.has_rotted = self.is_beyond_repair = False
        for seat in self.seats:
            seat.disk_replaced()

    def spoil(self, path: str, at: int, rotten: bytes) -> None:
        """What stands there on the medium is ``rotten`` from now on."""
        file = self.platter.find(path)
        good = bytes(file.data[at : at + len(rotten)])
        self.rot.append(Rot(path, file, at, good, rotten, file.written.get(at // SECTOR_BYTES, 0)))
        self.has_rotted = True
        file.spoil(at, rotten)

    @property
    def is_rotten(self) -> bool:
        """Something that rotted is neither repaired nor gone."""
        return bool(self.present_rot)

    @property
    def present_rot(self) -> list[Rot]:
        """What is neither repaired nor gone."""
        self.rot = [rot for rot in self.rot if not rot.is_healed(self.platter)]
        return self.rot

    @property
    def rotten_paths(self) -> set[str]:
        return {rot.path for rot in self.present_rot}

    @property
    def disk_name(self) -> str:
        return f"{self.id}/{self._disks}"

    @property
    def disk_names(self) -> list[str]:
        """Of all that it ever had."""
        return [f"{self.id}/{number}" for number in range(1, self._disks + 1)]

    @property
    def awaits_repair(self) -> bool:
        """Frames of it rotted, or cannot be read, or both copies of what its log begins with are gone. Another small
        state is passed over: an older one, and the frames, do as well."""
        return self.platter.is_unreadable or any(seat.awaits_repair for seat in self.seats)

    # What it is --------------------------------------------------------------------------------------------------

    @property
    def is_starting(self) -> bool:
        return self._starting

    @property
    def is_down(self) -> bool:
        return self._life is None

    @property
    def is_up(self) -> bool:
        """Its node has started, and the founding group's log is open."""
        life = self._life
        return life is not None and life.founding.is_open and not self._starting

    @property
    def is_in_trouble(self) -> bool:
        """Its disk is not whole, or may not be when it is looked at."""
        return self.is_beyond_repair or self.is_rotten or any(seat.lost_tail for seat in self.seats)

    @property
    def is_in_cluster(self) -> bool:
        """Its node knows of which cluster it is, so that other groups than the founding one may be opened there."""
        return self.is_up and self.life.node is not None and bool(self.life.node.cluster_id)

    @property
    def is_recovering(self) -> bool:
        """The founding group's log is being repaired before it can be opened."""
        return self._life is not None and not self._starting and not self._life.founding.is_open

    @property
    def is_paused(self) -> bool:
        return self._life is not None and self._life.process.is_paused

    @property
    def life(self) -> Life:
        assert self._life is not None, f"{self.id} is down"
        return self._life

    @property
    def present_life(self) -> Life | None:
        return self._life

    @property
    def state(self) -> str:
        """In a word."""
        if self.is_down:
            return "down"
        return "starting" if self._starting else "up" if self.is_up else "recovering"

    def wall_clock_ms(self) -> int:
        return int(self.cluster.world.time() * self.rate * 1000) + self.clock_ahead_ms

    def set_clock(self, ahead_ms: int) -> None:
        self._clock_before.append((self.cluster.world.time(), self.clock_ahead_ms))
        self.clock_ahead_ms = ahead_ms

    def latest_clock_ms(self, memory_s: float) -> int:
        """The latest time that it can have told anybody, by one who forgets within ``memory_s``."""
        since_s = self.cluster.world.time() - memory_s
        ahead_ms = [self.clock_ahead_ms, *(ahead_ms for until_s, ahead_ms in self._clock_before if until_s >= since_s)]
        return self.wall_clock_ms() - self.clock_ahead_ms + max(ahead_ms)

    def ask(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Has the node that runs here do ``work``. GoneError when it ends, or is down."""
        if self._life is None:
            gone = self.cluster.world.create_future()
            gone.set_exception(GoneError())
            return gone
        return self._life.process.ask(work)

    # Lives -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the node is up, refuses to start, or has ended again. Nothing where it was started meanwhile."""
        if self._life is not None:
            return
        self.lives += 1
        cluster = self.cluster
        process = ProcessLoop(cluster.world, rate=self.rate)  # type: ignore[abstract]  # it has what nodes ask for
        disk = SimDisk(
            self.platter,
            self.mood,
            f"boot-{self._boots}",
            world=cluster.world,
            hit=lambda name: cluster.trace.hit(name, self.id),
        )
        life = self._life = Life(self, process, disk)
        cluster.lives.append(life)
        self._starting = True
        try:
            await process.ask(lambda: self._live(life))
        except DLedgerError as refusal:
            if refusal.code is Code.SHUTTING_DOWN and life.is_stopping:
                self._starting = False
                return  # whoever stops it sees to the rest
            # A process that cannot start ends, and is started again by whoever watches over it.
            cluster.trace.hit(f"branch start refused {refusal.code.name}", self.id, refusal)
            is_excused = may_end(self, life, refusal.code)
            self.is_beyond_repair = is_excused and refusal.code is Code.CORRUPT_LOG
            if self._life is life:
                self.crash(power=False)
            if not is_excused:
                raise Violation("a start succeeds", f"{self.id} does not start: {refusal!r}") from refusal
        except GoneError:
            return
        if self._life is life and life.node is not None and life.node.groups.unopened:
            self._give_up(life, life.node.groups.unopened)

    def _give_up(self, life: Life, unopened: dict[str, DLedgerError]) -> None:
        """A group's files cannot be used, and the node goes on with the others. As whoever watches over it would see to
        it, it is stopped, and gets another disk."""
        self.cluster.trace.hit("branch group unopened", self.id, *unopened)
        for group, refusal in unopened.items():
            if not may_end(self, life, refusal.code):
                raise Violation("a group is opened", f"{self.id}: {group} {refusal!r}")
        self.is_beyond_repair = True
        self.crash(power=False)

    async def _live(self, life: Life) -> None:
        cluster = self.cluster
        node = Node(
            cluster.config_of(self),
            disk=life.disk,
            transport=life.transport,
            random=Random(cluster.random.getrandbits(64)),
            wall_clock_ms=self.wall_clock_ms,
        )
        life.observe(node)
        node.add_listener(self._on_role)
        await node.open()
        self._starting = False
        await life.join()
        cluster.trace.note("started", self.id)

    def crash(self, *, power: bool = True) -> None:
        """The process ends at once; with ``power``, the machine forgets what was not synced too."""
        life = self._life
        if life is None:
            return
        for share in life.groups.values():
            share.seat.end(share)
        self._life = None
        self._starting = False
        life.disk.cut_power()
        life.process.end()
        life.transport.crash()
        if power:
            self._forget_what_was_not_synced()
        else:
            self.platter.kill()
        self.cluster.trace.note(
            "crashed", self.id, "power" if power else "kill", *(seat.promised for seat in self.seats)
        )

    def _forget_what_was_not_synced(self) -> None:
        platter, hit = self.platter, self.cluster.trace.hit
        lost, torn = platter.sectors_lost, platter.sectors_torn
        marked = [path for path in platter.durable_paths() if has_mark(platter, path)]
        platter.crash()
        self._boots += 1
        for path in marked:
            if platter.durable(path) is not None and not has_mark(platter, path) and path not in self.rotten_paths:
                raise Violation("a power cut leaves a mark", f"{path} had a sync mark, and has none")
        if platter.sectors_lost > lost:
            hit("fault sectors lost", self.id, platter.sectors_lost - lost)
        if platter.sectors_torn > torn:
            hit("fault torn sector", self.id, platter.sectors_torn - torn)

    def pause(self) -> None:
        self.life.process.pause()

    def resume(self) -> None:
        if self._life is not None and self._life.process.is_paused:
            self._life.process.resume()

    def mend_disk(self) -> None:
        """It has room, and does what it should."""
        self.mood.mend()
        self.platter.capacity_bytes = ROOMY_BYTES
        self.platter.give_back()

    async def stop(self) -> None:
        """A clean stop; after ten seconds the process is killed. Nothing where one is under way."""
        life = self.life
        if life.is_stopping:
            return
        life.is_stopping = True
        try:
            async with asyncio.timeout(STOP_S):
                await life.process.ask(life.stop)
        except TimeoutError:
            if self._life is life:
                self.crash(power=False)
            return
        except (GoneError, OSError):
            if self._life is life:
                self.crash(power=False)
            return
        if self._life is life:
            for share in life.groups.values():
                if share.is_open:
                    share.seat.keep_promise(share)
            self._life = None
            life.process.end()

    # What it says ------------------------------------------------------------------------------------------------

    def says(self, peer: NodeId, message: Message) -> None:
        """To the judge of the message's group."""
        cluster, seat = self.cluster, self.seat(message.group)
        watch = seat.group.watch
        cluster.trace.note("send", seat.name, peer, told(message))
        watch.said(seat, peer, message)
        if isinstance(message, TakeLeadership):
            cluster.on_take(seat, peer)
        if isinstance(message, AppendResponse) and message.result is PushResult.SUCCESS:
            watch.check_ack(seat, cluster.hosts[peer].seat(message.group), message)

    def _on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None:
        seat = self.seat(group)
        self.cluster.trace.note("role", seat.name, role.value, term, leader_id)
        if seat.life.role is Role.LEADER and role is Role.CANDIDATE:
            self.cluster.trace.hit("branch check-quorum", seat.name)
        seat.life.role = role
        if role is Role.LEADER:
            seat.group.watch.elected(seat, seat.group.up())
            self.cluster.on_leader(seat)
