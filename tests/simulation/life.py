"""One life of a node: its process, its disk as that sees it, the node itself, and what it shows of each group."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.common.errors import DLedgerError
from dledger.common.types import DEFAULT_GROUP, GENESIS, NodeId, Position, Role, Term
from dledger.group.group_record import GROUP_RECORD_NAME
from dledger.group.hard_state import HardState
from dledger.group.replica import Replica
from dledger.log.damage.damaged_log import DamagedLog
from dledger.log.file_log import FileLog
from dledger.node.node import Node
from dledger.node.opening import AnyReplica
from tests.simulation.disk import SimDisk
from tests.simulation.machine_truth import SeatMachine
from tests.simulation.machines import TallyOnSeat
from tests.simulation.network import WatchedTransport
from tests.simulation.node_observer import NodeObserver
from tests.simulation.observer import Observer
from tests.simulation.process import ProcessLoop
from tests.simulation.store.seat_store import SeatStore
from tests.simulation.store.store_truth import StoreTruth
from tests.simulation.truth import LogTruth, promised
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.host import SimHost
    from tests.simulation.seat import Seat


class Life:
    """From a start to whatever ends it."""

    def __init__(self, host: SimHost, process: ProcessLoop, disk: SimDisk) -> None:
        self.host = host
        self.process = process
        self.disk = disk
        self.transport = WatchedTransport(host.cluster.network, host, self)
        self.node: Node | None = None
        self.store: SeatStore | None = None
        """What runs here of the store, if that is what the founding group is for."""
        self.is_stopping = False
        self.met: dict[NodeId, str] = {}
        """The disk that each node said hello from last."""
        self.groups: dict[str, GroupLife] = {}
        self.founding = self.of(DEFAULT_GROUP)

    def of(self, group: str) -> GroupLife:
        """What this life shows of the group."""
        life = self.groups.get(group)
        if life is None:
            life = self.groups[group] = GroupLife(self, self.host.seat(group))
        return life

    @property
    def failure(self) -> DLedgerError | None:
        """Why its node cannot go on, also where nothing runs of a group: its process is to be ended."""
        failed = self.node._failed if self.node is not None else None
        return failed.result() if failed is not None and failed.done() else None

    def observe(self, node: Node) -> None:
        """Shows the judges whatever ``node`` tells its logs to do, once it has them. The product does not know."""
        self.node = node
        node.groups.on_called = self._on_called
        NodeObserver(self, node)
        if isinstance(self.founding.seat.group.truth, StoreTruth):
            chance = Random(self.host.cluster.random.getrandbits(64))
            self.store = self.founding.machine = SeatStore(self.founding, node, chance)

    async def join(self) -> None:
        """In its process, as what follows: the node is open."""
        assert self.node is not None
        await self.node.join()
        if self.store is not None:
            self.store.start()

    async def stop(self) -> None:
        assert self.node is not None
        if self.store is not None:
            await self.store.close()
        await self.node.stop()

    def _on_called(self, group: str, _: Term) -> bool:
        """The directory looks at it later."""
        seat = self.host.seat(group)
        seat.is_called = not seat.group.is_removed
        return seat.is_called


class GroupLife:
    """What one life of a node shows of one group."""

    def __init__(self, life: Life, seat: Seat) -> None:
        self._life = life
        self.seat = seat
        self.group = seat.group.name
        self.process = life.process
        self.transport = life.transport
        self.met = life.met
        self.is_open = False
        """Its log is there, and watched."""
        self.failure: DLedgerError | None = None
        """What ended this group here, while the node goes on."""
        self.was_seen_to = False
        """Somebody is about to start the node again for it."""
        self.proven_term = Term(0)
        """The platter was found to hold this one."""
        self.was_cut = False
        """A leader had its log cut, or begin anew."""
        self.cut_to: Position | None = None
        """A cut that goes so far is under way: nothing behind it is promised any more."""
        self.was_damaged = False
        """Its log was opened once a leader, and the others, had seen to what rotted."""
        self.role = Role.FOLLOWER
        self.machine: SeatMachine | None = None
        """What runs here for the group's state machine, from when its log is open."""
        self.replica: Replica
        """Once its log is open."""
        self.truth: LogTruth
        """Once its log is open."""
        self.heard_ms: dict[NodeId, float] = {}
        """When, by its clock, it last took a message of each node."""
        self.asked_ms: dict[NodeId, float] = {}
        """When, by its clock, it last sent each node, as a leader, anything of its log."""
        self.lagging_since_ms: dict[NodeId, float] = {}
        """Since when a follower that could be asked was seen, at every look, to lack some of this leader's log."""
        self.matched: dict[tuple[Term, NodeId], Position] = {}
        """How far what it counts for each node, as a leader, was found to be acknowledged."""
        self.stands_since: tuple[Position, float] | None = None
        """How far it was durable, and since when it was so at every look, while it led, there was more, and others went
        on."""
        self.others_held = 0
        """What a majority without it held, as far as it knew, when its disk was behind at the last look."""
        self.others_moved_ms = 0.0
        """When that was more than before, or all that there was."""
        self.unheard_since_ms: float | None = None
        """Since when it was seen to lead, at every look, without having heard a majority lately."""
        self.seen_members: object = None
        self.seen_membership: object = None
        """When they were looked at last, they were found to be the same."""
        self._hard_state = f"{seat.directory}/hard_state"
        self.record_path = f"{seat.directory}/{GROUP_RECORD_NAME}"

    @property
    def present(self) -> AnyReplica | None:
        """What runs of the group, also while its log is being repaired; None before anything does."""
        node = self._life.node
        return None if node is None else node.groups.replicas.get(self.group) or node.groups.recovering.get(self.group)

    @property
    def node(self) -> Node:
        assert self._life.node is not None
        return self._life.node

    @property
    def disk_uuid(self) -> bytes:
        """Of the disk that the node runs on; asked of its files, as what it tells others of itself is made once."""
        identity = self.node._identity
        assert identity is not None
        return identity.start.node_uuid

    def promises(self) -> HardState:
        """What a power cut now would leave of term and vote."""
        return promised(self.seat.host.platter, self._hard_state)

    def taken(self, replica: AnyReplica) -> None:
        """The node has a replica of the group: the first one, or one that takes the place of another."""
        hit = self.seat.cluster.trace.hit
        seat = self.seat
        if seat.is_removed:
            raise Violation("a removed group stays removed", f"{seat.name} has it again")
        if seat.is_dropping and not self.is_open and replica.log.state.last == GENESIS:
            seat.drop_was_cut_off()
            self._life.groups[self.group] = self
        if seat.was_dropped and replica.log.state.last == GENESIS and replica.core.membership.members:
            raise Violation("who dropped a group founds it no more", f"{seat.name} has an empty log, and members")
        if seat.was_dropped:
            hit("branch dropped group opened again", seat.name)
        seat.is_called = False
        if self.is_open:
            self.seat.keep_promise(self)
            self.is_open = False
            hit("branch stepped aside", self.seat.name)
        if isinstance(replica, Replica):
            self._opened(replica)  # what was damaged was repaired at that moment
        else:
            self.was_damaged = True
            self._observe_cuts(replica.log)
            hit("branch damaged start", self.seat.name)

    def _observe_cuts(self, log: DamagedLog) -> None:
        cut = log.cut

        async def on_cut(after: Position) -> None:
            self.seat.group.watch.cutting_damaged(self.seat, after)
            await cut(after)

        log.cut = on_cut  # type: ignore[method-assign]

    def _opened(self, replica: Replica) -> None:
        log, seat = replica.log, self.seat
        assert isinstance(log, FileLog)
        self.replica = replica
        self.truth = LogTruth(seat.host.platter, log, is_synced=seat.cluster.is_synced)
        self.is_open = True
        Observer(self, log)
        seat.cluster.trace.note("opened", seat.name, log.last, replica.core.term)
        seat.group.watch.restarted(seat, seat.promised)
        self.count_recovery()
        if seat.group.truth is not None and self.machine is None:
            self.machine = TallyOnSeat(self, Random(seat.cluster.random.getrandbits(64)))

    def count_recovery(self) -> None:
        log, hit = self.replica.log, self.seat.cluster.trace.hit
        assert isinstance(log, FileLog)
        if log.recovery.torn_bytes:
            hit("branch tail cut", self.seat.name, log.recovery.torn_bytes)
        if log.recovery.frames_replayed and not log.recovery.clean_stop:
            hit("branch recovery", self.seat.name)
