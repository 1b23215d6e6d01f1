"""One group of a simulated cluster: who judges it, and who of the machines is what in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dledger.common.types import DEFAULT_GROUP, Member, NodeId
from dledger.group.replica import Replica
from dledger.server.meta.group_records import GroupMembers
from tests.simulation.journal import Journal, MachineJournal
from tests.simulation.machine_truth import MachineTruth
from tests.simulation.machines import TallyTruth
from tests.simulation.watch import Watch

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.host import SimHost
    from tests.simulation.seat import Seat


class SimGroup:
    """Everything that belongs to one group is asked of it: no judge knows of another group."""

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.is_founding = name == DEFAULT_GROUP
        self.watch = Watch(name, cluster.trace.hit)
        self.journal = Journal()
        self.is_removed = False
        """For good: its nodes are told, one after the other."""
        self.founders: tuple[Member, ...] = ()
        """By the group's record, with their disks; none of the founding group, which is made by configuration."""
        self.known = GroupMembers(())
        """What the directory knows of its members: as a leader told it last."""
        self.truth: MachineTruth[Any] | None = None
        """Of the state machine on the group's log; None: it has none."""
        self.wanted: set[NodeId] = set()
        """Who is to have the group before any change of its members: its founders."""

    def give_machine(self, truth: Callable[[SimGroup], MachineTruth[Any]] = TallyTruth) -> None:
        """From its first record on its log is a state machine's."""
        self.truth = truth(self)
        self.journal = MachineJournal()

    @property
    def voters(self) -> int:
        """By the last committed change of the members."""
        return sum(self.watch.members.values())

    @property
    def seats(self) -> list[Seat]:
        """Of every machine there ever was, members or not."""
        return [host.seat(self.name) for host in self.cluster.hosts.values()]

    def up(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.is_up]

    def leaders(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.leads]

    def voters_of(self, replica: Replica) -> list[SimHost]:
        return [self.cluster.hosts[member.id] for member in replica.log.state.members if member.voter]

    def names(self, node: NodeId) -> bool:
        """Whether the members that were committed last have it; before any were, whether it is a founder."""
        members = self.watch.members
        return node in members if members else node in self.wanted

    def records(self, node: NodeId) -> bool:
        """Whether the directory takes the node for a member."""
        return any(each.id == node for each in self.known.members)

    @property
    def is_record_current(self) -> bool:
        """Whether it knows of the last change that was committed."""
        changes = self.watch.changes
        return not changes or self.known.changed_at >= changes[-1][0]

    def members(self) -> tuple[Member, ...]:
        """By the word of whoever leads; empty while nobody does."""
        leaders = self.leaders()
        return leaders[0].members if leaders else ()

    def settled_members(self) -> tuple[Member, ...]:
        """None while a change of them is not committed: of three voters one may not be any yet."""
        leaders = self.leaders()
        if not leaders or leaders[0].replica.log.state.members_position > leaders[0].replica.core.commit_position:
            return ()
        return leaders[0].members

    def describe(self) -> str:
        return "; ".join(seat.describe() for seat in self.seats)
