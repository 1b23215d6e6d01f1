"""One machine's place in one group, over all its lives: what the judge of that group holds it against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from dledger.common.types import GENESIS, LogPoint, Member, NodeId, Position, Role, Term
from dledger.group.replica import Replica
from dledger.log.segment.segment import SEGMENT_SUFFIX
from dledger.raft.state import VoteBlocker
from tests.simulation.platter import Rot
from tests.simulation.truth import dropped_groups, end_of, known_disk, removed_groups
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    import asyncio

    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.groups import SimGroup
    from tests.simulation.host import SimHost
    from tests.simulation.life import GroupLife

T = TypeVar("T")


class Seat:
    """Of ``host`` in ``group``. Whatever happens to the machine's disk happens to all its seats."""

    def __init__(self, host: SimHost, group: SimGroup) -> None:
        self.host = host
        self.group = group
        self.id = host.id
        self.name = host.id if group.is_founding else NodeId(f"{host.id}@{group.name}")
        """What a trace calls it."""
        self.promised: LogPoint = GENESIS
        """No crash may take it: durable by the word of the last life."""
        self.lost_tail = False
        """The end of this log rotted before a power cut, where no mark covered it yet: a start cuts it, and asks the
        others for it."""
        self.was_member = False
        """A machine that was removed from a group is not added to it again, before it has dropped its replica."""
        self.is_called = False
        """A leader has a message for the group, which is not here."""
        self.was_dropped = False
        """The node has said of this disk that it gave up its files of the group."""
        self.is_dropping = False
        """The node was told to drop the group, and has not said that it did."""
        self._drops = 0
        self.is_removed = False
        """The node has said of this disk that the group is gone from it for good."""
        self.settlements = 0
        """How often the node has said that it was caught up."""
        self.is_owing = False
        """The node has said of this disk that it owes a catch-up, and not that it was caught up since."""
        self.was_made_to_owe = False

    @property
    def directory(self) -> str:
        return f"/data/{self.id}/groups/{self.group.name}"

    def disk_replaced(self) -> None:
        """Nothing that was promised is there any more."""
        self.promised = GENESIS
        self.lost_tail = self.is_removed = self.is_owing = self.was_made_to_owe = False
        self.was_dropped = self.is_dropping = self.is_called = False

    @property
    def is_noted_as_dropped(self) -> bool:
        """A start after a power cut would know that the node gave up its files of the group."""
        return self.group.name in dropped_groups(self.host.platter, f"/data/{self.id}/identity")

    def dropped(self) -> None:
        """The node has given up its files of the group, as it was no member any more: nothing binds it that it said in
        the group before. A member again, it begins as another one."""
        if not self.is_noted_as_dropped:
            raise Violation("a drop is noted first", f"{self.name} dropped its files, and a power cut would forget it")
        self.promised = GENESIS
        self.lost_tail = self.is_owing = self.was_made_to_owe = self.is_dropping = self.was_member = False
        self.was_dropped = True
        self._drops += 1
        if self.host.present_life is not None:
            self.host.present_life.groups.pop(self.group.name, None)
        self.cluster.trace.hit("branch replica dropped", self.name)

    def drop_was_cut_off(self) -> None:
        """The node ended between being told to drop its replica and saying that it did. Its log is empty now: the drop
        took it, or there was none before."""
        if self.is_noted_as_dropped or self.promised != GENESIS:
            self.dropped()
        else:
            self.is_dropping = False

    def removed(self) -> None:
        """The node says that the group is gone from its disk for good."""
        self.promised = GENESIS
        self.lost_tail = self.is_owing = False
        self.is_removed = True
        if self.group.name not in removed_groups(self.host.platter, f"/data/{self.id}/identity"):
            raise Violation("a removed group stays removed", f"{self.name} says so, and a power cut would forget it")
        if self.life.machine is not None:
            self.life.machine.stop()
        self.life.is_open = False

    # What it has of its machine ----------------------------------------------------------------------------------

    @property
    def cluster(self) -> SimulatedCluster:
        return self.host.cluster

    @property
    def disk_name(self) -> str:
        """Of the disk, and which replica of the group it is there."""
        return f"{self.host.disk_name}#{self._drops}"

    @property
    def disk_names(self) -> list[str]:
        """Of all that it ever had."""
        return [f"{disk}#{at}" for disk in self.host.disk_names for at in range(self._drops + 1)]

    @property
    def is_rotten(self) -> bool:
        """Something that rotted on the disk is neither repaired nor gone."""
        return self.host.is_rotten

    def ask(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Has the node that runs here do ``work``. GoneError when it ends, or is down."""
        return self.host.ask(work)

    # What it is --------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """The group's log is open here, and the node has started."""
        life = self.host.present_life
        if life is None or self.host.is_starting:
            return False
        share = life.groups.get(self.group.name)
        return share is not None and share.is_open and share.failure is None

    @property
    def is_down(self) -> bool:
        """No node runs here."""
        return self.host.is_down

    @property
    def life(self) -> GroupLife:
        return self.host.life.of(self.group.name)

    @property
    def replica(self) -> Replica:
        return self.life.replica

    @property
    def leads(self) -> bool:
        return self.is_up and self.replica.role is Role.LEADER

    @property
    def term(self) -> Term:
        return self.replica.core.term if self.is_up else Term(0)

    @property
    def has_lease(self) -> bool:
        """By its own clock, and by its own word."""
        return self.is_up and self.replica.core.has_lease(self.host.life.process.time() * 1000)

    @property
    def members(self) -> tuple[Member, ...]:
        """By its log."""
        return self.replica.log.state.members

    def knows(self, peer: NodeId) -> tuple[bytes, int]:
        """Which disk of ``peer``, and which start of it at least, it knows of, whatever befalls it now."""
        return known_disk(self.host.platter, f"/data/{self.id}/peers", self.group.name, peer)

    def describe(self) -> str:
        if not self.is_up:
            return f"{self.name} {self.host.state}"
        replica = self.replica
        return (
            f"{self.name} {'paused ' * self.host.is_paused}{replica.role.value} term {replica.term} "
            f"last {replica.log.last.position} commit {replica.core.commit_position}"
        )

    # What it promises --------------------------------------------------------------------------------------------

    def end(self, life: GroupLife) -> None:
        """``life`` is over, without a clean stop."""
        if life.is_open:
            self.keep_promise(life)
        elif life.was_damaged and not self.group.watch.chronicle.is_committed(
            self.promised.position, self.promised.term
        ):
            self.promised = GENESIS  # a leader may have cut it from the damaged log; the next start finds no damage

    def keep_promise(self, life: GroupLife) -> None:
        log, core = life.replica.log, life.replica.core
        position = log.durable_position if life.cut_to is None else min(log.durable_position, life.cut_to)
        if VoteBlocker.UNKNOWN_TAIL in core.vote_blockers and not life.was_cut and position < self.promised.position:
            return  # it has not asked yet for what is missing
        # A trim that others committed may have moved the start past what this disk holds: nothing is kept up to there.
        is_kept = position >= log.state.start.position
        self.promised = LogPoint(position, log.term_at(position), 0) if is_kept else GENESIS
        self.group.watch.debts.promised_anew(self)

    # What rots ---------------------------------------------------------------------------------------------------

    @property
    def rot(self) -> list[Rot]:
        """What of this group's files is not repaired."""
        return [rot for rot in self.host.present_rot if rot.path.startswith(f"{self.directory}/")]

    @property
    def awaits_repair(self) -> bool:
        """Frames of it rotted, or cannot be read, or both copies of what its log begins with are gone."""
        return self.host.platter.is_unreadable or any(
            rot.path.endswith(SEGMENT_SUFFIX) or rot.path == self.host.lost_beginning for rot in self.rot
        )

    @property
    def is_rotten_before_its_log(self) -> bool:
        """All that rotted lies before the log's start: in segments kept to derive the small state there from, the limit
        (docs/gaps.md) that the damaged segment "stays until the next trim"; or in the one where the log begins, in
        frames that are none of it."""
        rotten = self.rot
        if not (self.is_up and rotten):
            return False
        start = self.replica.log.state.start.position
        segments = self.replica.log._files.segments  # type: ignore[attr-defined]
        before = {each.path for each, after in pairwise(segments) if after.name.base_position <= start + 1}
        return all(each.path in before or self._lies_before(each, rotten, start) for each in rotten)

    def _lies_before(self, rot: Rot, rotten: list[Rot], start: Position) -> bool:
        if not rot.path.endswith(SEGMENT_SUFFIX):
            return False
        was_there = [(each.offset, each.good) for each in rotten if each.path == rot.path]
        return rot.offset + len(rot.good) <= end_of(bytes(rot.file.data), was_there, start)
