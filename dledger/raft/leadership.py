"""What a node knows only while it leads one term: its followers' progress, read rounds, its lease, a handover."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from math import inf

from dledger.common.config import Limits, Timings
from dledger.common.types import GroupSettings, NodeId, Position, Term
from dledger.raft.fitness import Lack, Measure, MemberFacts
from dledger.raft.membership import Membership
from dledger.raft.messages import Heartbeat, MachineReport, Message
from dledger.raft.quorum import quorum_value
from dledger.raft.rendezvous import ranked
from dledger.raft.replication import Progress
from dledger.raft.standstill import OthersProgress

MAX_REPORT_AGE_MS = 3_000
"""A node that reported its state machine longer ago is not given the leadership: it reports once a second."""


@dataclass(slots=True)
class Transfer:
    """A handover under way: appends are refused until it ends."""

    target: NodeId
    deadline_ms: float
    is_sent: bool = False


MAX_STAMP_LEAD_MS = 10_000
"""A record's timestamp may be so far ahead of the clocks of a majority of the voters. A leader with a clock further
ahead warns of it."""


class Leadership:
    """Created with the term and thrown away with it, so nothing of an old term is ever counted.

    The leader is usually a voter and counts itself. It leads on after its own removal, or demotion, was appended. It
    may also lead as a learner that had to stand (``Elections._call``). Everything is counted among the others then.
    """

    def __init__(
        self,
        *,
        group: str,
        term: Term,
        node_id: NodeId,
        membership: Membership,
        last: Position,
        now_ms: float,
        timings: Timings,
        limits: Limits,
        is_connected: Callable[[NodeId], bool],
        doubted: Collection[NodeId] = (),
    ) -> None:
        self.term_start = Position(last + 1)
        """Where the term's no-op stands: only at or above it is anything committed by counting."""
        self.transfer: Transfer | None = None
        self.confirmed_round = 0
        self.needs_machine = False
        """The group has a state machine: a leader must have its state."""
        self._group = group
        self._term = term
        self._node_id = node_id
        self._membership = membership
        self._timings = timings
        self._limits = limits
        self.measure = Measure.of(limits, timings)
        self._is_connected = is_connected
        self._doubted = doubted
        self._request_ids = count(1)
        self._round = 0
        self.own_round = 0
        """The last one that this node has answered itself."""
        self._rounds: deque[tuple[int, float]] = deque()
        """Rounds and when they were sent, from the last one that may be the lease's on."""
        self._lease_round = 0
        self._ends: deque[tuple[float, Position]] = deque([(now_ms, last)])
        """Times, and the log's end at each of them. They go back as far as it matters that a follower lacks frames of
        that time."""
        self._told_to_take = False
        self._agreed_offset_ms: float | None = None
        """The wall clock that a majority has reached, less this node's monotonic one: as it was last known."""
        self._others = OthersProgress(timings.disk_timeout_ms / 2)
        self.followers: dict[NodeId, Progress] = {}
        self.set_membership(membership, last, now_ms)

    # Followers ---------------------------------------------------------------------------------------------------

    def set_membership(self, membership: Membership, last: Position, now_ms: float) -> None:
        """Members that stay keep their ``Progress``, unless another disk was admitted under the id."""
        before = self._membership.members
        self._membership = membership
        followers = {}
        for peer in membership.others(self._node_id):
            progress = self.followers.get(peer)
            if progress is None or _is_another_disk(before[peer].node_uuid, membership.members[peer].node_uuid):
                progress = self._new_progress(peer, last, now_ms)
            followers[peer] = progress
        self.followers = followers

    def forget(self, peer: NodeId, last: Position, now_ms: float) -> None:
        """``peer`` has another disk than before, or the former one again: its earlier answers are void, and it is
        compared anew."""
        if peer in self.followers:
            self.followers[peer] = self._new_progress(peer, last, now_ms)

    def _new_progress(self, peer: NodeId, last: Position, now_ms: float) -> Progress:
        progress = Progress(
            last,
            now_ms,
            window_frames=self._limits.push_window_frames,
            window_bytes=self._limits.push_window_bytes,
            request_ids=self._request_ids,
        )
        progress.counts = peer not in self._doubted
        return progress

    def _counting(self) -> list[Progress]:
        voters = self._membership.voters
        return [progress for peer, progress in self.followers.items() if progress.counts and peer in voters]

    @property
    def self_votes(self) -> bool:
        """Whether this leader is a voter itself."""
        return self._node_id in self._membership.voters

    def _quorum_of(self, own: int, others: Callable[[Progress], int]) -> int:
        values = [others(progress) for progress in self._counting()]
        if self.self_votes:
            values.append(own)
        return quorum_value(values, len(self._membership.voters))

    def quorum_position(self, own_durable: Position) -> Position:
        """What a majority of the voters holds durably, by this leader's knowledge."""
        return Position(self._quorum_of(own_durable, lambda progress: progress.match))

    def hears_quorum(self, now_ms: float) -> bool:
        """Check-quorum: whether a majority, ourselves included, was heard within the shortest election timeout."""
        is_silent = self.measure.is_silent
        heard = [progress for progress in self._counting() if not is_silent(now_ms - progress.contact_ms)]
        return len(heard) + self.self_votes >= self._membership.majority

    def agreed_clock_ms(self, own_ms: int, now_ms: float) -> int:
        """A wall clock that no single wrong clock moves ahead: the time reached by a majority of the voters, each by
        its own clock. It is never later than ``own_ms``, this node's clock. 0 unless a majority was heard lately."""
        heard = [each for each in self._counting() if not self.measure.is_silent(now_ms - each.contact_ms)]
        return min(own_ms, self._clock_of_majority_ms(heard, own_ms, now_ms) or 0)

    def _clock_of_majority_ms(self, among: Iterable[Progress], own_ms: int, now_ms: float) -> int | None:
        """The time that a majority of the voters has reached, by the clocks of ``among`` and this node's own. None
        if these are no majority."""
        told_ms = [int(offset + now_ms) for each in among if (offset := each.clock_offset_ms) is not None]
        if self.self_votes:
            told_ms.append(own_ms)
        if len(told_ms) < self._membership.majority:
            return None
        return quorum_value(told_ms, len(self._membership.voters))

    def know_clocks(self, offsets_ms: Mapping[NodeId, float]) -> None:
        """What the voters told of their wall clocks with their votes: each less this node's monotonic clock."""
        for peer, offset_ms in offsets_ms.items():
            if peer in self.followers:
                self.followers[peer].clock_offset_ms = offset_ms

    def stamp_ms(self, own_ms: int, now_ms: float) -> int:
        """The time for records that are appended now: this node's wall clock. It is at most ``MAX_STAMP_LEAD_MS`` ahead
        of the time reached by a majority of the voters. A timestamp never runs back, so a clock that is years ahead
        would set the time of every later record."""
        agreed_ms = self._clock_of_majority_ms(self._counting(), own_ms, now_ms)
        if agreed_ms is not None:
            self._agreed_offset_ms = agreed_ms - now_ms
        if self._agreed_offset_ms is None:
            return own_ms
        return min(own_ms, int(self._agreed_offset_ms + now_ms) + MAX_STAMP_LEAD_MS)

    def forgive(self, late_ms: float, now_ms: float) -> None:
        """This process stood still for ``late_ms``: its followers get that time again. The lease does not get it, nor
        does a follower that was heard since."""
        for progress in self.followers.values():
            progress.contact_ms = min(progress.contact_ms + late_ms, now_ms)

    # Read rounds -------------------------------------------------------------------------------------------------

    def next_round(self, now_ms: float) -> int:
        """Call it before the round's heartbeats are sent: ``now_ms`` must not be later than that."""
        self._round += 1
        self._rounds.append((self._round, now_ms))
        while self._rounds[0][1] <= now_ms - self._timings.election_timeout_min_ms:
            self._rounds.popleft()  # no lease that begins there lasts until now
        return self._round

    def on_round(self, sender: NodeId, round_number: int, *, keeps_lease: bool = False) -> bool:
        """True when a quorum has now answered a round that was not confirmed yet."""
        if sender == self._node_id:
            self.own_round = round_number
        else:
            progress = self.followers[sender]
            progress.round = max(progress.round, round_number)
            if keeps_lease:
                progress.lease_round = max(progress.lease_round, round_number)
        confirmed = self._quorum_of(self.own_round, lambda progress: progress.round)
        leased = self._quorum_of(self.own_round, lambda progress: progress.lease_round)
        self._lease_round = max(self._lease_round, leased)
        while self._rounds and self._rounds[0][0] < self._lease_round:
            self._rounds.popleft()
        grew = confirmed > self.confirmed_round
        self.confirmed_round = max(self.confirmed_round, confirmed)
        return grew

    def broadcast_heartbeat(self, send: Callable[[NodeId, Message], object], commit: Position) -> None:
        heartbeat = Heartbeat(self._group, self._term, commit, self._round)
        for peer in self.followers:
            send(peer, heartbeat)

    # The lease ---------------------------------------------------------------------------------------------------

    @property
    def lease_until_ms(self) -> float:
        """No other node can have been elected before this time, by this node's clock; −inf when no such time is known.

        ::

            leader     sent ├──────── election_timeout_min × (1 − drift) ────────┤ lease over
                            ╲
            voter            ╲ heard ├───────── election_timeout_min ─────────────────┤ votes again
                                      ╲ answers the round, with ``keeps_lease``

        A majority heard the round after it was sent. Each node of it refuses its vote, also as a candidate of its own,
        for ``election_timeout_min_ms`` on its own monotonic clock. Nothing that it hears ends this promise, and neither
        does a restart, as it starts with that long a silence. Any majority that could elect another shares a voter with
        it. So nobody is elected for that time. During it, this leader's commit position covers everything that was
        acknowledged to anyone.

        The bound: no voter's clock gains on the leader's by more than ``max_clock_drift``. So while a voter's clock
        advances by t, the leader's advances by at least t × (1 − drift). This holds if each clock's rate is within
        drift ÷ 2 of the true one. A quartz drifts by less than 0.02 %, and ntpd slews the monotonic clock by at most
        0.05 %. chrony slews it by up to 8 %, so with leases on set its maxslewrate to 20000 (ppm) or less. A clock that
        stands still while its machine is suspended, or migrated alive, breaks any bound.

        Members that change meanwhile break nothing. The majorities before and after one change share a voter. A node
        that knows of members appended since by this leader has heard it since. A leader that is no voter any more has
        no lease, as a sole remaining voter need not wait.

        A handover lifts the voters' promise, so the lease ends where one begins. A TAKE that was sent may be obeyed
        late: then there is none in this term again.
        """
        if self.transfer is not None or self._told_to_take or not self.self_votes:
            return -inf
        if not self._rounds or self._rounds[0][0] != self._lease_round:
            return -inf
        timings = self._timings
        return self._rounds[0][1] + timings.election_timeout_min_ms * (1 - timings.max_clock_drift)

    # Transfer ---------------------------------------------------------------------------------------------------------

    def begin_transfer(self, target: NodeId, deadline_ms: float) -> None:
        assert self.transfer is None
        self.transfer = Transfer(target, deadline_ms)

    def take_transfer(self, last: Position) -> NodeId | None:
        """The target that is to be told now to take the leadership: it holds everything and was not told yet."""
        transfer = self.transfer
        if transfer is None or transfer.is_sent or self.followers[transfer.target].match < last:
            return None
        transfer.is_sent = self._told_to_take = True
        return transfer.target

    # Nodes to rely on --------------------------------------------------------------------------------------------

    def note_end(self, last: Position, now_ms: float) -> None:
        """Called with every heartbeat: where the log ends now."""
        self._others.look(self.quorum_position(Position(0)), last, now_ms)
        self._ends.append((now_ms, last))
        while self._ends[1][0] < now_ms - self.measure.max_lag_ms:
            self._ends.popleft()

    def others_go_on(self, now_ms: float) -> bool:
        """Whether the other voters' disks work, and have worked for longer than a standstill may last. Then they can do
        without this leader, if its disk stands still. False if too few are there to elect another leader."""
        return self._others.go_on(now_ms)

    def _lag_ms(self, match: Position, now_ms: float) -> float:
        """For how long the log has gone on behind ``match``, at least."""
        return next((now_ms - at_ms for at_ms, end in self._ends if end > match), 0.0)

    def facts(self, last: Position, now_ms: float) -> dict[NodeId, MemberFacts]:
        """What is known of each other member. ``last``: where the leader's log ends."""
        return {
            peer: MemberFacts(
                is_connected=self._is_connected(peer),
                counts=progress.counts,
                lag_frames=last - progress.match if progress.is_compared else None,
                lag_ms=self._lag_ms(progress.match, now_ms),
                silent_ms=now_ms - progress.contact_ms,
                disk=progress.disk,
                may_vote=progress.may_vote,
                machine_lag=self._machine_lag(progress, now_ms),
            )
            for peer, progress in self.followers.items()
        }

    def _machine_lag(self, progress: Progress, now_ms: float) -> int | None:
        if not self.needs_machine:
            return 0
        machine = progress.machine
        if machine is None or not machine.report.next_index or now_ms - machine.heard_ms > MAX_REPORT_AGE_MS:
            return None
        return machine.behind

    def lacks(self, last: Position, now_ms: float) -> dict[NodeId, Lack | None]:
        """Of each other voter, what it lacks for a majority to rest on it; None: nothing."""
        voters = self._membership.voters
        return {peer: self.measure.lack(fact) for peer, fact in self.facts(last, now_ms).items() if peer in voters}

    def lacks_to_lead(self, last: Position, now_ms: float) -> dict[NodeId, Lack | None]:
        """Of each other voter, what it lacks to lead; None: it is fit."""
        measure, facts = self.measure, self.facts(last, now_ms)
        return {peer: measure.lack_to_lead(fact) for peer, fact in facts.items() if peer in self._membership.voters}

    def machine_reports(self) -> dict[NodeId, MachineReport]:
        """The last one of each other voter that counts, in this term."""
        voters = self._membership.voters
        return {
            peer: progress.machine.report
            for peer, progress in self.followers.items()
            if progress.counts and peer in voters and progress.machine is not None
        }

    def follows_quorum(self, last: Position, now_ms: float) -> bool:
        """Whether what was written may yet be committed."""
        facts = self.facts(last, now_ms)
        voters = [peer for peer in self._membership.voters if peer in facts and self.measure.follows(facts[peer])]
        return len(voters) + self.self_votes >= self._membership.majority

    def fit_quorum(self, last: Position, now_ms: float) -> bool:
        """Whether a majority can be relied on, this node as it is."""
        fit = sum(lack is None for lack in self.lacks(last, now_ms).values())
        return fit + self.self_votes >= self._membership.majority

    def fit(self, last: Position, now_ms: float) -> list[NodeId]:
        """The other voters that may lead."""
        return [peer for peer, lack in self.lacks_to_lead(last, now_ms).items() if lack is None]

    def closest(self, among: Iterable[NodeId], settings: GroupSettings | None = None) -> NodeId | None:
        """Of the highest priority, if ``settings`` say of any, the one with the smallest lag; among equals each group
        has an order of its own."""
        priority_of = (settings or GroupSettings()).priority_of
        order = ranked(self._group, among)
        return min(order, key=lambda peer: (-priority_of(peer), -self.followers[peer].match), default=None)

    def preferred(self, among: Iterable[NodeId], settings: GroupSettings) -> NodeId | None:
        """The node that should lead instead of this one: the highest priority above its own; the smallest lag among
        equals. If this leader is no voter, any voter of ``among`` will do."""
        own_priority = settings.priority_of(self._node_id) if self.self_votes else -1
        return self.closest((peer for peer in among if settings.priority_of(peer) > own_priority), settings)


def _is_another_disk(before: bytes, now: bytes) -> bool:
    """The first disk that is named for a member is the one it had."""
    return bool(before) and before != now
